"""Strategies of kinds with only a few defaults or immutable fields."""

from __future__ import annotations

from typing import Final

from phalanx_local.objects import Json, mapping, metadata, sequence, text
from phalanx_local.strategies.base import RestStrategy, SpecStrategy, Write
from phalanx_local.strategies.pods import default_pod_spec

CLAIM_PROTECTION: Final = "kubernetes.io/pvc-protection"
VOLUME_PROTECTION: Final = "kubernetes.io/pv-protection"
_BETA_CLASS: Final = "volume.beta.kubernetes.io/storage-class"
_DEFAULT_CLASS: Final = "storageclass.kubernetes.io/is-default-class"


class LeaseStrategy(RestStrategy):
    """Strategy of Leases: every update must include its resourceVersion."""

    unconditional_update = False
    create_on_update = True

    def prepare_create(self, obj: Json, write: Write) -> None:
        obj.setdefault("spec", {})


class SecretStrategy(RestStrategy):
    """Strategy of Secrets; stringData is merged into data."""

    field_labels = frozenset(("type",))

    def fields(self, obj: Json) -> dict[str, str]:
        return {"type": text(obj.get("type"))}

    def prepare_create(self, obj: Json, write: Write) -> None:
        import base64

        obj.setdefault("type", "Opaque")
        plain = obj.pop("stringData", None)
        if isinstance(plain, dict):
            data = obj.setdefault("data", {})
            for key, value in plain.items():
                data[key] = base64.b64encode(text(value).encode()).decode()

    def prepare_update(self, obj: Json, old: Json, write: Write) -> None:
        self.prepare_create(obj, write)


class ServiceStrategy(RestStrategy):
    """Strategy of Services; addresses are allocated from 10.96.0.0/16 in order of creation."""

    returns_deleted = True
    field_labels = frozenset(("spec.clusterIP", "spec.type"))

    def fields(self, obj: Json) -> dict[str, str]:
        spec = mapping(obj.get("spec"))
        return {"spec.clusterIP": text(spec.get("clusterIP")), "spec.type": text(spec.get("type"))}

    def prepare_create(self, obj: Json, write: Write) -> None:
        spec = obj.setdefault("spec", {})
        if not isinstance(spec, dict):
            return
        self._default(spec)
        if spec["type"] == "ExternalName":
            return
        spec.setdefault("ipFamilies", ["IPv4"])
        spec.setdefault("ipFamilyPolicy", "SingleStack")
        if not spec.get("clusterIP"):
            spec["clusterIP"] = self._free_address(write)
        spec.setdefault("clusterIPs", [spec["clusterIP"]])

    def initial_status(self, obj: Json, write: Write) -> Json:
        return {"loadBalancer": {}}

    def prepare_update(self, obj: Json, old: Json, write: Write) -> None:
        spec, before = mapping(obj.get("spec")), mapping(old.get("spec"))
        self._default(spec)
        for field in ("clusterIP", "clusterIPs", "ipFamilies", "ipFamilyPolicy"):
            if not spec.get(field) and field in before:
                spec[field] = before[field]

    @staticmethod
    def _default(spec: Json) -> None:
        spec.setdefault("type", "ClusterIP")
        spec.setdefault("sessionAffinity", "None")
        spec.setdefault("internalTrafficPolicy", "Cluster")
        for port in sequence(spec.get("ports")):
            if isinstance(port, dict):
                port.setdefault("protocol", "TCP")
                port.setdefault("targetPort", port.get("port"))

    @staticmethod
    def _free_address(write: Write) -> str:
        used = {text(mapping(item.get("spec")).get("clusterIP")) for item in write.cluster.all("", "services")}
        for index in range(1, 65_535):
            address = f"10.96.{index >> 8}.{index & 255}"
            if address not in used:
                return address
        return "None"


