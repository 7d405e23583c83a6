"""State updated event by event equals the state that a new scheduler computes."""

from __future__ import annotations

import json

import pytest

from tests.differential.comparison import first_difference, oracle_says
from tests.differential.ours import Ours
from tests.differential.stories import News, Story
from tests.differential.worlds import TOPICS

STEPS = 14
SEEDS = 3


def play(seed: int, topics: frozenset[str], steps: int = STEPS) -> None:
    story = Story(seed, topics)
    ours = Ours.of(story.world)
    history: list[list[News]] = []
    for _ in range(steps):
        history.append(story.step())
        tell(ours, history[-1])
        # The check follows every step: cached answers must not become outdated.
        found = first_difference(oracle_says(story.world), ours.verdicts())
        if found:
            recent = "\n".join(json.dumps(news) for news in history)
            pytest.fail(f"seed {seed}, {sorted(topics)}, step {len(history)}: {found}\n{recent}")


def tell(ours: Ours, news: list[News]) -> None:
    for verb, kind, entry in news:
        if verb == "take":
            ours.take(kind, entry)
        else:
            ours.drop(kind, entry)


@pytest.mark.parametrize("topic", TOPICS)
def test_one_rule_at_a_time(topic: str) -> None:
    for seed in range(SEEDS):
        play(seed, frozenset({topic}))


def test_all_rules_together() -> None:
    for seed in range(SEEDS):
        play(seed, frozenset(TOPICS))


@pytest.mark.slow
@pytest.mark.parametrize("block", range(5))
def test_hundreds(block: int) -> None:
    for seed in range(1000 + 8 * block, 1000 + 8 * (block + 1)):
        play(seed, frozenset(TOPICS), 60)
