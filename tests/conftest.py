"""Settings of all tests: output folders, leftovers, and durations."""

from __future__ import annotations

import gc
import os
import signal
import uuid
from collections import Counter, defaultdict
from pathlib import Path

import pytest
from hypothesis import settings

from tests.bytecode import cache_bytecode
from tests.leftovers import end_leftovers, make_temporary_folder, mark_children, remove_temporary_folder

cache_bytecode()

# The duration of an example depends on the machine rather than the code. One commit has one result;
# PHALANX_RANDOM=1 searches new examples.
settings.register_profile("phalanx", deadline=None, derandomize=not os.environ.get("PHALANX_RANDOM"))
settings.load_profile("phalanx")

# A shell starts background commands with SIGINT ignored, and children inherit that. A command started in such
# a shell ignores the signal, like any program; commands that tests interrupt are started differently.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# Folders with the slowest files run first, so that all workers end at about the same time.
_FIRST = ("e2e", "faults", "scheduling", "phalanx_local", "attacks", "top", "dashboard", "admission", "hub")
_RUN = pytest.StashKey[str]()
_FOLDER = pytest.StashKey[Path]()
_LEFT = pytest.StashKey[list[str]]()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--without-feature", metavar="NAME", help="leave a feature of the cycle out of the registry")


def pytest_configure(config: pytest.Config) -> None:
    feature = config.getoption("without_feature")
    if feature is not None:
        # Imported late: most runs collect tests without the scheduler.
        from tests.features.left_out import leave_out

        leave_out(feature, pytest.MonkeyPatch())
    if not hasattr(config, "workerinput"):  # the workers of xdist inherit both
        config.stash[_RUN] = uuid.uuid4().hex
        mark_children(config.stash[_RUN])
        config.stash[_FOLDER] = make_temporary_folder()


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark as slow all sets of parameters but the first of a test that is marked `slow_but_first` (or but the first
    N: `slow_but_first(N)`). Put the slowest folders first. Deselect the tests of a feature that is left out."""
    feature = config.getoption("without_feature")
    if feature is not None:
        needing = [item for item in items if any(feature in mark.args for mark in item.iter_markers("feature"))]
        config.hook.pytest_deselected(items=needing)
        items[:] = [item for item in items if item not in needing]
    items.sort(key=_place)
    seen: Counter[str] = Counter()
    for item in items:
        marker = item.get_closest_marker("slow_but_first")
        if marker is not None:
            test = item.nodeid.partition("[")[0]
            if seen[test] >= (marker.args[0] if marker.args else 1):
                item.add_marker(pytest.mark.slow)
            seen[test] += 1


def _place(item: pytest.Item) -> int:
    folder = item.path.parent.name if item.path.parent.name in _FIRST else item.path.parent.parent.name
    return _FIRST.index(folder) if folder in _FIRST else len(_FIRST)


def pytest_collection_finish() -> None:
    """Spare the collector the objects of collection: a fifth of the time of some tests went into them."""
    gc.collect()
    gc.freeze()


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    """Fail a run whose tests have left processes behind."""
    run = session.config.stash.get(_RUN, "")
    left = end_leftovers(run) if run else []
    if run:
        remove_temporary_folder(session.config.stash[_FOLDER])
    if left:
        session.config.stash[_LEFT] = left
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Print the processes that were left and, where `--durations` is given, the seconds of each folder."""
    for line in config.stash.get(_LEFT, []):
        terminalreporter.write_line(f"left running by a test, and killed: {line}", red=True)
    if config.getoption("durations") is None:
        return
    seconds: defaultdict[str, float] = defaultdict(float)
    for reports in terminalreporter.stats.values():
        for report in reports:
            if isinstance(report, pytest.TestReport):
                seconds["/".join(report.nodeid.partition("::")[0].split("/")[:2])] += report.duration
    terminalreporter.section("seconds of all workers by folder")
    for folder, amount in sorted(seconds.items(), key=lambda entry: -entry[1]):
        terminalreporter.write_line(f"{amount:8.1f}  {folder}")
    terminalreporter.write_line(f"{sum(seconds.values()):8.1f}  in all")
