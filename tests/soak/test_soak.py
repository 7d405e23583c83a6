"""Lives of clusters succeed, can be replayed, and their faults are found and shrunk."""

from __future__ import annotations

from pathlib import Path

import pytest

from .cluster import POLICIES, SoakCluster
from .life import Story, fault_of, live, read, relive, shrink, write
from .next_process import next_process
from .steps import Step

STORIES = Path(__file__).parent / "stories"


@pytest.mark.parametrize("seed", range(len(POLICIES)))
def test_short_lives_succeed_and_replay_equally(seed: int) -> None:
    life = live(seed, 60)
    assert not life.fault
    again = relive(life.story)
    assert again.cluster.digest == life.cluster.digest


@pytest.mark.parametrize("name", [path.stem for path in sorted(STORIES.glob("*.jsonl"))])
def test_past_failures_of_lives_pass(name: str) -> None:
    life = relive(read(STORIES / f"{name}.jsonl"))
    assert not life.fault


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("seed", range(100, 110))
def test_longer_lives_succeed(seed: int) -> None:
    life = live(seed, 600, compares=False)
    assert not life.fault, (life.story.policy, life.fault)
    assert life.cluster.binds > 50


def test_a_fault_shrinks_to_the_steps_that_matter(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A cluster that cannot bear a node of 8 CPUs while there is a queue that lends nothing."""
    check = SoakCluster.cycle

    def fragile(cluster: SoakCluster, *arguments: object) -> object:
        plan = check(cluster)
        lends = all(each.spec is None or each.spec.weight < 4 for each in cluster.state.ledger.accounts.values())
        assert lends or "jobx" not in str(cluster.state.gangs), "it cannot bear this"
        return plan

    monkeypatch.setattr(SoakCluster, "cycle", fragile)
    noise = live(0, 40).story.steps
    job = Step("job", "jobx", {"members": 1, "minimum": 1, "queue": "a", "priority": 0, "limit": 0, "cpu": 1})
    heavy = Step("queue", "a", {"weight": 4, "reclaimable": True})
    story = Story("usual", [*noise[:20], heavy, *noise[20:30], job, *noise[30:]])
    if not relive(story).fault:
        pytest.fail("the fault is not seen")
    short = shrink(story)
    assert len(short.steps) <= 3
    assert job in short.steps or heavy in short.steps
    write(short, "it cannot bear this", tmp_path / "story.jsonl")
    assert read(tmp_path / "story.jsonl") == short


def test_exception_is_a_fault() -> None:
    cluster = SoakCluster("usual")
    assert fault_of(cluster, Step("minimum", "none", {"minimum": 1}), 0) == ""
    assert fault_of(cluster, Step("odd"), 1) == "KeyError: 'odd'"


def test_next_process_does_not_expect_members_whose_time_is_over() -> None:
    cluster = SoakCluster("usual")
    job = {"members": 1, "minimum": 1, "queue": "a", "priority": 0, "limit": 0, "cpu": 1}
    expects = {"count": 2, "queue": "a", "priority": 0, "limit": 0, "cpu": 1}
    steps = [
        Step("job", "g", job | {"queue": "none"}),
        Step("expects", "g", expects),
        Step("queue", "none", {"weight": 1, "reclaimable": True}),
        Step("confirm"),
        Step("wait", how={"seconds": 400}),
    ]
    faults = [fault_of(cluster, step, number) for number, step in enumerate(steps)]
    assert not any(faults)
    assert "pod g-0" in cluster.known
    assert not any("expected" in about for about in cluster.known)


def test_next_process_expects_members_beside_those_that_were_present_before_the_minimum_fell() -> None:
    cluster = SoakCluster("usual")
    pod = {"queue": "a", "priority": 0, "limit": 0, "cpu": 9}
    steps = [
        Step("job", "g", pod | {"members": 1, "minimum": 3}),
        Step("expects", "g", pod | {"count": 1}),
        Step("grow", "g", pod | {"pod": "more"}),
        Step("minimum", "g", {"minimum": 1}),
    ]
    faults = [fault_of(cluster, step, number) for number, step in enumerate(steps)]
    assert not any(faults)
    assert list(next_process(cluster)[0].pods.placeholders) == list(cluster.state.pods.placeholders)
