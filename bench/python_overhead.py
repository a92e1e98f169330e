#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What a session costs a Python program where memory is plenty: per step and per operator.

ResNet-50, batch 8, steps of stock and session in turns; and two million-a-second sized additions in
a loop, with and without. Checks first that both give the same bits.
"""

import argparse
import datetime
import json
import os
import platform
import statistics
import sys
import time
from pathlib import Path

parser = argparse.ArgumentParser()
parser.add_argument("--build", required=True)
parser.add_argument("--json")
parser.add_argument("--steps", type=int, default=7)
parser.add_argument("--image", type=int, default=64)
parser.add_argument("--threads", type=int, default=2)
options = parser.parse_args()
sys.path.insert(0, str(Path(options.build) / "python"))
packages = os.environ.get("PLIMSOLL_REAL_PACKAGES")
if packages:
    sys.path.append(packages)

import torch  # noqa: E402
from torch.nn import functional as F  # noqa: E402

import plimsoll  # noqa: E402

try:
    from torchvision.models import resnet50
except ImportError:
    sys.exit("bench python_overhead: set PLIMSOLL_REAL_PACKAGES to the folder that "
             "'docker/bootstrap.py --real' prints second")

torch.set_num_threads(options.threads)


def training():
    torch.manual_seed(0)
    model = resnet50(num_classes=10)
    optimizer = torch.optim.SGD(model.parameters(), 0.01, momentum=0.9)
    x, y = torch.randn(8, 3, options.image, options.image), torch.arange(8)

    def step():
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        return loss.item()

    return step, model


def seconds(work):
    begin = time.perf_counter()
    result = work()
    return time.perf_counter() - begin, result


def steps():
    """Two networks from the same seed, one stock and one in a session, a step each in turns."""
    stock, _ = training()
    inside, _ = training()
    times = {"stock": [], "session": []}
    losses = {"stock": [], "session": []}
    with plimsoll.session("6GiB") as session:
        for i in range(options.steps + 3):
            with session.step():
                spent, loss = seconds(inside)
            losses["session"].append(loss)
            with session.pause():
                spent_stock, loss_stock = seconds(stock)
            losses["stock"].append(loss_stock)
            if i >= 3:
                times["session"].append(spent)
                times["stock"].append(spent_stock)
        operators = session.report().operators
    if losses["stock"] != losses["session"]:
        sys.exit("bench python_overhead: the losses differ")
    ratios = [a / b for a, b in zip(times["session"], times["stock"])]
    return statistics.median(times["stock"]), statistics.median(ratios), min(ratios), max(ratios), operators


def operators():
    """Small additions: the smaller of many runs, so that other work on the machine shows least."""
    x, count = torch.ones(8), 20000

    def loop():
        for _ in range(count):
            x.add(1.0)

    best = {"stock": 1e9, "session": 1e9}
    with plimsoll.session("64MiB") as session:
        for _ in range(12):
            with session.step():
                best["session"] = min(best["session"], seconds(loop)[0])
            with session.pause():
                best["stock"] = min(best["stock"], seconds(loop)[0])
    return best["stock"] / count, best["session"] / count


stock_seconds, ratio, least, most, in_step = steps()
stock_operator, session_operator = operators()
result = {
    "date": datetime.date.today().isoformat(), "command": "./dev bench python_overhead", "torch": torch.__version__,
    "machine": platform.processor() or platform.machine(), "threads": options.threads, "load": os.getloadavg()[0],
    "image": options.image, "resnet50_stock_step_seconds": stock_seconds, "resnet50_time_ratio": ratio,
    "resnet50_time_ratio_min": least, "resnet50_time_ratio_max": most, "resnet50_operators": in_step,
    "operator_stock_seconds": stock_operator, "operator_session_seconds": session_operator,
    "operator_overhead_seconds": session_operator - stock_operator}
print(f"ResNet-50 batch 8, {options.image} pixels: {stock_seconds * 1e3:.1f} ms a step stock, "
      f"x {ratio:.3f} in a session ({least:.3f} to {most:.3f}), {in_step} operators")
print(f"a small addition: {stock_operator * 1e6:.2f} us stock, {session_operator * 1e6:.2f} us in a session, "
      f"{(session_operator - stock_operator) * 1e6:.2f} us more")
if options.json:
    Path(options.json).write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")
