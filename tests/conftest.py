"""What all tests share."""

from __future__ import annotations

import os
import signal
from collections import Counter

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
    """Mark as slow all sets of parameters but the first of a test that is marked `slow_but_first` (or but the first
    N: `slow_but_first(N)`)."""
    seen: Counter[str] = Counter()
    for item in items:
        marker = item.get_closest_marker("slow_but_first")
        if marker is not None:
            test = item.nodeid.partition("[")[0]
            if seen[test] >= (marker.args[0] if marker.args else 1):
                item.add_marker(pytest.mark.slow)
            seen[test] += 1
