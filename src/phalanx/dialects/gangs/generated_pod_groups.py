"""PodGroups that the scheduler makes for gangs that only pods declare, to be listed and to have a status.

Such an object declares nothing: what the pods say goes on holding (ACK makes them, too). As soon as
anybody else writes its spec it is theirs, and holds like every other.
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

# On the object: the spec that we wrote last. Another one is somebody else's.
GENERATED_FROM_PODS = "phalanx.dev/generated-from-pods"
# Its name before 0.1.0: still read, and removed when the object is given to somebody else.
FORMER_GENERATED_FROM_PODS = "phalanx.dev/made-from-pods"
# Who writes it, as managedFields names us; the second where a server had not kept account before.
_MANAGERS = ("phalanx", "before-first-apply")
_FIELDS = ("minMember", "minResources", "scheduleTimeoutSeconds")
_LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"

# In which kinds they are made, the first that is served.
GROUPS = (X_K8S, SIGS)


class GeneratedPodGroup(msgspec.Struct, frozen=True):
    """An object that we have made. `spec` and `owners` are as last seen; `adopted` by whoever wrote its spec."""

    ref: GroupRef
    spec: Mapping[str, Any]
    owners: Sequence[Mapping[str, Any]]
    adopted: bool


def generated_pod_group(kind: ServedKind, document: Document) -> GeneratedPodGroup | None:
    """None where the object is none of ours."""
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
    """What an object says about a gang, in the words of both kinds."""
    spec: dict[str, Any] = {"minMember": gang.min_member}
    if gang.timeout is not None:
        spec["scheduleTimeoutSeconds"] = gang.timeout
    return spec


def note_of(spec: Mapping[str, Any]) -> dict[str, str]:
    """The annotation that goes with a spec."""
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
