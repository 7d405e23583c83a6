"""Nodes with their free resources, from two API lists: nodes and bound pods."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import msgspec

from phalanx.cluster.node_table import NO_ROW
from phalanx.cluster.pods.records import NO_NODE
from phalanx.cluster.state import ClusterState
from phalanx.dialects.core import decode_node, decode_pod
from phalanx.dialects.devices.node_cards import cordoned_cards
from phalanx.dialects.intake import Intake
from phalanx.dialects.options import DialectOptions
from phalanx.dialects.registry import installed_dialects
from phalanx.dialects.signatures import Signer
from phalanx.kube.client import KubeClient, Params
from phalanx.kube.core_resources import NODES, PODS
from phalanx.kube.wire import read_page
from phalanx.model.devices.gpu_counts import gpu_percent
from phalanx.model.node_rejection import NodeBackoffEntry
from phalanx.model.resources import CPU, MEMORY
from phalanx.model.text.counts import count_of, first_of
from phalanx.model.text.moments import shown_moment
from phalanx.reports.jobs.read_documents import conditions_of, mapping, text
from phalanx.reports.nodes.entries import CLOSED, POOL_LABELS, Amounts, NodeEntry, NodeReason, NodeState
from phalanx.reports.nodes.tainted_devices import read_tainted_devices

# Cordoned GPUs that a reason names.
_CARDS_NAMED = 4
_ON_NODES = "spec.nodeName!=,status.phase!=Succeeded,status.phase!=Failed"
_PRESSURES = frozenset({"MemoryPressure", "DiskPressure", "PIDPressure", "NetworkUnavailable"})
# Prefix of taints that repeat a condition or the cordon.
_OF_CONDITIONS = "node.kubernetes.io/"
# CPU below this amount in millicores counts as none.
_NO_CPU = 100

Json = Mapping[str, Any]
Progress = Callable[[str, int, int], object]


async def read_nodes(
    client: KubeClient,
    selector: str,
    pool_label: str,
    options: DialectOptions,
    progress: Progress,
    rejections: Sequence[NodeBackoffEntry] = (),
) -> list[NodeEntry]:
    """Return the nodes by name. `pool_label` is the label of pools, "" for the first known label of a node.
    `rejections` are the back-offs of nodes that rejected pods.
    """
    listed = await client.list_all(
        NODES.path(),
        {"labelSelector": selector or None},
        progress=lambda read, remaining: progress("nodes", read, remaining),
    )
    state = ClusterState()
    intake = Intake((), options, Signer(unchecked=True), dialects=installed_dialects())
    documents: list[Json] = listed["items"]
    for document in documents:
        try:
            node = decode_node(msgspec.json.encode(document))
        except msgspec.DecodeError:
            continue  # the node is listed without capacity
        for event in intake.node(node):
            state.apply(event)
    await _read_pods(client, state, intake, progress)
    further = {name: list(reasons) for name, reasons in (await read_tainted_devices(client)).items()}
    for entry in sorted(rejections):
        further.setdefault(entry.scope.node, []).append(backoff_reason(entry))
    return node_entries(documents, state, pool_label, further)


def node_entries(
    documents: Iterable[Json], state: ClusterState, pool_label: str, further: Mapping[str, Sequence[NodeReason]]
) -> list[NodeEntry]:
    """Return the nodes of the API's `documents` by name, with the usage in `state` and `further` reasons by
    node."""
    counted: Counter[int] = Counter()
    for record in state.pods.values():
        if record.row != NO_NODE and not record.pod.fixture:
            counted[record.row] += 1
    entries = [_entry(document, state, counted, pool_label, further) for document in documents]
    return sorted(entries, key=lambda entry: entry.name)


async def _read_pods(client: KubeClient, state: ClusterState, intake: Intake, progress: Progress) -> None:
    token, read = "", 0
    while True:
        params: Params = {"limit": 2000, "fieldSelector": _ON_NODES, "continue": token or None}
        page = read_page(await client.request("GET", PODS.path(), params=params))
        for raw in page.items:
            try:
                pod = decode_pod(bytes(raw))
            except msgspec.DecodeError:
                continue  # its requests cannot be parsed
            for event in intake.pod(pod):
                state.apply(event)
        read += len(page.items)
        progress("pods", read, 0)
        token = page.token
        if not token:
            return


def backoff_reason(entry: NodeBackoffEntry) -> NodeReason:
    """Return the back-off of a node as a reason: the kubelet's reason, the pods and the end."""
    scope = entry.scope
    pods = ("of one kind" if scope.pod_class else "", f"of namespace {scope.namespace}" if scope.namespace else "")
    request = f"that request {scope.resource}" if scope.resource else ""
    claim = f"with a claim of StorageClass {scope.storage_class}" if scope.storage_class else ""
    affected = " ".join(filter(None, ("pods", *pods, request, claim)))
    message = f"{scope.reason}, closed to {affected} until {shown_moment(entry.until)}"
    return NodeReason("RejectedPods", message, shown_moment(entry.last))


