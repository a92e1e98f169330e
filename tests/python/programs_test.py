# SPDX-License-Identifier: Apache-2.0
"""What PyTorch users write in a training step, each compared with stock at half of its peak."""

import contextlib
import copy

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import plimsoll
from equality import Program, assert_equals_stock, first_difference, frozen, model_state
from small_programs import WIDTH, batch, classifier, plain


def autocast(dtype):
    model = classifier()
    optimizer = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9)
    x, y = batch()

    def step():
        optimizer.zero_grad()
        with torch.autocast("cpu", dtype=dtype):
            loss = F.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        return loss

    return Program(step, lambda: model_state(model, optimizer))


def grad_scaler():
    model = classifier()
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**40, growth_interval=2)
    x, y = batch()

    def step():
        optimizer.zero_grad()
        with torch.autocast("cpu", dtype=torch.float16):
            loss = F.cross_entropy(model(x), y)
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        norm = nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()
        return loss, norm

    return Program(step, lambda: [model_state(model, optimizer), scaler.state_dict()])


def clip(how):
    model = classifier()
    optimizer = torch.optim.AdamW(model.parameters(), 1e-3)
    x, y = batch()

    def step():
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        norm = how(model.parameters())
        optimizer.step()
        return loss, norm

    return Program(step, lambda: model_state(model, optimizer))


def optimizer_with(**flags):
    model = classifier()
    return plain(model, torch.optim.AdamW(model.parameters(), 1e-3, **flags), *batch())


def lbfgs():
    model = classifier()
    optimizer = torch.optim.LBFGS(model.parameters(), lr=0.1, max_iter=3, history_size=2)
    x, y = batch()

    def closure():
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        return loss

    return Program(lambda: optimizer.step(closure), lambda: model_state(model, optimizer))


def checkpointed(reentrant):
    torch.manual_seed(3)
    blocks = nn.ModuleList([nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.Dropout(0.2), nn.GELU()) for _ in range(6)])
    head = nn.Linear(WIDTH, 10)
    model = nn.ModuleList([blocks, head])
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    x, y = batch()
    x.requires_grad_(reentrant)

    def step():
        optimizer.zero_grad()
        h = x
        for block in blocks:
            h = torch.utils.checkpoint.checkpoint(block, h, use_reentrant=reentrant)
        loss = F.cross_entropy(head(h), y)
        loss.backward()
        optimizer.step()
        return loss

    return Program(step, lambda: model_state(model, optimizer))


class Scaled(torch.autograd.Function):
    """Saves an input, an intermediate and a number; leaves an unused gradient undefined."""

    @staticmethod
    def forward(ctx, x, weight, factor):
        inner = torch.tanh(x * weight)
        ctx.save_for_backward(x, weight, inner)
        ctx.factor = factor
        ctx.set_materialize_grads(False)
        return inner * factor, x.clone()

    @staticmethod
    def backward(ctx, grad, unused):
        assert unused is None
        x, weight, inner = ctx.saved_tensors
        slope = grad * ctx.factor * (1 - inner * inner)
        return slope * weight, (slope * x).sum(0), None


def custom_function():
    model = classifier()
    weight = nn.Parameter(torch.ones(WIDTH))
    optimizer = torch.optim.SGD([*model.parameters(), weight], 0.1)
    x, y = batch()

    def step():
        optimizer.zero_grad()
        h, _ = Scaled.apply(x, weight, 1.5)
        for _ in range(4):
            h, _ = Scaled.apply(h, weight, 0.9)
        loss = F.cross_entropy(model(h), y)
        loss.backward()
        optimizer.step()
        return loss, weight

    return Program(step, lambda: model_state(model, optimizer))


def hooks():
    model = classifier()
    seen = []
    model[0][1].register_forward_hook(lambda module, inputs, output: output * 1.01)
    model[0][2].register_full_backward_hook(lambda module, gi, go: (gi[0] * 0.5,))
    model[0][3].register_forward_pre_hook(lambda module, inputs: (inputs[0] + 0.01,))
    for p in model.parameters():
        p.register_hook(lambda grad: grad * 0.9)
        p.register_post_accumulate_grad_hook(lambda q: seen.append(float(q.grad.abs().sum())))
    return plain(model, torch.optim.SGD(model.parameters(), 0.1), *batch(), lambda: list(seen))


