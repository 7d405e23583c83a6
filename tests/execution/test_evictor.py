"""Evictions: handling of every answer of the API server."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import msgspec
import pytest

from phalanx.execution.evictor import EVICTION_API, EvictionOutcome, Evictor, EvictResult
from phalanx.execution.writes import WritePool
from phalanx.kube.errors import ConfigError, ConnectionLost, Unreachable
from phalanx.kube.retry import Backoff
from phalanx.model.decisions import Evict, EvictionReason
from phalanx.model.eviction_condition import EVICTION, ToldEviction, read_eviction
from tests.cluster_content import pod
from tests.execution.podserver import PodServer

EVICT = Evict("uid-v", "ns", "v", "n1", EvictionReason.PREEMPTED, "it goes first", "gang ns/train", cause="c1")
EVICTED, GONE = EvictionOutcome.EVICTED, EvictionOutcome.GONE
REFUSED, CALLED_OFF = EvictionOutcome.REFUSED, EvictionOutcome.CALLED_OFF
BOTH_WAYS = pytest.mark.parametrize("way", ["delete", EVICTION_API])
# The request that deletes the pod.
REQUEST = {"delete": ("DELETE", "/v", "DELETE v"), EVICTION_API: ("POST", "/eviction", "POST v/eviction")}


class World:
    """A server with one pod v on a node, and an evictor on it."""

    def __init__(self) -> None:
        self.server = PodServer()
        self.results: list[EvictResult] = []
        self.pauses: list[float] = []
        self.way = "delete"
        self.pool = WritePool(concurrency=4)
        self.evictor = Evictor(
            self.server.client(),
            self.pool,
            lambda: 1_900_000_000.0,
            through=lambda: self.way,
            attempts=4,
            backoff=self._backoff,
        )
        self.pod = self.server.add("v", nodeName="n1")

    def _backoff(self) -> Backoff:
        world = self

        class Noted(Backoff):
            def next(self, retry_after: float | None = None) -> float:
                world.pauses.append(super().next(retry_after))
                return 0.0

        return Noted(base=0.1, cap=5.0, random=lambda: 1.0)

    async def evict(self, **more: Any) -> EvictResult:
        self.evictor.submit([EVICT], self.results.append, **more)
        async with asyncio.timeout(5):
            await self.pool.drained()
        assert len(self.results) == 1, "each eviction is reported once"
        return self.results[0]

    def replace(self) -> None:
        self.server.replace("v", nodeName="n1")

    def target(self) -> str:
        """Return the status of the condition DisruptionTarget."""
        return str(self.server.condition("v", "DisruptionTarget").get("status", ""))


@pytest.fixture
async def world() -> AsyncIterator[World]:
    made = World()
    yield made
    await made.pool.close()


async def test_pod_gets_the_eviction_condition_and_is_then_deleted(world: World) -> None:
    sent: list[Any] = []
    world.server.before = lambda call: sent.append(msgspec.json.decode(call.body or b"null"))
    assert (await world.evict()).outcome is EVICTED
    assert world.server.calls == ["PATCH v/status", "DELETE v"]
    condition = {
        "type": "DisruptionTarget",
        "status": "True",
        "reason": "PreemptionByScheduler",
        "message": "phalanx: preempted by gang ns/train (it goes first)",
        "lastTransitionTime": "2030-03-17T17:46:40Z",
    }
    assert sent[0]["metadata"] == {"uid": "uid-v"}
    first, own = sent[0]["status"]["conditions"]
    assert first == condition
    told = read_eviction(own["reason"], own["message"])
    assert (own["type"], own["status"]) == (EVICTION, "True")
    assert told == ToldEviction("phalanx", EvictionReason.PREEMPTED, "gang ns/train", "it goes first")
    assert sent[1] == {"apiVersion": "v1", "kind": "DeleteOptions", "preconditions": {"uid": "uid-v"}}
    assert world.server.terminates("v")


async def test_conditions_of_other_writers_survive_an_eviction(world: World) -> None:
    ready = {"type": "Ready", "status": "True"}
    world.pod["status"]["conditions"] = [ready]
    await world.evict()
    assert world.server.condition("v", "Ready") == ready


async def test_eviction_api_lets_the_api_server_write_the_condition(world: World) -> None:
    world.way = EVICTION_API
    sent: list[Any] = []
    world.server.before = lambda call: sent.append(msgspec.json.decode(call.body or b"null"))
    assert (await world.evict()).outcome is EVICTED
    assert world.server.calls == ["POST v/eviction"]
    assert sent == [
        {
            "apiVersion": "policy/v1",
            "kind": "Eviction",
            "metadata": {"name": "v", "namespace": "ns"},
            "deleteOptions": {"preconditions": {"uid": "uid-v"}},
        }
    ]


@BOTH_WAYS
async def test_deleted_pod_needs_no_eviction(world: World, way: str) -> None:
    world.way = way
    world.server.leave("v")
    assert (await world.evict()).outcome is GONE
    assert len(world.server.calls) == 1


@BOTH_WAYS
async def test_replacement_of_a_pod_is_not_evicted(world: World, way: str) -> None:
    world.way = way
    world.replace()
    assert (await world.evict()).outcome is GONE
    assert not world.server.terminates("v")
    assert world.target() == ""


async def test_replacement_created_between_condition_and_deletion_is_not_evicted(world: World) -> None:
    world.server.before = lambda call: world.replace() if call.method == "DELETE" else None
    assert (await world.evict()).outcome is GONE
    assert world.server.calls == ["PATCH v/status", "DELETE v", "GET v"]
    assert not world.server.terminates("v")


async def test_pod_whose_condition_cannot_be_written_is_not_deleted(world: World) -> None:
    world.server.fail("PATCH", "/status", status=403, times=100)
    result = await world.evict()
    assert result.outcome is REFUSED
    assert "403 Forbidden" in result.message
    assert world.server.calls == ["PATCH v/status"]


async def test_pod_whose_deletion_is_rejected_loses_the_condition(world: World) -> None:
    """Otherwise a Job would ignore its next failure, whatever the cause."""
    world.server.fail("DELETE", "/v", status=403)
    assert (await world.evict()).outcome is REFUSED
    assert world.target() == "False"
    assert world.server.calls == ["PATCH v/status", "DELETE v", "PATCH v/status"]


@BOTH_WAYS
@pytest.mark.parametrize("code", [400, 401, 403, 422])
async def test_definite_rejection_of_an_eviction_is_not_retried(world: World, way: str, code: int) -> None:
    world.way = way
    method, ending, call = REQUEST[way]
    world.server.fail(method, ending, status=code, times=100)
    assert (await world.evict()).outcome is REFUSED
    assert world.server.calls.count(call) == 1
    assert not world.server.terminates("v")


@BOTH_WAYS
@pytest.mark.parametrize("code", [429, 500, 503])
async def test_temporary_rejection_is_retried(world: World, way: str, code: int) -> None:
    world.way = way
    method, ending, call = REQUEST[way]
    world.server.fail(method, ending, status=code, retry_after="7", times=2)
    assert (await world.evict()).outcome is EVICTED
    assert world.server.calls.count(call) == 3
    assert all(pause >= 7 for pause in world.pauses)


async def test_disruption_budget_that_stays_exhausted_is_a_rejection(world: World) -> None:
    world.way = EVICTION_API
    world.server.protected.add("v")
    result = await world.evict()
    assert result.outcome is REFUSED
    assert "disruption budget" in result.message
    assert world.server.calls == ["POST v/eviction"] * 4
    assert not world.server.terminates("v")
    assert world.target() == ""


async def test_eviction_succeeds_when_the_disruption_budget_allows_it_later(world: World) -> None:
    world.way = EVICTION_API
    world.server.protected.add("v")
    world.server.before = lambda call: world.server.protected.clear() if len(world.server.calls) == 3 else None
    assert (await world.evict()).outcome is EVICTED
    assert world.server.calls == ["POST v/eviction"] * 3


@BOTH_WAYS
@pytest.mark.parametrize("fault", [{"error": ConnectionLost("cut")}, {"status": 504}])
@pytest.mark.parametrize("after_write", [False, True])
async def test_lost_answer_to_a_deletion_does_no_harm(
    world: World, way: str, fault: dict[str, Any], after_write: bool
) -> None:
    world.way = way
    method, ending, call = REQUEST[way]
    world.server.fail(method, ending, after_write=after_write, **fault)
    assert (await world.evict()).outcome is EVICTED
    assert world.server.terminates("v")
    assert world.server.calls.count(call) == 2


async def test_pod_deleted_while_the_answer_was_lost_counts_as_evicted(world: World) -> None:
    """The deletion took effect, and the pod's controller has created another of its name."""
    world.server.fail("DELETE", "/v", error=ConnectionLost("cut"), after_write=True)
    world.server.before = lambda call: world.replace() if len(world.server.calls) == 3 else None
    assert (await world.evict()).outcome is EVICTED
    assert not world.server.terminates("v")


