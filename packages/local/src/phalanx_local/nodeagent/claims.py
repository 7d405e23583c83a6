"""Kubelet checks of a pod's ResourceClaims: existing, allocated and reserved for the pod."""

from __future__ import annotations

import msgspec

from phalanx.kube.paths import Resource
from phalanx_local.nodeagent.core_v1 import V1Pod

CLAIMS = Resource("resource.k8s.io", "v1", "resourceclaims", "ResourceClaim")

#: Reason of the event while a claim is not usable.
UNPREPARED = "FailedPrepareDynamicResources"


class _Consumer(msgspec.Struct):
    uid: str = ""


class _Status(msgspec.Struct, rename="camel"):
    allocation: dict[str, object] | None = None
    reserved_for: list[_Consumer] | None = None


class _Metadata(msgspec.Struct):
    name: str = ""
    uid: str = ""


class V1ResourceClaim(msgspec.Struct):
    metadata: _Metadata
    status: _Status = msgspec.field(default_factory=_Status)


class UnpreparedError(Exception):
    """Error of a pod whose ResourceClaims are not usable yet; the text is the kubelet's message."""


def has_claims(pod: V1Pod) -> bool:
    return bool(pod.spec.resource_claims) or pod.status.extended_resource_claim_status is not None


def claim_names(pod: V1Pod) -> list[str]:
    """Return the names of the ResourceClaims that a pod needs. Raise UnpreparedError until all claims of templates
    exist."""
    created = {entry.name: entry.resource_claim_name for entry in pod.status.resource_claim_statuses or ()}
    names: list[str] = []
    for entry in pod.spec.resource_claims or ():
        if entry.resource_claim_name:
            names.append(entry.resource_claim_name)
        elif entry.name not in created:
            raise UnpreparedError(f'pod claim "{entry.name}": the ResourceClaim has not been created yet')
        elif name := created[entry.name]:  # an entry without a name needs no claim
            names.append(name)
    extended = pod.status.extended_resource_claim_status
    if extended is not None and extended.resource_claim_name:
        names.append(extended.resource_claim_name)
    return names


def require_usable(pod: V1Pod, name: str, claim: V1ResourceClaim | None) -> None:
    """Raise UnpreparedError if the pod cannot use the ResourceClaim (None: the claim does not exist)."""
    if claim is None:
        raise UnpreparedError(f'fetch ResourceClaim {name}: resourceclaims.resource.k8s.io "{name}" not found')
    meta = pod.metadata
    if not any(consumer.uid == meta.uid for consumer in claim.status.reserved_for or ()):
        raise UnpreparedError(
            f"pod {meta.name} ({meta.uid}) is not allowed to use ResourceClaim {name} ({claim.metadata.uid})"
        )
    if claim.status.allocation is None:
        raise UnpreparedError(f"ResourceClaim {name}: claim {meta.namespace}/{name} is not allocated")
