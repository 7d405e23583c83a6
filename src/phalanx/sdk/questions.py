"""What-if questions and advance reservations of the SDK."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypedDict

from phalanx.sdk.errors import InvalidArgumentError, RequestRejectedError, translated
from phalanx.sdk.requests import command_job, manifest_objects

if TYPE_CHECKING:
    from phalanx.reports.reservation_list import ReservationEntry
    from phalanx.reports.whatif.answer import WhatIfAnswer
    from phalanx.sdk.async_cluster import AsyncCluster, Manifest
    from phalanx.sdk.requests import SubmitOptions

Json = dict[str, Any]


class Change(TypedDict, total=False):
    """Question of `what_if`.

    `manifest` would be created; or a job of `command` with the options `submit` (a dictionary). `gang` is a waiting
    gang (NAMESPACE/NAME). `add_nodes` nodes like the node `like` are added, nodes of `without_nodes` (names or
    labels) removed. `queue` gets a new `weight`, the asked gang a new `priority`. `horizon` is in seconds.
    """

    manifest: Manifest
    command: Sequence[str]
    submit: SubmitOptions
    gang: str
    add_nodes: int
    like: str
    without_nodes: Sequence[str]
    queue: str
    weight: int
    priority: int
    horizon: int


async def predict(cluster: AsyncCluster, change: Change) -> WhatIfAnswer:
    """Return the predicted effect of a change. Raises InvalidArgumentError."""
    from phalanx.reports.capture.writing import capture_cluster, encode_capture
    from phalanx.reports.whatif.changes import QueueChange
    from phalanx.reports.whatif.question import Question, answer_question
    from phalanx.scheduling.framework.errors import PolicyError
    from phalanx.simulation.cluster import read_cluster
    from phalanx.simulation.documents import read_documents
    from phalanx.simulation.errors import InputError, OptionError

    unknown = sorted(set(change) - set(Change.__annotations__))
    if unknown:
        known = ", ".join(Change.__annotations__)
        raise InvalidArgumentError(f"unknown argument {unknown[0]!r}; expected one of {known}", field=unknown[0])
    if not set(change) - {"horizon", "like", "submit", "weight"}:
        raise InvalidArgumentError("no question; set manifest, command, gang or a change", field="manifest")
    documents: list[Json] = []
    with translated():
        if "manifest" in change:
            documents += manifest_objects(change["manifest"])
        if "command" in change:
            documents.append(command_job(change["command"], "what-if", change.get("submit", {})))
        policy, names = await cluster.read_policy()
        captured, objects = await capture_cluster(
            cluster.client, names, policy, time.time(), cluster.lease_namespace, own_namespace=cluster.namespace
        )
    queue = QueueChange(change["queue"], change.get("weight"), {}, {}) if "queue" in change else None
    words = [f"{key} {value}" for key, value in change.items() if key in ("add_nodes", "queue", "priority")]
    words += [f"without nodes {text}" for text in change.get("without_nodes", ())]
    try:
        copied = read_cluster(encode_capture(captured, objects, packed=False).decode(), "cluster")
        asked = [entry for document in documents for entry in read_documents(_yaml(document), "manifest")]
        question = Question(
            copied,
            policy,
            change.get("horizon", 7 * 86_400),
            tuple(asked),
            cluster.namespace,
            change.get("gang", ""),
            change.get("add_nodes", 0),
            change.get("like", ""),
            tuple(change.get("without_nodes", ())),
            queue,
            change.get("priority"),
            None,
            tuple(words),
        )
        return answer_question(question)
    except OptionError as error:
        raise InvalidArgumentError(error.python_message, field=error.argument) from error
    except (InputError, PolicyError) as error:
        raise InvalidArgumentError(str(error)) from error


def _yaml(document: Json) -> str:
    import json

    return json.dumps(document)


async def reserve(
    cluster: AsyncCluster,
    name: str,
    *,
    start: str = "",
    not_before: str = "",
    end: str = "",
    duration: str = "",
    count: int = 1,
    cpus: float | str | None = None,
    memory: str | None = None,
    gpus: int | str | None = None,
    nodes: Sequence[str] = (),
    queue: str = "",
    owners: Sequence[Mapping[str, Any]] = (),
) -> ReservationEntry:
    """Create an advance reservation and return it (docs/advance-reservations.md); see AsyncCluster.reserve."""
    import msgspec

    from phalanx.orders.submission.creation import amounts
    from phalanx.reports.reservation_list import ADVANCE, reservation_entry
    from phalanx.sdk.requests import text_of_amount, text_of_memory

    times = {"start": start, "notBefore": not_before, "end": end, "duration": duration}
    with translated(f"reservation/{name}"):
        requests = amounts(text_of_amount(cpus), text_of_memory(memory), text_of_amount(gpus))
        if bool(nodes) == bool(requests):
            raise InvalidArgumentError("set either nodes, or cpus, memory or gpus of each pod", field="nodes")
        container = {"name": "pod", "resources": {"requests": requests}}
        room: Json = (
            {"nodes": {"names": list(nodes)}}
            if nodes
            else {"template": {"spec": {"containers": [container]}}, "count": count}
        )
        spec: Json = {**room, **{key: value for key, value in times.items() if value}}
        spec["owners"] = [dict(owner) for owner in owners] or [{"namespaces": [cluster.namespace]}]
        if queue:
            spec["queue"] = queue
        body = {"apiVersion": ADVANCE.api_version, "kind": ADVANCE.kind, "metadata": {"name": name}, "spec": spec}
        created: Json = await cluster.client.create(ADVANCE.path(None), body)
    if not created.get("metadata"):
        raise RequestRejectedError("the API server returned no object", about=f"reservation/{name}")
    entry = reservation_entry(created, "reservation")
    # Until the scheduler has granted it, only the asked times are known.
    return msgspec.structs.replace(entry, start=entry.start or start or not_before, end=entry.end or end)
