"""Strategies of resource.k8s.io: ResourceClaims, ResourceClaimTemplates, DeviceClasses and ResourceSlices."""

from __future__ import annotations

from typing import ClassVar, Final

from phalanx_local.errors import Qualified, forbidden_field, invalid
from phalanx_local.objects import Json, dig, mapping, metadata, sequence, text
from phalanx_local.strategies.base import RestStrategy, SpecStrategy, Write

ADMIN_ACCESS: Final = "resource.kubernetes.io/admin-access"
_NO_ADMINISTRATOR: Final = (
    f"admin access to devices requires the `{ADMIN_ACCESS}: true` label on the containing namespace"
)


class _Claims:
    group: Final = "resource.k8s.io"
    plural: Final = "resourceclaims"
    kind: Final = "ResourceClaim"


class _Templates:
    group: Final = "resource.k8s.io"
    plural: Final = "resourceclaimtemplates"
    kind: Final = "ResourceClaimTemplate"


class ResourceClaimStrategy(RestStrategy):
    """Strategy of ResourceClaims; a device request without a count requests one device."""

    def prepare_create(self, obj: Json, write: Write) -> None:
        spec = mapping(obj.get("spec"))
        default_requests(spec)
        admit_administrators(_Claims(), obj, spec, "spec", write)

    def prepare_update(self, obj: Json, old: Json, write: Write) -> None:
        default_requests(mapping(obj.get("spec")))

    def initial_status(self, obj: Json, write: Write) -> Json:
        return {}


class ResourceClaimTemplateStrategy(RestStrategy):
    """Strategy of ResourceClaimTemplates, which sets the defaults of the created claims."""

    def prepare_create(self, obj: Json, write: Write) -> None:
        spec = mapping(mapping(obj.get("spec")).get("spec"))
        default_requests(spec)
        admit_administrators(_Templates(), obj, spec, "spec.spec", write)

    def prepare_update(self, obj: Json, old: Json, write: Write) -> None:
        default_requests(mapping(mapping(obj.get("spec")).get("spec")))


class ResourceSliceStrategy(SpecStrategy):
    """Strategy of ResourceSlices, selectable by node and by driver."""

    field_labels: ClassVar[frozenset[str]] = frozenset(("spec.nodeName", "spec.driver"))

    def fields(self, obj: Json) -> dict[str, str]:
        spec = mapping(obj.get("spec"))
        return {"spec.nodeName": text(spec.get("nodeName")), "spec.driver": text(spec.get("driver"))}

    def prepare_create(self, obj: Json, write: Write) -> None:
        for device in map(mapping, sequence(dig(obj, "spec", "devices"))):
            for taint in map(mapping, sequence(device.get("taints"))):
                taint.setdefault("timeAdded", write.now)

    def prepare_update(self, obj: Json, old: Json, write: Write) -> None:
        self.prepare_create(obj, write)


def admit_administrators(resource: Qualified, obj: Json, spec: Json, path: str, write: Write) -> None:
    """Admit adminAccess of a ResourceClaim only in namespaces with the admin-access label. Raise StatusError in
    other namespaces."""
    meta = metadata(obj)
    wrong = [
        forbidden_field(f"{path}.devices.requests[{index}].adminAccess", _NO_ADMINISTRATOR)
        for index, request in enumerate(sequence(mapping(spec.get("devices")).get("requests")))
        if mapping(mapping(request).get("exactly")).get("adminAccess")
    ]
    if not wrong:
        return
    namespace = write.cluster.find("", "namespaces", "", text(meta.get("namespace")))
    if mapping(metadata(namespace or {}).get("labels")).get(ADMIN_ACCESS) != "true":
        raise invalid(resource, text(meta.get("name")), wrong)


def default_requests(spec: Json) -> None:
    """Set the default device count of each device request of a ResourceClaim."""
    for request in map(mapping, sequence(mapping(spec.get("devices")).get("requests"))):
        for wanted in (mapping(request.get("exactly")), *map(mapping, sequence(request.get("firstAvailable")))):
            if not wanted:
                continue
            wanted.setdefault("allocationMode", "ExactCount")
            if wanted["allocationMode"] == "ExactCount":
                wanted.setdefault("count", 1)
            for toleration in map(mapping, sequence(wanted.get("tolerations"))):
                toleration.setdefault("operator", "Equal")
