# SPDX-License-Identifier: Apache-2.0
"""The programs that CI does not run (``subset_test.py`` is in CI). Label real."""

import pytest

from inside import check
from programs import PROGRAMS, SUBSET


@pytest.mark.parametrize("name", [name for name in PROGRAMS if name not in SUBSET])
def test_trains_as_stock(name):
    check(PROGRAMS[name])