def saved_tensors_hooks():
    model = classifier()
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    x, y = batch()

    def step():
        optimizer.zero_grad()
        with torch.autograd.graph.saved_tensors_hooks(lambda t: (t * 1, t.shape), lambda pair: pair[0]):
            loss = F.cross_entropy(model(x), y)
        with torch.autograd.graph.save_on_cpu():
            loss = loss + model(x).square().mean()
        loss.backward()
        optimizer.step()
        return loss

    return Program(step, lambda: model_state(model, optimizer))


def retain_graph():
    model = classifier()
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    x, y = batch()

    def step():
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), y)
        loss.backward(retain_graph=True)
        (loss * 0.5).backward()
        optimizer.step()
        return loss

    return Program(step, lambda: model_state(model, optimizer))


def double_backward():
    model = classifier()
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    x, y = batch()
    x.requires_grad_(True)

    def step():
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), y)
        (slope,) = torch.autograd.grad(loss, x, create_graph=True)
        total = loss + slope.square().sum() * 10
        total.backward()
        optimizer.step()
        return total

    return Program(step, lambda: model_state(model, optimizer))


def functional_grad_and_vmap():
    model = classifier()
    values = {name: p.detach() for name, p in model.named_parameters()}
    x, y = batch(24)

    def loss_of(parameters, row, label):
        out = torch.func.functional_call(model, parameters, (row.unsqueeze(0),))
        return F.cross_entropy(out, label.unsqueeze(0))

    def step():
        gradients, losses = torch.func.vmap(torch.func.grad_and_value(loss_of), in_dims=(None, 0, 0))(values, x, y)
        for name in values:
            values[name] = values[name] - 0.1 * gradients[name].mean(0)
        return losses

    return Program(step, lambda: values)


def evaluation(guard):
    model = nn.Sequential(classifier(), nn.BatchNorm1d(10), nn.Dropout(0.1))
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    x, y = batch()
    program = plain(model, optimizer, x, y)
    train = program.step

    def evaluate():
        model.eval()
        with guard():
            out = model(x).softmax(-1)
            right = (out.argmax(-1) == y).float().mean()
        model.train()
        return out.clone(), right

    def step():
        return train(), evaluate()

    program.step, program.evaluate = step, evaluate
    return program


def state_dict_mid_run():
    model = classifier()
    optimizer = torch.optim.AdamW(model.parameters(), 1e-3)
    program = plain(model, optimizer, *batch())
    train, saved = program.step, {}

    def step():
        loss = train()
        if not saved:
            saved["model"] = copy.deepcopy(model.state_dict())
            saved["optimizer"] = copy.deepcopy(optimizer.state_dict())
        else:
            model.load_state_dict(saved["model"])
            optimizer.load_state_dict(saved["optimizer"])
        return loss

    program.step = step
    return program


def deepcopied_model():
    model = classifier()
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    program = plain(model, optimizer, *batch())
    train, copies = program.step, []

    def step():
        loss = train()
        copies[:] = [copy.deepcopy(model)]
        return loss

    program.step = step
    program.state = lambda: [model.state_dict(), copies[0].state_dict()]
    return program


def parametrized(which):
    torch.manual_seed(3)
    model = nn.Sequential(*[which(nn.Linear(WIDTH, WIDTH)) for _ in range(4)], nn.Linear(WIDTH, 10))
    return plain(model, torch.optim.SGD(model.parameters(), 0.1), *batch())


def conv_net(memory_format=torch.contiguous_format, sync=False):
    torch.manual_seed(3)
    model = nn.Sequential(*[layer for i in range(5) for layer in (
        nn.Conv2d(3 if i == 0 else 24, 24, 3, padding=1), nn.BatchNorm2d(24), nn.ReLU(inplace=True))],
        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(24, 10))
    if sync:
        model = nn.SyncBatchNorm.convert_sync_batchnorm(model)
        assert sum(isinstance(layer, nn.SyncBatchNorm) for layer in model) == 5
    model = model.to(memory_format=memory_format)
    x = torch.randn(16, 3, 24, 24).to(memory_format=memory_format)
    return plain(model, torch.optim.SGD(model.parameters(), 0.1, momentum=0.9), x, torch.randint(0, 10, (16,)))


