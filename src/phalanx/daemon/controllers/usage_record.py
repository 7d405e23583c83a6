"""Usage history of queues and quotas, stored in ConfigMaps across restarts."""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Callable, Iterable
from functools import partial
from typing import Annotated

import msgspec

from phalanx.daemon.controllers.own_config_map import OwnConfigMap
from phalanx.execution.record_writes import RecordWrites
from phalanx.execution.writes import WritePool
from phalanx.kube.client import KubeClient
from phalanx.kube.errors import ApiError, ConnectionLost
from phalanx.kube.retry import RetryPolicy
from phalanx.model.account import AccountKey
from phalanx.model.text.decoding import decode_json
from phalanx.scheduling.quota.usage_history import AccountUsage, UsageHistory

log = logging.getLogger(__name__)

NAME = "usage"
DATA_KEY = "usage.json"
VERSION = 1
# An account needs up to 1 kB, a ConfigMap holds 1 MB.
ACCOUNTS_PER_OBJECT = 500
# The rights name each object, so their number is limited.
MOST_OBJECTS = 20
PERIOD = 15.0
# Seconds after which current usage is written again: a crash loses at most that much of it.
CHECKPOINT = 300.0

_Amount = Annotated[int, msgspec.Meta(ge=0)]
_Average = Annotated[float, msgspec.Meta(ge=0)]


class _StoredUsage(msgspec.Struct, frozen=True, omit_defaults=True):
    """Stored usage history of one queue or quota; see AccountUsage."""

    account: AccountKey
    at: _Amount
    held: dict[str, _Amount] = {}
    decayed: dict[str, _Average] = {}
    window: _Amount = 0
    spent: dict[str, _Amount] = {}


