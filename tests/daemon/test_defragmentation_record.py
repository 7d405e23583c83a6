"""The budget of defragmentation in a ConfigMap: written before any eviction, and read by the next process."""

from __future__ import annotations

import logging

import pytest

from phalanx.cluster.state import ClusterState
from phalanx.daemon.controllers.defragmentation_record import DATA_KEY, DefragmentationRecord
from phalanx.execution.writes import WritePool
from phalanx.kube.auth.config import ClusterConfig
from phalanx.kube.client import KubeClient
from phalanx.kube.retry import RetryPolicy
from phalanx.scheduling.framework.defragment_settings import DefragmentSettings
from phalanx.scheduling.policy.loader import load_policy
from phalanx.scheduling.scheduler import Scheduler
from tests.execution.podserver import status
from tests.scheduling.features import defragmentation

from .test_usage_record import ConfigMaps

pytestmark = pytest.mark.feature("defragmentation")

NOW = 1_704_074_400
NAME = "phalanx-defragmentation"
POLICY = """
actions: "allocate, defragment"
configurations: [{name: defragment, arguments: {schedule: FREQ=DAILY, duration: 24h, maxEvictionsPerHour: 5}}]
"""


class Process:
    """One run of the scheduler, with only its defragmentation."""

    def __init__(self, api: ConfigMaps) -> None:
        self.scheduler = Scheduler(ClusterState(), load_policy(POLICY))
        self.runs = defragmentation(self.scheduler).runs
        self.pool = WritePool(concurrency=2)
        self.woken = 0
        client = KubeClient(ClusterConfig("http://maps.invalid"), transports=lambda *_, **__: api)
        self.record = DefragmentationRecord(
            client,
            self.pool,
            "kube-system",
            defragmentation(self.scheduler),
            self.wake,
            lambda: NOW,
            retry=RetryPolicy(attempts=2, base=0.0001),
        )

    def wake(self) -> None:
        self.woken += 1

    async def begin(self) -> Process:
        await self.record.load()
        return self

    async def save(self) -> None:
        self.record.save()
        await self.pool.drained()

    @property
    def left(self) -> int:
        return self.runs.left(self.settings, NOW)

    @property
    def settings(self) -> DefragmentSettings:
        assert self.scheduler.policy.defragmentation is not None
        return self.scheduler.policy.defragmentation


@pytest.fixture
def api() -> ConfigMaps:
    return ConfigMaps()


async def test_nothing_is_written_without_a_move(api: ConfigMaps) -> None:
    process = await Process(api).begin()
    await process.save()
    assert (api.writes, process.woken, process.left) == ([], 0, 5)


async def test_booked_eviction_is_released_once_it_is_written(api: ConfigMaps) -> None:
    process = await Process(api).begin()
    assert not process.runs.book(NOW, 3)
    assert not process.runs.due(process.settings, NOW)
    await process.save()
    assert (api.writes, process.woken) == ([f"POST {NAME}"], 1)
    assert process.runs.due(process.settings, NOW)
    process.runs.finish_run(NOW, 2)
    await process.save()
    await process.save()
    assert api.writes == [f"POST {NAME}", f"PATCH {NAME}"]
    assert (await Process(api).begin()).left == 3


async def test_process_that_dies_after_the_record_has_spent_its_budget(api: ConfigMaps) -> None:
    process = await Process(api).begin()
    process.runs.book(NOW, 3)
    await process.save()
    assert (await Process(api).begin()).left == 2


async def test_no_pod_is_evicted_where_the_record_cannot_be_written(
    api: ConfigMaps, caplog: pytest.LogCaptureFixture
) -> None:
    process = await Process(api).begin()
    api.refuse = lambda call: status(403, "Forbidden") if call.method != "GET" else None
    process.runs.book(NOW, 3)
    with caplog.at_level(logging.WARNING):
        await process.save()
        await process.save()
    assert not process.runs.due(process.settings, NOW)
    assert len(caplog.records) == 1
    assert "no pod is moved" in caplog.text


@pytest.mark.parametrize(
    "text", ["", "{", '{"version": 0}', '{"version": 1, "evictions": [{"until": "x"}]}', '{"version": 1}']
)
async def test_unreadable_record_counts_as_a_spent_hour(
    api: ConfigMaps, text: str, caplog: pytest.LogCaptureFixture
) -> None:
    api.objects[NAME] = {"metadata": {"name": NAME}, "data": {DATA_KEY: text}}
    with caplog.at_level(logging.WARNING):
        process = await Process(api).begin()
    assert "no pod is moved for an hour" in caplog.text
    assert (process.left, process.runs.left(process.settings, NOW + 3600)) == (0, 5)


async def test_negative_amounts_give_nothing_back(api: ConfigMaps) -> None:
    text = f'{{"version": 1, "evictions": [{{"until": {NOW + 60}, "pods": -9}}, {{"until": {10**15}, "pods": 1}}]}}'
    api.objects[NAME] = {"metadata": {"name": NAME}, "data": {DATA_KEY: text}}
    process = await Process(api).begin()
    assert (process.left, process.runs.left(process.settings, NOW + 2 * 3600)) == (4, 5)


async def test_record_of_a_newer_version_is_not_changed_and_no_pod_is_moved(
    api: ConfigMaps, caplog: pytest.LogCaptureFixture
) -> None:
    text = '{"version": 2, "evictions": {"of": "another form"}}'
    api.objects[NAME] = {"metadata": {"name": NAME}, "data": {DATA_KEY: text}}
    process = await Process(api).begin()
    process.runs.book(NOW, 3)
    await process.save()
    assert api.objects[NAME]["data"] == {DATA_KEY: text}
    assert process.woken == 0
    assert "evictions.json of version 2, written by a newer Phalanx: it is neither read nor written" in caplog.text
