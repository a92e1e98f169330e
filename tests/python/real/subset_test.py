# SPDX-License-Identifier: Apache-2.0
"""Ten of the programs, one of each family, for CI."""

import pytest

from inside import check, packages_there
from programs import PROGRAMS, SUBSET


def test_the_subset_is_of_the_programs():
    assert len(SUBSET) == 10 and set(SUBSET) <= set(PROGRAMS)


@pytest.mark.skipif(not packages_there(), reason="PLIMSOLL_REAL_PACKAGES is not set; ./dev test sets it")
@pytest.mark.parametrize("name", SUBSET)
def test_trains_as_stock(name):
    check(PROGRAMS[name])
