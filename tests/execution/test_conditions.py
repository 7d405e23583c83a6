"""Conditions of waiting pods: written on change only, one write at a time, never over newer state."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from phalanx.execution.conditions import ADMITTED, POD_SCHEDULED, PodConditions
from phalanx.execution.writes import WritePool
from phalanx.kube.conditions import PodCondition
from phalanx.kube.errors import ConnectionLost
from phalanx.kube.http.transport import HttpRequest
from phalanx.kube.retry import RetryPolicy
from phalanx.model.verdict import Verdict
from phalanx.model.verdict_condition import LAST_VERDICT, read_told, told_fields
from tests.execution.podserver import PodServer

FULL = Verdict("NotEnoughResources", "0/3 nodes are available: 3 Insufficient cpu.", change="add 4 cpu")
FULL_TEXT = "0/3 nodes are available: 3 Insufficient cpu. To fix: add 4 cpu."
GONE = Verdict("NoEligibleNode", "0/3 nodes are available: 3 node(s) were unschedulable.")
TURN = Verdict("AwaitingAdmission", "it waits for its turn", unschedulable=False)


class World:
    def __init__(self) -> None:
        self.server = PodServer()
        self.pool = WritePool(concurrency=4)
        self.now = 1_900_000_000.0
        self.conditions = PodConditions(
            self.server.client(), self.pool, lambda: self.now, RetryPolicy(attempts=3, base=0.001)
        )

    def add(self, name: str, *conditions: dict[str, Any], **spec: Any) -> str:
        self.server.add(name, **spec)["status"]["conditions"] = list(conditions)
        self.see(name)
        return f"uid-{name}"

    def see(self, name: str) -> None:
        """Deliver the pods to the cache, as the watch does."""
        pod = self.server.pods["ns", name]
        held = [
            PodCondition(entry["type"], entry["status"], entry.get("reason", ""), entry.get("message", ""))
            for entry in pod["status"]["conditions"]
            if entry["type"] in (POD_SCHEDULED, ADMITTED, LAST_VERDICT)
        ]
        metadata, spec = pod["metadata"], pod["spec"]
        self.conditions.observe(
            metadata["uid"],
            "ns",
            name,
            metadata["resourceVersion"],
            held,
            waits=not (spec.get("nodeName") or spec.get("schedulingGates")),
            generation=metadata.get("generation", 0),
            observed=next((each.get("observedGeneration", 0) for each in pod["status"]["conditions"]), 0),
        )

    async def settle(self) -> None:
        async with asyncio.timeout(5):
            await self.pool.drained()


@pytest.fixture
async def world() -> AsyncIterator[World]:
    made = World()
    yield made
    await made.pool.close()


async def test_verdict_is_written_as_a_condition(world: World) -> None:
    uid = world.add("p")
    world.conditions.set_verdict(uid, FULL)
    await world.settle()
    assert world.server.condition("p", POD_SCHEDULED) == {
        "type": "PodScheduled",
        "status": "False",
        "reason": "Unschedulable",
        "message": FULL_TEXT,
        "lastTransitionTime": "2030-03-17T17:46:40Z",
    }


async def test_unchanged_verdict_is_not_written(world: World) -> None:
    uid = world.add("p")
    for _ in range(3):
        world.conditions.set_verdict(uid, FULL)
        await world.settle()
    world.see("p")
    world.conditions.set_verdict(uid, FULL)
    await world.settle()
    assert len(world.server.patches) == 1


async def test_condition_found_after_a_restart_is_not_written_again(world: World) -> None:
    told = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": FULL_TEXT}
    exact = {"type": LAST_VERDICT, "status": "True", "reason": FULL.code, "message": told_fields(FULL)}
    world.conditions.set_verdict(world.add("p", told, exact), FULL)
    await world.settle()
    assert world.server.patches == []


async def test_exact_code_and_counts_are_written_with_unschedulable(world: World) -> None:
    verdict = Verdict("PrerequisiteMissing", "x", needed=3, placeable=1, members=2)
    uid = world.add("p")
    world.conditions.set_verdict(uid, verdict)
    await world.settle()
    assert len(world.server.patches) == 1
    assert world.server.condition("p", POD_SCHEDULED)["reason"] == "Unschedulable"
    exact = world.server.condition("p", LAST_VERDICT)
    told = read_told(exact["reason"], exact["message"])
    assert told is not None
    assert (exact["status"], told.code) == ("True", "PrerequisiteMissing")
    assert (told.fields.needed, told.fields.placeable, told.fields.members) == (3, 1, 2)


async def test_last_verdict_stays_on_a_bound_pod_without_a_write(world: World) -> None:
    uid = world.add("p")
    world.conditions.set_verdict(uid, FULL)
    await world.settle()
    world.server.pods["ns", "p"]["spec"]["nodeName"] = "n"
    world.conditions.binding_submitted(uid)
    world.see("p")
    await world.settle()
    assert len(world.server.patches) == 1


async def test_changed_text_preserves_the_transition_time(world: World) -> None:
    uid = world.add("p")
    world.conditions.set_verdict(uid, FULL)
    await world.settle()
    since = world.server.condition("p", POD_SCHEDULED)["lastTransitionTime"]
    world.now += 3600
    world.conditions.set_verdict(uid, GONE)
    await world.settle()
    assert world.server.condition("p", POD_SCHEDULED)["message"] == GONE.message
    assert world.server.condition("p", POD_SCHEDULED)["lastTransitionTime"] == since


async def test_conditions_of_other_writers_are_preserved(world: World) -> None:
    other = {"type": "example.com/Other", "status": "True"}
    world.conditions.set_verdict(world.add("p", other), FULL)
    await world.settle()
    assert world.server.condition("p", "example.com/Other") == other


async def test_only_the_latest_verdict_is_written(world: World) -> None:
    uid = world.add("p")
    for verdict in (FULL, GONE, FULL, GONE):
        world.conditions.set_verdict(uid, verdict)
    await world.settle()
    assert [patch["status"]["conditions"][0]["message"] for patch in world.server.patches] == [GONE.message]


async def test_verdict_during_a_write_is_written_after_it(world: World) -> None:
    """Two concurrent writes for one pod could arrive in the wrong order."""
    uid = world.add("p")
    running = 0

    def once(call: HttpRequest) -> None:
        nonlocal running
        running += 1
        if running == 1:
            world.conditions.set_verdict(uid, GONE)

    world.server.before = once
    world.conditions.set_verdict(uid, FULL)
    await world.settle()
    assert world.server.condition("p", POD_SCHEDULED)["message"] == GONE.message
    assert len(world.server.patches) == 2


async def test_verdict_that_returns_to_its_old_value_during_a_write_is_written(world: World) -> None:
    uid = world.add("p")
    world.conditions.set_verdict(uid, FULL)
    await world.settle()
    world.server.before = lambda call: world.conditions.set_verdict(uid, FULL) if call.body else None
    world.conditions.set_verdict(uid, GONE)
    await world.settle()
    assert world.server.condition("p", POD_SCHEDULED)["message"] == FULL_TEXT


async def test_pod_bound_during_a_write_remains_scheduled(world: World) -> None:
    """The write was decided before the binding and arrives after it: the server rejects it."""
    uid = world.add("p")
    pod = world.server.pods["ns", "p"]

    def bind(call: HttpRequest) -> None:
        pod["spec"]["nodeName"] = "n1"
        pod["status"]["conditions"] = [{"type": "PodScheduled", "status": "True"}]
        world.server.change(pod)

    world.server.before = bind
    world.conditions.set_verdict(uid, FULL)
    await world.settle()
    world.see("p")
    await world.settle()
    assert world.server.condition("p", POD_SCHEDULED) == {"type": "PodScheduled", "status": "True"}
    assert len(world.conditions) == 0


async def test_change_by_another_client_delays_a_write_until_it_is_observed(world: World) -> None:
    uid = world.add("p")
    world.server.change(world.server.pods["ns", "p"])
    world.conditions.set_verdict(uid, FULL)
    await world.settle()
    assert world.server.condition("p", POD_SCHEDULED) == {}
    world.see("p")
    await world.settle()
    assert world.server.condition("p", POD_SCHEDULED)["message"] == FULL_TEXT


async def test_conflict_without_a_newer_state_is_retried(world: World) -> None:
    """Servers under contention answer 409 although nothing has changed: the watch has no event then."""
    world.conditions = PodConditions(
        world.server.client(), world.pool, lambda: world.now, RetryPolicy(attempts=3, base=0.001, cap=0.01)
    )
    uid = world.add("p")
    world.server.fail("PATCH", "/status", status=409, times=7)
    world.conditions.set_verdict(uid, FULL)
    async with asyncio.timeout(5):
        while not world.server.condition("p", POD_SCHEDULED):  # noqa: ASYNC110 - the server tells nobody
            await asyncio.sleep(0.01)
    assert world.server.calls.count("PATCH p/status") == 8


async def test_change_observed_before_the_conflict_arrives_is_used(world: World) -> None:
    uid = world.add("p")
    pod = world.server.pods["ns", "p"]

    def change(call: HttpRequest) -> None:
        world.server.before = lambda call: None
        world.server.change(pod)
        world.see("p")

    world.server.before = change
    world.conditions.set_verdict(uid, FULL)
    await world.settle()
    assert world.server.condition("p", POD_SCHEDULED)["message"] == FULL_TEXT


async def test_old_observation_does_not_undo_a_write(world: World) -> None:
    uid = world.add("p")
    before = world.server.pods["ns", "p"]["metadata"]["resourceVersion"]
    world.conditions.set_verdict(uid, FULL)
    await world.settle()
    world.conditions.observe(uid, "ns", "p", before, [])
    world.conditions.set_verdict(uid, FULL)
    await world.settle()
    assert len(world.server.patches) == 1


async def test_pod_blocked_by_queue_order_is_not_unschedulable(world: World) -> None:
    world.conditions.set_verdict(world.add("p"), TURN)
    await world.settle()
    assert world.server.condition("p", POD_SCHEDULED) == {}
    assert world.server.condition("p", ADMITTED)["status"] == "False"
    assert world.server.condition("p", ADMITTED)["reason"] == "AwaitingAdmission"


async def test_unschedulable_pod_that_becomes_blocked_by_queue_order_is_not_for_autoscalers(world: World) -> None:
    uid = world.add("p")
    world.conditions.set_verdict(uid, FULL)
    await world.settle()
    world.conditions.set_verdict(uid, TURN)
    await world.settle()
    scheduled = world.server.condition("p", POD_SCHEDULED)
    assert (scheduled["status"], scheduled["reason"]) == ("False", "AwaitingAdmission")
    assert len(world.server.patches) == 2


async def test_admitted_pod_has_its_condition(world: World) -> None:
    uid = world.add("p")
    world.conditions.set_verdict(uid, TURN)
    await world.settle()
    world.now += 60
    world.conditions.set_verdict(uid, FULL)
    await world.settle()
    assert world.server.condition("p", ADMITTED)["status"] == "True"
    assert world.server.condition("p", ADMITTED)["lastTransitionTime"] == "2030-03-17T17:47:40Z"
    assert world.server.condition("p", POD_SCHEDULED)["reason"] == "Unschedulable"


async def test_placed_pod_has_the_condition_of_admission(world: World) -> None:
    uid = world.add("p")
    world.conditions.set_verdict(uid, TURN)
    await world.settle()
    world.conditions.binding_submitted(uid)
    await world.settle()
    assert world.server.condition("p", ADMITTED)["status"] == "True"


async def test_bound_pod_with_an_outdated_held_condition_is_corrected(world: World) -> None:
    """A scheduler that was killed between the binding and this write leaves it behind."""
    held = {"type": ADMITTED, "status": "False", "reason": "AwaitingAdmission", "message": "its turn"}
    world.add("p", held, nodeName="n1")
    await world.settle()
    assert world.server.condition("p", ADMITTED)["status"] == "True"
    world.see("p")
    assert len(world.conditions) == 0


async def test_placement_cancels_an_unwritten_verdict(world: World) -> None:
    uid = world.add("p")
    world.conditions.set_verdict(uid, FULL)
    world.conditions.binding_submitted(uid)
    await world.settle()
    assert world.server.patches == []


async def test_gated_pods_get_no_condition(world: World) -> None:
    uid = world.add("p", schedulingGates=[{"name": "example.com/hold"}])
    world.conditions.set_verdict(uid, FULL)
    await world.settle()
    assert world.server.patches == []


async def test_unobserved_pods_get_no_condition(world: World) -> None:
    world.conditions.set_verdict("uid-of-nobody", FULL)
    await world.settle()
    assert world.server.calls == []


async def test_deleted_pods_are_forgotten(world: World) -> None:
    uid = world.add("p")
    world.server.before = lambda call: world.conditions.forget(uid)
    world.conditions.set_verdict(uid, FULL)
    await world.settle()
    assert len(world.conditions) == 0


async def test_transient_failures_are_retried(world: World) -> None:
    world.server.fail("PATCH", "/status", error=ConnectionLost("cut"))
    world.server.fail("PATCH", "/status", status=503)
    world.conditions.set_verdict(world.add("p"), FULL)
    await world.settle()
    assert world.server.condition("p", POD_SCHEDULED)["message"] == FULL_TEXT
    assert len(world.server.patches) == 1


async def test_bug_is_logged_once_and_not_retried_forever(world: World, caplog: pytest.LogCaptureFixture) -> None:
    uid = world.add("p")
    world.server.fail("PATCH", "/status", error=ZeroDivisionError("a bug"), times=100)
    world.conditions.set_verdict(uid, FULL)
    await world.settle()
    assert len(world.server.calls) == 1
    assert "a bug" in caplog.text


async def test_transient_failure_is_waited_for(world: World, caplog: pytest.LogCaptureFixture) -> None:
    uid = world.add("p")
    world.server.fail("PATCH", "/status", status=500, times=8)
    world.conditions.set_verdict(uid, FULL)
    await world.settle()
    assert world.server.calls.count("PATCH p/status") == 9
    assert world.server.condition("p", POD_SCHEDULED)["message"] == FULL_TEXT
    assert caplog.text.count("was not written; it is retried") == 1


@pytest.mark.parametrize(("code", "tries"), [(403, 1), (404, 1), (422, 1)])
async def test_retries_of_failures_end(
    world: World, code: int, tries: int, caplog: pytest.LogCaptureFixture
) -> None:
    uid = world.add("p")
    world.server.fail("PATCH", "/status", status=code, times=100)
    world.conditions.set_verdict(uid, FULL)
    await world.settle()
    assert world.server.calls.count("PATCH p/status") == tries
    assert ("was not written" in caplog.text) == (code != 404)


async def test_invalid_declaration_is_an_error_that_autoscalers_ignore(world: World) -> None:
    uid = world.add("p")
    world.conditions.set_verdict(uid, Verdict("PriorityMismatch", "the priorities differ", fault=True))
    await world.settle()
    assert world.server.condition("p", POD_SCHEDULED)["reason"] == "SchedulerError"


async def test_condition_has_the_observed_generation(world: World) -> None:
    uid = world.add("p")
    for generation in (1, 2):
        world.server.pods["ns", "p"]["metadata"]["generation"] = generation
        world.see("p")
        world.conditions.set_verdict(uid, FULL) if generation == 1 else None
        await world.settle()
        world.see("p")
        await world.settle()
        assert world.server.condition("p", POD_SCHEDULED)["observedGeneration"] == generation
    assert len(world.server.patches) == 2


async def test_condition_of_an_earlier_generation_by_another_writer_is_not_repeated(world: World) -> None:
    gated = {"type": "PodScheduled", "status": "False", "reason": "SchedulingGated", "observedGeneration": 1}
    world.add("p", gated)
    world.server.pods["ns", "p"]["metadata"]["generation"] = 2
    world.see("p")
    await world.settle()
    assert world.server.patches == []


async def test_queue_order_verdict_overrides_a_write_in_progress(world: World) -> None:
    """Otherwise the pod would remain unschedulable, and an autoscaler would add a node for it."""
    uid = world.add("p")
    changed = False

    def meanwhile(call: HttpRequest) -> None:
        nonlocal changed
        if not changed:
            changed = True
            world.conditions.set_verdict(uid, TURN)

    world.server.before = meanwhile
    world.conditions.set_verdict(uid, FULL)
    await world.settle()
    assert world.server.condition("p", POD_SCHEDULED)["reason"] == "AwaitingAdmission"
    assert world.server.condition("p", ADMITTED)["status"] == "False"
