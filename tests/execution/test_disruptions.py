"""Evictions: nominations are written before any victim is deleted, and evictions are cancelled with their
preemptor.
"""

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
    """One process of a scheduler, as far as evictions are concerned."""

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
        """Deliver the pods to the cache, as the watch does."""
        pod = self.server.pods["ns", name]
        metadata, nominated = pod["metadata"], pod["status"].get("nominatedNodeName", "")
        waits = not pod["spec"].get("nodeName")
        version = metadata["resourceVersion"]
        self.conditions.observe(metadata["uid"], "ns", name, version, [], nominated=nominated, waits=waits)

    def decide(self, waiting: str, victims: str, cause: str = "c1") -> None:
        """Submit a decision; `preemptors` and `victims` are pod names separated by spaces."""
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
    """Preemptors a, b and c wait; victims v, w and x run."""
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


async def test_nominations_are_written_before_any_victim_is_deleted(life: Life) -> None:
    life.decide("a b c", "v w")
    await life.settle()
    assert sorted(life.server.calls[:3]) == ["PATCH a/status", "PATCH b/status", "PATCH c/status"]
    assert sorted(life.server.calls[3:]) == ["DELETE v", "DELETE w", "PATCH v/status", "PATCH w/status"]
    assert life.outcomes == {"v": EVICTED, "w": EVICTED}
    assert len(life.disruptions) == 0


async def test_slow_nomination_delays_only_its_own_decision(life: Life) -> None:
    life.server.change(life.server.pods["ns", "b"])
    life.decide("a", "v", "c1")
    life.decide("b", "w", "c2")
    await life.settle()
    assert life.outcomes == {"v": EVICTED}
    life.see("b")
    await life.settle()
    assert life.outcomes == {"v": EVICTED, "w": EVICTED}


async def test_evictions_without_a_preemptor_start_at_once(life: Life) -> None:
    life.decide("", "v")
    await life.settle()
    assert life.server.calls == ["PATCH v/status", "DELETE v"]


async def test_existing_nomination_is_not_waited_for(life: Life) -> None:
    life.decide("a", "v", "c1")
    await life.settle()
    life.decide("a", "w", "c2")
    await life.settle()
    assert life.server.calls.count("PATCH a/status") == 1
    assert life.outcomes == {"v": EVICTED, "w": EVICTED}


async def test_nomination_rejected_for_good_does_not_block_its_evictions(life: Life) -> None:
    """The nomination is lost with the process then; but the room is needed, and claimed in memory."""
    life.server.fail("PATCH", "/a/status", status=403)
    life.decide("a", "v")
    await life.settle()
    assert life.nominated == [NominationOutcome.REFUSED]
    assert life.outcomes == {"v": EVICTED}


async def test_no_victim_is_deleted_for_a_deleted_preemptor(life: Life) -> None:
    life.server.leave("a")
    life.decide("a", "v w")
    await life.settle()
    assert life.outcomes == {"v": CALLED_OFF, "w": CALLED_OFF}
    assert life.server.calls == ["PATCH a/status"]
    assert len(life.disruptions) == 0


async def test_gang_preempts_as_one_or_not_at_all(life: Life) -> None:
    """One of three members is deleted: no victim of the remaining members is deleted either."""
    life.server.leave("b")
    life.decide("a b c", "v w x")
    await life.settle()
    assert set(life.outcomes.values()) == {CALLED_OFF}
    assert not any(life.server.terminates(name) for name in "vwx")


async def test_preemptor_deleted_during_its_evictions_saves_the_remaining_victims(life: Life) -> None:
    """One victim is terminating, the other is still protected: it keeps running."""
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


async def test_withdrawn_nomination_cancels_its_evictions(life: Life) -> None:
    life.decide("a", "v")
    life.disruptions.submit([Nominate("uid-a", "ns", "a", "", "c2")], [])
    await life.settle()
    assert life.outcomes == {"v": CALLED_OFF}
    assert life.server.nominated("a") == ""
    assert not life.server.terminates("v")


async def test_later_decision_for_the_same_pod_relies_on_the_earlier_one(life: Life) -> None:
    """The second decision counts on the eviction of v, so v is evicted although its nomination was never
    written.
    """
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


