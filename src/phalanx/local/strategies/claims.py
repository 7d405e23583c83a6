"""resource.k8s.io: claims, templates, classes of devices, and what drivers publish."""

from __future__ import annotations

from typing import ClassVar

from phalanx.local.objects import Json, dig, mapping, sequence, text
from phalanx.local.strategies.base import SpecStrategy, Strategy, Write


class ResourceClaimStrategy(Strategy):
    """ResourceClaim; a request that states no count asks for one device."""

    def prepare_create(self, obj: Json, write: Write) -> None:
        default_requests(mapping(obj.get("spec")))

    def prepare_update(self, obj: Json, old: Json, write: Write) -> None:
        self.prepare_create(obj, write)

    def initial_status(self, obj: Json, write: Write) -> Json:
        return {}


class ResourceClaimTemplateStrategy(Strategy):
    """ResourceClaimTemplate; defaults are those of the claims that are made from it."""

    def prepare_create(self, obj: Json, write: Write) -> None:
        default_requests(mapping(mapping(obj.get("spec")).get("spec")))

    def prepare_update(self, obj: Json, old: Json, write: Write) -> None:
        self.prepare_create(obj, write)


class ResourceSliceStrategy(SpecStrategy):
    """ResourceSlice, which drivers find by node and by their own name."""

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


def default_requests(spec: Json) -> None:
    """Fills in how many devices each request of a claim is about."""
    for request in map(mapping, sequence(mapping(spec.get("devices")).get("requests"))):
        for wanted in (mapping(request.get("exactly")), *map(mapping, sequence(request.get("firstAvailable")))):
            if not wanted:
                continue
            wanted.setdefault("allocationMode", "ExactCount")
            if wanted["allocationMode"] == "ExactCount":
                wanted.setdefault("count", 1)
            for toleration in map(mapping, sequence(wanted.get("tolerations"))):
                toleration.setdefault("operator", "Equal")
