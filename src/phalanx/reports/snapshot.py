"""One-time read of the whole cluster into a scheduler's state, for commands with a dry run."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable
from typing import Any, TypeVar

import msgspec

from phalanx.cluster.state import ClusterState
from phalanx.daemon.node_load import measure
from phalanx.daemon.served import (
    has_native_groups,
    served_accounts,
    served_enricher_kinds,
    served_groups,
    served_owners,
)
from phalanx.daemon.signing_keys import reading_signer
from phalanx.dialects.core import (
    PodObject,
    decode_namespace,
    decode_node,
    decode_pod,
    decode_priority_class,
    decode_resource_quota,
)
from phalanx.dialects.intake import Intake
from phalanx.dialects.kinds import ServedKind
from phalanx.dialects.options import DialectOptions
from phalanx.dialects.pods.evictability import DISRUPTION_TARGET, told_eviction
from phalanx.dialects.reader import decode_group, decode_object
from phalanx.dialects.registry import installed_dialects
from phalanx.dialects.signatures import Signer
from phalanx.kube.client import KubeClient
from phalanx.kube.core_resources import (
    DISRUPTION_BUDGETS,
    NAMESPACES,
    NODES,
    PODS,
    PRIORITY_CLASSES,
    RESOURCE_QUOTAS,
)
from phalanx.kube.discovery import discover
from phalanx.kube.errors import ApiError
from phalanx.kube.paths import Resource
from phalanx.kube.wire import read_head, read_page
from phalanx.model.events import ClusterEvent, NodeBackoffsRestored
from phalanx.model.eviction_condition import ToldEviction
from phalanx.reports.pod_troubles import PodTrouble, pod_trouble
from phalanx.reports.stored_history import read_backoffs
from phalanx.scheduling.quota.usage_history import AccountUsage

T = TypeVar("T")
Seen = Callable[[Resource, bytes], None]


class DisruptionTarget(msgspec.Struct, frozen=True):
    """Reason of a pod's eviction, from its condition DisruptionTarget.

    `told` has the structured fields of an eviction by our scheduler.
    """

    reason: str
    message: str
    told: ToldEviction | None = None

    @property
    def sentence(self) -> str:
        """Text of the eviction's reason without the name of the evicting component."""
        return self.told.sentence if self.told is not None else self.message


def disruption_target_of(pod: PodObject) -> DisruptionTarget | None:
    for condition in pod.status.conditions:
        if (condition.type, condition.status) == (DISRUPTION_TARGET, "True"):
            return DisruptionTarget(condition.reason, condition.message, told_eviction(pod))
    return None


class Snapshot(msgspec.Struct):
    """Cluster state read once, with the parts that could not be read.

    `missing` names unreadable kinds with the reason. By uid, `refused` holds the API error of a pod's last binding,
    `disruption_targets` the eviction reasons, and `troubles` why pods with a node do not run. `usages` is the past
    usage of accounts, if needed (`stored_usage`). `events` rebuild the state from the beginning. `native_groups`
    tells whether the API serves Kubernetes' own PodGroups.
    """

    state: ClusterState
    intake: Intake
    missing: list[str] = []
    refused: dict[str, str] = {}
    disruption_targets: dict[str, DisruptionTarget] = {}
    usages: list[AccountUsage] = []
    events: list[ClusterEvent] = []
    native_groups: bool = False
    troubles: dict[str, PodTrouble] = {}

    def apply_events(self, events: Iterable[ClusterEvent]) -> None:
        for event in events:
            self.state.apply(event)
            self.events.append(event)


