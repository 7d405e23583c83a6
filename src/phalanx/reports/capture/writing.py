"""Capture (recording in a file) of a live cluster: reading and encoding."""

from __future__ import annotations

import gzip
from collections.abc import Callable, Iterable
from typing import Any

import msgspec

from phalanx.daemon.policy_file import dialect_options
from phalanx.kube.client import KubeClient
from phalanx.kube.paths import Resource
from phalanx.reports.capture.captured_kinds import captured
from phalanx.reports.read_promises import read_promises
from phalanx.reports.snapshot import read_cluster
from phalanx.reports.stored_usage import read_usage
from phalanx.scheduling.framework.policy import Policy
from phalanx.simulation.capture import KIND, Capture
from phalanx.simulation.documents import OWN_VERSION

Told = Callable[[str, int], None]


async def capture_cluster(
    client: KubeClient,
    schedulers: Iterable[str],
    policy: Policy,
    now: float,
    lease_namespace: str = "kube-system",
    *,
    own_namespace: str = "",
    policy_text: str = "",
    told: Told = lambda plural, count: None,
) -> tuple[Capture, list[dict[str, Any]]]:
    """Read the cluster. Return the capture's header, and the captured objects by kind and name.

    `policy_text` is stored for simulations of the capture. `told` is called with each kind during reading, and the
    number of objects so far.
    """
    documents: dict[tuple[str, str, str, str], dict[str, Any]] = {}

    def keep(resource: Resource, raw: bytes) -> None:
        document = captured(resource.api_version, resource.kind, msgspec.json.decode(raw))
        metadata = document["metadata"]
        key = (resource.kind, resource.group, str(metadata.get("namespace") or ""), str(metadata["name"]))
        documents[key] = document
        told(resource.plural, len(documents))

    names = tuple(schedulers)
    snapshot = await read_cluster(
        client,
        names,
        dialect_options(policy),
        lease_namespace,
        seen=keep,
        own_namespace=own_namespace,
        signed=False,
    )
    await read_usage(client, snapshot, policy, lease_namespace, names)
    promises = await read_promises(client, lease_namespace, names)
    capture = Capture(
        int(now),
        names,
        snapshot.native_groups,
        tuple(sorted(snapshot.missing)),
        promises.promises,
        tuple(snapshot.usages),
        promises.origin,
        policy_text,
    )
    return capture, [documents[key] for key in sorted(documents)]


def encode_capture(capture: Capture, documents: Iterable[dict[str, Any]], packed: bool) -> bytes:
    """Encode a capture as a List of API objects in JSON, one object per line, with the header first; gzipped if
    `packed`."""
    head = {
        "apiVersion": OWN_VERSION,
        "kind": KIND,
        "metadata": {"name": "capture"},
        "spec": msgspec.to_builtins(capture),
    }
    items = b",\n".join(msgspec.json.encode(document) for document in (head, *documents))
    raw = b'{"apiVersion":"v1","kind":"List","items":[\n' + items + b"\n]}\n"
    # Without a timestamp, equal clusters yield equal files.
    return gzip.compress(raw, mtime=0) if packed else raw
