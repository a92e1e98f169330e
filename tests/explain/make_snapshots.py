#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes the small snapshots in tests/data/explain: one run, pickled with protocols 2 to 5.

    python tests/explain/make_snapshots.py tests/data/explain

The structure is that of torch.cuda.memory._dump_snapshot. What a reader has to find stands beside
them in expected.json, computed here from the run itself and not from the pickles.
"""

import json
import pickle
import random
import sys
from pathlib import Path

MIB = 1 << 20
BASE = 0x7F0000000000


def frames(names):
    return [{"filename": f"/src/model_{n}.py", "line": 10 + len(n), "name": f"forward_{n}"} for n in names]


class Run:
    """A caching allocator of two segments, with a trace that has lost its beginning."""

    def __init__(self, seed):
        self.random = random.Random(seed)
        self.stacks = [frames(["a", "block", "net"]), frames(["b", "net"]), frames(["loss"])]
        self.trace, self.live, self.time = [], {}, 0
        self.next = [BASE, BASE + 64 * MIB]
        self.reserved = 20 * MIB  # segment 0 stands before the trace
        self.allocated = self.peak_allocated = 0
        self.peak_reserved = self.reserved

    def event(self, action, addr, size, stack):
        self.time += 7
        self.trace.append({"action": action, "addr": addr, "size": size, "stream": 0,
                           "time_us": self.time, "frames": self.stacks[stack]})

    def alloc(self, segment, size, stack, recorded=True):
        addr = self.next[segment]
        self.next[segment] += (size + 511) // 512 * 512
        self.live[addr] = (size, stack, segment)
        self.allocated += size
        self.peak_allocated = max(self.peak_allocated, self.allocated)
        if recorded:
            self.event("alloc", addr, size, stack)
        return addr

    def free(self, addr, completed=True):
        size, stack, _ = self.live[addr]
        self.event("free_requested", addr, size, stack)
        if completed:
            self.event("free_completed", addr, size, stack)
            del self.live[addr]
            self.allocated -= size

    def segment(self, index, address, total):
        blocks, at = [], address
        for addr, (size, stack, owner) in sorted(self.live.items()):
            if owner != index:
                continue
            if addr > at:
                blocks.append({"address": at, "size": addr - at, "requested_size": 0,
                               "state": "inactive", "frames": []})
            rounded = (size + 511) // 512 * 512
            state = "active_pending_free" if addr == self.pending else "active_allocated"
            blocks.append({"address": addr, "size": rounded, "requested_size": size, "state": state,
                           "frames": self.stacks[stack]})
            at = addr + rounded
        if at < address + total:
            blocks.append({"address": at, "size": address + total - at, "requested_size": 0,
                           "state": "inactive", "frames": []})
        return {"device": 0, "address": address, "total_size": total, "stream": 0,
                "segment_type": "large", "allocated_size": sum(b["size"] for b in blocks if b["state"] == "active_allocated"),
                "active_size": 0, "requested_size": 0, "segment_pool_id": (0, 0),
                "is_expandable": False, "frames": [], "blocks": blocks}

    def play(self):
        lost = [self.alloc(0, 100_000 * (i + 1), 0, recorded=False) for i in range(3)]
        kept = [self.alloc(0, 1_000_000, 1)]
        self.free(lost[0])
        self.event("segment_alloc", BASE + 64 * MIB, 32 * MIB, 1)
        self.reserved += 32 * MIB
        self.peak_reserved = self.reserved
        kept += [self.alloc(1, self.random.randrange(1, 900_000), self.random.randrange(3)) for _ in range(20)]
        self.free(lost[1])
        for addr in kept[3:12]:
            self.free(addr)
        self.event("oom", 0, 10**9, 2)
        self.trace[-1]["device_free"] = 12345
        kept.append(self.alloc(1, 77, 2))
        self.pending = kept[14]
        self.free(self.pending, completed=False)
        self.event("segment_alloc", BASE + 128 * MIB, 2 * MIB, 0)
        self.peak_reserved = max(self.peak_reserved, self.reserved + 2 * MIB)
        self.event("segment_free", BASE + 128 * MIB, 2 * MIB, 0)
        self.event("snapshot", 0, 0, 0)
        self.trace[-1]["something_new"] = {"nested": (1, 2.5, None, True)}
        snapshot = {"segments": [self.segment(0, BASE, 20 * MIB), self.segment(1, BASE + 64 * MIB, 32 * MIB)],
                    "device_traces": [self.trace, []],
                    "allocator_settings": {"PYTORCH_CUDA_ALLOC_CONF": "", "expandable_segments": False},
                    "external_annotations": []}
        expected = {"peak_allocated_bytes": self.peak_allocated, "peak_reserved_bytes": self.peak_reserved,
                    "events": len(self.trace), "truncated": True,
                    "blocks": sum(e["action"] == "alloc" for e in self.trace) + 3}
        return snapshot, expected


def main():
    folder = Path(sys.argv[1])
    snapshot, expected = Run(5).play()
    for protocol in (2, 3, 4, 5):
        (folder / f"snapshot_protocol_{protocol}.pickle").write_bytes(pickle.dumps(snapshot, protocol))
    (folder / "expected.json").write_text(json.dumps(expected, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
