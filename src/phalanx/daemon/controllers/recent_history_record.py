"""Events of the last minutes that still limit decisions, stored in a ConfigMap across restarts.

A restart takes less time than these limits last: without the record the next pod would be bound to a node that has
just rejected such a pod, or an account would lose more pods than its eviction rate allows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Generic, Protocol, TypeVar

import msgspec

from phalanx.daemon.controllers.own_config_map import LeftAlone, OwnConfigMap
from phalanx.execution.record_writes import RecordWrites
from phalanx.execution.writes import WritePool
from phalanx.kube.client import KubeClient
from phalanx.kube.errors import ApiError, ConnectionLost
from phalanx.kube.retry import RetryPolicy
from phalanx.model.text.decoding import decode_json

NAME = "recent-history"
VERSION = 1
# A ConfigMap holds 1 MB, and an entry needs up to 400 bytes.
MOST_ENTRIES = 600

#: Keys of the sections in the ConfigMap.
BACKOFFS_KEY = "node-backoffs.json"
EVICTIONS_KEY = "evictions.json"
NODE_REQUESTS_KEY = "node-requests.json"
RUN_TIMES_KEY = "run-times.json"


class HistoryEntry(Protocol):
    """Entry of a section; it limits decisions until a time, in seconds since the epoch."""

    @property
    def until(self) -> float: ...


E = TypeVar("E", bound=HistoryEntry)


class HistorySection(msgspec.Struct, Generic[E], frozen=True, eq=False):
    """One kind of entries under a `key`. `version` changes with the entries that `stored` returns."""

    key: str
    kind: type[E]
    version: Callable[[], int]
    stored: Callable[[], Sequence[E]]
    restore: Callable[[Sequence[E]], None]


class RecentHistoryRecord:
    """Storage of sections. They are loaded once before the first plan, and written when they change."""

    def __init__(
        self,
        client: KubeClient,
        pool: WritePool,
        namespace: str,
        sections: Sequence[HistorySection[HistoryEntry]],
        *,
        prefix: str = "phalanx",
        retry: RetryPolicy | None = None,
    ) -> None:
        self._object = OwnConfigMap(client, namespace, f"{prefix}-{NAME}", "recent events no longer count", retry)
        self._sections = sections
        self._writes = RecordWrites(pool, self._write)
        self._written = self._versions()

    async def load(self) -> None:
        """Load the sections; retry while the API server is unreachable."""
        texts = await self._object.read()
        for section in self._sections:
            entries, faults = decode(texts.get(section.key, ""), section.kind)
            for fault in faults:
                self._object.complain(f"key {section.key}: {fault}")
            section.restore(entries)
        self._written = self._versions()

    def save(self) -> None:
        """Submit a write of changed sections."""
        if self._versions() != self._written:
            self._writes.submit()

    async def _write(self) -> None:
        versions = self._versions()
        news = {
            section.key: encode(section.stored())
            for section, version, written in zip(self._sections, versions, self._written, strict=True)
            if version != written
        }
        if not news:
            return
        try:
            await self._object.put(news, {**{section.key: encode(section.stored()) for section in self._sections}})
        except (ApiError, ConnectionLost) as error:
            self._object.complain(f"is not written: {error}")
        except LeftAlone as error:
            self._object.complain(str(error))
        else:
            self._written = versions

    def _versions(self) -> tuple[int, ...]:
        return tuple(section.version() for section in self._sections)


def encode(entries: Iterable[HistoryEntry]) -> str:
    """Return the text of a section, with as many of the entries that last longest as the object holds."""
    last = sorted(entries, key=lambda entry: -entry.until)[:MOST_ENTRIES]
    return msgspec.json.encode({"version": VERSION, "entries": last}, order="deterministic").decode()


def decode(text: str, kind: type[E]) -> tuple[list[E], list[str]]:
    """Return the readable entries of a section, and one sentence for each fault."""
    if not text:
        return [], []
    try:
        document = decode_json(text.encode("utf-8", "surrogatepass"))
    except msgspec.DecodeError as error:
        return [], [f"no entry of the record can be read: {error}"]
    entries = document.get("entries") if isinstance(document, dict) else None
    if not isinstance(entries, list) or document.get("version") != VERSION:
        return [], [f"no entry can be read: it is not of version {VERSION}"]
    readable: list[E] = []
    faults: list[str] = []
    for place, entry in enumerate(entries):
        try:
            readable.append(msgspec.convert(entry, kind))
        except msgspec.ValidationError as error:
            faults.append(f"entries[{place}] is ignored: {error}")
    return readable, faults
