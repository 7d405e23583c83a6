"""PodGroups that the scheduler generates for gangs that only pods declare, for listing and status.

Such an object declares nothing: the declarations of the pods continue to apply (ACK generates such objects too).
Once another writer changes its spec, the object belongs to that writer, and counts like any other.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from phalanx.dialects.api_groups import SIGS, X_K8S
from phalanx.dialects.field_owners import field_owners
from phalanx.dialects.kinds import ServedKind
from phalanx.dialects.reader import Document
from phalanx.model.gang import Gang, GangKey, GroupRef

# Annotation with the spec that we wrote last. Any other spec was written by someone else.
GENERATED_FROM_PODS = "phalanx.dev/generated-from-pods"
# Its name before 0.1.0: still read, and removed when another writer adopts the object.
FORMER_GENERATED_FROM_PODS = "phalanx.dev/made-from-pods"
# Our manager names in managedFields; the second is used for objects older than the server's field management.
_MANAGERS = ("phalanx", "before-first-apply")
_FIELDS = ("minMember", "minResources", "scheduleTimeoutSeconds")
_LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"

# API groups for generated objects: the first served one is used.
GROUPS = (X_K8S, SIGS)


class GeneratedPodGroup(msgspec.Struct, frozen=True):
    """PodGroup that the scheduler generated. `spec` and `owners` are its last seen values; `adopted` means that
    another writer changed it."""

    ref: GroupRef
    spec: Mapping[str, Any]
    owners: Sequence[Mapping[str, Any]]
    adopted: bool


def generated_pod_group(kind: ServedKind, document: Document) -> GeneratedPodGroup | None:
    """Return the description of a PodGroup if the scheduler generated it, else None."""
    metadata = document.get("metadata")
    annotations = metadata.get("annotations") if isinstance(metadata, dict) else None
    if not annotations or kind.group not in GROUPS or not isinstance(annotations, dict):
        return None
    written = annotations.get(GENERATED_FROM_PODS, annotations.get(FORMER_GENERATED_FROM_PODS))
    if written is None:
        return None
    assert isinstance(metadata, dict)
    namespace, name, uid = (str(metadata.get(field) or "") for field in ("namespace", "name", "uid"))
    ref = GroupRef(kind.group, kind.version, kind.kind, kind.plural, namespace, name, uid)
    owners, stated = metadata.get("ownerReferences"), document.get("spec")
    spec = {name: stated[name] for name in _FIELDS if name in stated} if isinstance(stated, Mapping) else {}
    return GeneratedPodGroup(
        ref,
        spec,
        [owner for owner in owners if isinstance(owner, Mapping)] if isinstance(owners, Sequence) else [],
        written != _text(spec)
        or _LAST_APPLIED in annotations
        or any(owner.manager not in _MANAGERS and owner.owns("f:spec") for owner in field_owners(metadata)),
    )


def _text(spec: Mapping[str, Any]) -> str:
    return msgspec.json.encode(spec, order="sorted").decode()


def spec_of(gang: Gang) -> dict[str, Any]:
    """Return the spec of the generated PodGroup for a gang, with fields that both kinds of PodGroup share."""
    spec: dict[str, Any] = {"minMember": gang.min_member}
    if gang.timeout is not None:
        spec["scheduleTimeoutSeconds"] = gang.timeout
    return spec


def note_of(spec: Mapping[str, Any]) -> dict[str, str]:
    """Return the annotation by which the scheduler recognizes a PodGroup with this spec as generated."""
    return {GENERATED_FROM_PODS: _text(spec)}


def manifest(
    kind: ServedKind,
    key: GangKey,
    spec: Mapping[str, Any],
    owners: Sequence[Mapping[str, Any]],
    labels: Mapping[str, str],
) -> dict[str, Any]:
    metadata = {
        "name": key.name,
        "namespace": key.namespace,
        "labels": dict(labels),
        "annotations": note_of(spec),
        "ownerReferences": list(owners),
    }
    return {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": metadata, "spec": dict(spec)}
