"""Advance reservations: granted whole or refused, closed to other pods, used by their own pods, and ended."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from phalanx.model.advance_reservation import AdvanceReservation, AtEnd, Replace, ReservedNodes
from phalanx.model.events import (
    AdvanceReservationRemoved,
    AdvanceReservationUpdated,
    MaintenanceWindowRemoved,
    MaintenanceWindowUpdated,
)
from phalanx.model.maintenance import MaintenanceWindow
from phalanx.model.pod import PodClass, ReservationUse
from phalanx.model.promise_records import decode_grants, encode
from phalanx.model.recurrence import parse_recurrence
from phalanx.model.run_time import RunTime
from phalanx.model.selectors import Requirement
from phalanx.scheduling.reservations.advance import AdvancePlan
from phalanx.scheduling.reservations.advance_grant import AdvanceGrant, GrantPhase
from tests.scheduling.features import starts

from ..extent import examples
from .scenario import Scenario, amounts

pytestmark = pytest.mark.feature("start-reservations")

HOUR = 3600
POLICY = """
actions: "enqueue, allocate, backfill"
tiers: [{plugins: [{name: priority}, {name: gang}, {name: predicates}, {name: binpack}]}]
"""
RESERVING = (
    POLICY.replace("allocate,", "allocate, reserve,")
    + "configurations: [{name: reserve, arguments: {startDelaySeconds: 0}}]"
)


def reserve(world: Scenario, name: str, *, start: int = 0, end: int = 0, **fields: Any) -> Scenario:
    """Times are in seconds from the beginning of the scenario; the remaining keywords are the requests of a
    copy.
    """
    kinds = {"cpu", "memory", "gpu"}
    asked = {key: fields.pop(key) for key in kinds & fields.keys()}
    if asked:
        fields["template"] = PodClass(requests=amounts(**asked))
    if end:
        fields["end"] = 1000 + end
    made = AdvanceReservation(name, f"uid-{name}", start=1000 + start, **fields)
    made = msgspec.structs.replace(made, asks=fields.get("asks") or f"{start}-{end}-{asked}-{fields.get('count')}")
    return world.observe(f"reservation {name}", AdvanceReservationUpdated(made))


def lasting(world: Scenario, name: str, seconds: int, **fields: Any) -> Scenario:
    """Return a pod that is killed after this number of seconds, 0 for never."""
    more = fields.pop("more", {}) | ({"run_time": RunTime(seconds), "grace": 0} if seconds else {})
    use = fields.pop("use", None)
    return world.pod(
        name, pod_class=PodClass(run_limit=seconds, reservation=use), more=more, **{"cpu": 1, **fields}
    )


def inside(world: Scenario, name: str, reservation: str, **fields: Any) -> Scenario:
    """Return a pod that names a reservation which allows it."""
    return lasting(world, name, fields.pop("seconds", 0), use=ReservationUse((reservation,), True), **fields)


def later(world: Scenario, seconds: int) -> Scenario:
    """Advance the time without a change of the pods."""
    world.now += seconds
    world.scheduler.activate_due(world.now)
    return world.run()


def plan(world: Scenario) -> AdvancePlan:
    found = starts(world.scheduler).plan
    assert found is not None
    return found.advance


def grant(world: Scenario, name: str = "r") -> AdvanceGrant:
    return plan(world).grants[name]


class TestGranting:
    def test_advance_reservation_with_free_room_over_its_window_is_granted(self) -> None:
        world = Scenario(POLICY).nodes(2, cpu=4)
        reserve(world, "r", start=HOUR, end=2 * HOUR, count=2, cpu=4).run()
        assert grant(world).phase is GrantPhase.WAITING
        assert sorted(grant(world).nodes) == ["n1", "n2"]
        assert grant(world).granted_amounts() == {"cpu": 8000, "pods": 2}

    def test_advance_reservation_that_does_not_fit_whole_is_refused_and_holds_nothing(self) -> None:
        world = Scenario(POLICY).nodes(2, cpu=4)
        reserve(world, "r", start=HOUR, end=2 * HOUR, count=3, cpu=4).run()
        assert grant(world).phase is GrantPhase.PENDING
        assert grant(world).window is None
        refusal = grant(world).refusal
        assert refusal is not None
        assert refusal.message == "there is room for 2 of 3 copies; no later start is known"

    def test_refusal_names_the_blocking_pods_and_the_next_possible_start(self) -> None:
        world = Scenario(POLICY).node("n1", cpu=4)
        lasting(world, "long", 3 * HOUR, cpu=2).run()
        reserve(world, "first", start=5 * HOUR, end=6 * HOUR, count=1, cpu=4).run()
        reserve(world, "second", start=2 * HOUR, end=4 * HOUR, count=1, cpu=4).run()
        assert grant(world, "first").phase is GrantPhase.WAITING
        refusal = grant(world, "second").refusal
        assert refusal is not None
        assert refusal.blockers == ("Reservation first", "pod ns/long") or refusal.blockers == ("pod ns/long",)
        assert refusal.next_start == 1000 + 6 * HOUR

    def test_two_concurrent_reservations_are_not_granted_the_same_room(self) -> None:
        world = Scenario(POLICY).node("n1", cpu=4)
        reserve(world, "a", start=HOUR, end=2 * HOUR, count=1, cpu=3)
        reserve(world, "b", start=HOUR, end=2 * HOUR, count=1, cpu=3)
        world.run()
        assert [grant(world, name).phase for name in "ab"] == [GrantPhase.WAITING, GrantPhase.PENDING]

    def test_flexible_reservation_gets_the_earliest_possible_start(self) -> None:
        world = Scenario(POLICY).node("n1", cpu=4)
        lasting(world, "long", 3 * HOUR, cpu=2, more={"bound": 1000}).run()
        reserve(world, "r", start=0, duration=HOUR, flexible_start=True, count=1, cpu=4).run()
        assert grant(world).phase is GrantPhase.WAITING
        assert 3 * HOUR <= grant(world).start - 1000 <= 3 * HOUR + 60


class TestKeepingOthersOff:
    @pytest.mark.parametrize("policy", [POLICY, RESERVING])
    def test_pod_that_would_run_into_the_window_is_not_placed(self, policy: str) -> None:
        world = Scenario(policy).node("n1", cpu=4)
        reserve(world, "r", start=HOUR, end=2 * HOUR, count=1, cpu=4)
        lasting(world, "short", HOUR // 2)
        lasting(world, "long", 2 * HOUR)
        world.run()
        assert sorted(world.placed()) == ["short"]
        assert "reserved for units that start before" in world.why_pod("long").message

    def test_during_the_window_other_pods_get_only_the_unreserved_room(self) -> None:
        world = Scenario(POLICY).node("n1", cpu=4)
        reserve(world, "r", start=0, end=HOUR, count=1, cpu=3).run()
        lasting(world, "one", 0)
        lasting(world, "two", 0)
        world.run()
        assert len(world.placed()) == 1

    def test_after_the_window_all_pods_can_use_the_room(self) -> None:
        world = Scenario(POLICY).node("n1", cpu=4)
        reserve(world, "r", start=0, end=HOUR, count=1, cpu=4).run()
        lasting(world, "other", 0).run()
        assert world.placed() == []
        later(world, HOUR)
        assert grant(world).phase is GrantPhase.SUCCEEDED
        assert sorted(world.placed()) == ["other"]

    def test_after_deletion_of_the_object_all_pods_can_use_the_room(self) -> None:
        world = Scenario(POLICY).node("n1", cpu=4)
        reserve(world, "r", start=0, end=HOUR, count=1, cpu=4).run()
        lasting(world, "other", 0).run()
        world.observe("reservation r", AdvanceReservationRemoved("r")).run()
        assert sorted(world.placed()) == ["other"]

    def test_preemptor_is_bound_only_once_the_eviction_is_confirmed_on_whose_room_it_counts(self) -> None:
        """A binding calls an eviction off that has not been sent: the victim would stay in the reserved room."""
        world = Scenario(POLICY.replace("allocate,", "allocate, preempt,")).node("n1", cpu=3)
        reserve(world, "r", start=600, end=HOUR, cpu=1).settle()
        world.pods("low", 2, cpu=1).settle()
        world.gang("urgent", 1).pod("urgent-0", gang="urgent", cpu=1, priority=9)
        (victim,) = [each.name for each in world.cycle().evictions]
        world.pod("urgent-1", gang="urgent", cpu=1, priority=9)
        assert not world.cycle().binds
        world.becomes(victim, terminating=True, condemned="phalanx", leaves=world.now + 30).run()
        assert world.depart(victim).run().where("urgent-0") == "n1"


class TestUsing:
    def test_pod_that_names_a_reservation_waits_for_its_start_and_gets_its_room(self) -> None:
        world = Scenario(POLICY).node("n1", cpu=4).node("n2", cpu=8)
        reserve(world, "r", start=HOUR, end=2 * HOUR, count=1, nodes=ReservedNodes(("n1",)))
        inside(world, "mine", "r").run()
        assert world.placed() == []
        assert world.why_pod("mine").message == (
            "0/2 nodes are available: Reservation r, which it asks for, starts at 1970-01-01T01:16:40Z."
        )
        later(world, HOUR)
        assert world.where("mine") == "n1"
        assert grant(world).users == ("ns/mine",)

    def test_used_room_is_subtracted_and_the_remainder_stays_reserved(self) -> None:
        world = Scenario(POLICY).node("n1", cpu=4)
        reserve(world, "r", start=0, end=HOUR, count=4, cpu=1).run()
        inside(world, "mine", "r", cpu=2).run()
        lasting(world, "other", 0).run()
        assert sorted(world.placed()) == ["mine"]
        assert grant(world).remaining("n1") == {"cpu": 2000, "pods": 3}
        inside(world, "more", "r", cpu=2).run()
        assert sorted(world.placed()) == ["mine", "more"]

    def test_gang_starts_whole_inside_its_reservation_or_not_at_all(self) -> None:
        world = Scenario(POLICY).nodes(2, cpu=4)
        reserve(world, "r", start=0, end=HOUR, count=1, nodes=ReservedNodes(("n1",))).run()
        world.gang("big", 5).gang("fits", 4)
        for number in range(5):
            inside(world, f"big-{number}", "r", gang="big")
        for number in range(4):
            inside(world, f"fits-{number}", "r", gang="fits")
        world.run()
        assert {world.where(name) for name in world.placed()} == {"n1"}
        assert sorted(world.placed()) == [f"fits-{number}" for number in range(4)]

    def test_pod_that_its_named_reservation_does_not_allow_is_not_placed_and_has_a_reason(self) -> None:
        world = Scenario(POLICY).node("n1", cpu=4)
        lasting(world, "mine", 0, use=ReservationUse(("r",), True, "Reservation r does not allow it")).run()
        assert world.placed() == []
        assert "Reservation r does not allow it" in world.why_pod("mine").message

    def test_magnetic_reservation_attracts_eligible_pods_that_can_also_run_elsewhere(self) -> None:
        world = Scenario(POLICY).nodes(2, cpu=2)
        reserve(world, "r", start=0, end=HOUR, nodes=ReservedNodes(("n1",))).run()
        for name in "abcd":
            lasting(world, name, 0, use=ReservationUse(("r",)))
        world.run()
        assert sorted(world.where(name) for name in "abcd") == ["n1", "n1", "n2", "n2"]
        assert len(grant(world).users) == 2


class TestEnding:
    def end(self, on_end: AtEnd) -> Scenario:
        world = Scenario(POLICY).node("n1", cpu=4)
        reserve(world, "r", start=0, end=HOUR, count=4, cpu=1, on_end=on_end).run()
        inside(world, "mine", "r").run()
        later(world, HOUR)
        return world

    def test_pods_of_an_ended_reservation_are_evicted(self) -> None:
        world = self.end(AtEnd.EVICT)
        evicted = [(each.name, each.message) for each in world.plans[-1].evictions] or [
            (each.name, each.message) for made in world.plans for each in made.evictions
        ]
        assert evicted[0] == ("mine", "Reservation r has ended")

    @pytest.mark.parametrize("on_end", [AtEnd.KEEP, AtEnd.HOLD])
    def test_pods_of_an_ended_reservation_continue_where_the_object_says_so(self, on_end: AtEnd) -> None:
        world = self.end(on_end)
        assert not [each for made in world.plans for each in made.evictions]

    def test_waiting_pods_of_an_ended_reservation_are_held_or_released(self) -> None:
        for on_end, placed in ((AtEnd.HOLD, []), (AtEnd.KEEP, ["waits"])):
            world = Scenario(POLICY).node("n1", cpu=4)
            reserve(world, "r", start=0, end=HOUR, count=2, cpu=1, on_end=on_end).run()
            later(world, HOUR)
            inside(world, "waits", "r").run()
            assert world.placed() == placed

    @pytest.mark.parametrize("ends", ["in time", "by deletion"])
    def test_fifo_queue_does_not_wait_for_a_head_whose_reservation_has_ended(self, ends: str) -> None:
        """No node and no quota would help the head from then on."""
        world = Scenario(POLICY).node("n1", cpu=4, gpu=1).queue("q", fifo=True).elastic_quota("ns", {}, {"cpu": 1})
        reserve(world, "r", start=0, end=HOUR, cpu=2)
        inside(world, "head", "r", queue="q", cpu=2).run()
        later(world, 1).pod("behind", queue="q", cpu=0, gpu=1).run()
        assert world.why_pod("behind").code == "BehindInQueue"
        if ends == "in time":
            later(world, HOUR)
        else:
            world.observe("reservation r", AdvanceReservationRemoved("r")).run()
        assert world.placed() == ["behind"]

    def test_unused_reservation_is_released(self) -> None:
        world = Scenario(POLICY).node("n1", cpu=4)
        reserve(world, "r", start=0, end=9 * HOUR, count=4, cpu=1, unused_after=600).run()
        later(world, 600)
        assert (grant(world).phase, grant(world).reason) == (GrantPhase.FAILED, "Unused")

    def test_recurring_reservation_is_granted_again(self) -> None:
        world = Scenario(POLICY).node("n1", cpu=4)
        daily = parse_recurrence("FREQ=DAILY", "UTC", [], 1000, HOUR)
        reserve(world, "r", count=4, cpu=1, end=HOUR, recurrence=daily).run()
        assert grant(world).start == 1000
        later(world, HOUR)
        assert (grant(world).phase, grant(world).start) == (GrantPhase.WAITING, 1000 + 86400)


class TestQuota:
    def test_queue_is_charged_for_unused_reserved_room_and_never_twice(self) -> None:
        world = Scenario(POLICY.replace("{name: binpack}", "{name: binpack}, {name: proportion}")).node(
            "n1", cpu=64
        )
        world.queue("research", capability={"cpu": 4})
        reserve(world, "r", start=0, end=HOUR, count=3, cpu=1, queue="research").run()
        lasting(world, "one", 0, queue="research").run()
        lasting(world, "two", 0, queue="research").run()
        assert sorted(world.placed()) == ["one"]
        inside(world, "mine", "r", queue="research", cpu=3).run()
        assert sorted(world.placed()) == ["mine", "one"]

    def test_reservation_beyond_the_quota_of_its_queue_is_refused_with_a_reason(self) -> None:
        world = Scenario(POLICY.replace("{name: binpack}", "{name: binpack}, {name: proportion}")).node(
            "n1", cpu=64
        )
        world.queue("research", capability={"cpu": 4})
        reserve(world, "r", start=0, end=HOUR, count=5, cpu=1, queue="research").run()
        refusal = grant(world).refusal
        assert refusal is not None
        assert "queue research would exceed its limits then" in refusal.message


class TestLosingNodes:
    def test_lost_node_of_a_reservation_is_replaced(self) -> None:
        world = Scenario(POLICY).nodes(3, cpu=4)
        reserve(world, "r", start=HOUR, end=2 * HOUR, count=2, cpu=4).run()
        world.no_node("n1").run()
        assert sorted(grant(world).nodes) == ["n2", "n3"]
        assert not grant(world).lost

    def test_reservation_stays_short_where_no_node_replaces_a_lost_one(self) -> None:
        world = Scenario(POLICY).nodes(3, cpu=4)
        reserve(world, "r", start=HOUR, end=2 * HOUR, count=2, cpu=4, replace=Replace.NONE).run()
        world.no_node("n1").run()
        assert grant(world).lost == ("n1",)
        assert grant(world).phase is GrantPhase.WAITING


def test_restart_preserves_granted_reservations() -> None:
    world = Scenario(POLICY).nodes(2, cpu=4)
    reserve(world, "r", start=HOUR, end=2 * HOUR, count=1, cpu=4).run()
    text = encode(*starts(world.scheduler).promised()[1:])
    again = Scenario(POLICY).nodes(2, cpu=4)
    reserve(again, "a", start=HOUR, end=2 * HOUR, count=2, cpu=4)
    reserve(again, "r", start=HOUR, end=2 * HOUR, count=1, cpu=4)
    starts(again.scheduler).load([], None, decode_grants(text)[0])
    again.run()
    assert [grant(again, name).phase for name in "ar"] == [GrantPhase.PENDING, GrantPhase.WAITING]
    assert grant(again, "r").nodes == grant(world).nodes


def test_selected_nodes_are_reserved_whole() -> None:
    world = Scenario(POLICY)
    for name in ("n1", "n2", "n3"):
        world.node(name, cpu=4, labels={"pool": "a" if name != "n1" else "b"})
    lasting(world, "there", 0, node="n2")
    chosen = ReservedNodes(selector=(Requirement("pool", "In", ("a",)),), count=1)
    reserve(world, "r", start=HOUR, end=2 * HOUR, nodes=chosen).run()
    assert list(grant(world).nodes) == ["n3"]


class Books:
    """Independent count of held amounts by time: by pods and by unused reservations."""

    def __init__(self, world: Scenario) -> None:
        self.world = world
        self.limits: dict[str, int] = {}
        self.placed_at: dict[str, int] = {}

    def settle(self) -> None:
        """Start all bound pods at once."""
        world = self.world.settle()
        for name in world.placed():
            if name not in self.placed_at:
                self.placed_at[name] = world.now
                world.becomes(name, started=world.now, bound=world.now)
        world.settle()

    def check(self) -> None:
        """Check that usage never exceeds capacity at any moment at which a pod or window starts."""
        world = self.world
        advance = plan(world).grants.values() if world.state.objects.advance else []
        grants = [each for each in advance if each.granted]
        for moment in sorted({world.now, *(each.start for each in grants if each.start > world.now)}):
            standing = [each for each in grants if each.start <= moment < each.end]
            there = [name for name in world.placed() if self.there(name, moment)]
            for node in ("n1", "n2", "n3"):
                kept = sum(each.remaining(node).get("cpu", 0) for each in standing if node in each.nodes)
                used = sum(self.cpu(name) for name in there if world.where(name) == node)
                assert kept + used <= 4000, (node, moment)
            owed = sum(
                each.remaining(node).get("cpu", 0)
                for each in standing
                if each.spec.queue == "research"
                for node in each.nodes
            )
            used = sum(self.cpu(name) for name in there if world.state.pods[name].pod.queue == "research")
            assert owed + used <= 4000, moment

    def cpu(self, name: str) -> int:
        return dict(self.world.state.pods[name].pod.usage)["cpu"]

    def there(self, name: str, moment: int) -> bool:
        """Return whether a pod can still run: neither its limit nor the end of its reservation has passed. (Pods of
        a scenario stay beyond their limit; that is no fault.)
        """
        if self.limits[name] and moment >= self.placed_at[name] + self.limits[name]:
            return False
        use = self.world.state.pods[name].pod.pod_class.reservation
        known = [plan(self.world).grants.get(each) for each in use.names] if use is not None else []
        return not any(each is None or each.over or moment >= each.end for each in known)


@pytest.mark.thorough
@settings(max_examples=examples(60), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.data())
def test_no_node_and_no_account_is_overbooked_in_a_random_history(data: st.DataObject) -> None:
    world = Scenario(RESERVING.replace("{name: binpack}", "{name: binpack}, {name: proportion}")).nodes(3, cpu=4)
    world.queue("research", capability={"cpu": 4})
    books, few = Books(world), st.integers(1, 3)
    for number in range(data.draw(st.integers(2, 10))):
        name = f"x{number}"
        if data.draw(st.booleans()):
            begin = world.now - 1000 + data.draw(st.integers(0, 20)) * 600
            end = begin + data.draw(st.integers(1, 10)) * 600
            queue = data.draw(st.sampled_from(["", "research"]))
            reserve(world, name, start=begin, end=end, count=data.draw(few), cpu=data.draw(few), queue=queue)
        else:
            books.limits[name] = seconds = data.draw(st.integers(0, 10)) * 600
            queue = data.draw(st.sampled_from(["default", "research"]))
            asked = data.draw(st.sampled_from(["", *sorted(world.state.objects.advance)]))
            use = ReservationUse((asked,), True) if asked else None
            lasting(world, name, seconds, cpu=data.draw(few), queue=queue, use=use)
        books.settle()
        books.check()
        if data.draw(st.booleans()):
            later(world, data.draw(st.integers(1, 10)) * 300)
            books.settle()
            books.check()


class TestRoomThatChanges:
    def test_reservation_as_soon_as_there_is_room_moves_forward_when_room_comes_earlier(self) -> None:
        world = lasting(Scenario(POLICY).nodes(1, cpu=4), "busy", HOUR, cpu=4).run()
        reserve(world, "r", count=1, cpu=4, flexible_start=True, duration=HOUR, end=24 * HOUR).run()
        assert grant(world).phase is GrantPhase.WAITING
        assert grant(world).start > 1000 + HOUR
        world.now += 60
        world.gone("busy").run()
        assert (grant(world).phase, grant(world).start) == (GrantPhase.AVAILABLE, world.now)

    def test_flexible_start_stays_while_no_earlier_room_comes(self) -> None:
        world = lasting(Scenario(POLICY).nodes(2, cpu=4), "busy", HOUR, cpu=4).run()
        lasting(world, "other", HOUR, cpu=1).run()
        reserve(world, "r", count=2, cpu=4, flexible_start=True, duration=HOUR, end=24 * HOUR).run()
        start, version = grant(world).start, plan(world).version
        world.now += 60
        world.gone("other").run()
        assert (grant(world).start, plan(world).version) == (start, version)

    def test_owner_uses_a_reservation_that_keeps_its_pods_although_another_gang_waits(self) -> None:
        world = Scenario(RESERVING).nodes(1, cpu=4)
        reserve(world, "r", end=HOUR, count=1, cpu=4, on_end=AtEnd.KEEP).run()
        lasting(world, "waits", HOUR, cpu=4).run()
        inside(world, "mine", "r", cpu=4).run()
        assert world.where("mine") == "n1"

    def test_room_beyond_the_end_survives_a_restart(self) -> None:
        world = Scenario(RESERVING).nodes(1, cpu=4)
        reserve(world, "r", end=HOUR, count=1, cpu=4, on_end=AtEnd.HOLD).run()
        (stored,), _ = decode_grants(encode([], plan(world).stored()))
        assert stored.held_until > stored.end

    def test_reservation_that_evicts_its_pods_holds_no_room_after_its_end(self) -> None:
        world = Scenario(RESERVING).nodes(1, cpu=4)
        reserve(world, "r", end=HOUR, count=1, cpu=4).run()
        (stored,), _ = decode_grants(encode([], plan(world).stored()))
        assert stored.held_until == 0


@pytest.mark.feature("maintenance")
class TestMaintenance:
    def test_refusal_names_the_maintenance_and_not_the_pods_on_its_nodes(self) -> None:
        world = lasting(Scenario(POLICY).nodes(1, cpu=4), "endless", 0, cpu=1).run()
        close(world, "n1", start=HOUR, end=2 * HOUR)
        reserve(world, "r", start=HOUR, end=3 * HOUR, count=1, cpu=2).run()
        refusal = grant(world).refusal
        assert refusal is not None
        assert refusal.blockers == ("MaintenanceWindow w",)

    def test_granted_node_that_closes_for_maintenance_is_replaced(self) -> None:
        world = Scenario(POLICY).nodes(2, cpu=4)
        reserve(world, "r", start=HOUR, end=2 * HOUR, count=1, cpu=4).run()
        (former,) = grant(world).nodes
        close(world, former, start=HOUR, end=2 * HOUR).run()
        assert list(grant(world).nodes) == [{"n1": "n2", "n2": "n1"}[former]]
        assert (grant(world).lost, grant(world).closed) == ((), {})

    def test_granted_node_that_closes_without_a_replacement_is_reported_with_the_window(self) -> None:
        world = Scenario(POLICY).nodes(1, cpu=4)
        reserve(world, "r", start=HOUR, end=2 * HOUR, count=1, cpu=4).run()
        close(world, "n1", start=HOUR, end=2 * HOUR).run()
        assert (grant(world).lost, grant(world).closed) == (("n1",), {"n1": "MaintenanceWindow w"})
        world.observe("window gone", MaintenanceWindowRemoved("w")).run()
        assert (grant(world).lost, grant(world).closed) == ((), {})


def close(world: Scenario, *nodes: str, start: int, end: int) -> Scenario:
    made = MaintenanceWindow("w", "uid-w", nodes, start=1000 + start, end=1000 + end)
    return world.observe("window", MaintenanceWindowUpdated(made))


def test_quota_of_a_promised_start_is_free_when_an_advance_reservation_ends() -> None:
    """A pod without a run-time limit leaves its node and its queue with its advance reservation."""
    world = Scenario(RESERVING.replace("{name: predicates}", "{name: capacity}, {name: predicates}"))
    world.queue("q", capability={"cpu": 4}).node("n1", cpu=4).node("n2", cpu=4)
    reserve(world, "r", end=HOUR, nodes=ReservedNodes(("n1",)), on_end=AtEnd.EVICT).run()
    inside(world, "user", "r", queue="q", cpu=4).run()
    assert world.state.pods["user"].row >= 0
    lasting(world, "later", 60, queue="q", cpu=4).run()
    promised = starts(world.scheduler).plan
    assert promised is not None
    assert [each.start - 1000 for each in promised.all()] == [HOUR]
