# SPDX-License-Identifier: Apache-2.0
"""Sessions as objects: how they begin, end, refuse, and report."""

import multiprocessing
import os
import signal
import subprocess
import sys
import threading

import pytest
import torch
from torch import nn

import plimsoll
from equality import Program, assert_equals_stock, first_difference, frozen, model_state, run_stock


def deep_mlp():
    torch.manual_seed(3)
    layers = [nn.Sequential(nn.Linear(256, 256), nn.BatchNorm1d(256), nn.GELU(), nn.Dropout(0.1))
              for _ in range(8)]
    model = nn.Sequential(*layers, nn.Linear(256, 10))
    optimizer = torch.optim.AdamW(model.parameters(), 1e-3)
    x, y = torch.randn(256, 256), torch.randint(0, 10, (256,))

    def step():
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        return loss.item()

    return Program(step, lambda: model_state(model, optimizer))


@pytest.mark.parametrize("share", [0.6, 0.3, 0.15])
def test_an_unchanged_step_equals_stock_at_a_share_of_its_peak(share):
    assert_equals_stock(deep_mlp, share)


def test_a_decorated_function_runs_in_a_session_of_its_own_each_time():
    @plimsoll.session("8MiB")
    def doubled(values):
        """Doubles."""
        assert plimsoll._sessions.current() is not None
        return values * 2

    assert doubled.__doc__ == "Doubles."
    for _ in range(2):
        assert doubled(torch.ones(3)).tolist() == [2.0, 2.0, 2.0]


def test_a_report_prints_as_a_table_and_stays_readable_after_the_session():
    with plimsoll.session("1MiB") as session:
        with session.step():
            torch.ones(1000) + 1
    report = session.report()
    assert report.budget_bytes == 1 << 20
    assert report.steps == 1 and report.operators >= 1
    assert 8000 <= report.peak_bytes <= 1 << 20
    lines = str(report).splitlines()
    assert lines[0].split() == ["budget_bytes", "1,048,576", "1.00", "MiB"]
    assert set(report.as_dict()) >= {"peak_bytes", "peak_op", "lower_bound_bytes", "pinned_by"}


@pytest.mark.parametrize("budget", [0, -1, "0", "-4GiB", "4 parsecs", "", True, 1.5, None, 1 << 70, "33%", "min"])
def test_a_wrong_budget_is_refused_by_a_value_error_that_names_it(budget):
    with pytest.raises((ValueError, TypeError, OverflowError), match="budget|int"):
        plimsoll.session(budget)


@pytest.mark.parametrize(
    "arguments, kind, text",
    [({"level": "fast"}, ValueError, "auto"), ({"level": "captured"}, NotImplementedError, "auto"),
     ({"level": "allocator"}, ValueError, "install_allocator"),
     ({"device": "cuda"}, NotImplementedError, "CPU"), ({"host_limit": 0}, ValueError, "host_limit")])
def test_what_cannot_be_is_refused_with_what_can(arguments, kind, text):
    with pytest.raises(kind, match=text):
        plimsoll.session("1MiB", **arguments)


def test_a_spill_folder_that_cannot_be_used_is_refused(tmp_path):
    with pytest.raises((ValueError, OSError), match="missing"):
        with plimsoll.session("1MiB", spill=tmp_path / "missing"):
            pass


def test_an_operator_that_does_not_fit_is_torchs_out_of_memory_error_with_figures():
    x = torch.ones(1 << 20)
    with plimsoll.session("1MiB") as session:
        with pytest.raises(torch.OutOfMemoryError, match="aten::sigmoid") as caught:
            with session.step():
                torch.sigmoid(x)
        assert isinstance(caught.value, plimsoll.BudgetExceededError)
        assert caught.value.budget_bytes == 1 << 20
        assert caught.value.minimum_budget_bytes >= 4 << 20
        assert caught.value.pinned_by == "aten::sigmoid"
    assert bool((x == 1).all())


@pytest.mark.parametrize("budget", [1, 63])
def test_a_budget_below_one_block_is_the_same_error(budget):
    x = torch.ones(4)
    with plimsoll.session(budget) as session:
        with pytest.raises(plimsoll.BudgetExceededError, match="aten::sigmoid") as caught:
            with session.step():
                torch.sigmoid(x)
    assert caught.value.budget_bytes == budget
    assert caught.value.minimum_budget_bytes >= 64
    assert x.tolist() == [1.0] * 4


def test_a_program_that_retries_smaller_can_catch_the_error_inside_the_step():
    with plimsoll.session("1MiB") as session:
        with session.step():
            try:
                torch.ones(1 << 20)
            except torch.OutOfMemoryError:
                small = torch.ones(1 << 10)
    assert small.sum().item() == 1 << 10


