"""The policy in force in a ConfigMap: written on change, and read by commands."""

from __future__ import annotations

import logging
from pathlib import Path

import msgspec
import pytest

from phalanx.daemon.controllers.policy_record import (
    MOST_CHARACTERS,
    NAME,
    PolicyRecord,
    PublishedPolicy,
    published_policies,
)
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

ONE, OTHER = "actions: allocate\n", "actions: allocate, backfill\n"


class Process:
    """One run of the scheduler, with only its policy."""

    def __init__(self, api: ConfigMaps, text: str, names: tuple[str, ...] = ("phalanx",)) -> None:
        self.text, self.now = text, 0.0
        self.pool = WritePool(concurrency=2)
        retry = RetryPolicy(attempts=2, base=0.0001)
        self.record = PolicyRecord(
            asking(api),
            self.pool,
            "kube-system",
            lambda: self.text,
            scheduler_names=names,
            retry=retry,
            clock=lambda: self.now,
        )

    async def begin(self) -> Process:
        await self.record.load()
        return self

    async def save(self) -> None:
        self.record.save()
        await self.pool.drained()


def asking(api: ConfigMaps) -> KubeClient:
    return KubeClient(ClusterConfig("http://maps.invalid"), transports=lambda *_, **__: api)


async def found(api: ConfigMaps, path: str = "", names: tuple[str, ...] = ()) -> FoundPolicy:
    return await SchedulerPolicy(path).read(asking(api), "kube-system", names)


def kept(text: str) -> ConfigMaps:
    api = ConfigMaps()
    api.objects[NAME] = {"metadata": {"name": NAME}, "data": {"phalanx": stored(text)}}
    return api


def stored(text: str, names: tuple[str, ...] = ()) -> str:
    return msgspec.json.encode(PublishedPolicy(names, text)).decode()


def policy_in(api: ConfigMaps, key: str = "phalanx") -> str:
    return published_policies(api.objects[NAME]["data"])[key].policy


async def test_policy_is_written_only_on_change() -> None:
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
    assert policy_in(api) == DEFAULT_POLICY


async def test_record_overwritten_by_a_backup_is_rewritten_within_a_minute() -> None:
    api = ConfigMaps()
    process = await Process(api, OTHER).begin()
    await process.save()
    api.objects[NAME]["data"]["phalanx"] = stored(ONE)
    await process.save()
    assert policy_in(api) == ONE
    process.now = 61.0
    await process.save()
    await process.save()
    assert policy_in(api) == OTHER
    del api.objects[NAME]
    process.now = 122.0
    await process.save()
    await process.save()
    assert policy_in(api) == OTHER
    writes = list(api.writes)
    for process.now in (183.0, 244.0):
        await process.save()
        await process.save()
    assert api.writes == writes


async def test_scheduler_without_the_right_to_write_logs_it_once_and_stops_trying(
    caplog: pytest.LogCaptureFixture,
) -> None:
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


async def test_commands_use_the_recorded_policy(tmp_path: Path) -> None:
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


async def test_command_that_cannot_read_or_use_the_record_warns() -> None:
    api = kept(OTHER)
    api.refuse = lambda call: status(403, "Forbidden")
    assert "use --config" in (await found(api)).warning
    for text in ("actions: [", "actions: fly", "tiers: [{plugins: [{name: ours-alone}]}]"):
        told = await found(kept(text))
        assert told.text == DEFAULT_POLICY
        assert "use --config" in told.warning
        assert NAME in told.warning


async def test_a_file_that_holds_none_is_refused_at_once(tmp_path: Path) -> None:
    with pytest.raises(PolicyError, match="nothing"):
        SchedulerPolicy(str(tmp_path / "nothing.yaml"))


async def test_commands_cover_all_served_scheduler_names_unless_names_are_given(
    tmp_path: Path,
) -> None:
    """After a takeover of another scheduler's name, no user has to repeat the name."""
    api, names = ConfigMaps(), ("phalanx", "volcano", "Scheduler, of plug-ins")
    process = await Process(api, ONE, names).begin()
    await process.save()
    assert (await found(api)).scheduler_names == names
    assert (await found(api, names=("mine",))).scheduler_names == ("mine",)
    file = tmp_path / "policy.yaml"
    file.write_text(OTHER)
    told = await found(api, str(file))
    assert (told.text, told.scheduler_names) == (OTHER, names)
    again = await Process(api, ONE, ("phalanx",)).begin()
    await again.save()
    assert (await found(api)).scheduler_names == ("phalanx",)
    assert len(api.writes) == 2


async def test_scheduler_names_default_without_a_record(tmp_path: Path) -> None:
    for api in (ConfigMaps(), kept(ONE)):
        assert (await found(api)).scheduler_names == ("phalanx",)
    for text in ("[", "5", '{"schedulerNames": ["", 1]}', '{"schedulerNames": [""]}'):
        api = kept(ONE)
        api.objects[NAME]["data"]["phalanx"] = text
        assert (await found(api)).scheduler_names == ("phalanx",)
    api.refuse = lambda call: status(403, "Forbidden")
    told = await found(api)
    assert told.scheduler_names == ("phalanx",)
    assert "use --scheduler-name" in told.warning
    assert "--scheduler-name" not in (await found(api, names=("phalanx",))).warning
    file = tmp_path / "policy.yaml"
    file.write_text(OTHER)
    with_file = await found(api, str(file))
    assert (with_file.text, with_file.scheduler_names) == (OTHER, ("phalanx",))
    assert "use --scheduler-name" in with_file.warning
    assert (await found(api, str(file), ("phalanx",))).warning == ""


async def test_another_scheduler_has_a_key_of_its_own_in_the_same_object() -> None:
    api = ConfigMaps()
    for names, text in ((("phalanx",), ONE), (("volcano", "other"), OTHER)):
        await (await Process(api, text, names).begin()).save()
    assert set(api.objects) == {NAME}
    assert (policy_in(api), policy_in(api, "volcano")) == (ONE, OTHER)
    told = await found(api)
    assert (told.scheduler_names, told.text, told.warning) == (("phalanx",), ONE, "")
    assert (await found(api, names=("volcano",))).text == OTHER


async def test_scheduler_of_another_name_alone_is_found_without_an_option() -> None:
    api = ConfigMaps()
    await (await Process(api, OTHER, ("batch", "volcano")).begin()).save()
    told = await found(api)
    assert (told.scheduler_names, told.text, told.warning) == (("batch", "volcano"), OTHER, "")
    await (await Process(api, ONE, ("alpha",)).begin()).save()
    told = await found(api)
    assert (told.scheduler_names, told.text) == (("alpha",), ONE)
    assert "2 schedulers publish a policy (alpha, batch)" in told.warning


async def test_record_of_an_earlier_release_is_read_if_it_is_permitted() -> None:
    former = "phalanx-policy-in-force"
    data = {"policy.yaml": OTHER, "scheduler-names": '["phalanx", "volcano"]'}
    api = ConfigMaps()
    api.objects[former] = {"metadata": {"name": former}, "data": data}
    told = await found(api)
    assert (told.text, told.scheduler_names) == (OTHER, ("phalanx", "volcano"))
    api.refuse = lambda call: status(403, "Forbidden") if call.target.endswith(former) else None
    told = await found(api)
    assert (told.text, told.warning) == (DEFAULT_POLICY, "")
