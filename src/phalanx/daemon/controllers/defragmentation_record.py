"""Eviction budget of defragmentation in a ConfigMap: the limit of evictions per hour holds across restarts."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from phalanx.daemon.controllers.own_config_map import LeftAlone, OwnConfigMap
from phalanx.execution.writes import Urgency, WritePool
from phalanx.kube.client import KubeClient
from phalanx.kube.errors import ApiError, ConnectionLost
from phalanx.kube.retry import RetryPolicy
from phalanx.model.text.decoding import decode_json
from phalanx.scheduling.defragmentation.plugin import Defragmentation
from phalanx.scheduling.defragmentation.runs import EvictionEntry

NAME = "defragmentation"
DATA_KEY = "evictions.json"
VERSION = 1
_HOUR = 3600
_EVERYTHING = 2**31
_ENCODER = msgspec.json.Encoder(order="deterministic")


class DefragmentationRecord:
    """Storage of the evictions that defragmentation has reserved from its hourly budget.

    They are loaded once before the first plan, and every booking is written. Booked pods are evicted only after the
    write (`wake`); without a successful write no pod is moved.
    """

    def __init__(
        self,
        client: KubeClient,
        pool: WritePool,
        namespace: str,
        defragmentation: Defragmentation,
        wake: Callable[[], None],
        clock: Callable[[], float],
        *,
        prefix: str = "phalanx",
        retry: RetryPolicy | None = None,
    ) -> None:
        self._object = OwnConfigMap(client, namespace, f"{prefix}-{NAME}", "its budget is full again", retry)
        self._pool = pool
        self._defragmentation = defragmentation
        self._wake = wake
        self._clock = clock
        self._written = defragmentation.runs.version
        self._writing = False

    async def load(self) -> None:
        """Load the reserved evictions of defragmentation."""
        texts, now = await self._object.read(), self._clock()
        entries: list[EvictionEntry] = []
        if DATA_KEY in texts:
            try:
                entries = decode(texts[DATA_KEY])
            except ValueError as error:
                self._object.complain(f"key {DATA_KEY}: {error}; no pod is moved for an hour")
                entries = [EvictionEntry(int(now) + _HOUR, _EVERYTHING)]
        self._defragmentation.runs.load(entries, now)

    def save(self) -> None:
        """Submit a write of changed eviction reservations."""
        runs = self._defragmentation.runs
        version = runs.version
        if version == self._written or self._writing:
            return
        self._writing, text = True, encode(runs.entries)

        async def write() -> None:
            try:
                await self._object.put({DATA_KEY: text}, {DATA_KEY: text})
            except (ApiError, ConnectionLost) as error:
                self._object.complain(f"is not written, and no pod is moved: {error}")
            except LeftAlone as error:
                self._object.complain(str(error))
            else:
                self._written = version
                self._defragmentation.confirm(version)
            finally:
                self._writing = False
            if self._written == version:
                self._wake()
                self.save()

        self._pool.submit(Urgency.STATUS, write)


def encode(entries: list[EvictionEntry]) -> str:
    return _ENCODER.encode({"version": VERSION, "evictions": entries}).decode()


def decode(text: str) -> list[EvictionEntry]:
    """Parse the stored eviction reservations of defragmentation. Raises ValueError."""
    document = decode_json(text.encode("utf-8", "surrogatepass"))
    if not isinstance(document, dict) or document.get("version") != VERSION:
        raise ValueError(f"it is not of version {VERSION}")
    return msgspec.convert(document.get("evictions"), list[EvictionEntry])
