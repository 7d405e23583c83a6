"""Leaders that create their members once they run: a leader starts only with room for all, and the room is
claimed.
"""

from __future__ import annotations

import itertools

import pytest

from .scenario import Scenario

QUEUES = """
actions: "enqueue, allocate, preempt, reclaim, backfill"
tiers: [{plugins: [{name: priority}, {name: gang}, {name: predicates}, {name: capacity}, {name: nodeorder}]}]
"""


def app(world: Scenario, name: str, executors: int, *, priority: int = 0, queue: str = "default") -> Scenario:
    """A driver of one CPU that will create executors of one CPU each."""
    world.gang(name, 1, created=world.now, queue=queue)
    world.pod(f"{name}-driver", gang=name, cpu=1, priority=priority)
    return world.expects(name, executors, cpu=1, priority=priority)


def executor(world: Scenario, app: str, number: int, **fields: object) -> Scenario:
    return world.pod(f"{app}-exec-{number}", gang=app, cpu=1, **fields)  # type: ignore[arg-type]


def held_for(world: Scenario, app: str) -> int:
    """Return the number of expected members of the app that have claimed room."""
    return sum(name.startswith(f"{app}-expected") for name in world.held())


class TestAdmission:
    def test_driver_starts_when_there_is_room_for_its_executors_too(self) -> None:
        world = app(Scenario().nodes(2, cpu=2), "a", 3).run()
        assert world.order == ["a-driver"]
        assert held_for(world, "a") == 3

    def test_driver_without_room_for_its_executors_waits_and_holds_nothing(self) -> None:
        world = app(Scenario().nodes(2, cpu=2), "a", 4).run()
        assert world.order == []
        assert held_for(world, "a") == 0
        assert world.why("a").code == "NotEnoughResources"

    def test_executor_that_came_before_the_placeholders_is_none_of_the_members_to_come(self) -> None:
        world = Scenario().node("n1", cpu=2)
        world.gang("a", 1).pod("a-driver", gang="a", cpu=1).pod("a-exec-0", gang="a", cpu=1)
        world.expects("a", 2, cpu=1).run()
        assert world.order == []
        world.node("n2", cpu=1).run()
        assert world.order == []
        world.node("n3", cpu=1).run()
        assert world.order == ["a-driver", "a-exec-0"]
        assert held_for(world, "a") == 2

    def test_no_room_stays_held_when_driver_and_executors_are_deleted_in_any_order(self) -> None:
        gone = ("a-driver", "a-exec-0", "a-expected-0", "a-expected-1")
        for order in itertools.permutations(gone):
            world = app(Scenario().node("n1", cpu=3), "a", 2).run()
            executor(world, "a", 0).cycle()
            for name in order:
                world.gone(name)
            world.pod("next", cpu=3).run()
            assert world.where("next") == "n1", order

    def test_many_drivers_do_not_fill_the_cluster(self) -> None:
        """Without this rule each of the eight drivers gets a CPU and no executor ever starts."""
        world = Scenario().nodes(2, cpu=4)
        for number in range(8):
            app(world, f"app{number}", 3)
        world.run()
        assert world.order == ["app0-driver", "app1-driver"]
        for number in (0, 1):
            for which in range(3):
                executor(world, f"app{number}", which)
        world.run()
        assert len(world.placed("app0-exec")) == len(world.placed("app1-exec")) == 3
        # The next two drivers start when these have finished.
        world.finishes(*(name for name in list(world.state.pods) if name.startswith(("app0-", "app1-"))))
        world.run()
        assert world.order[-2:] == ["app2-driver", "app3-driver"]

    def test_smaller_driver_starts_where_the_larger_does_not_fit(self) -> None:
        world = app(app(Scenario().node("n1", cpu=4), "large", 4), "small", 2).run()
        assert world.order == ["small-driver"]

    def test_other_pods_do_not_use_room_claimed_for_executors(self) -> None:
        world = app(Scenario().node("n1", cpu=4), "a", 2).run()
        world.pods("other", 2, cpu=1).run()
        assert world.placed("other") == ["other-0"]

    def test_executor_waits_before_its_expected_siblings_have_room(self) -> None:
        """Its owner created one before the driver was placed: it is one of the expected executors."""
        world = app(Scenario().node("n1", cpu=3), "a", 2)
        executor(world, "a", 0).run()
        assert sorted(world.order) == ["a-driver", "a-exec-0"]
        assert held_for(world, "a") == 1


class TestClaims:
    def test_executors_use_the_room_claimed_for_them(self) -> None:
        world = app(Scenario().nodes(3, cpu=1), "a", 2).run()
        places = {node for name, node in world.held().items() if name.startswith("a-expected")}
        world.pod("other", cpu=1)
        executor(executor(world, "a", 0), "a", 1).run()
        assert {world.where("a-exec-0"), world.where("a-exec-1")} == places
        assert held_for(world, "a") == 0
        assert world.where("other") == ""

    def test_each_executor_uses_one_claim(self) -> None:
        world = executor(app(Scenario().nodes(4, cpu=1), "a", 3).run(), "a", 0).run()
        assert held_for(world, "a") == 2

    def test_executor_of_another_app_uses_no_claim(self) -> None:
        world = app(app(Scenario().node("n1", cpu=6), "a", 2), "b", 2).run()
        executor(world, "a", 0)
        executor(world, "a", 1)
        executor(world, "a", 2).run()
        assert world.waiting("a-exec") == ["a-exec-2"]
        assert held_for(world, "b") == 2

    def test_executor_beyond_the_expected_number_is_surplus(self) -> None:
        world = app(Scenario().node("n1", cpu=4), "a", 1).run()
        for number in range(4):
            executor(world, "a", number)
        world.run()
        assert len(world.placed("a-exec")) == 3

    def test_executor_larger_than_expected_is_placed_where_it_fits(self) -> None:
        world = app(Scenario().node("n1", cpu=2).node("n2", cpu=4), "a", 1).run()
        world.pod("a-exec-0", gang="a", cpu=3).run()
        assert world.where("a-exec-0") == "n2" or world.waiting("a-exec") == ["a-exec-0"]
        assert held_for(world, "a") == 0

    def test_gated_executor_uses_no_claim(self) -> None:
        world = executor(app(Scenario().node("n1", cpu=3), "a", 2).run(), "a", 0, gated=True).run()
        assert held_for(world, "a") == 2


