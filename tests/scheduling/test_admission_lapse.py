"""Admitted groups without pods release their announced amounts after a time; finished groups release them at
once.
"""

from __future__ import annotations

from typing import Any

import pytest

from phalanx.model.pod import PodPhase
from phalanx.scheduling.start_reservations.plugin import StartReservations

from .scenario import Scenario, amounts, key
from .test_reserve import busy, policy


def volcano(world: Scenario, name: str, cpu: int, *, admitted: bool = False, **fields: object) -> Scenario:
    """Declare a PodGroup of Volcano with a minimum of one member."""
    known = {"admission": True, "admitted": admitted, "created": world.now}
    return world.gang(name, 1, min_resources=amounts(cpu=cpu), **known, **fields)


def later(world: Scenario, seconds: int) -> Scenario:
    world.now += seconds
    world.scheduler.activate_due(world.now)
    return world.run()


def inqueue_cpu(world: Scenario) -> int:
    return world.state.gangs.inqueue.total().get("cpu", 0)


class TestUnplacedGang:
    def world(self) -> Scenario:
        return Scenario().node("n1", cpu=8)

    @pytest.mark.feature("admission-lapse")
    def test_gang_with_gated_pods_releases_its_amounts_after_five_minutes(self) -> None:
        world = volcano(self.world(), "gated", 8).run()
        volcano(world.pod("gated-0", gang="gated", cpu=8, gated=True), "next", 8).run()
        assert later(world, 280).admissions == ["gated"]
        assert later(world, 20).admissions == ["gated", "next"]

    @pytest.mark.feature("admission-lapse")
    def test_gang_that_finds_no_room_releases_its_amounts_until_it_is_placed(self) -> None:
        world = self.world().pod("busy", cpu=4, node="n1", scheduler="another")
        world = volcano(world, "large", 8, admitted=True).pod("large-0", gang="large", cpu=8).run()
        assert inqueue_cpu(world) == 8000
        assert inqueue_cpu(later(world, 300)) == 0
        world.gone("busy").run()
        assert world.placed() == ["large-0"]
        world.gone("large-0").pod("large-1", gang="large", cpu=2, gated=True).run()
        assert inqueue_cpu(world) == 8000
        assert inqueue_cpu(later(world, 300)) == 0

    @pytest.mark.feature("admission-lapse")
    def test_gang_whose_pods_are_older_than_its_admission_waits_from_its_admission_on(self) -> None:
        world = volcano(self.world().pod("busy", cpu=8, node="n1", scheduler="another"), "old", 8)
        world.pod("old-0", gang="old", cpu=8, gated=True).run()
        world.now += 1000
        world.gone("busy").run()
        assert world.admissions == ["old"]
        assert inqueue_cpu(later(world, 290)) == 8000
        assert inqueue_cpu(later(world, 10)) == 0

    @pytest.mark.feature("admission-lapse")
    def test_restart_does_not_restart_the_wait_of_an_admitted_gang(self) -> None:
        world = volcano(self.world(), "gated", 8).run()
        volcano(world.pod("gated-0", gang="gated", cpu=8, gated=True), "next", 9).run()
        world.now += 290
        assert world.restart().run().admissions == ["gated"]
        assert later(world, 10).admissions == ["gated", "next"]
        world.restart().run()
        assert inqueue_cpu(world) == 9000  # of gang next

    @pytest.mark.feature("admission-lapse")
    def test_restart_does_not_end_the_wait_of_a_gang_whose_pods_are_older_than_its_admission(self) -> None:
        world = volcano(self.world().pod("busy", cpu=8, node="n1", scheduler="another"), "old", 8)
        world.pod("old-0", gang="old", cpu=8, gated=True).run()
        world.now += 1000
        volcano(world.gone("busy").run(), "next", 8).run()
        world.restart()
        assert later(world, 290).admissions == ["old"]
        assert later(world, 10).admissions == ["old", "next"]

    @pytest.mark.feature("start-reservations")
    def test_gang_with_a_reserved_start_keeps_its_amounts(self) -> None:
        world = Scenario(policy()).node("n1", cpu=8)
        busy(world, "busy", "n1", 10_000, cpu=4)
        world = volcano(world, "large", 8, admitted=True).pod("large-0", gang="large", cpu=8).run()
        plan = world.scheduler.features.get(StartReservations)
        assert plan is not None
        assert plan.plan is not None
        assert plan.plan.is_promised(key("large"))
        assert inqueue_cpu(later(world, 900)) == 8000

    @pytest.mark.feature("admission-lapse")
    @pytest.mark.feature("start-reservations")
    def test_gang_that_loses_its_reserved_start_after_five_minutes_releases_its_amounts_at_once(self) -> None:
        world = Scenario(policy()).node("n1", cpu=8)
        busy(world, "busy", "n1", 10_000, cpu=4)
        world = volcano(world, "large", 8, admitted=True).pod("large-0", gang="large", cpu=8).run()
        assert inqueue_cpu(later(world, 900)) == 8000
        world.pod("large-0", gang="large", cpu=8, gated=True).run()
        assert inqueue_cpu(world) == 0

    def test_gang_with_a_running_member_keeps_the_rest_of_its_amounts(self) -> None:
        world = volcano(self.world(), "spark", 8).run().pod("driver", gang="spark", cpu=1).run()
        assert world.placed() == ["driver"]
        assert inqueue_cpu(later(world, 1000)) == 7000


