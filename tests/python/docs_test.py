# SPDX-License-Identifier: Apache-2.0
"""The code blocks of docs/train-in-python.md, run in their order."""

import re
from pathlib import Path

import pytest

PAGE = Path(__file__).resolve().parents[2] / "docs/train-in-python.md"
BLOCKS = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
NAMES: dict = {"__name__": "page"}


def test_the_page_has_blocks():
    assert len(BLOCKS) >= 9


@pytest.mark.parametrize("number", range(len(BLOCKS)))
def test_block_runs(number):
    exec(compile(BLOCKS[number], f"{PAGE.name}, block {number + 1}", "exec"), NAMES)