def attention():
    torch.manual_seed(3)
    layer = nn.TransformerEncoderLayer(128, 4, 256, batch_first=True)
    model = nn.TransformerEncoder(layer, 3, enable_nested_tensor=False)
    optimizer = torch.optim.AdamW(model.parameters(), 1e-3)
    x = torch.randn(8, 48, 128)
    mask = nn.Transformer.generate_square_subsequent_mask(48)

    def step():
        optimizer.zero_grad()
        h = model(x, mask=mask, is_causal=True)
        q = h.view(8, 48, 4, 32).transpose(1, 2)
        loss = F.scaled_dot_product_attention(q, q, q, is_causal=True).square().mean()
        loss.backward()
        optimizer.step()
        return loss

    return Program(step, lambda: model_state(model, optimizer))


def averaged(kind):
    model = classifier()
    if kind == "ema":
        average = torch.optim.swa_utils.AveragedModel(
            model, multi_avg_fn=torch.optim.swa_utils.get_ema_multi_avg_fn(0.9))
    else:
        average = torch.optim.swa_utils.AveragedModel(model)
    program = plain(model, torch.optim.SGD(model.parameters(), 0.1), *batch())
    train = program.step

    def step():
        loss = train()
        average.update_parameters(model)
        return loss

    program.step = step
    program.state = lambda: [model.state_dict(), average.state_dict()]
    return program


def tied_weights():
    torch.manual_seed(3)
    table, hidden = nn.Embedding(200, 128), nn.Sequential(*[nn.Linear(128, 128) for _ in range(4)])
    head = nn.Linear(128, 200, bias=False)
    head.weight = table.weight
    model = nn.ModuleList([table, hidden, head])
    optimizer = torch.optim.AdamW(model.parameters(), 1e-3)
    ids = torch.randint(0, 200, (16, 32))

    def step():
        optimizer.zero_grad()
        loss = F.cross_entropy(head(hidden(table(ids))).flatten(0, 1), ids.flatten())
        loss.backward()
        optimizer.step()
        return loss

    return Program(step, lambda: model_state(model, optimizer))


def gradient_accumulation():
    model = classifier()
    optimizer = torch.optim.AdamW(model.parameters(), 1e-3)
    scheduler = torch.optim.lr_scheduler.OneCycleLR(optimizer, 0.01, total_steps=10)
    parts = [batch(96), batch(96), batch(40)]

    def step():
        optimizer.zero_grad()
        losses = []
        for x, y in parts:
            loss = F.cross_entropy(model(x), y) / len(parts)
            loss.backward()
            losses.append(loss.item())
        optimizer.step()
        scheduler.step()
        return losses, scheduler.get_last_lr()

    return Program(step, lambda: model_state(model, optimizer))


def rnn(kind):
    torch.manual_seed(3)
    model = kind(64, 128, num_layers=2, dropout=0.1)
    head = nn.Linear(128, 10)
    both = nn.ModuleList([model, head])
    optimizer = torch.optim.SGD(both.parameters(), 0.1)
    x, y = torch.randn(24, 16, 64), torch.randint(0, 10, (16,))

    def step():
        optimizer.zero_grad()
        out, _ = model(x)
        loss = F.cross_entropy(head(out[-1]), y)
        loss.backward()
        optimizer.step()
        return loss

    return Program(step, lambda: model_state(both, optimizer))


