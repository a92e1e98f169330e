# SPDX-License-Identifier: Apache-2.0
"""Exactly rounded pointwise operators on tensors larger than the budget: the same bits as stock."""

import contextlib

import pytest
import torch

import plimsoll
from equality import first_difference, frozen

BUDGET = 1 << 20
COUNT = 400_003  # floats: 1.6 MB, and no multiple of anything


def operands(dtype, generator):
    def one():
        values = torch.randn(COUNT, generator=generator) * 3
        return values.to(dtype)

    return one(), one(), one().abs() + 1


OPERATORS = {
    "add": lambda a, b, c: torch.add(a, b, alpha=0.3 if a.is_floating_point() else 3),
    "add number": lambda a, b, c: a + 2,
    "add in place": lambda a, b, c: a.add_(b),
    "sub": lambda a, b, c: a - b,
    "rsub": lambda a, b, c: 1 - a,
    "mul": lambda a, b, c: a * b,
    "mul in place": lambda a, b, c: a.mul_(3),
    "mul by a tensor's number": lambda a, b, c: a * torch.tensor(0.7),
    "div": lambda a, b, c: a / c,
    "div by number": lambda a, b, c: a / 3,
    "div floor": lambda a, b, c: torch.div(a, c, rounding_mode="floor"),
    "sqrt": lambda a, b, c: c.sqrt(),
    "sqrt in place": lambda a, b, c: c.sqrt_() if c.is_floating_point() else c.sqrt(),
    "addcmul": lambda a, b, c: torch.addcmul(a, b, c, value=0.1 if a.is_floating_point() else 2),
    "addcdiv in place": lambda a, b, c: a.addcdiv_(b, c, value=-0.01) if a.is_floating_point() else a,
    "lerp": lambda a, b, c: torch.lerp(a, b, 0.1) if a.is_floating_point() else a,
    "lerp in place": lambda a, b, c: a.lerp_(b, 0.9) if a.is_floating_point() else a,
    "clamp": lambda a, b, c: a.clamp(-1, 1),
    "maximum": lambda a, b, c: torch.maximum(a, b),
    "neg": lambda a, b, c: -a,
    "abs": lambda a, b, c: a.abs(),
    "reciprocal": lambda a, b, c: c.reciprocal(),
    "relu in place": lambda a, b, c: a.relu_(),
    "clone": lambda a, b, c: a.clone(),
    "copy": lambda a, b, c: a.copy_(b),
    "zero": lambda a, b, c: a.zero_(),
    "out": lambda a, b, c: torch.add(a, b, out=c),
    "zeros_like": lambda a, b, c: torch.zeros_like(a, memory_format=torch.preserve_format),
    "full_like of another type": lambda a, b, c: torch.full_like(a, 2, dtype=torch.float64),
    "clone of a view": lambda a, b, c: a[:-3].clone(),
    "a view in place": lambda a, b, c: a[5:].mul_(2),
}


KINDS = [*((torch.float32, threads) for threads in (1, 2, 4)), *((torch.bfloat16, threads) for threads in (1, 2, 4)),
         (torch.float64, 2), (torch.float16, 2), (torch.int32, 2)]


@pytest.mark.parametrize("dtype, threads", KINDS, ids=[f"{str(d)[6:]}-{t}" for d, t in KINDS])
@pytest.mark.parametrize("name", OPERATORS)
def test_chunks_equal_stock(name, dtype, threads):
    torch.set_num_threads(threads)
    if dtype is torch.bfloat16 or dtype is torch.float16:
        budget = BUDGET // 2
    else:
        budget = BUDGET

    def run(inside):
        values = operands(dtype, torch.Generator().manual_seed(4))
        if not inside:
            return frozen([OPERATORS[name](*values), values])
        with plimsoll.session(budget) as session:
            with session.step():
                result = OPERATORS[name](*values)
            assert session.report().peak_bytes <= budget
        return frozen([result, values])

    assert first_difference(run(False), run(True)) == ""


