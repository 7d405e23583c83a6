"""Function calls for each pod on the main paths, compared with the committed table."""

from __future__ import annotations

import pytest

from tests.calls.main_paths import MAIN_PATHS
from tests.calls.table import TOLERATED, VERSION, counted_alone, read_table


@pytest.fixture(scope="module")
def counts() -> dict[str, float]:
    return counted_alone()


@pytest.mark.parametrize("name", MAIN_PATHS)
def test_calls_per_pod_on_a_main_path_do_not_grow_above_the_table(name: str, counts: dict[str, float]) -> None:
    expected = read_table().get(VERSION, {}).get(name)
    if expected is None:
        pytest.skip(f"no entry for Python {VERSION}: run `python -m tests.calls`")
    counted = counts[name]
    assert counted <= expected * (1 + TOLERATED), (
        f"{name}: {counted:.1f} function calls per pod, {expected} in the table; remove what is done per pod, "
        "or rewrite the table with `python -m tests.calls` and give the reason in the commit"
    )
