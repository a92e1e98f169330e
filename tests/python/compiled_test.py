# SPDX-License-Identifier: Apache-2.0
"""torch.compile inside a session: a compiled graph is one operator."""

import torch
from torch import nn
from torch.nn import functional as F

from equality import Program, assert_equals_stock, model_state


def test_compiled_blocks_train_as_stock():
    def make():
        torch.manual_seed(3)
        torch._dynamo.reset()
        blocks = nn.ModuleList([nn.Sequential(nn.Linear(192, 192), nn.LayerNorm(192), nn.GELU()) for _ in range(6)])
        head = nn.Linear(192, 10)
        model = nn.ModuleList([blocks, head])
        optimizer = torch.optim.SGD(model.parameters(), 0.1)
        x, y = torch.randn(192, 192), torch.randint(0, 10, (192,))
        compiled = [torch.compile(block) for block in blocks]

        def step():
            optimizer.zero_grad()
            h = x
            for block in compiled:
                h = block(h)
            loss = F.cross_entropy(head(h), y)
            loss.backward()
            optimizer.step()
            return loss

        return Program(step, lambda: model_state(model, optimizer))

    report = assert_equals_stock(make, 0.6)
    assert report.operators > 6
