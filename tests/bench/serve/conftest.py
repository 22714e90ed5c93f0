"""Skip tests of loads where there is no wrk; LENSBOX_REQUIRE_WRK makes a missing one a failure."""

import os
import shutil

import pytest


@pytest.fixture
def wrk() -> None:
    """Skip a test that needs the program wrk."""
    if shutil.which("wrk") is None and "LENSBOX_REQUIRE_WRK" not in os.environ:
        pytest.skip("there is no wrk (apt: wrk)")
