# SPDX-License-Identifier: Apache-2.0
"""Threads beside a session: whose tensors end on them, who hold the interpreter's lock, who save."""

import subprocess
import sys
import threading

import pytest
import torch

import plimsoll

# A storage that Python alone refers to is moved by taking a reference to its Python object, for which
# the interpreter's lock is needed; the other thread holds that when its storages end.
PYTHON_ALONE = """
import collections, sys, threading
import torch, plimsoll

sys.setswitchinterval(1e-5)
storages, is_over = collections.deque(), False

def drop():
    while storages or not is_over:
        if storages:
            storages.pop()

dropper = threading.Thread(target=drop)
dropper.start()
with plimsoll.session("1MiB") as session:
    for i in range(40):
        with session.step():
            alone = []
            for _ in range(8):
                storages.extend([(torch.zeros(64) + 1).untyped_storage() for _ in range(20)])
                # Makes room for itself: one of the storages before it leaves.
                alone.append((torch.zeros(65536) + i).untyped_storage())
            for storage in alone:
                value = torch.empty(0).set_(storage)[7].item()
                assert value == i, (value, i)
    is_over = True
    dropper.join()
    assert session.report().peak_bytes <= 1 << 20
"""


def test_storages_that_python_alone_holds_are_moved_while_others_end_on_another_thread():
    subprocess.run([sys.executable, "-c", PYTHON_ALONE], check=True, timeout=120)


def test_reports_from_another_thread_are_read_while_steps_run():
    reports, stop = [], threading.Event()
    with plimsoll.session("1MiB") as session:
        def watch():
            while not stop.is_set():
                reports.append(session.report().peak_bytes)

        watcher = threading.Thread(target=watch)
        watcher.start()
        kept = [torch.zeros(65536) for _ in range(8)]
        for _ in range(50):
            with session.step():
                for tensor in kept:
                    tensor.add_(1)
        stop.set()
        watcher.join(60)
        assert not watcher.is_alive()
    assert reports and max(reports) <= 1 << 20
    assert all(bool((tensor == 50).all()) for tensor in kept)


@pytest.mark.parametrize("shared", [False, True])
def test_tensors_of_other_threads_are_left_alone(shared):
    # Tensors of the session that a thread outside of it reads through NumPy stay at their address.
    with plimsoll.session("1MiB") as session:
        tensors = [torch.full((65536,), float(i)) for i in range(8)]
        outside = torch.zeros(1 << 20)
        arrays = [tensors[0].numpy()] if shared else []
        seen = []

        def work():
            for _ in range(50):
                outside.add_(1)
                seen.extend(float(array[-1]) for array in arrays)

        thread = threading.Thread(target=work)
        thread.start()
        for _ in range(30):
            with session.step():
                for tensor in tensors[1:]:
                    tensor.add_(1)
        thread.join()
        assert not session.holds(outside)
    assert bool((outside == 50).all())
    assert all(value == 0.0 for value in seen) and len(seen) == (50 if shared else 0)
