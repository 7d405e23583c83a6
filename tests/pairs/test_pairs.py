"""Each pair of features: the job waits, starts and is evicted, while scheduler processes end in between."""

from __future__ import annotations

import pytest

from .story import Story
from .table import APART, FEATURES, PAIRS, Pair, title

MEETINGS = [pytest.param(pair, id=title(pair)) for pair in PAIRS if pair not in APART]


def test_table_covers_all_pairs_of_the_16_features() -> None:
    assert len(FEATURES) == len({feature.name for feature in FEATURES}) == 16
    assert len(PAIRS) == 120
    assert set(APART) <= set(PAIRS)
    assert all(APART.values())


@pytest.mark.parametrize("pair", MEETINGS)
def test_job_waits_starts_and_is_evicted_under_both_features(pair: Pair) -> None:
    play(pair)


@pytest.mark.slow
@pytest.mark.parametrize("pair", MEETINGS)
def test_job_waits_starts_and_is_evicted_where_the_features_change_places(pair: Pair) -> None:
    play((pair[1], pair[0]))


def play(pair: Pair) -> None:
    first, second = pair
    seen = Story(first(), second()).play()
    assert seen.waits
    assert len(seen.starts) == 3
    assert len(seen.evictions) == 2
    assert seen.restarts >= 20
