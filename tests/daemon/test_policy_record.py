"""The policy in force in a ConfigMap: written when it is another, and what commands make of it."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from phalanx.daemon.controllers.policy_record import DATA_KEY, MOST_CHARACTERS, PolicyRecord
from phalanx.execution.writes import WritePool
from phalanx.kube.auth.config import ClusterConfig
from phalanx.kube.client import KubeClient
from phalanx.kube.http.transport import HttpRequest, HttpResponse
from phalanx.kube.retry import RetryPolicy
from phalanx.reports.scheduler_policy import FoundPolicy, SchedulerPolicy
from phalanx.scheduling.framework.errors import PolicyError
from phalanx.scheduling.policy.loader import DEFAULT_POLICY
from tests.execution.podserver import status

from .test_usage_record import ConfigMaps

NAME = "phalanx-policy-in-force"
ONE, OTHER = "actions: allocate\n", "actions: allocate, backfill\n"


class Process:
    """One life of the scheduler, as far as its policy goes."""

    def __init__(self, api: ConfigMaps, text: str) -> None:
        self.text, self.now = text, 0.0
        self.pool = WritePool(concurrency=2)
        retry = RetryPolicy(attempts=2, base=0.0001)
        self.record = PolicyRecord(
            asking(api), self.pool, "kube-system", lambda: self.text, retry=retry, clock=lambda: self.now
        )

    async def begin(self) -> Process:
        await self.record.load()
        return self

    async def save(self) -> None:
        self.record.save()
        await self.pool.drained()


def asking(api: ConfigMaps) -> KubeClient:
    return KubeClient(ClusterConfig("http://maps.invalid"), transports=lambda *_, **__: api)


async def found(api: ConfigMaps, path: str = "") -> FoundPolicy:
    return await SchedulerPolicy(path).read(asking(api), "kube-system")


def kept(text: str) -> ConfigMaps:
    api = ConfigMaps()
    api.objects[NAME] = {"metadata": {"name": NAME}, "data": {DATA_KEY: text}}
    return api


async def test_it_is_written_when_it_is_another_and_only_then() -> None:
    api = ConfigMaps()
    process = await Process(api, ONE).begin()
    await process.save()
    await process.save()
    assert api.writes == [f"POST {NAME}"]
    process.text = OTHER
    await process.save()
    assert api.writes == [f"POST {NAME}", f"PATCH {NAME}"]
    again = await Process(api, OTHER).begin()
    await again.save()
    assert len(api.writes) == 2
    built_in = await Process(api, DEFAULT_POLICY).begin()
    await built_in.save()
    assert api.objects[NAME]["data"][DATA_KEY] == DEFAULT_POLICY


async def test_what_a_backup_puts_over_it_is_written_over_again_within_a_minute() -> None:
    api = ConfigMaps()
    process = await Process(api, OTHER).begin()
    await process.save()
    api.objects[NAME]["data"][DATA_KEY] = ONE
    await process.save()
    assert api.objects[NAME]["data"][DATA_KEY] == ONE
    process.now = 61.0
    await process.save()
    await process.save()
    assert api.objects[NAME]["data"][DATA_KEY] == OTHER
    del api.objects[NAME]
    process.now = 122.0
    await process.save()
    await process.save()
    assert api.objects[NAME]["data"][DATA_KEY] == OTHER
    writes = list(api.writes)
    for process.now in (183.0, 244.0):
        await process.save()
        await process.save()
    assert api.writes == writes


async def test_who_may_not_write_it_says_so_once_and_does_not_try_again(caplog: pytest.LogCaptureFixture) -> None:
    api, asked = ConfigMaps(), list[str]()

    def refuse(call: HttpRequest) -> HttpResponse | None:
        asked.append(call.method)
        return status(403, "Forbidden") if call.method != "GET" else None

    process = await Process(api, ONE).begin()
    api.refuse = refuse
    with caplog.at_level(logging.WARNING):
        for _ in range(3):
            await process.save()
    assert asked == ["POST"]
    assert len(caplog.records) == 1
    assert "commands need --config" in caplog.text


async def test_a_policy_that_no_object_can_hold_is_not_written(caplog: pytest.LogCaptureFixture) -> None:
    api = ConfigMaps()
    process = await Process(api, ONE + "#" * MOST_CHARACTERS).begin()
    with caplog.at_level(logging.WARNING):
        await process.save()
        await process.save()
    assert api.writes == []
    assert len(caplog.records) == 1


async def test_commands_go_by_what_the_scheduler_says(tmp_path: Path) -> None:
    told = await found(kept(OTHER))
    assert (told.text, told.warning) == (OTHER, "")
    assert [str(action) for action in told.policy.actions] == [
        str(action) for action in (await found(kept(OTHER))).policy.actions
    ]
    assert told.policy.actions != (await found(kept(ONE))).policy.actions
    file = tmp_path / "policy.yaml"
    file.write_text(ONE)
    assert (await found(kept(OTHER), str(file))).text == ONE


async def test_where_no_scheduler_has_run_it_is_the_built_in_one() -> None:
    told = await found(ConfigMaps())
    assert (told.text, told.warning) == (DEFAULT_POLICY, "")


async def test_who_may_not_know_it_or_cannot_use_it_is_warned() -> None:
    api = kept(OTHER)
    api.refuse = lambda call: status(403, "Forbidden")
    assert "give --config" in (await found(api)).warning
    for text in ("actions: [", "actions: fly", "tiers: [{plugins: [{name: ours-alone}]}]"):
        told = await found(kept(text))
        assert told.text == DEFAULT_POLICY
        assert "give --config" in told.warning
        assert NAME in told.warning


async def test_a_file_that_holds_none_is_refused_at_once(tmp_path: Path) -> None:
    with pytest.raises(PolicyError, match="nothing"):
        SchedulerPolicy(str(tmp_path / "nothing.yaml"))
