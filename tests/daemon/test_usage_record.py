"""The record of usage in ConfigMaps: written on change, read once, and damaged content reported."""

from __future__ import annotations

import asyncio
import json
import logging
import math
from collections.abc import AsyncIterator, Callable
from functools import partial
from typing import Any

import msgspec
import pytest

from phalanx.cluster.accounts import AccountRecord
from phalanx.daemon.controllers.usage_record import MOST_OBJECTS, UsageRecord, decode, encode
from phalanx.execution.writes import WritePool
from phalanx.kube.auth.config import ClusterConfig
from phalanx.kube.auth.credentials import ClientIdentity
from phalanx.kube.client import KubeClient
from phalanx.kube.errors import ConnectionLost
from phalanx.kube.http.transport import HttpRequest, HttpResponse
from phalanx.kube.retry import Backoff, RetryPolicy
from phalanx.model.account import Account, AccountKey, Budget, Tree
from phalanx.scheduling.quota.usage_history import AccountUsage, UsageHistory
from tests.execution.podserver import status

HOUR = 3600
COLLECTION = "/api/v1/namespaces/kube-system/configmaps"
DAY = Budget((("memory", 2**50),), 24 * HOUR)


class ConfigMaps:
    """A transport that keeps ConfigMaps; `refuse` may answer or raise instead."""

    def __init__(self) -> None:
        self.objects: dict[str, dict[str, Any]] = {}
        self.writes: list[str] = []
        self.refuse: Callable[[HttpRequest], HttpResponse | None] = lambda call: None

    async def request(self, call: HttpRequest, identity: ClientIdentity) -> HttpResponse:
        refused = self.refuse(call)
        if refused is not None:
            return refused
        body = msgspec.json.decode(call.body or b"null")
        assert call.target.startswith(COLLECTION)
        name = body["metadata"]["name"] if call.method == "POST" else call.target.rpartition("/")[2]
        if call.method != "GET":
            self.writes.append(f"{call.method} {name}")
        if call.method == "POST" and name in self.objects:
            return status(409, "AlreadyExists")
        if call.method != "POST" and name not in self.objects:
            return status(404, "NotFound")
        if call.method == "POST":
            self.objects[name] = body
        elif call.method == "PATCH":
            self.objects[name]["data"] |= body["data"]
        return HttpResponse(200, msgspec.json.encode(self.objects[name]))

    def stream(self, *_: Any) -> Any:
        raise NotImplementedError

    async def close(self) -> None:
        pass


class Process:
    """One run of the scheduler, with only its usage."""

    def __init__(
        self,
        api: ConfigMaps,
        now: float = 0,
        per_object: int = 500,
        period: float = 60,
        checkpoint: float = math.inf,
    ) -> None:
        self.api = api
        self.now = now
        self.history = UsageHistory(float(HOUR))
        self.pool = WritePool(concurrency=2)
        client = KubeClient(ClusterConfig("http://maps.invalid"), transports=lambda *_, **__: api)
        self.record = UsageRecord(
            client,
            self.pool,
            "kube-system",
            self.history,
            lambda: self.now,
            period=period,
            per_object=per_object,
            checkpoint=checkpoint,
            retry=RetryPolicy(attempts=2, base=0.0001),
        )

    def hold(self, name: str, amount: int) -> AccountRecord:
        key = AccountKey(Tree.QUEUE, name)
        record = AccountRecord(key, Account(key, budget=DAY))
        record.used.update({"memory": amount} if amount else {})
        self.history.advance(record, self.now)
        return record

    async def save(self, at: float | None = None, last: bool = False) -> list[str]:
        """Return the content written at that moment."""
        self.now = self.now if at is None else at
        before = len(self.api.writes)
        self.record.save(last)
        await self.pool.drained()
        return self.api.writes[before:]


@pytest.fixture
def api() -> ConfigMaps:
    return ConfigMaps()


@pytest.fixture(autouse=True)
async def _no_task_is_left() -> AsyncIterator[None]:
    yield
    assert [task for task in asyncio.all_tasks() if task is not asyncio.current_task()] == []


