#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs `plimsoll explain` as a user does, and reads what it writes with PyTorch's own viewer code.

    python tests/explain/viewer_test.py PROGRAM DATA

Where PyTorch is not installed the structure is checked here alone.
"""

import importlib.util
import json
import pickle
import subprocess
import sys
import tempfile
from pathlib import Path

PROGRAM, DATA = sys.argv[1], Path(sys.argv[2])
# What the viewer on the web carries out.
WEB_OPCODES = set("e h J K M } ] j ( u . a q X ) N G t r l d s".split())
WEB_OPCODES |= {"\x80", "\x86", "\x85", "\x87", "\x88", "\x89", "\x8a", "\x8c", "\x94", "\x95"}


def run(*arguments):
    return subprocess.run([PROGRAM, "explain", *map(str, arguments)], capture_output=True, text=True, check=False)


def viewer():
    """PyTorch's _memory_viz, without importing PyTorch itself."""
    spec = importlib.util.find_spec("torch")
    if spec is None or spec.origin is None:
        return None
    path = Path(spec.origin).parent / "cuda/_memory_viz.py"
    spec = importlib.util.spec_from_file_location("memory_viz", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def check_snapshot(path, arena):
    import pickletools
    data = path.read_bytes()
    used = {opcode.code for opcode, _, _ in pickletools.genops(data)}
    assert used <= WEB_OPCODES, f"opcodes the web viewer does not know: {used - WEB_OPCODES}"
    snapshot = pickle.loads(data)
    segment, = snapshot["segments"]
    assert segment["total_size"] == arena
    at = segment["address"]
    for block in segment["blocks"]:
        assert block["address"] == at and block["size"] > 0
        assert block["state"] in ("active_allocated", "active_pending_free", "inactive")
        at += block["size"]
    assert at == segment["address"] + segment["total_size"]
    module = viewer()
    if module is None:
        print("PyTorch is not installed: its viewer was not asked")
        return
    assert "segments: 1" in module.segsum(snapshot)
    assert "TOTAL MEM" in module.trace(snapshot)
    assert "<html>" in module.trace_plot(snapshot) and "<html>" in module.segment_plot(snapshot)


def main():
    expected = json.loads((DATA / "expected.json").read_text(encoding="utf-8"))
    with tempfile.TemporaryDirectory() as folder:
        folder = Path(folder)
        for protocol in (2, 3, 4, 5):
            result = run(DATA / f"snapshot_protocol_{protocol}.pickle", "--json", "-", "--quiet",
                         "--html", folder / "r.html", "--save-plan", folder / "p.csv",
                         "--save-snapshot", folder / "s.pickle")
            assert result.returncode == 0, result.stderr
            answer = json.loads(result.stdout)
            for key, value in expected.items():
                assert answer[key] == value, (key, answer[key], value)
            for key in ("load_bytes", "planned_arena_bytes", "fragmentation_bytes"):
                assert isinstance(answer[key], int)
            assert answer["top"][0]["frames"] and answer["top"][0]["bytes"] > 0
            assert (folder / "p.csv").read_text(encoding="utf-8").count("\n") == answer["blocks"] + 1
            assert "<svg" in (folder / "r.html").read_text(encoding="utf-8")
            check_snapshot(folder / "s.pickle", answer["planned_arena_bytes"])
        bad = folder / "bad.pickle"
        bad.write_bytes(pickle.dumps(print))
        result = run(bad)
        assert result.returncode == 2 and "GLOBAL" in result.stderr and "byte " in result.stderr, result.stderr
        for arguments in (["/no/such/file"], [folder], [bad, "--align", "3"], [bad, "--device", "-2"],
                          [DATA / "snapshot_protocol_4.pickle", "--device", "9"],
                          [DATA / "snapshot_protocol_4.pickle", "--html", "/no/such/folder/x"]):
            result = run(*arguments)
            assert result.returncode == 2, (arguments, result.returncode, result.stderr)
            assert result.stderr.count("\n") == 1 or "--help" in result.stderr, result.stderr
    print("ok")


if __name__ == "__main__":
    main()