class TestTime:
    @pytest.mark.feature("placeholders")
    def test_claim_that_no_executor_uses_in_time_is_released(self) -> None:
        world = app(Scenario().node("n1", cpu=4), "a", 3).run()
        world.pods("other", 3, cpu=1).run()
        assert world.placed("other") == []
        assert world.scheduler.next_recheck is not None
        world.now = int(world.scheduler.next_recheck)
        world.scheduler.activate_due(world.now)
        world.run()
        assert held_for(world, "a") == 0
        assert len(world.placed("other")) == 3

    def test_claim_is_not_released_a_second_early(self) -> None:
        world = app(Scenario().node("n1", cpu=4), "a", 3).run()
        world.now = int(world.scheduler.next_recheck or 0) - 1
        world.scheduler.activate_due(world.now)
        assert world.scheduler.idle
        assert held_for(world, "a") == 3

    @pytest.mark.feature("placeholders")
    def test_driver_whose_binding_failed_keeps_its_claims(self) -> None:
        """After the time its room is free for other pods, and it starts with all its executors or not at all."""
        world = app(Scenario().node("n1", cpu=3), "a", 2)
        world.cycle()
        world.state.pods.binding_failed("a-driver")
        world.now += 400
        world.pods("other", 1, cpu=3, priority=100)
        world.cycle()
        assert world.where("other-0") == "n1"
        assert held_for(world, "a") == 0
        world.confirm().run()
        assert world.waiting("a-driver") == ["a-driver"]

    def test_deleted_driver_expects_no_executor(self) -> None:
        world = app(Scenario().node("n1", cpu=3), "a", 2).run()
        world.gone("a-driver", "a-expected-0", "a-expected-1").pods("other", 3, cpu=1).run()
        assert len(world.placed("other")) == 3


class TestQuotas:
    def test_claimed_room_of_executors_is_charged_to_the_queue(self) -> None:
        world = Scenario(QUEUES).node("n1", cpu=64).queue("q", capability={"cpu": 4})
        app(world, "a", 2, queue="q").run()
        app(world, "b", 2, queue="q").run()
        assert world.order == ["a-driver"]
        executor(executor(world, "a", 0), "a", 1).run()
        assert len(world.placed("a-exec")) == 2

    def test_driver_whose_executors_would_exceed_its_queue_does_not_start(self) -> None:
        world = Scenario(QUEUES).node("n1", cpu=64).queue("q", capability={"cpu": 4})
        app(world, "a", 4, queue="q").run()
        assert world.order == []
        assert world.why("a").code == "QueueCapability" or "queue q" in world.why("a").message

    def test_pods_are_evicted_for_a_driver_and_its_executors_together(self) -> None:
        world = Scenario(QUEUES).node("n1", cpu=4).pods("low", 4, cpu=1).run()
        app(world, "a", 2, priority=10).run()
        assert len(world.evicted) == 3
        assert world.order[-1] == "a-driver"
        assert held_for(world, "a") == 2

    def test_no_pod_is_evicted_for_a_driver_whose_executors_would_not_fit(self) -> None:
        world = Scenario(QUEUES).node("n1", cpu=4).pods("low", 4, cpu=1).run()
        app(world, "a", 4, priority=10).run()
        assert world.evicted == []


class TestPriority:
    def test_pod_of_higher_priority_uses_claimed_room_of_executors(self) -> None:
        """Claimed and unused room is taken before running pods are evicted."""
        world = app(Scenario(QUEUES).node("n1", cpu=4), "a", 2).pod("mate", cpu=1).run()
        world.pod("urgent", cpu=1, priority=10).run()
        assert world.where("urgent") == "n1"
        assert world.evicted == []
        assert held_for(world, "a") == 1

    @pytest.mark.feature("placeholders")
    def test_room_of_executors_is_released_when_their_driver_is_evicted(self) -> None:
        world = Scenario(QUEUES).node("n1", cpu=3).gang("a", 1).pod("a-driver", gang="a", cpu=1)
        world.expects("a", 2, cpu=1, priority=10).run()
        assert held_for(world, "a") == 2
        world.pod("urgent", cpu=1, priority=10).work()
        assert world.evicted == ["a-driver"]
        assert held_for(world, "a") == 0

    def test_pod_of_equal_priority_does_not_use_claimed_room_of_executors(self) -> None:
        world = app(Scenario(QUEUES).node("n1", cpu=4), "a", 2).pod("mate", cpu=1).run()
        world.pod("other", cpu=1).run()
        assert world.where("other") == ""
        assert held_for(world, "a") == 2

    def test_executor_whose_claim_was_lost_waits_as_surplus(self) -> None:
        world = app(Scenario(QUEUES).node("n1", cpu=3), "a", 2).run()
        world.pod("urgent", cpu=2, priority=10).run()
        executor(executor(world, "a", 0), "a", 1).run()
        assert world.where("urgent") == "n1"
        assert world.waiting("a-exec") == ["a-exec-0", "a-exec-1"]
        world.gone("urgent").run()
        assert len(world.placed("a-exec")) == 2