class TestWriting:
    async def test_nothing_is_written_without_usage(self, api: ConfigMaps) -> None:
        process = Process(api)
        await process.record.load()
        assert await process.save() == []

    async def test_an_object_is_created_once_and_patched_from_then_on(self, api: ConfigMaps) -> None:
        process = Process(api)
        await process.record.load()
        process.hold("a", 100)
        assert await process.save(60) == ["POST phalanx-usage-0"]
        process.hold("a", 50)
        assert await process.save(120) == ["PATCH phalanx-usage-0"]
        labels = api.objects["phalanx-usage-0"]["metadata"]["labels"]
        assert labels["app.kubernetes.io/managed-by"] == "phalanx"

    async def test_time_alone_writes_nothing(self, api: ConfigMaps) -> None:
        """Allocations continue and past usage decays, as the stored record predicts."""
        process = Process(api)
        process.hold("busy", 100)
        process.hold("once", 100)
        await process.save(HOUR)
        process.hold("once", 0)
        await process.save(2 * HOUR)
        for hour in range(3, 100):
            assert await process.save(hour * HOUR) == []

    async def test_only_objects_with_changed_accounts_are_written(self, api: ConfigMaps) -> None:
        process = Process(api, per_object=2)
        for name in "abcde":
            process.hold(name, 1)
        assert len(await process.save()) == 3
        process.hold("c", 7)
        assert await process.save(60) == ["PATCH phalanx-usage-1"]

    async def test_running_allocations_are_updated_periodically(self, api: ConfigMaps) -> None:
        process = Process(api, checkpoint=300)
        process.hold("busy", 100)
        assert await process.save() == ["POST phalanx-usage-0"]
        assert await process.save(299) == []
        assert await process.save(300) == ["PATCH phalanx-usage-0"]
        assert await process.save(599) == []
        process.hold("busy", 0)
        assert await process.save() == ["PATCH phalanx-usage-0"]
        assert await process.save(9000) == []

    async def test_restart_preserves_all_usage_so_far(self, api: ConfigMaps) -> None:
        first = Process(api)
        first.hold("busy", 100)
        await first.save(60)
        assert await first.save(HOUR, last=True) == ["PATCH phalanx-usage-0"]
        second = Process(api, now=HOUR + 5)
        await second.record.load()
        busy = second.hold("busy", 0)
        assert second.history.decayed(busy, HOUR + 5)["memory"] == pytest.approx(50, rel=0.01)

    async def test_accounts_stay_where_they_are_and_free_places_are_used_again(self, api: ConfigMaps) -> None:
        process = Process(api, per_object=2)
        for name in "bcd":
            process.hold(name, 1)
        await process.save()
        process.hold("b", 0)
        process.now = 90 * 24 * HOUR
        process.hold("a", 1)
        assert await process.save() == ["PATCH phalanx-usage-0"]
        assert names(api, 0) == {"a", "c"}
        assert names(api, 1) == {"d"}

    async def test_a_write_that_fails_is_tried_again_the_next_time(
        self, api: ConfigMaps, caplog: pytest.LogCaptureFixture
    ) -> None:
        process = Process(api)
        process.hold("a", 100)
        api.refuse = lambda call: status(403, "Forbidden")
        await process.save(60)
        await process.save(120)
        assert [record.getMessage() for record in caplog.records] == [
            f"configmap kube-system/phalanx-usage-0 is not written: 403 Forbidden: Forbidden (POST {COLLECTION})"
        ]
        api.refuse = lambda call: None
        assert await process.save(180) == ["POST phalanx-usage-0"]

    async def test_object_deleted_or_created_by_another_client_is_handled(self, api: ConfigMaps) -> None:
        process = Process(api)
        process.hold("a", 100)
        await process.save()
        del api.objects["phalanx-usage-0"]
        process.hold("a", 50)
        assert await process.save(60) == ["PATCH phalanx-usage-0", "POST phalanx-usage-0"]
        stranger = Process(api, now=120)
        stranger.hold("a", 10)
        assert await stranger.save() == ["POST phalanx-usage-0", "PATCH phalanx-usage-0"]

    async def test_accounts_beyond_the_last_object_are_reported_once(
        self, api: ConfigMaps, caplog: pytest.LogCaptureFixture
    ) -> None:
        process = Process(api, per_object=1)
        for number in range(MOST_OBJECTS + 2):
            process.hold(f"q{number:02}", 1)
        assert len(await process.save()) == MOST_OBJECTS
        assert await process.save(60) == []
        assert [record.getMessage() for record in caplog.records] == [
            "the usage of 20 accounts is stored; the usage of further accounts is lost with this process"
        ]

    async def test_record_is_checked_once_a_period(self, api: ConfigMaps) -> None:
        process = Process(api, period=0.001)
        process.hold("a", 1)
        written = asyncio.Event()
        api.refuse = lambda call: written.set()
        running = asyncio.create_task(process.record.run())
        async with asyncio.timeout(10):
            await written.wait()
        await process.pool.drained()
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        assert api.writes == ["POST phalanx-usage-0"]


