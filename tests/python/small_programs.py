# SPDX-License-Identifier: Apache-2.0
"""The small network and loop that the programs under test are variations of."""

import torch
from torch import nn
from torch.nn import functional as F

from equality import Program, model_state

WIDTH = 192


def body(depth=6, width=WIDTH):
    return nn.Sequential(*[nn.Sequential(nn.Linear(width, width), nn.LayerNorm(width), nn.GELU())
                           for _ in range(depth)])


def batch(rows=192, width=WIDTH, classes=10):
    return torch.randn(rows, width), torch.randint(0, classes, (rows,))


def classifier():
    torch.manual_seed(3)
    return nn.Sequential(body(), nn.Linear(WIDTH, 10))


def plain(model, optimizer, x, y, extra=lambda: None):
    def step():
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        return loss.item()

    return Program(step, lambda: [model_state(model, optimizer), extra()])