class UsageRecord:
    """Storage of the usage history of queues and quotas in ConfigMaps.

    It is loaded once before the first plan, and changes are written at most once a period, but at once if a pod
    waits for a spent budget. Accounts are spread over objects `PREFIX-usage-<n>` (see own_objects) and stay
    there. The stored data has the amount and its start, so decay and ended windows need no write: without
    changes only a checkpoint of the current usage is written, every few minutes.
    """

    def __init__(
        self,
        client: KubeClient,
        pool: WritePool,
        namespace: str,
        history: UsageHistory,
        now: Callable[[], float],
        *,
        prefix: str = "phalanx",
        period: float = PERIOD,
        checkpoint: float = CHECKPOINT,
        per_object: int = ACCOUNTS_PER_OBJECT,
        retry: RetryPolicy | None = None,
    ) -> None:
        self._name = f"{prefix}-{NAME}"
        self._objects = [
            OwnConfigMap(client, namespace, f"{self._name}-{number}", "usage starts at 0", retry, version=VERSION)
            for number in range(MOST_OBJECTS)
        ]
        self._namespace = namespace
        self._history = history
        self._now = now
        self._period = period
        self._checkpoint = checkpoint
        self._per_object = per_object
        self._stored: list[dict[AccountKey, AccountUsage]] = []
        self._place: dict[AccountKey, int] = {}
        self._wanted: list[dict[AccountKey, AccountUsage]] = []
        self._writes = [RecordWrites(pool, partial(self._write, number)) for number in range(MOST_OBJECTS)]
        self._logged_full = False

    async def load(self) -> None:
        """Load the usage history; retry while the API server is unreachable."""
        for number, config_map in enumerate(self._objects):
            texts = await config_map.read()
            if not config_map.exists:
                break
            usages, faults = ([], []) if config_map.left_alone else decode(texts.get(DATA_KEY, ""))
            for fault in faults:
                log.warning("configmap %s/%s-%d, key %s: %s", self._namespace, self._name, number, DATA_KEY, fault)
            self._stored.append({usage.key: usage for usage in usages if usage.key not in self._place})
            self._place.update((key, number) for key in self._stored[number])
            self._history.restore(self._stored[number].values(), self._now())
        if self._place:
            log.info("the usage of %d accounts is restored", len(self._place))

    async def run(self) -> None:
        """Save the usage history periodically until cancelled."""
        while True:
            await asyncio.sleep(self._period)
            self.save()

    def save(self, last: bool = False) -> None:
        """Submit writes of changed usage; call it a `last` time before the write pool is finished."""
        usages = self._history.export(self._now(), 0.0 if last else self._checkpoint)
        self._replace(usages)
        wanted: list[dict[AccountKey, AccountUsage]] = [{} for _ in self._stored]
        for usage in usages:
            if usage.key in self._place:
                wanted[self._place[usage.key]][usage.key] = usage
        for number, accounts in enumerate(wanted):
            stored = self._stored[number]
            changed = any(stored.get(key) != usage for key, usage in accounts.items())
            if changed and not self._objects[number].left_alone:
                self._writes[number].submit()
        self._wanted = wanted

    def save_spent(self) -> None:
        """Submit writes if a decision rests on a spent budget that a restart would not find spent."""
        spent = [key for key in self._history.take_spent() if not self._is_stored_as_spent(key)]
        for key in spent:
            self._history.write_down(key, self._now())
        if spent:
            self.save()

    def _is_stored_as_spent(self, key: AccountKey) -> bool:
        place = self._place.get(key)
        usage = self._stored[place].get(key) if place is not None else None
        return usage is not None and self._history.shows_as_spent(usage, self._now())

    def _replace(self, usages: list[AccountUsage]) -> None:
        """Assign a ConfigMap to each new queue or quota; free the places of forgotten ones."""
        known = {usage.key for usage in usages}
        for key in [key for key in self._place if key not in known]:
            del self._place[key]
        free = [self._per_object] * MOST_OBJECTS
        for number in self._place.values():
            free[number] -= 1
        for number, config_map in enumerate(self._objects):
            if config_map.left_alone:
                free[number] = 0
        number = 0
        for usage in usages:
            if usage.key in self._place:
                continue
            while number < MOST_OBJECTS and free[number] <= 0:
                number += 1
            if number == MOST_OBJECTS:
                self._log_full()
                return
            free[number] -= 1
            self._place[usage.key] = number
            self._stored.extend({} for _ in range(number + 1 - len(self._stored)))

    def _log_full(self) -> None:
        if not self._logged_full:
            stored = MOST_OBJECTS * self._per_object
            log.warning(
                "the usage of %d accounts is stored; the usage of further accounts is lost with this process",
                stored,
            )
        self._logged_full = True

    async def _write(self, number: int) -> None:
        accounts = self._wanted[number]
        data = {DATA_KEY: encode(accounts.values())}
        try:
            await self._objects[number].put(data, data)
        except (ApiError, ConnectionLost) as error:
            self._objects[number].complain(f"is not written: {error}")
        else:
            self._stored[number] = accounts


def encode(usages: Iterable[AccountUsage]) -> str:
    """Encode the usage of queues and quotas as the text of one ConfigMap."""
    accounts = [
        _StoredUsage(usage.key, usage.at, dict(usage.held), dict(usage.decayed), usage.window, dict(usage.spent))
        for usage in sorted(usages, key=lambda usage: usage.key)
    ]
    return msgspec.json.encode({"version": VERSION, "accounts": accounts}, order="deterministic").decode()


def decode(text: str) -> tuple[list[AccountUsage], list[str]]:
    """Decode the readable usage entries of a ConfigMap's text, and return one sentence for each fault."""
    try:
        document = decode_json(text.encode("utf-8", "surrogatepass"))
    except msgspec.DecodeError as error:
        return [], [f"no usage can be read, its history is lost: {error}"]
    if not isinstance(document, dict) or document.get("version") != VERSION:
        return [], [f"it is not of version {VERSION}, its history is lost"]
    accounts = document.get("accounts")
    if not isinstance(accounts, list):
        return [], ["accounts is not a list, its history is lost"]
    usages: list[AccountUsage] = []
    faults: list[str] = []
    for place, entry in enumerate(accounts):
        try:
            stored = msgspec.convert(entry, _StoredUsage)
        except msgspec.ValidationError as error:
            faults.append(f"accounts[{place}] is ignored: {error}")
            continue
        if not all(math.isfinite(value) for value in stored.decayed.values()):
            faults.append(f"accounts[{place}] is ignored: an average is not a number")
            continue
        usages.append(
            AccountUsage(stored.account, stored.at, stored.held, stored.decayed, stored.window, stored.spent)
        )
    return usages, faults