class TestFinishedGang:
    def driven(self, **fields: Any) -> Scenario:
        """A driver that runs in a group which announces two more pods of its size."""
        world = volcano(Scenario().node("n1", cpu=4), "spark", 3, **fields).run()
        return world.pod("driver", gang="spark", cpu=1).run()

    def test_gang_without_an_owner_releases_its_amounts_when_all_members_have_ended(self) -> None:
        world = volcano(self.driven(), "next", 3).run()
        assert world.admissions == ["spark"]
        world.becomes("driver", phase=PodPhase.SUCCEEDED).run()
        assert world.admissions == ["spark", "next"]

    def test_failed_gang_releases_its_amounts_too(self) -> None:
        world = volcano(self.driven(), "next", 3).becomes("driver", phase=PodPhase.FAILED).run()
        assert world.admissions == ["spark", "next"]

    def test_completed_gang_with_an_owner_releases_its_amounts(self) -> None:
        world = volcano(self.driven(owned=True), "next", 3).becomes("driver", phase=PodPhase.SUCCEEDED).run()
        assert world.admissions == ["spark"]
        world.gang("spark", 1, completed=True).run()
        assert world.admissions == ["spark", "next"]
        world.gone("driver").run()
        assert inqueue_cpu(world) == 3000  # of gang next

    @pytest.mark.feature("admission-lapse")
    def test_gang_with_an_owner_releases_its_amounts_five_minutes_after_its_last_pod(self) -> None:
        world = volcano(self.driven(owned=True), "next", 3).becomes("driver", phase=PodPhase.SUCCEEDED).run()
        assert later(world, 200).admissions == ["spark"]
        assert later(world, 100).admissions == ["spark", "next"]

    def test_finished_gang_counts_again_when_another_pod_is_created(self) -> None:
        world = self.driven().becomes("driver", phase=PodPhase.SUCCEEDED).run()
        assert inqueue_cpu(world) == 0
        world.pod("second", gang="spark", cpu=1).run()
        assert world.placed("second") == ["second"]
        assert inqueue_cpu(world) == 1000

    def test_four_finished_applications_do_not_close_their_queue(self) -> None:
        world = Scenario().node("n1", cpu=12).queue("q", capability={"cpu": 12})
        for number in range(4):
            volcano(world, f"spark-{number}", 3, queue="q").run()
            world.pod(f"driver-{number}", gang=f"spark-{number}", cpu=1).run()
            world.becomes(f"driver-{number}", phase=PodPhase.SUCCEEDED).run()
        volcano(world, "next", 12, queue="q").run()
        assert world.admissions[-1] == "next"


def test_finished_group_below_its_raised_minimum_announces_no_more_pods() -> None:
    """Its ended member has used all of its minResources, so that only the number of pods is outstanding."""
    world = volcano(Scenario().node("n1", cpu=8), "done", 1, admitted=True).pod("done-0", gang="done", cpu=1).run()
    world.finishes("done-0").gang("done", 3).run()
    assert world.state.gangs.inqueue.uncreated(world.namespace) == {}
