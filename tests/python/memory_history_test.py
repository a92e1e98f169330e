# SPDX-License-Identifier: Apache-2.0
"""A CPU run written down by Plimsoll, read by Python's pickle, by PyTorch's viewer and by explain."""

import subprocess
import sys

SCRIPT = """
import importlib.util, pathlib, pickle, sys, torch, plimsoll

path = pathlib.Path(sys.argv[1])
for wrong in (lambda: plimsoll.record_memory_history(), lambda: plimsoll.save_memory_snapshot(path),
              lambda: plimsoll.record_memory_history(-1)):
    try:
        wrong()
        raise SystemExit("no error")
    except plimsoll.InvalidArgumentError:
        pass
plimsoll.install_allocator()
older = torch.ones(3000)
weight = torch.randn(64, 64, requires_grad=True)
plimsoll.record_memory_history()
plimsoll.reset_allocator_statistics()
for _ in range(3):
    torch.relu(weight @ weight).sum().backward()
del older
report = plimsoll.allocator_report()
plimsoll.save_memory_snapshot(path)
plimsoll.record_memory_history(0)

snapshot = pickle.loads(path.read_bytes())
trace, = snapshot["device_traces"]
assert {event["action"] for event in trace} == {"alloc", "free_requested", "free_completed", "segment_alloc",
                                                "segment_free"}
assert any(frame["name"] == "aten::mm" for event in trace for frame in event["frames"])
assert sum(segment["allocated_size"] for segment in snapshot["segments"]) == report.live_bytes
for segment in snapshot["segments"]:
    at = segment["address"]
    for block in segment["blocks"]:
        assert block["address"] == at
        at += block["size"]
    assert at == segment["address"] + segment["total_size"]

viewer = importlib.util.spec_from_file_location(
    "memory_viz", pathlib.Path(torch.__file__).parent / "cuda/_memory_viz.py")
module = importlib.util.module_from_spec(viewer)
viewer.loader.exec_module(module)
assert f"segments: {len(snapshot['segments'])}" in module.segsum(snapshot)
assert "<html>" in module.trace_plot(snapshot) and "<html>" in module.segment_plot(snapshot)

told = plimsoll.explain(str(path))
assert told["peak_allocated_bytes"] == report.peak_bytes, (told["peak_allocated_bytes"], report)
assert told["planned_arena_bytes"] >= told["load_bytes"]
"""


def test_pickle_viewer_and_explain_read_what_was_written_down(tmp_path):
    subprocess.run([sys.executable, "-c", SCRIPT, str(tmp_path / "run.pickle")], check=True)
