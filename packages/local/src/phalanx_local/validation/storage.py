"""Validation of PersistentVolumes, PersistentVolumeClaims, StorageClasses and CSI objects."""

from __future__ import annotations

from typing import Any, Final

from phalanx_local.objects import clone
from phalanx_local.validation.errors import FieldError, duplicate, forbidden, invalid, not_supported, required
from phalanx_local.validation.metadata import IMMUTABLE, validate_selector
from phalanx_local.validation.names import dns_subdomain, label_key
from phalanx_local.validation.placement import check_node_selector
from phalanx_local.validation.pod_updates import equal
from phalanx_local.validation.resources import parsed
from phalanx_local.validation.volumes import SOURCES

Object = dict[str, Any]

_MODES: Final = ("ReadOnlyMany", "ReadWriteMany", "ReadWriteOnce", "ReadWriteOncePod")
_SOLE: Final = "ReadWriteOncePod"
_VOLUME_MODES: Final = ("Block", "Filesystem")
_RECLAIM: Final = ("Delete", "Recycle", "Retain")
_CLASS_RECLAIM: Final = ("Delete", "Retain")
_BINDING_MODES: Final = ("Immediate", "WaitForFirstConsumer")
#: Fields of a volume's spec that are volume sources.
_VOLUME_SOURCES: Final = frozenset((*SOURCES, "local"))
#: Stable labels that can replace beta labels in a volume's node affinity (validatePvNodeAffinity of Kubernetes).
_STABLE_LABELS: Final = {
    "failure-domain.beta.kubernetes.io/zone": "topology.kubernetes.io/zone",
    "failure-domain.beta.kubernetes.io/region": "topology.kubernetes.io/region",
    "beta.kubernetes.io/os": "kubernetes.io/os",
    "beta.kubernetes.io/arch": "kubernetes.io/arch",
    "beta.kubernetes.io/instance-type": "node.kubernetes.io/instance-type",
}
_ONLY_REQUESTS: Final = (
    "spec is immutable after creation except resources.requests and volumeAttributesClassName for bound claims"
)


def check_claim(errors: list[FieldError], claim: Object, old: Object | None, subresource: str) -> None:
    """Check a PersistentVolumeClaim: it has access modes and a size; only a bound claim can grow."""
    if subresource:
        return
    spec = claim.get("spec") or {}
    if not spec.get("accessModes"):
        errors.append(required("spec.accessModes", "at least 1 access mode is required"))
    if spec.get("selector") is not None:
        validate_selector(errors, spec["selector"], "spec.selector")
    _access_modes(errors, spec)
    _size(errors, (spec.get("resources") or {}).get("requests") or {}, "spec.resources[storage]")
    _class_name(errors, spec.get("storageClassName"), "spec.storageClassName")
    _volume_mode(errors, spec)
    _class_name(errors, spec.get("volumeAttributesClassName"), "spec.volumeAttributesClassName")
    if old is not None:
        _claim_update(errors, claim, spec, old)


def _claim_update(errors: list[FieldError], claim: Object, spec: Object, old: Object) -> None:
    former = old.get("spec") or {}
    bound = (claim.get("status") or {}).get("phase") == "Bound"
    # An unset field can be set once.
    free = {name for name in ("volumeName", "storageClassName") if former.get(name) in (None, "")}
    if bound:
        free |= {"resources", "volumeAttributesClassName"}
    if any(not equal(spec.get(name), former.get(name)) for name in (spec.keys() | former.keys()) - free):
        errors.append(forbidden("spec", _ONLY_REQUESTS))
    now, before = (((part.get("resources") or {}).get("requests") or {}).get("storage") for part in (spec, former))
    wanted, had = parsed([], now, ""), parsed([], before, "")
    if wanted is not None and had is not None and wanted.nano < had.nano:
        field = "spec.resources.requests.storage"
        held = parsed([], ((old.get("status") or {}).get("capacity") or {}).get("storage", "0"), "")
        if held is not None and wanted.nano <= held.nano:
            errors.append(forbidden(field, "field can not be less than status.capacity"))


