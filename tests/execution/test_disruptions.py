"""Decisions to evict: promised in writing before anyone has to leave, and called off with their preemptor."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable

import pytest

from phalanx.execution.conditions import NominationOutcome, PodConditions
from phalanx.execution.disruptions import Disruptions
from phalanx.execution.evictor import EVICTION_API, EvictionOutcome, Evictor, EvictResult
from phalanx.execution.writes import WritePool
from phalanx.kube.errors import ConnectionLost, Unreachable
from phalanx.kube.http.transport import HttpRequest
from phalanx.kube.retry import Backoff, RetryPolicy
from phalanx.model.decisions import Evict, EvictionReason, Nominate
from phalanx.model.gang import GangKey
from tests.execution.podserver import PodServer

EVICTED, GONE = EvictionOutcome.EVICTED, EvictionOutcome.GONE
REFUSED, CALLED_OFF = EvictionOutcome.REFUSED, EvictionOutcome.CALLED_OFF


class Life:
    """One life of a scheduler, as far as evictions go."""

    def __init__(self, server: PodServer) -> None:
        self.server = server
        self.pool = WritePool(concurrency=2)
        self.results: list[EvictResult] = []
        self.nominated: list[NominationOutcome] = []
        self.way = "delete"
        client = server.client()
        self.conditions = PodConditions(client, self.pool, lambda: 1000.0, RetryPolicy(attempts=3, base=0.001))
        evictor = Evictor(
            client, self.pool, lambda: 1000.0, through=lambda: self.way, backoff=lambda: Backoff(base=0.001)
        )
        self.guard: Callable[[Evict], EvictionOutcome | None] = lambda evict: None
        self.disruptions = Disruptions(
            self.conditions,
            evictor,
            self.results.append,
            lambda evict: self.guard(evict),
            self.nominated.append,
        )
        for pod in server.pods.values():
            self.see(pod["metadata"]["name"])

    def see(self, name: str) -> None:
        """What the watch does."""
        pod = self.server.pods["ns", name]
        metadata, nominated = pod["metadata"], pod["status"].get("nominatedNodeName", "")
        waits = not pod["spec"].get("nodeName")
        version = metadata["resourceVersion"]
        self.conditions.observe(metadata["uid"], "ns", name, version, [], nominated=nominated, waits=waits)

    def decide(self, waiting: str, victims: str, cause: str = "c1") -> None:
        """Names of pods, with spaces between them."""
        self.disruptions.submit(
            [Nominate(f"uid-{name}", "ns", name, "n1", cause) for name in waiting.split()],
            [evict(name, cause) for name in victims.split()],
        )

    async def settle(self) -> None:
        async with asyncio.timeout(5):
            await self.pool.drained()

    @property
    def outcomes(self) -> dict[str, EvictionOutcome]:
        assert len({result.evict.uid for result in self.results}) == len(self.results), "each is reported once"
        return {result.evict.name: result.outcome for result in self.results}


def evict(name: str, cause: str) -> Evict:
    return Evict(f"uid-{name}", "ns", name, "n1", EvictionReason.PREEMPTED, "others go first", cause=cause)


@pytest.fixture
def server() -> PodServer:
    """Pods a, b and c wait, v, w and x have room."""
    made = PodServer()
    for name in "abc":
        made.add(name)
    for name in "vwx":
        made.add(name, nodeName="n1")
    return made


@pytest.fixture
async def life(server: PodServer) -> AsyncIterator[Life]:
    made = Life(server)
    yield made
    await made.pool.close()


async def test_promises_are_written_before_anyone_leaves(life: Life) -> None:
    life.decide("a b c", "v w")
    await life.settle()
    assert sorted(life.server.calls[:3]) == ["PATCH a/status", "PATCH b/status", "PATCH c/status"]
    assert sorted(life.server.calls[3:]) == ["DELETE v", "DELETE w", "PATCH v/status", "PATCH w/status"]
    assert life.outcomes == {"v": EVICTED, "w": EVICTED}
    assert len(life.disruptions) == 0


async def test_a_promise_that_is_slow_to_write_holds_up_its_own_decision_only(life: Life) -> None:
    life.server.change(life.server.pods["ns", "b"])
    life.decide("a", "v", "c1")
    life.decide("b", "w", "c2")
    await life.settle()
    assert life.outcomes == {"v": EVICTED}
    life.see("b")
    await life.settle()
    assert life.outcomes == {"v": EVICTED, "w": EVICTED}


async def test_evictions_for_nobody_in_particular_go_at_once(life: Life) -> None:
    life.decide("", "v")
    await life.settle()
    assert life.server.calls == ["PATCH v/status", "DELETE v"]


async def test_a_promise_that_stands_already_is_not_waited_for(life: Life) -> None:
    life.decide("a", "v", "c1")
    await life.settle()
    life.decide("a", "w", "c2")
    await life.settle()
    assert life.server.calls.count("PATCH a/status") == 1
    assert life.outcomes == {"v": EVICTED, "w": EVICTED}


async def test_a_promise_that_is_refused_for_good_holds_nobody_up(life: Life) -> None:
    """It is lost with the process then; but the room is needed, and kept in mind."""
    life.server.fail("PATCH", "/a/status", status=403)
    life.decide("a", "v")
    await life.settle()
    assert life.nominated == [NominationOutcome.REFUSED]
    assert life.outcomes == {"v": EVICTED}


async def test_nobody_leaves_for_a_pod_that_is_gone(life: Life) -> None:
    life.server.leave("a")
    life.decide("a", "v w")
    await life.settle()
    assert life.outcomes == {"v": CALLED_OFF, "w": CALLED_OFF}
    assert life.server.calls == ["PATCH a/status"]
    assert len(life.disruptions) == 0


async def test_a_gang_moves_as_one_or_not_at_all(life: Life) -> None:
    """One of three members is gone: the room of the others is not cleared either."""
    life.server.leave("b")
    life.decide("a b c", "v w x")
    await life.settle()
    assert set(life.outcomes.values()) == {CALLED_OFF}
    assert not any(life.server.terminates(name) for name in "vwx")


async def test_a_preemptor_that_is_deleted_while_evictions_are_on_their_way(life: Life) -> None:
    """One victim has been told to leave, the other is protected for the moment: it stays."""
    life.way = EVICTION_API
    life.server.protected.add("w")

    def delete_preemptor(call: HttpRequest) -> None:
        if life.server.calls.count("POST w/eviction") == 2:
            life.disruptions.release("uid-a")

    life.server.before = delete_preemptor
    life.decide("a", "v w")
    await life.settle()
    assert life.outcomes == {"v": EVICTED, "w": CALLED_OFF}
    assert life.server.calls.count("POST w/eviction") == 2
    assert len(life.disruptions) == 0


async def test_a_promise_that_is_taken_back_takes_its_evictions_back(life: Life) -> None:
    life.decide("a", "v")
    life.disruptions.submit([Nominate("uid-a", "ns", "a", "", "c2")], [])
    await life.settle()
    assert life.outcomes == {"v": CALLED_OFF}
    assert life.server.nominated("a") == ""
    assert not life.server.terminates("v")


async def test_a_later_decision_for_the_same_pod_counts_on_the_earlier_one(life: Life) -> None:
    """The second decision has found v on its way out, so v must go although its promise was never written."""
    life.server.change(life.server.pods["ns", "a"])
    life.decide("a", "v", "c1")
    await life.settle()
    assert life.results == []
    life.decide("a", "w", "c2")
    life.see("a")
    await life.settle()
    assert life.outcomes == {"v": EVICTED, "w": EVICTED}
    assert life.nominated == [NominationOutcome.SUPERSEDED, NominationOutcome.WRITTEN]
    assert len(life.disruptions) == 0


async def test_a_decision_takes_over_what_an_earlier_one_has_under_way(life: Life) -> None:
    """v is protected for the moment when w is chosen too; the end of their preemptor is the end of both."""
    life.way = EVICTION_API
    life.server.protected |= {"v", "w"}

    def decide_again(call: HttpRequest) -> None:
        if life.server.calls.count("POST v/eviction") == 1 and len(life.disruptions) == 1:
            life.decide("a", "w", "c2")
        if life.server.calls.count("POST w/eviction") == 1:
            life.disruptions.release("uid-a")

    life.server.before = decide_again
    life.decide("a", "v", "c1")
    await life.settle()
    assert life.outcomes == {"v": CALLED_OFF, "w": CALLED_OFF}
    assert len(life.disruptions) == 0


async def test_who_takes_over_what_is_promised_inherits_those_who_leave_for_it(life: Life) -> None:
    """b takes a's room in the midst of it: v goes for b now, and is not called off."""
    life.server.change(life.server.pods["ns", "a"])
    life.decide("a", "v", "c1")
    await life.settle()
    assert life.results == []
    life.disruptions.submit(
        [
            Nominate("uid-a", "ns", "a", "", "c2", successor="c2"),
            Nominate("uid-b", "ns", "b", "n1", "c2"),
        ],
        [],
    )
    await life.settle()
    assert life.outcomes == {"v": EVICTED}
    life.disruptions.release("uid-a")  # it is nobody's preemptor any more
    assert len(life.disruptions) == 0


