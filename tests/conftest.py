"""What all tests share."""

from __future__ import annotations

import os
import signal

import pytest
from hypothesis import settings

# How long an example takes says more about the machine than about the code. The same commit has the same result
# each time; new examples are looked for with PHALANX_RANDOM=1.
settings.register_profile("phalanx", deadline=None, derandomize=not os.environ.get("PHALANX_RANDOM"))
settings.load_profile("phalanx")

# A shell starts what it puts into the background with SIGINT ignored, and children inherit that. A command that is
# started so keeps ignoring it, as any does; those that tests interrupt are not started so.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Of a test that is `slow_but_first` all sets of parameters but the first are slow."""
    seen: set[str] = set()
    for item in items:
        if item.get_closest_marker("slow_but_first") is not None:
            test = item.nodeid.partition("[")[0]
            if test in seen:
                item.add_marker(pytest.mark.slow)
            seen.add(test)