async def read_cluster(
    client: KubeClient,
    schedulers: Iterable[str],
    options: DialectOptions,
    lease_namespace: str = "kube-system",
    *,
    seen: Seen = lambda resource, raw: None,
    own_namespace: str = "",
    signed: bool = True,
) -> Snapshot:
    """List all objects that a scheduler watches. Pods and nodes are required; other kinds can be forbidden.

    `lease_namespace` is the namespace of the scheduler's lease and signing keys. The caller receives the JSON of
    every object through `seen`. Kinds that cannot be listed in all namespaces are listed in `own_namespace` alone,
    if given. Unless `signed`, all checks that need the scheduler's Secret are skipped.
    """
    names = tuple(schedulers)
    signer, unverified = await reading_signer(client, lease_namespace) if signed else (Signer(unchecked=True), "")
    state, intake = ClusterState(names), Intake(names, options, signer, dialects=installed_dialects())
    snapshot = Snapshot(state, intake)

    async def read(
        resource: Resource, decode: Callable[[bytes], T], take: Callable[[T], list[ClusterEvent]]
    ) -> None:
        try:
            async for raw in _items(client, resource, own_namespace, snapshot.missing):
                seen(resource, raw)
                if resource == PODS and (found := pod_trouble(raw)) is not None:
                    snapshot.troubles[found[0]] = found[1]
                try:
                    entry = decode(raw)
                except msgspec.DecodeError as error:
                    _malformed(snapshot, resource, raw, str(error))
                    continue
                snapshot.apply_events(take(entry))
        except ApiError as error:
            if resource in (PODS, NODES) or error.status not in (403, 404):
                raise
            snapshot.missing.append(f"{resource.plural}.{resource.group or 'core'}: {error.message}")

    await read(PRIORITY_CLASSES, decode_priority_class, intake.priority_class)
    await read(NAMESPACES, decode_namespace, intake.namespace)
    await read(RESOURCE_QUOTAS, decode_resource_quota, intake.resource_quota)
    await read(DISRUPTION_BUDGETS, decode_object, intake.disruption_budget)
    await read(NODES, decode_node, intake.node)
    served = await discover(client)
    snapshot.native_groups = has_native_groups(served, intake)
    snapshot.apply_events(intake.serves_native(snapshot.native_groups))
    for kind, resource in served_groups(served, intake):
        await read(resource, decode_group, lambda document, kind=kind: intake.group(kind, document))  # type: ignore[misc]
    for kind, resource in served_accounts(served, intake):
        await read(resource, decode_object, lambda document, kind=kind: intake.account(kind, document))  # type: ignore[misc]
    enrichers = dict[ServedKind, Resource]()

    async def read_enrichers() -> bool:
        """Read newly referenced objects such as claims and volumes. Return whether there were any."""
        wanted = [entry for entry in served_enricher_kinds(served, intake) if entry[0] not in enrichers]
        for kind, resource in wanted:
            enrichers[kind] = resource
            await read(
                resource,
                decode_object,
                lambda document, kind=kind: intake.apply(intake.enrichers.updated(kind, document)),  # type: ignore[misc]
            )
        return bool(wanted)

    await read_enrichers()

    def take_pod(pod: PodObject) -> list[ClusterEvent]:
        for condition in pod.status.conditions:
            if (condition.type, condition.status, condition.reason) == ("PodScheduled", "False", "SchedulerError"):
                snapshot.refused[pod.metadata.uid] = condition.message
        if (target := disruption_target_of(pod)) is not None:
            snapshot.disruption_targets[pod.metadata.uid] = target
        return intake.pod(pod)

    await read(PODS, decode_pod, take_pod)
    # Pods and the owners above them reference further kinds.
    while await read_enrichers():
        pass
    owners = {(kind.group, kind.plural): (kind, resource) for kind, resource in served_owners(served, intake)}
    for wanted in sorted(intake.workloads.wanted):
        if wanted in owners:
            kind, resource = owners[wanted]
            missing = len(snapshot.missing)
            await read(resource, decode_object, lambda document, kind=kind: intake.owners.updated(kind, document))  # type: ignore[misc]
        if wanted not in owners or len(snapshot.missing) > missing:
            snapshot.apply_events(intake.owners.readable(wanted, False))
    if unverified and any(gang.marks for gang in state.gangs.values()):
        snapshot.missing.append(unverified)
    loads = await measure(client)
    if loads is not None:
        snapshot.apply_events([loads])
    backoffs = await read_backoffs(client, lease_namespace, names)
    snapshot.apply_events([NodeBackoffsRestored(backoffs.entries)])
    snapshot.state.gangs.node_requests.replace(backoffs.requests)
    snapshot.missing += backoffs.faults
    return snapshot


def _malformed(snapshot: Snapshot, resource: Resource, raw: bytes, error: str) -> None:
    head = read_head(raw)
    if resource == PODS:
        snapshot.apply_events(snapshot.intake.malformed_pod(*head.key, head.uid, error, raw))
    else:
        snapshot.missing.append(f"{resource.plural} {'/'.join(filter(None, head.key))}: {error}")


async def _items(
    client: KubeClient, resource: Resource, own_namespace: str, missing: list[str]
) -> AsyncIterator[bytes]:
    path, token = resource.path(), ""
    while True:
        params: dict[str, Any] = {"limit": 500, "continue": token or None}
        try:
            body = await client.request("GET", path, params=params)
        except ApiError as error:
            alone = resource.path(own_namespace)
            if error.status != 403 or not own_namespace or not resource.namespaced or path == alone:
                raise
            name = f"{resource.plural}.{resource.group or 'core'}"
            missing.append(f"{name}: outside of namespace {own_namespace}: {error.message}")
            path = alone
            continue
        page = read_page(body)
        for item in page.items:
            yield bytes(item)
        token = page.token
        if not token:
            return