def check_volume(errors: list[FieldError], volume: Object, old: Object | None, subresource: str) -> None:
    """Check a PersistentVolume: it has a size, access modes and one immutable source."""
    if subresource:
        return
    spec = volume.get("spec") or {}
    if not spec.get("accessModes"):
        errors.append(required("spec.accessModes"))
    _access_modes(errors, spec)
    capacity = spec.get("capacity") or {}
    if not capacity:
        errors.append(required("spec.capacity"))
    if set(capacity) != {"storage"}:
        errors.append(not_supported("spec.capacity", capacity, ("storage",)))
    else:
        _size(errors, capacity, "spec.capacity[storage]")
    policy = spec.get("persistentVolumeReclaimPolicy")
    if policy and policy not in _RECLAIM:
        errors.append(not_supported("spec.persistentVolumeReclaimPolicy", policy, _RECLAIM))
    chosen = [name for name in (*SOURCES, "local") if spec.get(name) is not None]
    if not chosen:
        errors.append(required("spec", "must specify a volume type"))
    errors.extend(forbidden(f"spec.{name}", "may not specify more than 1 volume type") for name in chosen[1:])
    _source(errors, spec)
    affinity = spec.get("nodeAffinity")
    if affinity is not None and affinity.get("required") is None:
        errors.append(required("spec.nodeAffinity.required", "must specify required node constraints"))
    elif affinity is not None:
        check_node_selector(errors, affinity["required"], "spec.nodeAffinity.required")
    _class_name(errors, spec.get("storageClassName"), "spec.storageClassName")
    _volume_mode(errors, spec)
    if old is None:
        return
    former = old.get("spec") or {}
    if any(not equal(spec.get(name), former.get(name)) for name in _VOLUME_SOURCES):
        errors.append(
            forbidden("spec.persistentvolumesource", "spec.persistentvolumesource is immutable after creation")
        )
    if spec.get("volumeMode") != former.get("volumeMode"):
        errors.append(invalid("volumeMode", spec.get("volumeMode"), IMMUTABLE))
    if former.get("nodeAffinity") is not None and not _is_same_affinity(affinity, former["nodeAffinity"]):
        errors.append(invalid("nodeAffinity", affinity, f"{IMMUTABLE}, except for updating from beta label to GA"))


def _is_same_affinity(affinity: Object | None, former: Object) -> bool:
    """Return whether two node affinities are equal but for beta labels that are replaced by stable ones."""
    if affinity is None or equal(affinity, former):
        return affinity is not None
    renamed = clone(former)
    terms = (affinity.get("required") or {}).get("nodeSelectorTerms") or []
    for term, former_term in zip(
        terms, (renamed.get("required") or {}).get("nodeSelectorTerms") or [], strict=False
    ):
        pairs = zip(term.get("matchExpressions") or [], former_term.get("matchExpressions") or [], strict=False)
        for expression, former_expression in pairs:
            if _STABLE_LABELS.get(former_expression.get("key")) == expression.get("key"):
                former_expression["key"] = expression.get("key")
    return equal(affinity, renamed)


def _source(errors: list[FieldError], spec: Object) -> None:
    if spec.get("persistentVolumeReclaimPolicy") == "Recycle" and (spec.get("hostPath") or {}).get("path") == "/":
        errors.append(
            forbidden("spec.persistentVolumeReclaimPolicy", "may not be 'recycle' for a hostPath mount of '/'")
        )
    if spec.get("csi") is not None:
        missing = [name for name in ("driver", "volumeHandle") if not spec["csi"].get(name)]
        errors.extend(required(f"spec.csi.{name}") for name in missing)
    if spec.get("local") is not None:
        if not spec["local"].get("path"):
            errors.append(required("spec.local.path"))
        if not ((spec.get("nodeAffinity") or {}).get("required") or {}).get("nodeSelectorTerms"):
            errors.append(required("spec.nodeAffinity", "Local volume requires node affinity"))


def check_storage_class(errors: list[FieldError], item: Object, old: Object | None, subresource: str) -> None:
    """Check a StorageClass: provisioner and binding mode; most fields are immutable."""
    if not item.get("provisioner"):
        errors.append(required("provisioner"))
    else:
        name = item["provisioner"].lower()
        errors.extend(invalid("provisioner", name, text) for text in label_key(name))
    policy, mode = item.get("reclaimPolicy"), item.get("volumeBindingMode")
    if policy and policy not in _CLASS_RECLAIM:
        errors.append(not_supported("reclaimPolicy", policy, _CLASS_RECLAIM))
    if mode not in _BINDING_MODES:
        errors.append(not_supported("volumeBindingMode", mode, _BINDING_MODES))
    for index, term in enumerate(item.get("allowedTopologies") or ()):
        for place, entry in enumerate(term.get("matchLabelExpressions") or ()):
            if not entry.get("values"):
                errors.append(required(f"allowedTopologies[{index}].matchLabelExpressions[{place}].values"))
    _fixed(errors, item, old, ("parameters", "provisioner", "reclaimPolicy", "volumeBindingMode"))


