# SPDX-License-Identifier: Apache-2.0
"""All programs, at half and a quarter of stock's peak. Label real; ``subset_test.py`` is in CI."""

import pytest


from inside import check, packages_there  # noqa: E402
from programs import PROGRAMS, SUBSET  # noqa: E402


@pytest.mark.skipif(not packages_there(), reason="PLIMSOLL_REAL_PACKAGES is not set; ./dev test sets it")
@pytest.mark.parametrize("name", [name for name in PROGRAMS if name not in SUBSET])
def test_trains_as_stock(name):
    check(PROGRAMS[name])
