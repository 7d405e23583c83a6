"""Short builders of Kubernetes objects."""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from typing import Any

import msgspec

from phalanx.dialects.core import PodObject, decode_pod
from phalanx.dialects.kinds import ServedKind
from phalanx.dialects.quotas.account_readers import confine_to_namespace
from phalanx.dialects.quotas.account_spec import AccountSpec
from phalanx.dialects.quotas.usage_status import QuotaUsage, UsageInput
from phalanx.dialects.reader import Document
from phalanx.dialects.registry import Dialects
from phalanx.dialects.status import StatusChange
from phalanx.dialects.status import desired_status as status_of_kind
from phalanx.dialects.times import format_time
from phalanx.model.account import Account
from phalanx.model.gang import Gang, GangCounts, GroupRef

EPOCH = 1_900_000_000

DIALECTS = Dialects()
GROUP_KINDS = [each.kind for each in DIALECTS.groups.values()]
ACCOUNT_KINDS = [each.kind for each in DIALECTS.accounts.values()]
declare = DIALECTS.declarations.declare
read_group = DIALECTS.read_group

X_K8S = ServedKind("scheduling.x-k8s.io", "v1alpha1", "podgroups")
SIGS = ServedKind("scheduling.sigs.k8s.io", "v1alpha1", "podgroups")
VOLCANO = ServedKind("scheduling.volcano.sh", "v1beta1", "podgroups")
KUBE_BATCH = ServedKind("scheduling.incubator.k8s.io", "v1alpha1", "podgroups")
KUBE_BATCH_DESIGN = ServedKind("incubator.scheduling.k8s.io", "v1alpha1", "podgroups")
KUBE_BATCH_LAST = ServedKind("scheduling.sigs.dev", "v1alpha2", "podgroups")
NATIVE = ServedKind("scheduling.k8s.io", "v1beta1", "podgroups")
NATIVE_1_36 = ServedKind("scheduling.k8s.io", "v1alpha2", "podgroups")
WORKLOAD = ServedKind("scheduling.k8s.io", "v1alpha1", "workloads", "Workload")

VOLCANO_QUEUE = ServedKind("scheduling.volcano.sh", "v1beta1", "queues", "Queue")
KUBE_BATCH_QUEUE = ServedKind("scheduling.incubator.k8s.io", "v1alpha1", "queues", "Queue")
KUBE_BATCH_LAST_QUEUE = ServedKind("scheduling.sigs.dev", "v1alpha2", "queues", "Queue")
QUOTA = ServedKind("scheduling.x-k8s.io", "v1alpha1", "elasticquotas", "ElasticQuota")
SIGS_QUOTA = ServedKind("scheduling.sigs.k8s.io", "v1alpha1", "elasticquotas", "ElasticQuota")
QUOTA_TREE = ServedKind("scheduling.sigs.k8s.io", "v1beta1", "elasticquotatrees", "ElasticQuotaTree")
PROFILE = ServedKind("quota.koordinator.sh", "v1alpha1", "elasticquotaprofiles", "ElasticQuotaProfile")


def pod_document(
    name: str = "p",
    *,
    namespace: str = "default",
    uid: str = "",
    labels: Mapping[str, Any] | None = None,
    annotations: Mapping[str, Any] | None = None,
    created: int = EPOCH,
    owner: str = "",
    terminating: bool = False,
    phase: str = "Pending",
    node: str = "",
    containers: Sequence[Mapping[str, Any]] | None = None,
    status: Mapping[str, Any] | None = None,
    **spec: Any,
) -> dict[str, Any]:
    metadata: dict[str, Any] = {
        "name": name,
        "namespace": namespace,
        "uid": uid or f"uid-{name}",
        "creationTimestamp": format_time(created),
    }
    if labels:
        metadata["labels"] = dict(labels)
    if annotations:
        metadata["annotations"] = dict(annotations)
    if owner:
        metadata["ownerReferences"] = [
            {"apiVersion": "batch/v1", "kind": "Job", "name": owner, "uid": f"uid-{owner}", "controller": True}
        ]
    if terminating:
        metadata["deletionTimestamp"] = format_time(created + 60)
    body: dict[str, Any] = {
        "schedulerName": "phalanx",
        "containers": list(containers) if containers is not None else [container()],
        **spec,
    }
    if node:
        body["nodeName"] = node
    return {"metadata": metadata, "spec": body, "status": {"phase": phase, **(status or {})}}


def pod(name: str = "p", **details: Any) -> PodObject:
    return decode(pod_document(name, **details))


def decode(document: Mapping[str, Any]) -> PodObject:
    return decode_pod(msgspec.json.encode(document))


def container(name: str = "main", limits: Mapping[str, Any] | None = None, **requests: Any) -> dict[str, Any]:
    resources: dict[str, Any] = {}
    if requests:
        resources["requests"] = {resource(key): value for key, value in requests.items()}
    if limits:
        resources["limits"] = {resource(key): value for key, value in limits.items()}
    return {"name": name, "image": "busybox", "resources": resources}


def sidecar(name: str = "sidecar", **requests: Any) -> dict[str, Any]:
    return {**container(name, **requests), "restartPolicy": "Always"}


def resource(word: str) -> str:
    """Keyword arguments cannot spell the names of all resources."""
    return {"gpu": "nvidia.com/gpu", "ephemeral": "ephemeral-storage", "huge": "hugepages-2Mi"}.get(word, word)


def group(
    name: str = "g",
    *,
    namespace: str = "default",
    uid: str = "",
    created: int = EPOCH,
    labels: Mapping[str, Any] | None = None,
    annotations: Mapping[str, Any] | None = None,
    status: Mapping[str, Any] | None = None,
    **spec: Any,
) -> dict[str, Any]:
    return {
        "metadata": {
            "name": name,
            "namespace": namespace,
            "uid": uid or f"uid-{name}",
            "creationTimestamp": format_time(created),
            "labels": dict(labels or {}),
            "annotations": dict(annotations or {}),
        },
        "spec": spec,
        "status": dict(status or {}),
    }


def queue(name: str = "q", **details: Any) -> dict[str, Any]:
    """Queues have no namespace."""
    return group(name, namespace="", **details)


def quota(name: str = "q", namespace: str = "team-a", **details: Any) -> dict[str, Any]:
    return group(name, namespace=namespace, **details)


def quota_tree(root: Any, name: str = "tree", namespace: str = "kube-system", **details: Any) -> dict[str, Any]:
    return group(name, namespace=namespace, root=root, **details)


def read_account(kind: ServedKind, document: Document, trusted: Container[str] | None = None) -> AccountSpec:
    return confine_to_namespace(DIALECTS.read_account(kind, document), trusted)


def desired_status(
    ref: GroupRef, current: Mapping[str, Any], gang: Gang, counts: GangCounts, **details: Any
) -> StatusChange | None:
    return status_of_kind(DIALECTS.group_of(ref), ref, current, gang, counts, **details)


def usage_status(
    current: Mapping[str, Any], account: Account, holdings: QuotaUsage, *, tell_state: bool = True
) -> dict[str, Any]:
    return DIALECTS.usage_status(UsageInput(current, account, holdings, tell_state=tell_state))