def check_csi_node(errors: list[FieldError], item: Object, old: Object | None, subresource: str) -> None:
    """Check a CSINode: unique drivers with a node id; drivers are immutable except for their volume limit."""
    former = {driver.get("name"): driver for driver in ((old or {}).get("spec") or {}).get("drivers") or ()}
    seen: set[str] = set()
    for index, driver in enumerate((item.get("spec") or {}).get("drivers") or ()):
        here, name = f"spec.drivers[{index}]", driver.get("name") or ""
        if not name:
            errors.append(required(f"{here}.name"))
        if not driver.get("nodeID"):
            errors.append(required(f"{here}.nodeID"))
        count = (driver.get("allocatable") or {}).get("count")
        if count is not None and count < 0:
            errors.append(invalid(f"{here}.allocatable.count", count, "must be greater than or equal to 0"))
        if name in seen:
            errors.append(duplicate(f"{here}.name", name))
        seen.add(name)
        known = former.get(name, driver)
        if any(not equal(driver.get(field), known.get(field)) for field in ("nodeID", "topologyKeys")):
            errors.append(invalid("spec.drivers", driver, IMMUTABLE))


def check_attachment(errors: list[FieldError], item: Object, old: Object | None, subresource: str) -> None:
    """Check a VolumeAttachment: attacher, volume and node, which are immutable."""
    spec = item.get("spec") or {}
    source = spec.get("source") or {}
    if not spec.get("attacher"):
        errors.append(required("spec.attacher"))
    if not source.get("persistentVolumeName") and not source.get("inlineVolumeSpec"):
        detail = "must specify exactly one of inlineVolumeSpec and persistentVolumeName"
        errors.append(required("spec.source", detail))
    node = spec.get("nodeName") or ""
    errors.extend(invalid("spec.nodeName", node, text) for text in dns_subdomain(node))
    if old is not None and not equal(spec, old.get("spec") or {}):
        errors.append(invalid("spec", spec, IMMUTABLE))


def check_capacity(errors: list[FieldError], item: Object, old: Object | None, subresource: str) -> None:
    """Check a CSIStorageCapacity: the free capacity of a StorageClass on some nodes; class and nodes are
    immutable."""
    name = item.get("storageClassName") or ""
    errors.extend(invalid("storageClassName", name, text) for text in dns_subdomain(name))
    if item.get("capacity") is not None:
        found = parsed(errors, item["capacity"], "capacity")
        if found is not None and found.nano < 0:
            errors.append(invalid("capacity", item["capacity"], "must be greater than or equal to 0"))
    _fixed(errors, item, old, ("nodeTopology", "storageClassName"))


def _fixed(errors: list[FieldError], item: Object, old: Object | None, fields: tuple[str, ...]) -> None:
    changed = [] if old is None else [name for name in fields if not equal(item.get(name), old.get(name))]
    errors.extend(invalid(name, item.get(name), IMMUTABLE) for name in changed)


def _access_modes(errors: list[FieldError], spec: Object) -> None:
    modes = spec.get("accessModes") or []
    errors.extend(not_supported("spec.accessModes", mode, _MODES) for mode in modes if mode not in _MODES)
    if _SOLE in modes and any(mode in _MODES for mode in modes if mode != _SOLE):
        errors.append(forbidden("spec.accessModes", f"may not use {_SOLE} with other access modes"))


def _size(errors: list[FieldError], amounts: Object, field: str) -> None:
    if "storage" not in amounts:
        errors.append(required(field))
        return
    found = parsed(errors, amounts["storage"], field)
    if found is not None and found.nano <= 0:
        errors.append(invalid(field, amounts["storage"], "must be greater than zero"))


def _class_name(errors: list[FieldError], name: str | None, field: str) -> None:
    if name:
        errors.extend(invalid(field, name, text) for text in dns_subdomain(name))


def _volume_mode(errors: list[FieldError], spec: Object) -> None:
    mode = spec.get("volumeMode")
    if mode is not None and mode not in _VOLUME_MODES:
        errors.append(not_supported("spec.volumeMode", mode, _VOLUME_MODES))