async def test_later_decision_takes_over_the_evictions_of_an_earlier_one(life: Life) -> None:
    """v is still protected when w is chosen too; the deletion of their preemptor ends both."""
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


async def test_preemptor_that_takes_over_a_nomination_inherits_its_victims(life: Life) -> None:
    """b takes over a's nomination during the evictions: v is evicted for b now, and not cancelled."""
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
    life.disruptions.release("uid-a")  # it has no preemptor any more
    assert len(life.disruptions) == 0


async def test_deletion_of_the_inheriting_preemptor_saves_all_victims(life: Life) -> None:
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


async def test_last_decision_of_a_plan_counts(life: Life) -> None:
    """A claim is released and another decision made at once: the running eviction continues."""
    life.server.change(life.server.pods["ns", "a"])
    life.decide("a", "v", "c1")
    nominations = [Nominate("uid-a", "ns", "a", node, "c2") for node in ("", "n2")]
    life.disruptions.submit(nominations, [evict("w", "c2")])
    life.see("a")
    await life.settle()
    assert life.outcomes == {"v": EVICTED, "w": EVICTED}
    assert [patch["status"].get("nominatedNodeName") for patch in life.server.patches[:1]] == ["n2"]


async def test_two_merged_decisions_are_cancelled_together(life: Life) -> None:
    for name in "ab":
        life.server.change(life.server.pods["ns", name])
    life.decide("a", "v", "c1")
    life.decide("b", "w", "c2")
    life.decide("a b", "x", "c3")
    await life.settle()
    life.disruptions.release("uid-b")
    assert life.outcomes == {"v": CALLED_OFF, "w": CALLED_OFF, "x": CALLED_OFF}
    assert len(life.disruptions) == 0


async def test_guard_answers_for_pods_that_terminate_by_themselves(life: Life) -> None:
    life.guard = lambda evict: GONE if evict.name == "v" else None
    life.decide("a", "v w")
    await life.settle()
    assert life.outcomes == {"v": GONE, "w": EVICTED}
    assert "DELETE v" not in life.server.calls


async def test_rejections_are_reported(life: Life) -> None:
    life.server.fail("DELETE", "/v", status=403)
    life.decide("a", "v w")
    await life.settle()
    assert life.outcomes == {"v": REFUSED, "w": EVICTED}


# Crashes: the state that a second process finds.


async def test_process_killed_before_the_nominations_evicts_no_pod(server: PodServer) -> None:
    first = Life(server)
    server.fail("PATCH", "/status", error=Unreachable("down"), times=1000)
    first.decide("a b", "v w")
    await asyncio.sleep(0.01)
    await first.pool.close()
    assert not any(server.terminates(name) for name in "vw")
    assert server.condition("v", "DisruptionTarget") == {}


async def test_process_killed_after_the_nominations_and_before_the_deletions_is_continued(
    server: PodServer,
) -> None:
    """The claim is in the API; the next process finds the same room nominated for the same pods."""
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


async def test_process_killed_after_some_deletions_is_continued(server: PodServer) -> None:
    """The second process evicts terminating pods again: that changes nothing."""
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
async def test_any_lost_answer_does_no_harm(server: PodServer, lost: int, after_write: bool) -> None:
    life, count = Life(server), 0

    def cut(call: HttpRequest) -> None:
        nonlocal count
        count += 1
        if count == lost:
            server.fail(call.method, call.target, error=ConnectionLost("cut"), after_write=after_write)

    server.before = cut
    life.decide("a b", "v w")
    await life.settle()
    for name in "ab":  # the watch delivers the change of the lost answer
        life.see(name)
    await life.settle()
    assert life.outcomes == {"v": EVICTED, "w": EVICTED}
    assert [server.nominated(name) for name in "ab"] == ["n1", "n1"]
    await life.pool.close()


async def test_replacement_of_a_victim_is_not_evicted(life: Life) -> None:
    life.server.replace("v", nodeName="n1")
    life.decide("a", "v w")
    await life.settle()
    assert life.outcomes == {"v": GONE, "w": EVICTED}
    assert not life.server.terminates("v")


async def test_gang_whose_eviction_has_begun_is_evicted_as_a_whole(life: Life) -> None:
    """The preemptor has its room when two of three are deleted; the deletion of the third is retried."""
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
