"""Claims of pods: the ResourceClaim of each reference, its device requests, and the reasons why pods wait.

The requests of a claim become part of the pod's class. A claim for a single pod is included without its name, so
that all pods of one template share a class until it is allocated: then it determines where its pod can run.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from phalanx.dialects.core import NodeObject, PodObject
from phalanx.dialects.devices.claim_objects import read_claim, read_device_class, read_slice, read_taint_rule
from phalanx.dialects.devices.device_charges import add_amounts, devices_of, offered_by_classes, without
from phalanx.dialects.devices.extended_claims import ExtendedResources, extended_names
from phalanx.dialects.enricher import Changes, PodEnricher, no_changes
from phalanx.dialects.kinds import ServedKind, WantedKind
from phalanx.dialects.reader import Document
from phalanx.model.devices.claims import (
    Claim,
    ClaimGone,
    ClaimNeed,
    ClaimSpec,
    DeviceClassGone,
    DeviceSlice,
    DeviceSliceGone,
    DeviceTaintRuleGone,
    ExtendedNeed,
    NodeAccess,
)
from phalanx.model.events import AllocatorFact, ClusterEvent
from phalanx.model.gang import Gang
from phalanx.model.pod import Pod, PodClass
from phalanx.model.resources import NO_AMOUNTS, Requests, requests_of

ALLOCATOR = "claims"
ADMIN_ACCESS = "resource.kubernetes.io/admin-access"

_GROUP, _VERSIONS = "resource.k8s.io", ("v1", "v1beta2", "v1beta1")
_CLAIMS, _CLASSES, _SLICES = "resourceclaims", "deviceclasses", "resourceslices"
_RULES = "devicetaintrules"
_CLASSES_KEPT = 4096
_SPECS_KEPT = 4096


class _Reference(msgspec.Struct, frozen=True):
    """One entry of `spec.resourceClaims`. `claim` is the object's name: "" before it is created from its
    `template`, None if the pod turned out to need none."""

    name: str
    claim: str | None
    template: str = ""


class _Referrer(msgspec.Struct, frozen=True):
    """Pod with ResourceClaims. `settled` means that the pod has a node or is finished, so that the scheduler need
    not place it any more."""

    namespace: str
    references: tuple[_Reference, ...]
    settled: bool

    @property
    def keys(self) -> tuple[str, ...]:
        return tuple(f"{self.namespace}/{reference.claim}" for reference in self.references if reference.claim)


class ClaimEnricher(PodEnricher):
    """Processes claims, and the pods that refer to claims or request extended resources of device classes.

    A claim's devices are charged to the pod that it was created for; a shared claim is charged once, to the first
    of its pods by uid.
    """

    kinds = (
        WantedKind(_GROUP, _CLASSES, "DeviceClass", _VERSIONS),
        # Rules before slices: the devices of a new slice are tainted from the beginning.
        WantedKind(_GROUP, _RULES, "DeviceTaintRule", ("v1", "v1beta2", "v1alpha3")),
        WantedKind(_GROUP, _SLICES, "ResourceSlice", _VERSIONS),
        WantedKind(_GROUP, _CLAIMS, "ResourceClaim", _VERSIONS),
    )

    def __init__(self) -> None:
        self._pods: dict[str, _Referrer] = {}
        self._referrers: dict[str, set[str]] = {}
        self._claims: dict[str, Claim] = {}
        # Claims that a scheduler created for extended resources, by pod uid.
        self._extended_claims: dict[str, str] = {}
        self._names: dict[str, set[str]] = {_CLASSES: set(), _SLICES: set(), _RULES: set()}
        self._admins: set[str] = set()
        self._specs: dict[ClaimSpec, ClaimSpec] = {}
        self._classes: dict[tuple[PodClass, tuple[ClaimNeed, ...], Requests, Requests], PodClass] = {}
        self._extended = ExtendedResources()

    # pods

    def concerns(self, pod: PodObject, pod_class: PodClass) -> bool:
        return bool(pod.spec.resource_claims or extended_names(pod_class.requests))

    def pod(self, pod: PodObject, spec: Pod) -> Changes:
        last = self._pods.get(spec.uid)
        changed = self._extended.pod(pod, spec)
        if not pod.spec.resource_claims:
            if last is None:
                return ([], {spec.uid}) if changed else no_changes()
            return [], {spec.uid, *self._remove_referrer(spec.uid)}
        now = _Referrer(spec.namespace, tuple(_references(pod)), _settled(spec))
        if now == last and not changed:
            return no_changes()
        touched = self._remove_referrer(spec.uid)
        self._pods[spec.uid] = now
        for key in now.keys:
            referrers = self._referrers.setdefault(key, set())
            if referrers:
                # The claim is charged to the first uid: this pod can take over the charge.
                touched.add(min(referrers))
            referrers.add(spec.uid)
            touched.add(min(referrers))
        return [], {spec.uid, *touched}

    def pod_gone(self, spec: Pod) -> Changes:
        self._extended.pod_gone(spec.uid)
        return [], self._remove_referrer(spec.uid) if spec.uid in self._pods else frozenset()

    def node(self, node: NodeObject) -> Changes:
        return [], self._extended.node(node)

    def node_gone(self, name: str) -> Changes:
        return [], self._extended.node_gone(name)

    @property
    def idle(self) -> bool:
        return not self._pods and not self._extended.any_offered

    def enriched(self, spec: Pod, gang: Gang | None) -> Pod:
        referrer = self._pods.get(spec.uid)
        if referrer is None and not self._extended.any_offered:
            return spec
        extended, extended_amounts = self._extended.needs(spec)
        if not extended and (referrer is None or not referrer.references):
            return spec
        if referrer is None:
            referrer = _Referrer(spec.namespace, (), _settled(spec))
        references = [reference for reference in referrer.references if reference.claim is not None]
        # A claim that is named twice is one claim: its devices are allocated once.
        named = {reference.claim: reference for reference in reversed(references) if reference.claim}
        references = [
            reference for reference in references if not reference.claim or named[reference.claim] is reference
        ]
        needs = [self._need(spec.uid, spec.gang, referrer, reference, gang) for reference in references]
        names = [reference.claim or "" for reference in references]
        charged = self._charged(spec.uid, referrer, references, needs)
        if extended:
            name, need = self._extended_claim(spec, referrer, extended)
            if need is not None:
                names.append(name)
                needs.append(need)
            add_amounts(charged, offered_by_classes(extended))
        if not needs and not extended_amounts:
            return spec
        beside = requests_of({**dict(extended_amounts), **charged})
        key = (spec.pod_class, tuple(needs), extended_amounts, beside)
        twin = self._classes.get(key)
        if twin is None:
            if len(self._classes) >= _CLASSES_KEPT:
                self._classes.clear()
            requests = without(spec.pod_class.requests, extended_amounts)
            twin = msgspec.structs.replace(spec.pod_class, requests=requests, claims=tuple(needs), beside=beside)
            self._classes[key] = twin
        usage = without(spec.usage, extended_amounts) or NO_AMOUNTS
        return msgspec.structs.replace(spec, pod_class=twin, usage=usage, claims=tuple(names))

    def _extended_claim(
        self, spec: Pod, referrer: _Referrer, extended: tuple[ExtendedNeed, ...]
    ) -> tuple[str, ClaimNeed | None]:
        """Return the name of the ResourceClaim for the pod's extended resources, and its need; None for a pod that
        is on a node without such a claim."""
        key = self._extended_claims.get(spec.uid, "")
        claim = self._claims.get(key)
        if claim is None:
            return f"<{spec.uid}>", None if referrer.settled else ClaimNeed(extended=extended)
        need = ClaimNeed(claim.spec, reserved=spec.uid in claim.consumers)
        if not referrer.settled:
            if claim.terminating:
                need = ClaimNeed(waits=f"resource claim {claim.name} is being deleted")
            elif claim.allocation is not None:
                need = msgspec.structs.replace(need, claim=key)
        return claim.name, need

    def _charged(
        self, uid: str, referrer: _Referrer, references: list[_Reference], needs: list[ClaimNeed]
    ) -> dict[str, int]:
        """Return the number of devices of each class that the pod's ResourceClaims charge to its queue and quotas,
        by resource name."""
        charged: dict[str, int] = {}
        for reference, need in zip(references, needs, strict=True):
            own = bool(reference.template) and not need.claim
            referrers = self._referrers.get(f"{referrer.namespace}/{reference.claim}", ())
            if not need.waits and (own or min(referrers, default=uid) == uid):
                add_amounts(charged, devices_of(need.spec))
        return charged

    def _need(
        self, uid: str, group: str, referrer: _Referrer, reference: _Reference, gang: Gang | None
    ) -> ClaimNeed:
        if not reference.claim:
            return ClaimNeed(waits=f"waiting for resource claim {reference.name} of template {reference.template}")
        key = f"{referrer.namespace}/{reference.claim}"
        claim = self._claims.get(key)
        if claim is None:
            return ClaimNeed(waits=f"waiting for resource claim {reference.claim}")
        grouped = bool(group) and (claim.group == group or (gang is not None and _of_group(reference, gang)))
        own = bool(reference.template) and not grouped
        if own and claim.owner != uid:
            return ClaimNeed(waits=f"resource claim {claim.name} was not created for this pod")
        need = ClaimNeed(claim.spec, claim="" if own else key, reserved=grouped or uid in claim.consumers)
        if referrer.settled:
            return ClaimNeed(claim.spec, claim=need.claim)
        if claim.terminating:
            return ClaimNeed(waits=f"resource claim {claim.name} is being deleted")
        if claim.allocation is not None:
            return msgspec.structs.replace(need, claim=key)
        if claim.problem or claim.spec.fault:
            return ClaimNeed(waits=f"resource claim {claim.name}: {claim.problem or claim.spec.fault}")
        if claim.spec.admin and claim.namespace not in self._admins:
            label = f"{ADMIN_ACCESS}=true"
            return ClaimNeed(waits=f"resource claim {claim.name}: admin access needs a namespace labelled {label}")
        return need

    def _remove_referrer(self, uid: str) -> set[str]:
        """Remove a pod with ResourceClaims; return the pods to which its shared claims are charged now."""
        last = self._pods.pop(uid, None)
        successors: set[str] = set()
        for key in set(last.keys) if last else ():
            referrers = self._referrers[key]
            first = min(referrers) == uid
            referrers.discard(uid)
            if not referrers:
                del self._referrers[key]
            elif first:
                successors.add(min(referrers))
        return successors

    # surroundings

    def namespace(self, name: str, labels: Mapping[str, str] | None) -> Changes:
        admin = (labels or {}).get(ADMIN_ACCESS) == "true"
        if admin == (name in self._admins):
            return no_changes()
        (self._admins.add if admin else self._admins.discard)(name)
        return [], {uid for uid, referrer in self._pods.items() if referrer.namespace == name}

    def updated(self, kind: ServedKind, document: Document) -> Changes:
        if kind.plural == _CLAIMS:
            return self._claim(msgspec.structs.replace(read_claim(document), version=kind.version))
        metadata = document["metadata"]
        name = str(metadata["name"])
        self._names[kind.plural].add(name)
        if kind.plural == _SLICES:
            return [_fact(read_slice(document))], set()
        if kind.plural == _RULES:
            return [_fact(read_taint_rule(document))], set()
        device_class = read_device_class(document)
        created = str(metadata.get("creationTimestamp") or "")
        return [_fact(device_class)], self._extended.offered(name, device_class.extended, created)

    def malformed(self, kind: ServedKind, namespace: str, name: str, uid: str, error: str) -> Changes:
        """Process an undecodable resource.k8s.io object: a ResourceClaim keeps its devices, and the devices of a
        ResourceSlice are unavailable."""
        if kind.plural == _CLAIMS:
            last = self._claims.get(f"{namespace}/{name}")
            if last is not None and last.uid == uid:
                return self._claim(msgspec.structs.replace(last, problem=error))
            return self._claim(
                Claim(namespace, name, uid, ClaimSpec(fault=error), problem=error, version=kind.version)
            )
        if kind.plural == _SLICES:
            self._names[_SLICES].add(name)
            return [_fact(DeviceSlice(name, "", "", 0, 1, NodeAccess(), problem=error))], set()
        return self.removed(kind, namespace, name)

    def removed(self, kind: ServedKind, namespace: str, name: str) -> Changes:
        if kind.plural == _CLAIMS:
            key = f"{namespace}/{name}"
            last = self._claims.pop(key, None)
            if last is None:
                return no_changes()
            if self._extended_claims.get(last.owner) == key:
                del self._extended_claims[last.owner]
            return [_fact(ClaimGone(key))], {
                *self._referrers.get(key, ()),
                *([last.owner] if last.extended else []),
            }
        self._names[kind.plural].discard(name)
        if kind.plural == _SLICES:
            return [_fact(DeviceSliceGone(name))], set()
        if kind.plural == _RULES:
            return [_fact(DeviceTaintRuleGone(name))], set()
        return [_fact(DeviceClassGone(name))], self._extended.withdrawn(name)

    def unserved(self, kind: ServedKind) -> Changes:
        events: list[ClusterEvent] = []
        touched: set[str] = set()
        if kind.plural == _CLAIMS:
            addresses = sorted((claim.namespace, claim.name) for claim in self._claims.values())
        else:
            addresses = [("", name) for name in sorted(self._names[kind.plural])]
        for namespace, name in addresses:
            facts, uids = self.removed(kind, namespace, name)
            events += facts
            touched |= uids
        return events, touched

    def _claim(self, claim: Claim) -> Changes:
        if self._claims.get(claim.key) == claim:
            return no_changes()
        # Claims from one template have equal specs, and share one object.
        if len(self._specs) >= _SPECS_KEPT:
            self._specs.clear()
        spec = self._specs.setdefault(claim.spec, claim.spec)
        claim = self._claims[claim.key] = msgspec.structs.replace(claim, spec=spec)
        touched = set(self._referrers.get(claim.key, ()))
        if claim.extended and claim.owner:
            self._extended_claims[claim.owner] = claim.key
            touched.add(claim.owner)
        return [_fact(claim)], touched


def _settled(spec: Pod) -> bool:
    return bool(spec.node) or spec.finished


def _references(pod: PodObject) -> list[_Reference]:
    made = {status.name: status.resource_claim_name for status in pod.status.resource_claim_statuses}
    references = []
    for entry in pod.spec.resource_claims:
        if entry.resource_claim_name:
            references.append(_Reference(entry.name, entry.resource_claim_name))
        else:
            claim = made.get(entry.name) if entry.name in made else ""
            references.append(_Reference(entry.name, claim, entry.resource_claim_template_name or ""))
    return references


def _of_group(reference: _Reference, gang: Gang) -> bool:
    """Return whether a pod's claim reference equals one of its PodGroup: then all members share the PodGroup's
    claim."""
    return any(
        entry.name == reference.name
        and (entry.template == reference.template if reference.template else entry.claim == reference.claim)
        for entry in gang.claims
    )


def _fact(fact: object) -> AllocatorFact:
    return AllocatorFact(ALLOCATOR, fact)