def _entry(
    document: Json,
    state: ClusterState,
    counted: Mapping[int, int],
    pool_label: str,
    further: Mapping[str, Sequence[NodeReason]],
) -> NodeEntry:
    metadata = mapping(document.get("metadata"))
    name = text(metadata.get("name"))
    labels = {key: text(value) for key, value in mapping(metadata.get("labels")).items()}
    row = state.nodes.row(name)
    offered, free, closed_by = Amounts(), Amounts(), ""
    node = state.nodes.nodes[row] if row != NO_ROW else None
    if node is not None:
        offered, free = _amounts(state, row, state.nodes.allocatable), _amounts(state, row, state.nodes.idle)
        closed_by = node.cordoned_by
    reasons = [*_reasons(document, closed_by), *further.get(name, ())]
    pods = counted.get(row, 0)
    word = _state(document, reasons, pods, free, offered)
    return NodeEntry(
        name=name,
        pool=next(filter(None, (labels.get(key, "") for key in ([pool_label] if pool_label else POOL_LABELS))), ""),
        state=word,
        free=Amounts() if word in CLOSED else free,
        offered=offered,
        pods=pods,
        reasons=tuple(reasons),
        labels=labels,
    )


def _amounts(state: ClusterState, row: int, table: Any) -> Amounts:
    held = {name: max(0, int(amount)) for name, amount in zip(state.nodes.space.names, table[:, row], strict=False)}
    return Amounts(held.get(CPU, 0), held.get(MEMORY, 0), gpu_percent(held.items()))


def _state(document: Json, reasons: Sequence[NodeReason], pods: int, free: Amounts, offered: Amounts) -> NodeState:
    if any(reason.reason == "NotReady" for reason in reasons):
        return NodeState.DOWN
    if mapping(document.get("spec")).get("unschedulable") is True:
        return NodeState.DRAINING if pods else NodeState.DRAINED
    if not pods:
        return NodeState.IDLE
    full = free.gpu < 1 if offered.gpu else free.cpu < _NO_CPU
    return NodeState.ALLOCATED if full else NodeState.MIXED


def _reasons(document: Json, closed_by: str) -> list[NodeReason]:
    """Return the reasons why a node accepts no or only some pods, the most severe first."""
    spec = mapping(document.get("spec"))
    reasons: list[NodeReason] = []
    conditions = conditions_of(document)
    ready = next((taint for taint in conditions if taint.type == "Ready"), None)
    if ready is not None and ready.status != "True":
        reasons.append(NodeReason("NotReady", ready.message or ready.reason, ready.since))
    taints = spec.get("taints")
    marks = [mapping(taint) for taint in (taints if isinstance(taints, list) else ())]
    if spec.get("unschedulable") is True:
        mark = next((taint for taint in marks if taint.get("key") == "node.kubernetes.io/unschedulable"), {})
        what = ("Maintenance", closed_by) if closed_by else ("Cordoned", "")
        reasons.append(NodeReason(*what, since=text(mark.get("timeAdded"))))
    reasons += [
        NodeReason(taint.type, taint.message or taint.reason, taint.since)
        for taint in conditions
        if taint.type in _PRESSURES and taint.status == "True"
    ]
    for mark in marks:
        key, value, effect = text(mark.get("key")), text(mark.get("value")), text(mark.get("effect"))
        if effect in ("NoSchedule", "NoExecute") and not key.startswith(_OF_CONDITIONS):
            taint_text = f"{key}={value}:{effect}" if value else f"{key}:{effect}"
            reasons.append(NodeReason("Taint", taint_text, text(mark.get("timeAdded"))))
    metadata = mapping(document.get("metadata"))
    cards = cordoned_cards({key: text(value) for key, value in mapping(metadata.get("annotations")).items()})
    if cards:
        reasons.append(
            NodeReason("DeviceCordon", f"{count_of(len(cards), 'GPU')}: {first_of(cards, _CARDS_NAMED)}")
        )
    return reasons
