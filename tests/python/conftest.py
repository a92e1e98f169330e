# SPDX-License-Identifier: Apache-2.0
"""What every test of the package starts from."""

import pytest
import torch


@pytest.fixture(autouse=True)
def two_threads():
    """Bits depend on the number of threads: both runs of a comparison have two."""
    torch.set_num_threads(2)
    yield


@pytest.fixture(autouse=True)
def no_session_left():
    """A session that outlives its test would spoil the next."""
    from plimsoll import _sessions

    yield
    assert _sessions.current() is None
