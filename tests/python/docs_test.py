# SPDX-License-Identifier: Apache-2.0
"""The code blocks of docs/train-in-python.md, run in their order."""

import re
from pathlib import Path

import pytest

PAGE = Path(__file__).resolve().parents[2] / "docs/train-in-python.md"
BLOCKS = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
NAMES: dict = {"__name__": "page"}


TESTS = Path(__file__).resolve().parent


def test_the_table_of_tests_names_tests_that_exist():
    rows = [line.split(" | ") for line in (TESTS / "README.md").read_text(encoding="utf-8").splitlines() if " | " in line]
    names = 0
    for _, said, *_ in rows:
        file = "programs_test.py"
        for found in re.finditer(r"`(\w+_test\.py)`|`(test_\w+)`|\"([^\"]+)\"", said):
            file = found.group(1) or file
            text = (TESTS / file).read_text(encoding="utf-8")
            assert found.group(1) or (f"def {found.group(2)}(" in text if found.group(2) else f'"{found.group(3)}":' in text), found
            names += 1
    assert names > 60


def test_the_page_has_blocks():
    assert len(BLOCKS) >= 9


@pytest.mark.parametrize("number", range(len(BLOCKS)))
def test_block_runs(number):
    exec(compile(BLOCKS[number], f"{PAGE.name}, block {number + 1}", "exec"), NAMES)
