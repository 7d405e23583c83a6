"""Check whether a gang can be restarted by deleting its pods: their owner must replace them without restarts of its
own."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Any

from phalanx.dialects.core import OwnerReference
from phalanx.kube.client import KubeClient
from phalanx.kube.errors import ApiError
from phalanx.kube.paths import Resource
from phalanx.model.pod_quota import mapping, sequence, text

_TRAINING = ("PyTorchJob", "TFJob", "XGBoostJob", "PaddleJob", "JAXJob", "MPIJob")

#: (API group, kind) to plural: owners that replace deleted pods, and their owners without restart rules of their
#: own.
_MAKERS: Mapping[tuple[str, str], str] = MappingProxyType(
    {
        ("batch", "Job"): "jobs",
        ("apps", "StatefulSet"): "statefulsets",
        ("apps", "ReplicaSet"): "replicasets",
        ("", "ReplicationController"): "replicationcontrollers",
        **{("kubeflow.org", kind): f"{kind.lower()}s" for kind in _TRAINING},
    }
)
_ABOVE: Mapping[tuple[str, str], str] = MappingProxyType(
    {
        ("batch", "CronJob"): "cronjobs",
        ("apps", "Deployment"): "deployments",
        ("jobset.x-k8s.io", "JobSet"): "jobsets",
        ("leaderworkerset.x-k8s.io", "LeaderWorkerSet"): "leaderworkersets",
        ("trainer.kubeflow.org", "TrainJob"): "trainjobs",
        ("", "Pod"): "pods",
        **_MAKERS,
    }
)
#: API groups with their own rules for the restart of groups.
_OWN_RULES: Mapping[str, str] = MappingProxyType(
    {
        "batch.volcano.sh": "has policies of its own (spec.policies)",
        "ray.io": "replaces lost workers itself",
        "workload.codeflare.dev": "restarts the jobs that it wraps itself",
        "sparkoperator.k8s.io": "has a restart policy of its own",
        "grove.io": "restarts its gangs itself",
    }
)
_DEPTH = 8


def owner_resources() -> Iterable[tuple[str, str]]:
    """Return (API group, plural) of the owner kinds that the restart check reads."""
    return sorted({(group, plural) for (group, _), plural in _ABOVE.items()})


async def why_no_restart(
    client: KubeClient, namespace: str, pods: Iterable[tuple[str, OwnerReference | None]]
) -> str | None:
    """Return the reason why the pods (name, controller) must not be deleted for a restart; None if they can be."""
    counts: dict[str, int] = {}
    owners: dict[str, OwnerReference] = {}
    for name, owner in sorted(pods, key=lambda pod: pod[0]):
        if owner is None:
            return f"pod {name} has no controller that would replace it"
        owners[owner.uid] = owner
        counts[owner.uid] = counts.get(owner.uid, 0) + 1
    for uid, owner in owners.items():
        if (_group(owner), owner.kind) not in _MAKERS and _group(owner) not in _OWN_RULES:
            return f"{owner.kind} {owner.name} is of a kind that does not always replace its pods"
        refusal = await _refusal(client, namespace, owner, counts[uid])
        if refusal is not None:
            return refusal
    return None


async def _refusal(client: KubeClient, namespace: str, owner: OwnerReference, pods: int) -> str | None:
    """Return the reason why a pod owner or one of its owners forbids a restart; None if none does."""
    current: OwnerReference | None = owner
    for _ in range(_DEPTH):
        if current is None:
            return None
        group = _group(current)
        name = f"{current.kind} {current.name}"
        if group in _OWN_RULES:
            return f"{name} {_OWN_RULES[group]}"
        plural = _ABOVE.get((group, current.kind))
        if plural is None:
            return f"{name} is of a kind that can restart its pods itself"
        path = Resource(group, current.api_version.rpartition("/")[2], plural).path(namespace, current.name)
        try:
            found = await client.get(path)
        except ApiError as error:
            if error.status not in (403, 404):
                raise
            return f"{name} is unreadable, so it is unknown whether it restarts its pods itself ({error.reason})"
        if text(mapping(found.get("metadata")).get("uid")) != current.uid:
            return f"{name} is not the owner of the pods"
        reported = _rule(current.kind, name, mapping(found.get("spec")), mapping(found.get("status")), pods)
        if reported is not None:
            return reported
        current = _controller(found)
    return f"the owners of {owner.kind} {owner.name} never end"


def _rule(kind: str, name: str, spec: Mapping[str, Any], status: Mapping[str, Any], pods: int) -> str | None:
    if kind == "JobSet" and spec.get("failurePolicy") is not None:
        return f"{name} has a failurePolicy of its own"
    if kind == "LeaderWorkerSet" and mapping(spec.get("leaderWorkerTemplate")).get("restartPolicy") != "None":
        return f"{name} recreates its groups itself (leaderWorkerTemplate.restartPolicy)"
    if spec.get("elasticPolicy") is not None:
        return f"{name} is elastic and continues with fewer workers"
    if kind == "Job" and not _excuses(spec):
        limit, failed = spec.get("backoffLimit"), status.get("failed", 0)
        if isinstance(limit, int) and isinstance(failed, int) and failed + pods > limit:
            return (
                f"{name} would count the {pods} pods as failures and end (backoffLimit {limit}, {failed} so far); "
                "ignore the pod condition DisruptionTarget in its podFailurePolicy, or raise backoffLimit"
            )
    return None


def _excuses(spec: Mapping[str, Any]) -> bool:
    """Return whether a Job's podFailurePolicy ignores pods that were deleted on purpose (condition
    DisruptionTarget)."""
    for rule in sequence(mapping(spec.get("podFailurePolicy")).get("rules")):
        named = [mapping(condition).get("type") for condition in sequence(mapping(rule).get("onPodConditions"))]
        if "DisruptionTarget" in named:
            return bool(mapping(rule).get("action") == "Ignore")
    return False


def _controller(document: Mapping[str, Any]) -> OwnerReference | None:
    for reference in sequence(mapping(document.get("metadata")).get("ownerReferences")):
        owner = mapping(reference)
        if owner.get("controller") is True:
            return OwnerReference(
                text(owner.get("apiVersion")),
                text(owner.get("kind")),
                text(owner.get("name")),
                text(owner.get("uid")),
            )
    return None


def _group(owner: OwnerReference) -> str:
    return owner.api_version.rpartition("/")[0]