def data_dependent_shapes():
    model = classifier()
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    x, y = batch()

    def step():
        optimizer.zero_grad()
        out = model(x)
        keep = out.argmax(-1) != y
        rows = keep.nonzero().flatten()
        losses = F.cross_entropy(out, y, reduction="none")
        top = losses[keep].sort(descending=True).values[: max(1, len(rows) // 2)]
        total = top.mean() + torch.where(keep, losses, losses * 0.1).mean()
        total.backward()
        optimizer.step()
        return total, rows, torch.unique(y, return_counts=True)

    return Program(step, lambda: model_state(model, optimizer))


PROGRAMS = {
    "autocast bf16": lambda: autocast(torch.bfloat16),
    "autocast fp16": lambda: autocast(torch.float16),
    "GradScaler": grad_scaler,
    "clip_grad_norm_": lambda: clip(lambda p: nn.utils.clip_grad_norm_(p, 0.5)),
    "clip_grad_norm_ infinite": lambda: clip(lambda p: nn.utils.clip_grad_norm_(p, 0.5, float("inf"))),
    "clip_grad_value_": lambda: clip(lambda p: nn.utils.clip_grad_value_(p, 0.001)),
    "optimizer default": optimizer_with,
    "optimizer foreach": lambda: optimizer_with(foreach=True),
    "optimizer fused": lambda: optimizer_with(fused=True),
    "optimizer amsgrad maximize": lambda: optimizer_with(amsgrad=True, maximize=True),
    "optimizer weight_decay": lambda: optimizer_with(weight_decay=0.1),
    "LBFGS": lbfgs,
    "checkpoint reentrant": lambda: checkpointed(True),
    "checkpoint": lambda: checkpointed(False),
    "autograd.Function": custom_function,
    "hooks": hooks,
    "saved_tensors_hooks": saved_tensors_hooks,
    "retain_graph": retain_graph,
    "double backward": double_backward,
    "func grad vmap": functional_grad_and_vmap,
    "no_grad evaluation": lambda: evaluation(torch.no_grad),
    "inference_mode evaluation": lambda: evaluation(torch.inference_mode),
    "state_dict mid-run": state_dict_mid_run,
    "deepcopy": deepcopied_model,
    "weight norm": lambda: parametrized(nn.utils.parametrizations.weight_norm),
    "spectral norm": lambda: parametrized(nn.utils.parametrizations.spectral_norm),
    "convolutions": conv_net,
    "channels_last": lambda: conv_net(torch.channels_last),
    "SyncBatchNorm": lambda: conv_net(sync=True),
    "attention": attention,
    "EMA": lambda: averaged("ema"),
    "SWA": lambda: averaged("swa"),
    "tied weights": tied_weights,
    "gradient accumulation": gradient_accumulation,
    "LSTM": lambda: rnn(nn.LSTM),
    "GRU": lambda: rnn(nn.GRU),
    "data-dependent shapes": data_dependent_shapes,
}


def outcome_of(make, budget=None):
    """What a step raises and what it leaves behind."""
    torch.manual_seed(1)
    program = make()
    session = contextlib.nullcontext() if budget is None else plimsoll.session(budget)
    with session, pytest.raises(Exception) as caught:
        with contextlib.nullcontext() if budget is None else session.step():
            program.step()
    return [type(caught.value).__name__, str(caught.value).splitlines()[0], frozen(program.state())]


def test_capturable_is_refused_on_the_cpu_as_in_stock():
    def make():
        return optimizer_with(capturable=True)

    stock = outcome_of(make)
    assert "capturable" in stock[1]
    assert first_difference(stock, outcome_of(make, "4MiB")) == ""


def test_sync_batch_norm_in_a_process_group_is_refused_on_the_cpu_as_in_stock(tmp_path):
    def make():
        return conv_net(sync=True)

    torch.distributed.init_process_group("gloo", init_method=f"file://{tmp_path}/store", rank=0, world_size=1)
    try:
        stock = outcome_of(make)
        assert "SyncBatchNorm" in stock[1]
        assert first_difference(stock, outcome_of(make, "4MiB")) == ""
    finally:
        torch.distributed.destroy_process_group()


# Where one operator needs more than half of the peak: oneDNN's LSTM layer takes its weights whole.
SHARES = {"LSTM": 0.75}


@pytest.mark.parametrize("name", PROGRAMS)
def test_equals_stock_at_half_of_its_peak(name):
    assert_equals_stock(PROGRAMS[name], SHARES.get(name, 0.5))