async def test_lost_answer_to_the_condition_does_no_harm(world: World) -> None:
    world.server.fail("PATCH", "/status", error=ConnectionLost("cut"), after_write=True)
    assert (await world.evict()).outcome is EVICTED
    assert world.server.calls == ["PATCH v/status", "PATCH v/status", "DELETE v"]


@pytest.mark.parametrize("error", [Unreachable("refused"), ConfigError("the plugin fails")])
async def test_unreachable_server_is_waited_for_by_an_eviction(world: World, error: Exception) -> None:
    world.server.fail("DELETE", "/v", error=error, times=30)
    assert (await world.evict()).outcome is EVICTED


async def test_not_found_from_a_proxy_does_not_count_as_deleted(world: World) -> None:
    world.server.fail("DELETE", "/v", status=404, body=b"<html>no backend</html>")
    assert (await world.evict()).outcome is EVICTED
    assert world.server.terminates("v")


async def test_pod_is_read_where_the_server_answers_only_errors(world: World) -> None:
    """Each deletion is answered with an error, the first has taken effect."""
    world.server.fail("DELETE", "/v", status=500, after_write=True)
    world.server.fail("DELETE", "/v", status=500, times=100)
    assert (await world.evict()).outcome is EVICTED
    assert world.server.calls[-1] == "GET v"


