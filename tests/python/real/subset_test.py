# SPDX-License-Identifier: Apache-2.0
"""Ten of the programs, one of each family, for CI."""

import pytest

from inside import check
from programs import PROGRAMS, SUBSET


def test_the_subset_is_of_the_programs():
    assert len(SUBSET) == 10 and set(SUBSET) <= set(PROGRAMS)


@pytest.mark.parametrize("name", SUBSET)
def test_trains_as_stock(name):
    check(PROGRAMS[name])
