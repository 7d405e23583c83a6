"""Recent rejections, failed provisioning and evictions in a ConfigMap, which another process loads."""

from __future__ import annotations

import json
from typing import Any

import pytest

from phalanx.cluster.state import ClusterState
from phalanx.daemon.controllers.recent_history_record import (
    BACKOFFS_KEY,
    EVICTIONS_KEY,
    MOST_ENTRIES,
    HistorySection,
    RecentHistoryRecord,
)
from phalanx.execution.writes import WritePool
from phalanx.kube.auth.config import ClusterConfig
from phalanx.kube.client import KubeClient
from phalanx.kube.retry import RetryPolicy
from phalanx.model.account import AccountKey, EvictionRate, Tree
from phalanx.model.events import NodeBackoffsRestored, NodeUpdated, PodRejected, ProvisioningFailed
from phalanx.model.node_rejection import NodeBackoffEntry
from phalanx.model.pod import PodClass
from phalanx.model.volumes import UnboundClaim
from phalanx.scheduling.session.eviction_log import EvictionLog, NotedEvictions
from tests.cluster_content import node

from .test_usage_record import ConfigMaps

NAME = "phalanx-recent-history"
NOW = 1_800_000_000
TEAM = AccountKey(Tree.QUEUE, "team")
CPU = PodClass(requests=(("cpu", 1000),))


def claim(size: int) -> PodClass:
    """Return the class of a pod with a claim that is not provisioned yet."""
    return PodClass(volumes=(UnboundClaim("late", size),))


class Process:
    """One run of the scheduler, with only its back-offs."""

    def __init__(self, api: ConfigMaps, now: float = NOW) -> None:
        self.now, self.state, self.pool = now, ClusterState(), WritePool(concurrency=2)
        self.state.apply(NodeUpdated(node()))
        self.evictions = EvictionLog()
        self.record = RecentHistoryRecord(
            KubeClient(ClusterConfig("http://maps.invalid"), transports=lambda *_, **__: api),
            self.pool,
            "kube-system",
            self._sections(),
            retry=RetryPolicy(attempts=2, base=0.0001),
        )

    def _sections(self) -> tuple[HistorySection[Any], ...]:
        backoff, evictions = self.state.nodes.backoff, self.evictions
        return (
            HistorySection(
                BACKOFFS_KEY,
                NodeBackoffEntry,
                lambda: backoff.version,
                backoff.entries,
                lambda entries: self.state.apply(NodeBackoffsRestored(tuple(entries))),
            ),
            HistorySection(
                EVICTIONS_KEY, NotedEvictions, lambda: evictions.version, evictions.export, evictions.restore
            ),
        )

    async def begin(self) -> Process:
        await self.record.load()
        return self

    async def save(self) -> None:
        self.record.save()
        await self.pool.drained()

    def reject(self, namespace: str = "one", reason: str = "OutOfcpu") -> None:
        self.state.apply(PodRejected("n1", reason, namespace, CPU, int(self.now)))

    def closed(self, namespace: str, pod_class: PodClass = CPU) -> bool:
        self.state.nodes.backoff.advance(self.now)
        return bool(self.state.nodes.backoff.closed_to(pod_class, namespace))


@pytest.mark.parametrize("reason", ["OutOfcpu", "TopologyAffinityError"])
async def test_node_is_closed_to_the_same_pods_after_a_restart(reason: str) -> None:
    api = ConfigMaps()
    first = await Process(api).begin()
    first.reject(reason=reason)
    await first.save()
    second = await Process(api, NOW + 5).begin()
    assert (second.closed("one"), second.closed("two")) == (True, False)
    second.now = NOW + 30
    assert not second.closed("one")


async def test_repeated_rejection_after_a_restart_closes_the_node_for_longer() -> None:
    api = ConfigMaps()
    first = await Process(api).begin()
    first.reject()
    await first.save()
    second = await Process(api, NOW + 40).begin()
    second.reject()
    assert second.state.nodes.backoff.next_end(NOW + 40) == NOW + 100


async def test_failed_provisioning_is_avoided_after_a_restart_until_its_end() -> None:
    api = ConfigMaps()
    first = await Process(api).begin()
    for second in (0, 4, 12):
        first.state.apply(ProvisioningFailed("n1", "one", "late", 10, NOW + second))
    await first.save()
    second_process = await Process(api, NOW + 20).begin()
    assert second_process.closed("one", claim(10))
    assert not second_process.closed("one", claim(9))
    assert second_process.state.nodes.backoff.next_end(NOW + 20) == NOW + 28


async def test_evictions_count_against_the_rate_after_a_restart() -> None:
    api = ConfigMaps()
    first = await Process(api).begin()
    for pods in (1, 1):
        first.evictions.note(TEAM, NOW, pods)
    first.evictions.note(TEAM, NOW + 60, 1)
    await first.save()
    second = await Process(api, NOW + 100).begin()
    rate = EvictionRate(3, 600)
    assert second.evictions.count(TEAM, NOW + 100, 600) == 3
    assert second.evictions.free_at(TEAM, NOW + 100, rate) == NOW + 600
    api.writes.clear()
    await second.save()
    assert api.writes == []


async def test_nothing_is_written_without_a_new_rejection() -> None:
    api = ConfigMaps()
    first = await Process(api).begin()
    await first.save()
    assert api.objects == {}
    first.reject()
    await first.save()
    second = await Process(api).begin()
    api.writes.clear()
    second.reject()
    await second.save()
    assert api.writes == []


async def test_entries_that_end_last_are_stored_if_there_are_too_many() -> None:
    api = ConfigMaps()
    process = await Process(api).begin()
    for number in range(MOST_ENTRIES + 10):
        process.now = NOW + number
        process.reject(namespace=f"n{number}", reason="NodePorts")
    await process.save()
    entries = json.loads(api.objects[NAME]["data"][BACKOFFS_KEY])["entries"]
    assert len(entries) == MOST_ENTRIES
    assert min(entry["until"] for entry in entries) == NOW + 10 + 30


@pytest.mark.parametrize("text", ["", "{", "[]", '{"version": 1}', '{"version": 1, "entries": [1, {"until": -1}]}'])
async def test_unreadable_record_is_an_empty_one(text: str) -> None:
    api = ConfigMaps()
    api.objects[NAME] = {"metadata": {"name": NAME}, "data": {BACKOFFS_KEY: text}}
    process = await Process(api).begin()
    assert process.state.nodes.backoff.entries() == ()
    process.reject()
    await process.save()
    assert "OutOfcpu" in api.objects[NAME]["data"][BACKOFFS_KEY]