def test_a_second_session_is_refused_while_one_is_open():
    with plimsoll.session("1MiB"):
        with pytest.raises(ValueError, match="already"):
            with plimsoll.session("1MiB"):
                pass
    with plimsoll.session("1MiB"):
        pass


def test_two_sessions_in_turn_go_on_where_the_other_ended():
    expected, peak = run_stock(deep_mlp, 4)
    torch.manual_seed(1)
    program = deep_mlp()
    results = []
    for share in (0.3, 0.6):
        with plimsoll.session(int(peak * share)) as session:
            for _ in range(2):
                with session.step():
                    result = program.step()
                results.append(frozen(result))
            assert session.report().peak_bytes <= int(peak * share)
    assert first_difference(expected, [results, frozen(program.state())]) == ""


def test_steps_that_alternate_are_planned_once_for_each_step_they_come_after():
    torch.manual_seed(0)
    model = nn.Sequential(*[nn.Linear(128, 128) for _ in range(6)])
    optimizer = torch.optim.AdamW(model.parameters(), 1e-3)
    x = torch.randn(64, 128)
    plans = []
    with plimsoll.session("700KiB") as session:
        for _ in range(6):
            for is_last in (False, False, True):  # gradients accumulate over three steps
                with session.step():
                    model(x).square().mean().backward()
                    if is_last:
                        optimizer.step()
                        optimizer.zero_grad()
            plans.append(session.report().plans_made)
        assert session.report().offloaded_bytes > 0
    assert plans[0] == 3 and plans[2:] == [plans[2]] * 4, plans


def test_a_session_may_begin_again():
    session = plimsoll.session("1MiB")
    x = torch.ones(1000)
    for count in range(1, 3):
        with session, session.step():
            x.add_(1)
        assert not session.is_open and x[0].item() == 1 + count


def test_a_step_inside_of_a_step_is_refused():
    with plimsoll.session("1MiB") as session, session.step():
        with pytest.raises(ValueError, match="open already"):
            with session.step():
                pass


def test_a_step_outside_of_its_session_is_refused():
    session = plimsoll.session("1MiB")
    with pytest.raises(ValueError, match="not open"):
        with session.step():
            pass


def test_another_thread_cannot_step_and_runs_as_stock():
    seen = {}
    with plimsoll.session("64KiB") as session:
        def other():
            try:
                with session.step():
                    pass
            except ValueError as error:
                seen["error"] = str(error)
            seen["sum"] = torch.ones(1 << 20).sum().item()

        thread = threading.Thread(target=other)
        with session.step():
            thread.start()
            thread.join()
    assert "another" in seen["error"]
    assert seen["sum"] == 1 << 20


def test_a_step_that_raises_leaves_every_tensor_and_the_next_step_whole():
    def make():
        program = deep_mlp()
        calls = [0]
        inner = program.step

        def step():
            calls[0] += 1
            try:
                result = inner()
                if calls[0] == 2:
                    raise RuntimeError("user code")
            except RuntimeError:
                result = "raised"
            return result

        program.step = step
        return program

    assert_equals_stock(make, 0.3, 4)
    expected, peak = run_stock(deep_mlp, 3)
    torch.manual_seed(1)
    program = deep_mlp()
    with plimsoll.session(int(peak * 0.3)) as session:
        for count in range(3):
            try:
                with session.step():
                    program.step()
                    if count == 1:
                        raise KeyError("after the step's work")
            except KeyError:
                pass
    assert first_difference(expected[1], frozen(program.state())) == ""


def test_operators_in_a_pause_are_not_seen():
    with plimsoll.session("64KiB") as session:
        with session.step():
            torch.ones(10) + 1
        with session.pause():
            assert torch.ones(1 << 20).sum().item() == 1 << 20
        with session.step():
            with pytest.raises(ValueError, match="step is open"):
                with session.pause():
                    pass
            with pytest.raises(torch.OutOfMemoryError):
                torch.ones(1 << 20)


def test_ctrl_c_inside_a_step_ends_step_and_session_cleanly():
    with pytest.raises(KeyboardInterrupt):
        with plimsoll.session("1MiB") as session:
            with session.step():
                x = torch.ones(100)
                signal.raise_signal(signal.SIGINT)
    assert not session.is_open
    assert x.sum().item() == 100
    with plimsoll.session("1MiB"):
        pass


