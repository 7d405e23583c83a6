"""A gang that runs again, is evicted and recreated, or is restored from a backup starts whole or not at all:
for every dialect and match policy, in any order, and with a scheduler that is killed in between.
"""

from __future__ import annotations

import itertools
import random

import pytest

from tests.attacks.lives import MEMBERS, POLICIES, SIZE, Life

# Dialects that differ from other ones only in field names.
_LIKE_OTHERS = ("sigs object", "lightweight labels", "kube-batch object")


def _is_slow(dialect: str, policy: str) -> bool:
    """Return whether the pair is left out of everyday runs, which have two match policies of each dialect."""
    if dialect in _LIKE_OTHERS:
        return True
    everyday = [name for name in MEMBERS if name not in _LIKE_OTHERS].index(dialect)
    return (POLICIES.index(policy) - everyday) % len(POLICIES) not in (0, 3)


EVERY = [
    pytest.param(
        dialect,
        policy,
        id=f"{dialect}, {policy or 'its own policy'}",
        marks=[pytest.mark.slow] if _is_slow(dialect, policy) else [],
    )
    for dialect, policy in itertools.product(MEMBERS, POLICIES)
]
RUNS = pytest.mark.parametrize(("dialect", "policy"), EVERY)
KILLED = pytest.mark.parametrize("killed", [False, True], ids=["seen", "killed"])


def whole(dialect: str, policy: str) -> Life:
    """A gang that has been started."""
    life = Life(dialect, policy)
    life.make(*(life.member(f"m-{number}", 1) for number in range(SIZE)))
    assert life.bound(1) == SIZE
    return life


@RUNS
@KILLED
def test_a_gang_that_runs_again_starts_whole(dialect: str, policy: str, killed: bool) -> None:
    life = whole(dialect, policy)
    for uid in life.uids_of(1):
        life.remove(uid)
    life.room(2)
    if killed:
        life.restart()
    for number in range(SIZE):
        life.make(life.member(f"m-{number}", 2))
        assert life.bound(2) == 0
    life.room(3)
    assert life.bound(2) == SIZE


@RUNS
@KILLED
def test_a_run_that_has_succeeded_does_not_count_for_the_next(dialect: str, policy: str, killed: bool) -> None:
    life = whole(dialect, policy)
    for uid in life.uids_of(1):
        life.succeed(uid)
    life.room(2)
    if killed:
        life.restart()
    for number in range(SIZE):
        life.make(life.member(f"again-{number}", 2))
        assert life.bound(2) == 0
    life.room(3)
    assert life.bound(2) == SIZE


@RUNS
@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(1, 10))])
def test_gang_evicted_and_recreated_in_any_order_starts_whole(dialect: str, policy: str, seed: int) -> None:
    """Members are deleted and recreated in any order; terminating ones occupy their room, and do not count for
    the quorum.
    """
    draw = random.Random(f"{dialect} {policy} {seed}")
    life = whole(dialect, policy)
    old = life.uids_of(1)
    steps = ["restart", *(f"remove {uid}" for uid in old), *(f"make m-{number}" for number in range(SIZE))]
    draw.shuffle(steps)
    for uid in draw.sample(old, SIZE):
        life.terminate(uid)
    for step in steps:
        what, _, name = step.partition(" ")
        if what == "remove":
            life.remove(name)
        elif what == "make":
            life.make(life.member(name, 2))
        else:
            life.restart()
        assert life.bound(2) in (0, SIZE), steps
    assert life.bound(2) == SIZE, steps


@RUNS
@pytest.mark.parametrize("anew", ["pods", "pods and their group"])
@KILLED
def test_gang_restored_from_a_backup_starts_whole(dialect: str, policy: str, anew: str, killed: bool) -> None:
    life = whole(dialect, policy)
    kept = [life.stored[uid] for uid in life.uids_of(1)]
    for uid in life.uids_of(1):
        life.remove(uid)
    if anew != "pods":
        life.declare()
        life.restart()
    life.room(2)
    for document in kept:
        life.make(life.copy(document))
        if killed:
            life.restart()
        assert life.bound(1) == 0
    life.room(3)
    assert life.bound(1) == SIZE


@RUNS
@KILLED
def test_copies_beside_a_running_gang_do_not_count_after_its_end(dialect: str, policy: str, killed: bool) -> None:
    life = whole(dialect, policy)
    old = life.uids_of(1)
    assert len(old) == SIZE
    life.make(*(life.copy(life.stored[uid], f"copy-{uid}") for uid in old[:2]))
    for uid in old:
        life.terminate(uid)
    life.room(5)
    if killed:
        life.restart()
    fresh = [uid for uid in life.uids_of(1) if uid not in old]
    assert not any("nodeName" in life.stored[uid]["spec"] for uid in fresh)


@RUNS
@pytest.mark.parametrize("written", [1, 2])
def test_a_scheduler_that_is_killed_in_the_middle_of_a_plan_leaves_no_half(
    dialect: str, policy: str, written: int
) -> None:
    life = Life(dialect, policy)
    life.room(2)
    life.make(*(life.member(f"m-{number}", 1) for number in range(SIZE)))
    assert life.bound(1) == 0
    life.cut = written
    life.room(3)
    assert life.bound(1) == SIZE