async def test_the_heir_that_is_gone_saves_them_all(life: Life) -> None:
    life.server.change(life.server.pods["ns", "a"])
    life.server.change(life.server.pods["ns", "b"])
    life.decide("a", "v", "c1")
    await life.settle()
    life.disruptions.submit(
        [Nominate("uid-a", "ns", "a", "", "c2", successor="c2"), Nominate("uid-b", "ns", "b", "n1", "c2")], []
    )
    await life.settle()
    life.disruptions.release("uid-b")
    assert life.outcomes == {"v": CALLED_OFF}


async def test_the_last_word_of_a_plan_counts(life: Life) -> None:
    """What was held is given up and something else is decided at once: who was leaving goes on to leave."""
    life.server.change(life.server.pods["ns", "a"])
    life.decide("a", "v", "c1")
    nominations = [Nominate("uid-a", "ns", "a", node, "c2") for node in ("", "n2")]
    life.disruptions.submit(nominations, [evict("w", "c2")])
    life.see("a")
    await life.settle()
    assert life.outcomes == {"v": EVICTED, "w": EVICTED}
    assert [patch["status"].get("nominatedNodeName") for patch in life.server.patches[:1]] == ["n2"]


async def test_two_decisions_that_became_one_are_called_off_together(life: Life) -> None:
    for name in "ab":
        life.server.change(life.server.pods["ns", name])
    life.decide("a", "v", "c1")
    life.decide("b", "w", "c2")
    life.decide("a b", "x", "c3")
    await life.settle()
    life.disruptions.release("uid-b")
    assert life.outcomes == {"v": CALLED_OFF, "w": CALLED_OFF, "x": CALLED_OFF}
    assert len(life.disruptions) == 0


