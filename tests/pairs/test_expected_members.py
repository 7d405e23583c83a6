"""Room that evictions free for expected members, when the process ends before the victims have left."""

from __future__ import annotations

from typing import Any

from phalanx.model.devices.cards import CardShare, DeviceNeed, Family
from phalanx.model.pod import PodClass

from .job import PRIORITY, QUEUE, Form, Job
from .world import CARD_MEMORY, CARDS, COUNT, MEMORY, SLOTS, World


def job_that_waits_for_a_victim() -> tuple[World, Job]:
    """Return a job whose members need the cards of x1, where a victim leaves; its expected member fits on x2."""
    world = World().queue(QUEUE)
    for node, cpu in (("x1", SLOTS - 2), ("x2", SLOTS - 1), ("y1", SLOTS), ("y2", SLOTS)):
        world.pod(f"fill-{node}", node=node, cpu=cpu, priority=100, queue=QUEUE)
    for node in ("x2", "y1", "y2"):
        need = PodClass(devices=DeviceNeed(Family.VGPU, (CardShare(count=CARDS, memory=CARD_MEMORY),)))
        asked: dict[str, Any] = {MEMORY: CARD_MEMORY * CARDS, COUNT: CARDS}
        cards = {"cards": tuple(f"{node}-{at}" for at in range(CARDS))}
        world.pod(f"cards-{node}", node=node, pod_class=need, more=cards, **asked)
    world.pod("victim", node="x1", cpu=2, queue=QUEUE)
    job = Job(world, Form(expected=1, cards=True))
    job.submit()
    world.settle()
    assert world.evicted == ["victim"]
    assert sorted(world.held().values()) == ["x1", "x1", "x2"]
    return world, job


def test_room_for_an_expected_member_is_held_until_the_victims_have_left() -> None:
    world, job = job_that_waits_for_a_victim()
    world.now += 1
    world.pod("late", cpu=1, priority=PRIORITY, queue=QUEUE).settle()
    world.leave().settle()
    assert job.runs
    assert world.waiting("late") == ["late"]


def test_room_for_an_expected_member_is_held_by_the_next_process_too() -> None:
    world, job = job_that_waits_for_a_victim()
    world.kill().settle()
    assert sorted(world.held().values()) == ["x1", "x1", "x2"]
    assert not world.plan().nominations, "nothing is written anew"
    world.now += 1
    world.pod("late", cpu=1, priority=PRIORITY, queue=QUEUE).settle()
    world.leave().settle()
    assert job.runs
    assert world.waiting("late") == ["late"]