def test_ctrl_c_at_any_bytecode_leaves_no_session_open():
    # Interrupts at every line and call event of the code around a session, one after another.
    original = torch.Tensor.data_ptr

    def work():
        with plimsoll.session("1MiB") as session:
            for _ in range(2):
                with session.step():
                    torch.ones(100) + 1

    def interrupting(at):
        count = [0]

        def trace(frame, event, argument):
            count[0] += 1
            if count[0] == at:
                sys.settrace(None)
                raise KeyboardInterrupt
            return trace

        return trace

    at = 1
    while True:
        sys.settrace(interrupting(at))
        try:
            work()
            sys.settrace(None)
            break
        except KeyboardInterrupt:
            pass
        finally:
            sys.settrace(None)
        assert plimsoll._sessions.current() is None or not plimsoll._sessions.current().is_open
        assert torch.Tensor.data_ptr is original
        # The first and most delicate ones singly, the many that follow (replacing methods) in strides.
        at += 1 if at < 60 else 11
    assert at > 60
    with plimsoll.session("1MiB"):
        pass


def child_of_fork(queue, weight):
    try:
        with inherited.step():
            pass
        queue.put("no error")
    except NotImplementedError as error:
        queue.put(str(error))
    queue.put(torch.ones(1000).sum().item())
    with plimsoll.session("1MiB") as own, own.step():
        queue.put((torch.ones(10) * 2).sum().item())


inherited = None


def test_a_forked_child_has_no_session_and_says_so():
    global inherited
    context = multiprocessing.get_context("fork")
    with plimsoll.session("1MiB") as session:
        inherited = session
        with session.step():
            weight = torch.ones(100) + 1
        queue = context.Queue()
        child = context.Process(target=child_of_fork, args=(queue, weight))
        child.start()
        assert "forked" in queue.get(timeout=60)
        assert queue.get(timeout=60) == 1000
        assert queue.get(timeout=60) == 20
        child.join(60)
        assert child.exitcode == 0
        with session.step():
            assert (weight * 2).sum().item() == 400


def child_of_spawn(queue):
    torch.manual_seed(1)
    program = deep_mlp()
    torch.set_num_threads(2)
    with plimsoll.session("6MiB") as session:
        with session.step():
            loss = program.step()
        queue.put((loss, session.report().peak_bytes))


def test_a_spawned_child_begins_a_session_of_its_own():
    context = multiprocessing.get_context("spawn")
    expected, _ = run_stock(deep_mlp, 1)
    with plimsoll.session("1MiB") as session:
        queue = context.Queue()
        child = context.Process(target=child_of_spawn, args=(queue,))
        child.start()
        loss, peak = queue.get(timeout=120)
        child.join(60)
        assert child.exitcode == 0
        with session.step():
            assert torch.ones(100).sum().item() == 100
    assert loss == expected[0][0] and 0 < peak <= 6 << 20


class Squares(torch.utils.data.Dataset):
    def __len__(self):
        return 8

    def __getitem__(self, index):
        return torch.full((4,), float(index)) ** 2


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_data_loader_workers_run_beside_a_session(method):
    loader = torch.utils.data.DataLoader(Squares(), batch_size=4, num_workers=1,
                                         multiprocessing_context=method)
    with plimsoll.session("1MiB") as session:
        sums = []
        for batch in loader:
            with session.step():
                sums.append((batch * 2).sum().item())
    assert sums == [2 * 4 * sum(i * i for i in range(4)), 2 * 4 * sum(i * i for i in range(4, 8))]


def test_another_torch_at_import_is_one_clear_sentence(tmp_path):
    fake = tmp_path / "torch"
    fake.mkdir()
    (fake / "__init__.py").write_text("__version__ = '2.3.1'\n")
    environment = {**os.environ, "PYTHONPATH": f"{tmp_path}{os.pathsep}{os.environ.get('PYTHONPATH', '')}"}
    run = subprocess.run([sys.executable, "-c", "import plimsoll"], env=environment, capture_output=True,
                         text=True, check=False)
    last = run.stderr.strip().splitlines()[-1]
    assert last.startswith("ImportError: plimsoll") and "2.3.1" in last and "reinstall" in last


def test_the_allocator_counts_limits_and_names():
    script = """
import torch, plimsoll
plimsoll.install_allocator(limit="64MiB")
x = torch.ones(1 << 20)
report = plimsoll.allocator_report()
assert report.live_bytes == 4 << 20, report
assert report.limit_bytes == 64 << 20
try:
    torch.ones(1 << 25)
    raise SystemExit("no error")
except torch.OutOfMemoryError as error:
    assert "requested 134217728 bytes" in str(error), error
assert plimsoll.allocator_report().refused == 1
assert torch.ones(10).sum().item() == 10
"""
    subprocess.run([sys.executable, "-c", script], check=True)


def test_spilled_bytes_come_back_the_same(tmp_path):
    expected, peak = run_stock(deep_mlp, 3)
    torch.manual_seed(1)
    program = deep_mlp()
    with plimsoll.session(int(peak * 0.3), host_limit="256KiB", spill=tmp_path) as session:
        for _ in range(3):
            with session.step():
                program.step()
        report = session.report()
    assert report.file_bytes > 0
    assert first_difference(expected[1], frozen(program.state())) == ""