async def test_the_guard_speaks_for_pods_that_leave_by_themselves(life: Life) -> None:
    life.guard = lambda evict: GONE if evict.name == "v" else None
    life.decide("a", "v w")
    await life.settle()
    assert life.outcomes == {"v": GONE, "w": EVICTED}
    assert "DELETE v" not in life.server.calls


async def test_refusals_are_told(life: Life) -> None:
    life.server.fail("DELETE", "/v", status=403)
    life.decide("a", "v w")
    await life.settle()
    assert life.outcomes == {"v": REFUSED, "w": EVICTED}


# Crashes: what a second life finds.


async def test_killed_before_the_promises_are_written(server: PodServer) -> None:
    first = Life(server)
    server.fail("PATCH", "/status", error=Unreachable("down"), times=1000)
    first.decide("a b", "v w")
    await asyncio.sleep(0.01)
    await first.pool.close()
    assert not any(server.terminates(name) for name in "vw")
    assert server.condition("v", "DisruptionTarget") == {}


async def test_killed_after_the_promises_before_the_deletions(server: PodServer) -> None:
    """The claim is in the API; whoever decides again finds the same room wanted by the same pods."""
    first = Life(server)
    server.fail("DELETE", "/v", error=Unreachable("down"), times=1000)
    server.fail("DELETE", "/w", error=Unreachable("down"), times=1000)
    first.decide("a b", "v w")
    await asyncio.sleep(0.01)
    await first.pool.close()
    server.faults.clear()
    assert [server.nominated(name) for name in "ab"] == ["n1", "n1"]
    assert not any(server.terminates(name) for name in "vw")
    second = Life(server)
    server.calls.clear()
    second.decide("a b", "v w")
    await second.settle()
    assert "PATCH a/status" not in server.calls, "the promise stands"
    assert second.outcomes == {"v": EVICTED, "w": EVICTED}


