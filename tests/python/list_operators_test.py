# SPDX-License-Identifier: Apache-2.0
"""Every operator over lists that the dispatcher has, in slices: the same bits as stock.

Eight entries of 64 KiB and two small ones; the budget of 1 MiB makes slices of one entry each, and
a whole call would not fit.
"""

import inspect

import pytest
import torch

import plimsoll
from equality import first_difference, frozen

SIZES = [16384, 7, 16384, 16384, 16384, 1, 16384, 16384, 16384, 16384]
BUDGET = 1 << 20
PREFIXES = ("aten::_foreach_", "aten::_fused_", "aten::_amp_")
# In a text, since the test's name is made from it.
NAMES = sorted(name for name in torch._C._dispatch_get_all_op_names() if name.startswith(PREFIXES))


def schema_of(name):
    base, _, overload = name.partition(".")
    return torch._C._get_schema(base, overload)


def call(name, arguments):
    base, _, overload = name.partition(".")
    packet = getattr(torch.ops.aten, base.removeprefix("aten::"))
    positional = [value for _, value, is_keyword in arguments if not is_keyword]
    keywords = {key: value for key, value, is_keyword in arguments if is_keyword}
    return getattr(packet, overload or "default")(*positional, **keywords)


def goes_by_list(schema):
    return any(str(argument.type) == "List[Tensor]" for argument in schema.arguments)


def value_for(schema, argument, index, generator):
    kind = str(argument.type)
    name = argument.name
    if kind == "List[Tensor]":
        if name in ("max_exp_avg_sqs", "momentum_buffer_list") and generator is None:
            return []
        if name == "state_steps":
            return [torch.tensor(3.0) for _ in SIZES]
        made = [torch.rand(size, generator=generator) + 0.25 for size in SIZES]
        if name == "out" and ("norm" in schema.name or "max" == schema.name[-3:] or "powsum" in schema.name):
            return [torch.zeros(()) for _ in SIZES]
        return made
    if kind in ("List[number]", "List[Scalar]"):
        return [0.5 + 0.25 * i for i in range(len(SIZES))]
    if kind == "number":
        return 0.75 if name != "ord" else 2
    if kind == "float":
        return {"beta1": 0.9, "beta2": 0.99, "eps": 1e-8}.get(name, 0.125)
    if kind == "bool":
        return {"amsgrad": True, "is_first_step": False}.get(name, False)
    if kind == "int":
        return 2
    if kind == "Tensor" and name == "scalars":
        return torch.arange(1.0, len(SIZES) + 1)
    if kind == "Tensor":
        return torch.tensor(0.0) if name == "found_inf" else torch.tensor(0.5)
    if kind == "Optional[Tensor]":
        return None
    if kind.startswith("Optional"):
        return None
    raise AssertionError(f"{schema}: no value for {kind} {name}")


def arguments_of(name):
    schema = schema_of(name)
    generator = torch.Generator().manual_seed(5)
    return [(a.name, value_for(schema, a, i, generator), a.kwarg_only)
            for i, a in enumerate(schema.arguments)]


def outcome(name):
    """Returns ("ran", all results and arguments) or ("raised", the error's type and text)."""
    arguments = arguments_of(name)
    try:
        result = call(name, arguments)
    except (RuntimeError, NotImplementedError, TypeError) as error:
        return "raised", (type(error).__name__, str(error).splitlines()[0], arguments)
    return "ran", (result, [value for _, value, _ in arguments])


LIST_NAMES = [name for name in NAMES if goes_by_list(schema_of(name))]


def test_the_dispatcher_has_the_families_this_is_about():
    assert len(LIST_NAMES) > 200
    assert {"aten::_foreach_norm.Scalar", "aten::_fused_adamw_", "aten::_fused_sgd_",
            "aten::_amp_foreach_non_finite_check_and_unscale_"} <= set(LIST_NAMES)


@pytest.mark.parametrize("name", LIST_NAMES)
def test_sliced_equals_stock(name):
    kind, expected = outcome(name)
    if kind == "raised":
        # No kernel on this device, or none for these arguments: refused alike inside a session.
        with plimsoll.session("64MiB") as session, session.step():
            inside, actual = outcome(name)
        assert inside == "raised" and actual[0] == expected[0]
        return
    expected = frozen(list(expected))
    with plimsoll.session(BUDGET) as session:
        arguments = arguments_of(name)
        with session.step():
            result = call(name, arguments)
        actual = frozen([result, [value for _, value, _ in arguments]])
        report = session.report()
    assert first_difference(expected, actual) == ""
    assert report.peak_bytes <= BUDGET
    assert report.operators > 1, "it was not cut"


OPTIMIZERS = [
    (torch.optim.Adam, {}), (torch.optim.AdamW, {"amsgrad": True}), (torch.optim.SGD, {"momentum": 0.9}),
    (torch.optim.Adagrad, {}), (torch.optim.RMSprop, {"centered": True}), (torch.optim.NAdam, {}),
    (torch.optim.RAdam, {}), (torch.optim.Adamax, {}), (torch.optim.Adadelta, {}), (torch.optim.ASGD, {}),
    (torch.optim.Rprop, {})]
WITH_FUSED = {torch.optim.Adam, torch.optim.AdamW, torch.optim.SGD, torch.optim.Adagrad}


def test_the_optimizers_that_have_a_fused_way_are_those_that_are_run_in_it():
    takes_it = {optimizer for optimizer, _ in OPTIMIZERS
                if "fused" in inspect.signature(optimizer.__init__).parameters}
    assert takes_it == WITH_FUSED


@pytest.mark.parametrize("optimizer, flags, way", [
    (optimizer, flags, way) for optimizer, flags in OPTIMIZERS for way in ("foreach", "fused", "for-loop")
    if way != "fused" or optimizer in WITH_FUSED])
def test_an_optimizer_in_any_of_its_ways_equals_stock(optimizer, flags, way):
    ways = {"foreach": {"foreach": True}, "fused": {"fused": True}, "for-loop": {"foreach": False}}

    def run(budget):
        generator = torch.Generator().manual_seed(2)
        parameters = [torch.nn.Parameter(torch.rand(size, generator=generator)) for size in SIZES]
        chosen = optimizer(parameters, lr=0.01, **flags, **ways[way])

        def step():
            for p in parameters:
                p.grad = torch.rand(p.shape, generator=generator) - 0.5
            norm = torch.nn.utils.clip_grad_norm_(parameters, 1.0, foreach=way != "for-loop")
            chosen.step()
            return norm

        norms = []
        if budget is None:
            norms = [step() for _ in range(3)]
        else:
            with plimsoll.session(budget) as session:
                for _ in range(3):
                    with session.step():
                        norms.append(step())
                assert session.report().peak_bytes <= budget
        return frozen([norms, parameters, chosen.state_dict()["state"]])

    assert first_difference(run(None), run(BUDGET)) == ""


def test_an_entry_that_cannot_fit_is_refused_before_anything_changes():
    tensors = [torch.ones(100), torch.ones(1 << 20), torch.ones(100)]
    with plimsoll.session(BUDGET) as session:
        with pytest.raises(torch.OutOfMemoryError, match="_foreach_add_"):
            with session.step():
                torch._foreach_add_(tensors, 1.0)
    assert all(bool((t == 1).all()) for t in tensors)


def test_lists_that_do_not_match_raise_as_in_stock():
    with plimsoll.session(BUDGET) as session, session.step():
        many = [torch.ones(16384) for _ in range(10)]
        with pytest.raises(RuntimeError, match="(?i)lists|same number|length"):
            torch._foreach_add_(many, many[:-1])