@pytest.mark.parametrize("optimizer, flags", [(torch.optim.AdamW, {}), (torch.optim.AdamW, {"amsgrad": True}),
                                              (torch.optim.SGD, {"momentum": 0.9, "weight_decay": 0.1})])
def test_an_optimizer_of_a_weight_beyond_the_budget_equals_stock(optimizer, flags):
    def run(budget):
        generator = torch.Generator().manual_seed(2)
        weight = torch.nn.Parameter(torch.randn(700, 600, generator=generator))
        chosen = optimizer([weight], lr=0.01, foreach=False, **flags)
        gradients = [torch.randn(700, 600, generator=generator) for _ in range(4)]

        def steps(around):
            for gradient in gradients:
                weight.grad = gradient
                with around():
                    chosen.step()

        if budget is None:
            steps(contextlib.nullcontext)
        else:
            with plimsoll.session(budget) as session:
                steps(session.step)
                assert session.report().peak_bytes <= budget
        return frozen([weight, chosen.state_dict()["state"]])

    # Half a weight: stock's way needs three at once.
    assert first_difference(run(None), run(700 * 600 * 4 // 2)) == ""


@pytest.mark.parametrize("limit", ["512KiB", "16MiB"])
def test_chunks_are_streamed_from_the_tiers_below(limit, tmp_path):
    x, y = torch.randn(COUNT), torch.randn(COUNT)
    expected = frozen([(x + 1) * y, x.clone().mul_(3)])
    with plimsoll.session(BUDGET, host_limit=limit, spill=tmp_path) as session:
        with session.step():
            product = (x + 1) * y
            x.mul_(3)
        report = session.report()
        assert session.holds(x) and session.holds(product)
        # What is larger than the budget waits whole in host memory or in the file, and nowhere else.
        assert report.host_bytes + report.file_bytes >= 3 * 4 * COUNT
        assert report.host_bytes <= {"512KiB": 512 << 10, "16MiB": 16 << 20}[limit]
        assert (report.file_bytes > 0) == (limit == "512KiB")
        assert report.peak_bytes <= BUDGET
    assert first_difference(expected, frozen([product, x])) == ""


def test_what_is_larger_than_the_budget_can_be_read_between_steps():
    x = torch.zeros(COUNT)
    with plimsoll.session(BUDGET) as session:
        for count in range(1, 3):
            with session.step():
                x.add_(1)
            assert x[-1].item() == count and x.sum().item() == count * COUNT
        assert session.report().peak_bytes <= BUDGET


def test_a_full_tier_is_an_error_that_leaves_every_tensor():
    x = torch.randn(COUNT)
    before = frozen(x)
    with plimsoll.session(BUDGET, host_limit="64KiB") as session:
        with pytest.raises(torch.OutOfMemoryError, match="outside of the budget"):
            with session.step():
                x + 1
    assert first_difference(before, frozen(x)) == ""


def test_results_do_not_depend_on_the_number_of_threads():
    def run(threads):
        torch.set_num_threads(threads)
        a, b, c = operands(torch.float32, torch.Generator().manual_seed(4))
        with plimsoll.session(BUDGET // 4) as session, session.step():
            a.lerp_(b, 0.1)
            b.mul_(0.999).addcmul_(a, a, value=0.001)
            c.addcdiv_(a, b.abs().sqrt_().add_(1e-8), value=-0.01)
        return frozen([a, b, c])

    one = run(1)
    assert first_difference(one, run(2)) == "" and first_difference(one, run(4)) == ""


def test_what_is_not_exactly_rounded_runs_whole_or_is_refused():
    x = torch.randn(COUNT)
    with plimsoll.session(BUDGET) as session:
        with pytest.raises(torch.OutOfMemoryError, match="sigmoid"):
            with session.step():
                torch.sigmoid(x)


def test_a_broadcast_or_transposed_operand_is_refused_not_miscomputed():
    x, row = torch.randn(600, 700), torch.randn(700)
    with plimsoll.session(BUDGET) as session:
        for other in (row, x.t().contiguous().t()):
            with pytest.raises(torch.OutOfMemoryError):
                with session.step():
                    x + other