async def test_killed_after_some_deletions(server: PodServer) -> None:
    """The second life orders again who terminates already: that changes nothing."""
    first = Life(server)
    server.fail("DELETE", "/w", error=Unreachable("down"), times=1000)
    first.decide("a", "v w")
    await asyncio.sleep(0.01)
    await first.pool.close()
    server.faults.clear()
    assert (server.terminates("v"), server.terminates("w")) == (True, False)
    deadline = server.pods["ns", "v"]["metadata"]["deletionTimestamp"]
    second = Life(server)
    second.decide("a", "v w")
    await second.settle()
    assert second.outcomes == {"v": EVICTED, "w": EVICTED}
    assert server.pods["ns", "v"]["metadata"]["deletionTimestamp"] == deadline


@pytest.mark.parametrize("lost", range(1, 7))
@pytest.mark.parametrize("after_write", [False, True])
async def test_any_answer_may_be_lost(server: PodServer, lost: int, after_write: bool) -> None:
    life, count = Life(server), 0

    def cut(call: HttpRequest) -> None:
        nonlocal count
        count += 1
        if count == lost:
            server.fail(call.method, call.target, error=ConnectionLost("cut"), after_write=after_write)

    server.before = cut
    life.decide("a b", "v w")
    await life.settle()
    for name in "ab":  # the watch tells what the lost answer did not
        life.see(name)
    await life.settle()
    assert life.outcomes == {"v": EVICTED, "w": EVICTED}
    assert [server.nominated(name) for name in "ab"] == ["n1", "n1"]
    await life.pool.close()


async def test_a_victim_that_another_pod_has_replaced_is_left_alone(life: Life) -> None:
    life.server.replace("v", nodeName="n1")
    life.decide("a", "v w")
    await life.settle()
    assert life.outcomes == {"v": GONE, "w": EVICTED}
    assert not life.server.terminates("v")


async def test_a_gang_that_has_begun_to_leave_leaves_as_a_whole(life: Life) -> None:
    """The preemptor has its room when two of three are gone; the deletion of the third is tried again."""
    gang = GangKey("ns", "g")
    victims = [
        Evict(f"uid-{name}", "ns", name, "n1", EvictionReason.PREEMPTED, "x", "", gang, "c1") for name in "vwx"
    ]
    life.server.add("x", nodeName="n1")

    def served(call: HttpRequest) -> None:
        if call.method == "DELETE" and call.target.endswith("/x"):
            life.disruptions.release("uid-a")

    life.server.before = served
    life.server.fail("DELETE", "/x", status=503)
    life.disruptions.submit([Nominate("uid-a", "ns", "a", "n1", "c1")], victims)
    await life.settle()
    assert set(life.outcomes.values()) == {EVICTED}
    assert len(life.outcomes) == 3