async def test_conflict_other_than_the_uid_is_retried(world: World) -> None:
    world.server.fail("DELETE", "/v", status=409)
    assert (await world.evict()).outcome is EVICTED


async def test_repeated_conflicts_of_an_eviction_end_as_a_rejection(world: World) -> None:
    world.server.fail("DELETE", "/v", status=409, times=100)
    assert (await world.evict()).outcome is REFUSED
    assert world.server.calls.count("DELETE v") == 4


async def test_guard_is_checked_before_each_attempt_to_evict(world: World) -> None:
    world.server.fail("DELETE", "/v", status=429)
    answers = iter([None, CALLED_OFF])
    assert (await world.evict(guard=lambda evict: next(answers))).outcome is CALLED_OFF
    assert not world.server.terminates("v")
    assert world.target() == "False", "what was announced is taken back"


async def test_possibly_written_condition_is_withdrawn_too(world: World) -> None:
    world.server.fail("PATCH", "/status", error=ConnectionLost("cut"), after_write=True)
    answers = iter([None, CALLED_OFF])
    assert (await world.evict(guard=lambda evict: next(answers))).outcome is CALLED_OFF
    assert world.target() == "False"


async def test_eviction_cancelled_in_time_leaves_no_trace(world: World) -> None:
    assert (await world.evict(guard=lambda evict: CALLED_OFF)).outcome is CALLED_OFF
    assert world.server.calls == []


