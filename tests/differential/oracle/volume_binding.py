"""VolumeBinding. Sources: pkg/scheduler/framework/plugins/volumebinding/volume_binding.go, binder.go,
staging/src/k8s.io/component-helpers/storage/volume/pv_helpers.go (FindMatchingVolume).
"""

from __future__ import annotations

from fractions import Fraction

from tests.differential.oracle.quantities import amount, whole
from tests.differential.oracle.selectors import label_selector_matches, node_selector_matches
from tests.differential.oracle.storage import claims_of, class_name, class_of, volume_of
from tests.differential.oracle.world import Wire, World, labels_of, named, namespace_of

_BOUND = "pv.kubernetes.io/bind-completed"
_SELECTED_NODE = "volume.kubernetes.io/selected-node"
_NO_PROVISIONER = "kubernetes.io/no-provisioner"


def objection(world: World, pod: Wire, node: Wire) -> str:
    bound: list[Wire] = []
    delayed: list[Wire] = []
    for use in claims_of(world, pod):
        claim = use.claim
        if claim is None:
            if use.ephemeral:
                return f'waiting for ephemeral volume controller to create the persistentvolumeclaim "{use.name}"'
            return f'persistentvolumeclaim "{use.name}" not found'
        if (claim.get("status") or {}).get("phase") == "Lost":
            return f'persistentvolumeclaim "{use.name}" bound to non-existent persistentvolume'
        if claim["metadata"].get("deletionTimestamp"):
            return f'persistentvolumeclaim "{use.name}" is being deleted'
        if use.ephemeral and not use.is_owned_by(pod):
            return f'PVC "{use.name}" was not created for the pod'
        if claim["spec"].get("volumeName") and _BOUND in (claim["metadata"].get("annotations") or {}):
            bound.append(claim)
        elif _waits_for_its_pod(world, claim) and not claim["spec"].get("volumeName"):
            delayed.append(claim)
        else:
            return "pod has unbound immediate PersistentVolumeClaims"
    for claim in bound:
        volume = volume_of(world, claim)
        if volume is None:
            return "node(s) unavailable due to one or more pvc(s) bound to non-existent pv(s)"
        if not _reachable(volume, node):
            return "node(s) didn't match PersistentVolume's node affinity"
    return _delayed_objection(world, delayed, node)


def _waits_for_its_pod(world: World, claim: Wire) -> bool:
    storage_class = class_of(world, claim)
    return storage_class is not None and storage_class.get("volumeBindingMode") == "WaitForFirstConsumer"


def _delayed_objection(world: World, claims: list[Wire], node: Wire) -> str:
    to_provision: list[Wire] = []
    to_match: list[Wire] = []
    for claim in claims:
        selected = (claim["metadata"].get("annotations") or {}).get(_SELECTED_NODE)
        if selected is None:
            to_match.append(claim)
        elif selected != node["metadata"]["name"]:
            return "node(s) didn't find available persistent volumes to bind"
        else:
            to_provision.append(claim)
    taken: list[Wire] = []
    for claim in sorted(to_match, key=_size):
        volume = _matching_volume(world, claim, node, taken)
        if volume is None:
            to_provision.append(claim)
        else:
            taken.append(volume)
    for claim in to_provision:
        reason = _provisioning_objection(world, claim, node)
        if reason:
            return reason
    return ""


def _matching_volume(world: World, claim: Wire, node: Wire, taken: list[Wire]) -> Wire | None:
    """The one that is reserved for the claim, else the smallest that does."""
    best: Wire | None = None
    for volume in world.volumes:
        if volume in taken or class_name(volume) != class_name(claim):
            continue
        spec, reserved = volume["spec"], _is_for(volume, claim)
        if spec.get("claimRef") is not None and not reserved:
            continue
        if _capacity(volume) < _size(claim) or _mode(spec) != _mode(claim["spec"]):
            continue
        if (spec.get("volumeAttributesClassName") or "") != (claim["spec"].get("volumeAttributesClassName") or ""):
            continue
        if volume["metadata"].get("deletionTimestamp"):
            continue
        if reserved:
            return volume if _reachable(volume, node) else None
        if (volume.get("status") or {}).get("phase") != "Available" or not _reachable(volume, node):
            continue
        selector = claim["spec"].get("selector")
        if selector is not None and not label_selector_matches(selector, labels_of(volume)):
            continue
        if not set(claim["spec"].get("accessModes") or []) <= set(spec.get("accessModes") or []):
            continue
        if best is None or _capacity(volume) < _capacity(best):
            best = volume
    return best


def _provisioning_objection(world: World, claim: Wire, node: Wire) -> str:
    storage_class = class_of(world, claim)
    assert storage_class is not None
    if storage_class.get("provisioner", "") in ("", _NO_PROVISIONER):
        return "node(s) didn't find available persistent volumes to bind"
    terms = storage_class.get("allowedTopologies") or []
    if terms and not any(_topology_holds(term, labels_of(node)) for term in terms):
        return "node(s) didn't find available persistent volumes to bind"
    driver = named(world.csi_drivers, storage_class["provisioner"])
    tracked = driver is not None and (driver.get("spec") or {}).get("storageCapacity")
    if tracked and _has_size(claim) and not _has_capacity(world, claim, storage_class, node):
        return "node(s) did not have enough free storage"
    return ""


def _topology_holds(term: Wire, labels: dict[str, str]) -> bool:
    expressions = term.get("matchLabelExpressions") or []
    return bool(expressions) and all(labels.get(entry["key"]) in entry["values"] for entry in expressions)


def _has_capacity(world: World, claim: Wire, storage_class: Wire, node: Wire) -> bool:
    for entry in world.capacities:
        limit = entry.get("maximumVolumeSize") or entry.get("capacity")
        if (
            entry.get("storageClassName") == storage_class["metadata"]["name"]
            and limit is not None
            and whole(amount(limit)) >= whole(_size(claim))
            and label_selector_matches(entry.get("nodeTopology"), labels_of(node))
        ):
            return True
    return False


def _reachable(volume: Wire, node: Wire) -> bool:
    required = (volume["spec"].get("nodeAffinity") or {}).get("required")
    return required is None or node_selector_matches(required, node)


def _is_for(volume: Wire, claim: Wire) -> bool:
    reference = volume["spec"].get("claimRef")
    return (
        reference is not None
        and reference.get("name") == claim["metadata"]["name"]
        and reference.get("namespace") == namespace_of(claim)
        and reference.get("uid", "") in ("", claim["metadata"].get("uid"))
    )


def _has_size(claim: Wire) -> bool:
    return "storage" in ((claim["spec"].get("resources") or {}).get("requests") or {})


def _size(claim: Wire) -> Fraction:
    return amount(claim["spec"]["resources"]["requests"]["storage"]) if _has_size(claim) else Fraction(0)


def _capacity(volume: Wire) -> Fraction:
    return amount((volume["spec"].get("capacity") or {}).get("storage", 0))


def _mode(spec: Wire) -> str:
    return str(spec.get("volumeMode") or "Filesystem")
