"""Every verdict on every pod and node is kube-scheduler's, in random clusters full of oddities."""

from __future__ import annotations

import pytest

from tests.differential.comparison import difference, report
from tests.differential.worlds import TOPICS, WorldMaker

SEEDS = 12


def check(seed: int, topics: frozenset[str]) -> None:
    world = WorldMaker(seed, topics).world()
    if difference(world):
        pytest.fail(f"seed {seed}, {sorted(topics)}: {report(world, difference)}")


@pytest.mark.parametrize("topic", TOPICS)
def test_one_rule_at_a_time(topic: str) -> None:
    for seed in range(SEEDS):
        check(seed, frozenset({topic}))


def test_all_rules_together() -> None:
    for seed in range(SEEDS):
        check(seed, frozenset(TOPICS))


@pytest.mark.slow
@pytest.mark.parametrize("block", range(5))
def test_thousands(block: int) -> None:
    for seed in range(1000 + 100 * block, 1000 + 100 * (block + 1)):
        check(seed, frozenset(TOPICS))
        check(seed, frozenset({TOPICS[seed % len(TOPICS)], TOPICS[seed // 7 % len(TOPICS)]}))