async def test_guard_is_not_checked_once_the_pod_can_be_deleted(world: World) -> None:
    world.server.fail("DELETE", "/v", error=ConnectionLost("cut"), after_write=True)
    answers = iter([None, CALLED_OFF])
    assert (await world.evict(guard=lambda evict: next(answers))).outcome is EVICTED


async def test_bug_in_an_eviction_is_a_rejection_and_not_a_hang(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(evict: Evict) -> EvictionOutcome | None:
        raise ZeroDivisionError("a bug")

    result = await world.evict(guard=broken)
    assert result.outcome is REFUSED
    assert "a bug" in result.message
    assert "failed unexpectedly" in caplog.text


def another(name: str) -> Evict:
    return msgspec.structs.replace(EVICT, uid=f"uid-{name}", name=name)


async def evict_both(world: World) -> dict[str, EvictionOutcome]:
    world.server.add("w", nodeName="n1")
    world.evictor.submit([EVICT, another("w")], world.results.append)
    async with asyncio.timeout(5):
        await world.pool.drained()
    return {result.evict.name: result.outcome for result in world.results}


async def test_no_pod_is_deleted_before_all_victims_have_the_condition(world: World) -> None:
    assert await evict_both(world) == {"v": EVICTED, "w": EVICTED}
    calls = world.server.calls
    assert sorted(calls[:2]) == ["PATCH v/status", "PATCH w/status"]
    assert sorted(calls[2:]) == ["DELETE v", "DELETE w"]


async def test_one_victim_that_cannot_be_evicted_saves_the_remaining_ones(world: World) -> None:
    world.server.fail("PATCH", "/w/status", status=403)
    assert await evict_both(world) == {"v": CALLED_OFF, "w": REFUSED}
    assert not any(call.startswith("DELETE") for call in world.server.calls)
    assert world.target() == "False"


async def test_deleted_victim_does_not_save_the_remaining_ones(world: World) -> None:
    world.evictor.submit([EVICT, another("gone")], world.results.append)
    async with asyncio.timeout(5):
        await world.pool.drained()
    assert {result.evict.name: result.outcome for result in world.results} == {"v": EVICTED, "gone": GONE}


async def test_victim_that_has_the_condition_is_not_written_again(world: World) -> None:
    """A former process has written it."""
    world.evictor.says_so = lambda uid: uid == EVICT.uid
    assert (await world.evict()).outcome is EVICTED
    assert world.server.calls == ["DELETE v"]


async def test_victim_whose_condition_was_withdrawn_gets_it_again(world: World) -> None:
    """The watch can deliver an older state."""
    world.evictor.says_so = lambda uid: True
    world.server.fail("DELETE", "/v", status=403)
    assert (await world.evict()).outcome is REFUSED
    world.results.clear()
    assert (await world.evict()).outcome is EVICTED
    assert [call for call in world.server.calls if call != "GET v"] == [
        "DELETE v",
        "PATCH v/status",
        "PATCH v/status",
        "DELETE v",
    ]


async def test_victim_evicted_after_a_withdrawal_has_the_condition(world: World) -> None:
    """The last write counts."""
    said: list[str] = []
    world.server.before = lambda call: said.append(str(world.target()))
    world.evictor.says_so = lambda uid: True
    world.evictor.withdraw(pod("v", node="n1"))
    assert (await world.evict()).outcome is EVICTED
    assert world.server.calls == ["PATCH v/status", "PATCH v/status", "DELETE v"]
    assert said == ["", "False", "True"]


async def test_failing_withdrawal_blocks_no_other_work(world: World) -> None:
    world.server.fail("PATCH", "/v/status", error=ConnectionLost("reset"))
    world.evictor.withdraw(pod("v", node="n1"))
    assert (await world.evict()).outcome is EVICTED
    assert world.target() == "True"
