"""Room that is held for pods which come later: it is held until these pods are placed, also through a restart."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Self

import pytest

from phalanx.cluster.state import ClusterState
from phalanx.dialects.gangs.held_room import encode_held
from phalanx.dialects.intake import Intake
from phalanx.dialects.kinds import ServedKind
from phalanx.dialects.signatures import Signer
from phalanx.dialects.times import format_time
from phalanx.model.decisions import Plan
from phalanx.model.pod import MemberState
from phalanx.scheduling.scheduler import Scheduler
from tests.dialects.objects import container
from tests.workloads.played import JOBSET, Played
from tests.workloads.test_jobsets import one, part

SIGNER = Signer((("1", b"k" * 32),))


class Fed(Played):
    """A played cluster whose bindings return as the API shows them, and whose scheduler can restart."""

    def __init__(self) -> None:
        super().__init__()
        self.intake = Intake(["phalanx"], signer=SIGNER)
        self.created: dict[str, dict[str, Any]] = {}
        self.owners: list[tuple[ServedKind, str, dict[str, Any]]] = []
        self.cpus = 0

    def room(self, cpus: int) -> Self:
        self.cpus = cpus
        return super().room(cpus)

    def owner(self, kind: ServedKind, name: str, **spec: Any) -> Self:
        self.owners.append((kind, name, spec))
        return super().owner(kind, name, **spec)

    def create(self, *names: str, of: str = "", **details: Any) -> Self:
        for name in names:
            self.created[name] = {"of": of, **details}
        return super().create(*names, of=of, **details)

    def delete(self, name: str) -> Self:
        del self.created[name]
        return self._take(self.intake.pod_removed(self.namespace, name, name))

    def cycle(self, should_stop: Callable[[], bool] = lambda: False) -> Plan:
        plan = super().cycle(should_stop)
        for bind in plan.binds:
            details = self.created[bind.name]
            held = encode_held(bind.held, SIGNER, bind.uid, bind.gang) if bind.gang is not None else {}
            details["annotations"] = {**details.get("annotations", {}), **held}
        return plan

    def confirm(self, *names: str) -> Self:
        for uid, record in list(self.state.pods.items()):
            if record.state is MemberState.ASSUMED and not record.pod.placeholder:
                moment = format_time(int(self.now))
                condition = {"type": "PodScheduled", "status": "True", "lastTransitionTime": moment}
                more = {"phase": "Running", "status": {"conditions": [condition], "startTime": moment}}
                self.create(uid, **{**self.created[uid], "node": record.assumed_node, **more})
        return self

    def reborn(self, order: int = 1) -> Self:
        """Start another process that sees the objects in one order or the other."""
        self.intake = Intake(["phalanx"], signer=SIGNER)
        self.state = ClusterState()
        self.scheduler = Scheduler(self.state, self.policy)
        created = list(self.created.items())[::order]
        self.room(self.cpus)
        for kind, name, spec in self.owners if order == 1 else ():
            super().owner(kind, name, **spec)
        for name, details in created:
            super().create(name, **details)
        for kind, name, spec in self.owners if order == -1 else ():
            super().owner(kind, name, **spec)
        return self


def driver_and_gang(room: int = 3, size: int = 2) -> Fed:
    """A JobSet whose part `driver` runs; its part `w`, a gang of `size` pods, is created when it is ready."""
    workers = part("w", size, after="driver", status="Ready")
    workers["template"]["spec"]["template"] = {"spec": {"containers": [container(cpu=1)]}}
    play = Fed().room(room)
    play.owner(JOBSET, "js", replicatedJobs=[part("driver", 1), workers])
    one(play, "driver", 0).run()
    assert play.placed() == ["js-driver-0-0"]
    return play


def worker(play: Fed, number: int) -> Fed:
    one(play, "w", number)
    return play


WORKERS = ["js-w-0-0", "js-w-0-1"]


def test_room_of_a_gang_is_held_while_its_pods_come_one_by_one() -> None:
    play = worker(driver_and_gang(), 0).run()
    play.create("other").run()
    assert play.placed() == ["js-driver-0-0"]
    worker(play, 1).run()
    assert play.placed("js-w") == WORKERS
    assert play.waiting() == ["other"]


@pytest.mark.parametrize("order", [1, -1])
@pytest.mark.parametrize("present", [0, 1, 2])
def test_room_of_a_gang_is_held_while_the_scheduler_restarts(order: int, present: int) -> None:
    play = driver_and_gang()
    for number in range(present):
        worker(play, number)
        if present == 1:
            play.run()
    play.create("other")
    play.reborn(order).run()
    for number in range(present, 2):
        worker(play, number).run()
    assert play.placed("js-w") == WORKERS
    assert play.waiting() == ["other"]


def test_pod_that_is_deleted_before_its_gang_starts_returns_its_room() -> None:
    play = worker(driver_and_gang(), 0).run()
    play.delete("js-w-0-0").run()
    play.create("other").run()
    assert "other" not in play.placed()
    worker(worker(play, 0), 1).run()
    assert play.placed("js-w") == WORKERS
    assert "other" not in play.placed()


def test_pod_that_is_deleted_and_seen_again_before_the_next_cycle_loses_no_room() -> None:
    play = worker(worker(driver_and_gang(room=4, size=3), 0), 1)
    worker(play.delete("js-w-0-0"), 0).run()
    play.create("a").run()
    assert "a" not in play.placed()
    worker(play, 2).run()
    assert len(play.placed("js-w")) == 3


def test_pod_whose_binding_failed_gets_its_room_again() -> None:
    play = worker(worker(driver_and_gang(), 0), 1)
    play.create("other")
    plan = play.cycle()
    assert sorted(bind.name for bind in plan.binds) == WORKERS
    for name in WORKERS:
        play.state.pods.binding_failed(name)
    play.now += 60
    play.scheduler.activate_due(play.now)
    play.cycle()
    play.confirm()
    assert "other" not in play.placed()
    assert play.placed("js-w") == WORKERS


def test_room_that_its_gang_does_not_use_is_released_in_time() -> None:
    play = worker(driver_and_gang(), 0).run()
    play.create("other").run()
    play.now += 300
    play.scheduler.activate_due(play.now)
    play.run()
    assert "other" in play.placed()


def test_held_room_is_released_when_the_driver_ends() -> None:
    play = worker(driver_and_gang(), 0).run()
    play.create("other").run()
    play.create("js-driver-0-0", **{**play.created["js-driver-0-0"], "phase": "Succeeded"}).run()
    assert "other" in play.placed()


def test_held_room_counts_once_in_a_full_cluster() -> None:
    """Beside the driver and the held room for two, one more pod fits."""
    play = worker(driver_and_gang(room=4), 0).run()
    play.create("first", "second").run()
    assert play.placed() == ["first", "js-driver-0-0"]
    worker(play, 1).run()
    assert play.placed("js-w") == WORKERS
