"""Nodes that rejected pods or for which volumes could not be provisioned, stored in a ConfigMap across restarts.

A restart takes less time than a back-off: without the record the next pod would be bound to the same node again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar

import msgspec

from phalanx.cluster.nodes.backoff import NodeBackoff
from phalanx.daemon.controllers.own_config_map import LeftAlone, OwnConfigMap
from phalanx.daemon.provisioning_troubles import ProvisioningTroubles, StoredTrouble
from phalanx.execution.record_writes import RecordWrites
from phalanx.execution.writes import WritePool
from phalanx.kube.client import KubeClient
from phalanx.kube.errors import ApiError, ConnectionLost
from phalanx.kube.retry import RetryPolicy
from phalanx.model.events import ClusterEvent, NodeBackoffsRestored
from phalanx.model.node_rejection import NodeBackoffEntry
from phalanx.model.text.decoding import decode_json

NAME = "node-backoff"
REJECTIONS_KEY = "rejections.json"
PROVISIONING_KEY = "provisioning.json"
VERSION = 1
# A ConfigMap holds 1 MB, and an entry needs up to 400 bytes.
MOST_ENTRIES = 1000

E = TypeVar("E")


class NodeBackoffRecord:
    """Storage of back-offs. They are loaded once before the first plan, and written with each rejection.

    `apply` applies an event to the state.
    """

    def __init__(
        self,
        client: KubeClient,
        pool: WritePool,
        namespace: str,
        backoff: NodeBackoff,
        troubles: ProvisioningTroubles,
        apply: Callable[[ClusterEvent], None],
        now: Callable[[], float],
        *,
        prefix: str = "phalanx",
        retry: RetryPolicy | None = None,
    ) -> None:
        self._object = OwnConfigMap(client, namespace, f"{prefix}-{NAME}", "nodes may reject pods again", retry)
        self._backoff = backoff
        self._troubles = troubles
        self._apply = apply
        self._now = now
        self._writes = RecordWrites(pool, self._write)
        self._written = self._versions()

    async def load(self) -> None:
        """Load the back-offs; retry while the API server is unreachable."""
        texts = await self._object.read()
        entries, faults = decode_rejections(texts.get(REJECTIONS_KEY, ""))
        troubles, faults_of_troubles = decode_troubles(texts.get(PROVISIONING_KEY, ""))
        for key, key_faults in ((REJECTIONS_KEY, faults), (PROVISIONING_KEY, faults_of_troubles)):
            for fault in key_faults:
                self._object.complain(f"key {key}: {fault}")
        if entries:
            self._apply(NodeBackoffsRestored(tuple(entries)))
        self._troubles.restore(troubles)
        self._written = self._versions()

    def save(self) -> None:
        """Submit a write of changed back-offs."""
        if self._versions() != self._written:
            self._writes.submit()

    async def _write(self) -> None:
        versions = self._versions()
        if versions == self._written:
            return
        data = {
            REJECTIONS_KEY: _encode(_latest(self._backoff.entries())),
            PROVISIONING_KEY: _encode(_latest(self._troubles.stored())),
        }
        try:
            await self._object.put(data, data)
        except (ApiError, ConnectionLost) as error:
            self._object.complain(f"is not written: {error}")
        except LeftAlone as error:
            self._object.complain(str(error))
        else:
            self._written = versions

    def _versions(self) -> tuple[int, int]:
        return self._backoff.version, self._troubles.version


def decode_rejections(text: str) -> tuple[list[NodeBackoffEntry], list[str]]:
    """Return the readable entries of rejecting nodes, and one sentence for each fault."""
    return _decode(text, NodeBackoffEntry)


def decode_troubles(text: str) -> tuple[list[StoredTrouble], list[str]]:
    """Return the readable entries of failed provisioning, and one sentence for each fault."""
    return _decode(text, StoredTrouble)


def _latest(entries: Sequence[Any]) -> list[Any]:
    """Return the entries that end last, as many as the object holds, in their own order."""
    return sorted(sorted(entries, key=lambda entry: (-entry.until, entry))[:MOST_ENTRIES])


def _encode(entries: Iterable[object]) -> str:
    return msgspec.json.encode({"version": VERSION, "entries": list(entries)}, order="deterministic").decode()


def _decode(text: str, kind: type[E]) -> tuple[list[E], list[str]]:
    if not text:
        return [], []
    try:
        document = decode_json(text.encode("utf-8", "surrogatepass"))
    except msgspec.DecodeError as error:
        return [], [f"no back-off can be read: {error}"]
    entries = document.get("entries") if isinstance(document, dict) else None
    if not isinstance(entries, list) or document.get("version") != VERSION:
        return [], [f"no back-off can be read: it is not of version {VERSION}"]
    readable: list[E] = []
    faults: list[str] = []
    for place, entry in enumerate(entries):
        try:
            readable.append(msgspec.convert(entry, kind))
        except msgspec.ValidationError as error:
            faults.append(f"entries[{place}] is ignored: {error}")
    return readable, faults