class TestReading:
    async def test_next_process_continues_from_the_record(self, api: ConfigMaps) -> None:
        first = Process(api)
        for name, amount in (("a", 100), ("b", 2**45)):
            first.hold(name, amount)
        first.now = 2 * HOUR
        record = first.hold("a", 40)
        await first.save()
        second = Process(api, now=2 * HOUR)
        await second.record.load()
        assert second.history.export(second.now) == first.history.export(first.now)
        for history in (first.history, second.history):
            assert history.decayed(record, 3 * HOUR) == {"memory": pytest.approx(57.5)}
            assert history.spent(record, 3 * HOUR) == {"memory": (200 + 40) * HOUR * 1000}

    async def test_record_just_read_is_not_written_again(self, api: ConfigMaps) -> None:
        first = Process(api)
        first.hold("a", 100)
        await first.save(HOUR)
        second = Process(api, now=2 * HOUR)
        await second.record.load()
        second.hold("a", 100)
        assert await second.save() == []

    async def test_places_are_kept(self, api: ConfigMaps) -> None:
        first = Process(api, per_object=2)
        for name in "bcd":
            first.hold(name, 1)
        await first.save()
        second = Process(api, now=60, per_object=2)
        await second.record.load()
        for name in "abcd":
            second.hold(name, 2)
        await second.save()
        assert names(api, 0) == {"b", "c"}
        assert names(api, 1) == {"a", "d"}

    async def test_record_is_not_written_before_it_was_read(
        self, api: ConfigMaps, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("phalanx.daemon.controllers.own_config_map.Backoff", partial(Backoff, base=0.001))
        first = Process(api)
        first.hold("a", 100)
        await first.save()
        faults = iter([ConnectionLost("broken"), None])

        def refuse(call: HttpRequest) -> HttpResponse | None:
            fault = next(faults, None)
            if fault is not None:
                raise fault
            return None

        api.refuse = refuse
        second = Process(api)
        await second.record.load()
        assert len(second.history.export(0)) == 1
        assert [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING] == [
            "configmap kube-system/phalanx-usage-0 cannot be read yet: broken"
        ]

    async def test_scheduler_without_the_right_to_read_starts_without_usage(
        self, api: ConfigMaps, caplog: pytest.LogCaptureFixture
    ) -> None:
        api.refuse = lambda call: status(403, "Forbidden")
        process = Process(api)
        await process.record.load()
        assert process.history.export(0) == []
        assert "phalanx-usage-0 cannot be read, usage starts at 0: 403 Forbidden" in caplog.text

    @pytest.mark.parametrize(
        ("data", "told"),
        [
            ({}, "no usage can be read, its history is lost: Input data was truncated"),
            ({"usage.json": "{"}, "no usage can be read, its history is lost: Input data was truncated"),
            ({"usage.json": '{"version": 0}'}, "it is not of version 1, its history is lost"),
            ({"usage.json": '{"version": 1}'}, "accounts is not a list, its history is lost"),
        ],
    )
    async def test_damaged_content_is_reported_with_object_and_key(
        self, api: ConfigMaps, caplog: pytest.LogCaptureFixture, data: dict[str, str], told: str
    ) -> None:
        api.objects["phalanx-usage-0"] = {"metadata": {"name": "phalanx-usage-0"}, "data": data}
        process = Process(api)
        await process.record.load()
        assert [record.getMessage() for record in caplog.records] == [
            f"configmap kube-system/phalanx-usage-0, key usage.json: {told}"
        ]
        process.hold("a", 1)
        assert await process.save() == ["PATCH phalanx-usage-0"]
        assert names(api, 0) == {"a"}

    async def test_record_of_a_newer_version_is_not_changed(
        self, api: ConfigMaps, caplog: pytest.LogCaptureFixture
    ) -> None:
        """An upgrade that is taken back, or that has got half way."""
        text = '{"version": 2, "accounts": {"of": "another form"}}'
        api.objects["phalanx-usage-0"] = {"metadata": {"name": "phalanx-usage-0"}, "data": {"usage.json": text}}
        process = Process(api)
        await process.record.load()
        process.hold("a", 1)
        assert await process.save() == ["POST phalanx-usage-1"]
        assert api.objects["phalanx-usage-0"]["data"] == {"usage.json": text}
        assert "written by a newer Phalanx: it is neither read nor written" in caplog.text

    async def test_fields_that_we_do_not_know_are_passed_over(self, api: ConfigMaps) -> None:
        first = Process(api)
        first.hold("a", 1)
        await first.save()
        kept = json.loads(api.objects["phalanx-usage-0"]["data"]["usage.json"])
        kept["new"] = kept["accounts"][0]["new"] = {"what": "ever"}
        api.objects["phalanx-usage-0"]["data"]["usage.json"] = json.dumps(kept)
        second = Process(api)
        await second.record.load()
        assert second.history.export(0) == first.history.export(0)


class TestText:
    KEY = AccountKey(Tree.NAMESPACE, "ns", "team")

    def test_usage_survives_encoding_and_decoding(self) -> None:
        usage = AccountUsage(
            self.KEY, 7, {"cpu": 2**60}, {"cpu": 0.1 + 0.2}, 86_400_000, {"memory": 2**53 * 86_400_000 * 31}
        )
        assert decode(encode([usage])) == ([usage], [])

    def test_equal_usage_has_equal_text(self) -> None:
        one = AccountUsage(self.KEY, 7, {"cpu": 1, "memory": 2})
        two = AccountUsage(AccountKey(Tree.QUEUE, "q"), 7)
        assert encode([one, two]) == encode([two, AccountUsage(self.KEY, 7, {"memory": 2, "cpu": 1})])

    @pytest.mark.parametrize(
        ("damage", "told"),
        [
            ({"at": -1}, "Expected `int` >= 0 - at `$.at`"),
            ({"held": {"cpu": 1.5}}, "Expected `int`, got `float` - at `$.held[...]`"),
            ({"decayed": {"cpu": -0.5}}, "Expected `float` >= 0.0 - at `$.decayed[...]`"),
            ({"account": {"tree": "orchard", "name": "a"}}, "Invalid enum value 'orchard' - at `$.account.tree`"),
            ({"account": None}, "Expected `object`, got `null` - at `$.account`"),
        ],
    )
    def test_one_damaged_account_harms_only_itself(self, damage: dict[str, Any], told: str) -> None:
        document = msgspec.json.decode(encode([AccountUsage(self.KEY, 1, {"cpu": 5}), AccountUsage(self.KEY, 2)]))
        document["accounts"][0] |= damage
        usages, faults = decode(msgspec.json.encode(document).decode())
        assert [usage.at for usage in usages] == [2]
        assert faults == [f"accounts[0] is ignored: {told}"]


def names(api: ConfigMaps, number: int) -> set[str]:
    usages, faults = decode(api.objects[f"phalanx-usage-{number}"]["data"]["usage.json"])
    assert faults == []
    return {usage.key.name for usage in usages}


class TestSpentBudgets:
    """Accounts with a budget of 100 byte hours a day, in `hold`'s unit."""

    def spend(self, process: Process, name: str = "a", amount: int = 100) -> AccountRecord:
        key = AccountKey(Tree.QUEUE, name)
        record = AccountRecord(key, Account(key, budget=Budget((("memory", 100),), 24 * HOUR)))
        record.used.update({"memory": amount} if amount else {})
        process.history.advance(record, process.now)
        return record

    async def save_spent(self, process: Process) -> list[str]:
        before = len(process.api.writes)
        process.record.save_spent()
        await process.pool.drained()
        return process.api.writes[before:]

    async def test_spent_budget_is_stored_at_once_and_found_spent_after_a_restart(self, api: ConfigMaps) -> None:
        first = Process(api)
        self.spend(first)
        first.now = HOUR
        first.history.note_spent(AccountKey(Tree.QUEUE, "a"))
        assert await self.save_spent(first) == ["POST phalanx-usage-0"]
        second = Process(api, now=HOUR + 5)
        await second.record.load()
        left = self.spend(second, amount=0)
        assert second.history.spent(left, second.now)["memory"] >= 100 * HOUR * 1000

    async def test_spent_budget_that_is_stored_is_not_written_again(self, api: ConfigMaps) -> None:
        first = Process(api)
        self.spend(first)
        first.now = HOUR
        for _ in range(3):
            first.history.note_spent(AccountKey(Tree.QUEUE, "a"))
            await self.save_spent(first)
        assert api.writes == ["POST phalanx-usage-0"]
        second = Process(api, now=2 * HOUR)
        await second.record.load()
        self.spend(second)
        second.history.note_spent(AccountKey(Tree.QUEUE, "a"))
        assert await self.save_spent(second) == []

    async def test_budget_that_is_spent_again_in_the_next_window_is_stored_again(self, api: ConfigMaps) -> None:
        process = Process(api)
        self.spend(process)
        for day in (0, 1):
            process.now = day * 24 * HOUR + 2 * HOUR
            process.history.note_spent(AccountKey(Tree.QUEUE, "a"))
            assert len(await self.save_spent(process)) == 1

    async def test_nothing_is_written_while_no_budget_is_spent(self, api: ConfigMaps) -> None:
        process = Process(api)
        self.spend(process)
        assert await self.save_spent(process) == []