class VolumeStrategy(RestStrategy):
    """Strategy of PersistentVolumes. `protect` adds the finalizer that blocks the deletion while a claim is bound
    to the volume."""

    returns_deleted = True

    def __init__(self, *, protect: bool) -> None:
        self._protect = protect

    def prepare_create(self, obj: Json, write: Write) -> None:
        spec = obj.setdefault("spec", {})
        if isinstance(spec, dict):
            spec.setdefault("volumeMode", "Filesystem")
            spec.setdefault("persistentVolumeReclaimPolicy", "Retain")
            if isinstance(spec.get("hostPath"), dict):
                spec["hostPath"].setdefault("type", "")
        if self._protect:
            add_finalizer(obj, VOLUME_PROTECTION)

    def initial_status(self, obj: Json, write: Write) -> Json:
        return {"phase": "Pending"}


class VolumeClaimStrategy(RestStrategy):
    """Strategy of PersistentVolumeClaims.

    `protect` adds the finalizer that blocks the deletion while a pod uses the claim. A claim without a class gets
    the default class, if any.
    """

    returns_deleted = True

    def __init__(self, *, protect: bool) -> None:
        self._protect = protect

    def prepare_create(self, obj: Json, write: Write) -> None:
        spec = obj.setdefault("spec", {})
        if isinstance(spec, dict):
            spec.setdefault("volumeMode", "Filesystem")
            if spec.get("storageClassName") is None and _BETA_CLASS not in mapping(
                metadata(obj).get("annotations")
            ):
                default = _default_class(write)
                if default:
                    spec["storageClassName"] = default
        if self._protect:
            add_finalizer(obj, CLAIM_PROTECTION)

    def initial_status(self, obj: Json, write: Write) -> Json:
        return {"phase": "Pending"}


def add_finalizer(obj: Json, finalizer: str) -> None:
    finalizers = metadata(obj).setdefault("finalizers", [])
    if finalizer not in finalizers:
        finalizers.append(finalizer)


def _default_class(write: Write) -> str:
    """Return the name of the newest StorageClass that is marked as default, of equal age the first by name; "" if
    there is none."""
    marked = [
        item
        for item in write.cluster.all("storage.k8s.io", "storageclasses")
        if mapping(metadata(item).get("annotations")).get(_DEFAULT_CLASS) == "true"
    ]
    marked.sort(key=lambda item: text(metadata(item).get("name")))
    marked.sort(key=lambda item: text(metadata(item).get("creationTimestamp")), reverse=True)
    return text(metadata(marked[0]).get("name")) if marked else ""


class VolumeClassStrategy(RestStrategy):
    """Strategy of StorageClasses."""

    def prepare_create(self, obj: Json, write: Write) -> None:
        obj.setdefault("reclaimPolicy", "Delete")
        obj.setdefault("volumeBindingMode", "Immediate")


class AttachmentStrategy(RestStrategy):
    """Strategy of VolumeAttachments."""

    def initial_status(self, obj: Json, write: Write) -> Json:
        return {"attached": False}


class DriverStrategy(RestStrategy):
    """Strategy of CSIDrivers."""

    def prepare_create(self, obj: Json, write: Write) -> None:
        spec = obj.setdefault("spec", {})
        for field, value in (
            ("attachRequired", True),
            ("podInfoOnMount", False),
            ("storageCapacity", False),
            ("requiresRepublish", False),
            ("seLinuxMount", False),
            ("fsGroupPolicy", "ReadWriteOnceWithFSType"),
        ):
            spec.setdefault(field, value)
        spec.setdefault("volumeLifecycleModes", ["Persistent"])


class DisruptionBudgetStrategy(SpecStrategy):
    """Strategy of PodDisruptionBudgets; the disruption controller writes their status."""

    unconditional_update = False

    def initial_status(self, obj: Json, write: Write) -> Json:
        return {"disruptionsAllowed": 0, "currentHealthy": 0, "desiredHealthy": 0, "expectedPods": 0}


class QuotaStrategy(RestStrategy):
    """Strategy of ResourceQuotas."""

    returns_deleted = True


class TemplateStrategy(RestStrategy):
    """Strategy of PodTemplates."""

    returns_deleted = True

    def prepare_create(self, obj: Json, write: Write) -> None:
        template = mapping(mapping(obj.get("template")).get("spec"))
        if template:
            default_pod_spec(template)

    def prepare_update(self, obj: Json, old: Json, write: Write) -> None:
        self.prepare_create(obj, write)
