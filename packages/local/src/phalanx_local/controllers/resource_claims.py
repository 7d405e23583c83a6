"""Resource claims: creation from templates for pods and PodGroups, deallocation after their consumers end.

The behaviour is that of kube-controller-manager 1.36 (pkg/controller/resourceclaim). A generated claim is named
in the status of its pod (or PodGroup) and owned by it. A claim without consumers loses its devices, and a claim
that was generated for a pod is deleted when the pod ends.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

from phalanx_local.controllers.base import Controller
from phalanx_local.objects import Json, clone, dig, mapping, metadata, sequence, text
from phalanx_local.registry.api import Api, DeleteOptions
from phalanx_local.storage.records import Change, Record
from phalanx_local.storage.store import Collection
from phalanx_local.strategies.pods import TERMINAL

PODS, GROUPS = "/pods", "scheduling.k8s.io/podgroups"
CLAIMS, TEMPLATES = "resource.k8s.io/resourceclaims", "resource.k8s.io/resourceclaimtemplates"
FINALIZER = "resource.kubernetes.io/delete-protection"
POD_CLAIM = "resource.kubernetes.io/pod-claim-name"

# Storage of the kinds of consumers, by (apiGroup, resource) of an entry in `reservedFor`.
_CONSUMERS = {("", "pods"): PODS, ("scheduling.k8s.io", "podgroups"): GROUPS}

# A name of 63 characters minus a hyphen and five random characters.
_MAX_BASE = 57


class ResourceClaimController(Controller):
    """Controller of resource claims; keys are (storage, namespace, name) of pods, PodGroups and claims."""

    def __init__(self, api: Api) -> None:
        super().__init__(api)
        # Pods and groups that wait for a missing template, by the key of the template.
        self._waiting: dict[tuple[str, str], set[tuple[str, str, str]]] = {}

    def observe(self, collection: Collection, change: Change) -> None:
        storage = collection.storage
        if storage in (PODS, GROUPS):
            if change.new is not None:
                self.add((storage, *change.key))
            if change.new is None or change.new.terminating or change.new.fields.get("status.phase") in TERMINAL:
                self._wake_claims(change.new or change.old)
        elif storage == CLAIMS:
            if change.new is not None:
                self.add((storage, *change.key))
            elif change.old is not None:
                for reference in sequence(metadata(change.old.load()).get("ownerReferences")):
                    self._wake_owner(mapping(reference))
        elif storage == TEMPLATES and change.new is not None:
            for key in self._waiting.pop(change.key, ()):
                self.add(key)

    def resync(self) -> None:
        for storage in (GROUPS, PODS, CLAIMS):
            collection = self.api.store.collections.get(storage)
            for key in list(collection.records) if collection is not None else ():
                self.add((storage, *key))

    def reconcile(self, key: Hashable) -> None:
        assert isinstance(key, tuple)
        storage, namespace, name = key
        record = self.current(storage, (namespace, name))
        if record is None or storage not in self.types():
            return
        if storage == CLAIMS:
            self._deallocate(record)
        elif not record.terminating and record.fields.get("status.phase") not in TERMINAL:
            self._create_claims(storage, record)

    # creation of claims

    def _create_claims(self, storage: str, owner: Record) -> None:
        """Create the ResourceClaims of a pod or PodGroup from its templates, and name them in its status."""
        obj = owner.load()
        wanted = [mapping(entry) for entry in sequence(dig(obj, "spec", "resourceClaims"))]
        if not wanted:
            return
        status = mapping(obj.get("status"))
        named = {
            text(entry.get("name")): entry for entry in map(mapping, sequence(status.get("resourceClaimStatuses")))
        }
        statuses = dict(named)
        for entry in wanted:
            template, name = text(entry.get("resourceClaimTemplateName")), text(entry.get("name"))
            if not template or self._exists(owner, text(mapping(named.get(name)).get("resourceClaimName"))):
                continue
            claim = self._claim_of_group(owner, obj, entry) if storage == PODS else None
            if claim is None:
                claim = self._ensure_claim(storage, owner, name, template)
            if claim:
                statuses[name] = {"name": name, "resourceClaimName": claim}
        if statuses != named:
            obj.setdefault("status", {})["resourceClaimStatuses"] = [statuses[name] for name in sorted(statuses)]
            self.save(self.types()[storage], owner, obj)

    def _exists(self, owner: Record, claim: str) -> bool:
        return bool(claim) and self.current(CLAIMS, (owner.namespace, claim)) is not None

    def _claim_of_group(self, pod: Record, obj: Json, entry: Json) -> str | None:
        """Return the ResourceClaim of the pod's PodGroup if the group has an equal entry; "" until that claim
        exists."""
        name = text(dig(obj, "spec", "schedulingGroup", "podGroupName"))
        group = self.current(GROUPS, (pod.namespace, name)) if name else None
        body = group.load() if group is not None else {}
        if entry not in sequence(dig(body, "spec", "resourceClaims")):
            return None
        for status in map(mapping, sequence(dig(body, "status", "resourceClaimStatuses"))):
            if status.get("name") == entry.get("name"):
                return text(status.get("resourceClaimName"))
        assert group is not None
        self.add((GROUPS, *group.key))
        self.add_later((PODS, *pod.key), 0.05)
        return ""

    def _ensure_claim(self, storage: str, owner: Record, name: str, template: str) -> str:
        """Create a ResourceClaim for an owner unless it exists already, and return its name; "" if the template is
        missing."""
        for storage_of_dependent, key in self.api.store.by_owner.get(owner.uid, ()):
            claim = self.current(CLAIMS, key) if storage_of_dependent == CLAIMS else None
            if claim is not None and mapping(metadata(claim.load()).get("annotations")).get(POD_CLAIM) == name:
                return claim.name
        source = self.current(TEMPLATES, (owner.namespace, template))
        if source is None:
            self._waiting.setdefault((owner.namespace, template), set()).add((storage, *owner.key))
            return ""
        claim_spec = mapping(source.load().get("spec"))
        meta: dict[str, Any] = {
            "generateName": _base(owner.name, name),
            "annotations": {**mapping(mapping(claim_spec.get("metadata")).get("annotations")), POD_CLAIM: name},
            "ownerReferences": [_reference(self.types()[storage].preferred.api_version, storage, owner)],
        }
        if labels := mapping(mapping(claim_spec.get("metadata")).get("labels")):
            meta["labels"] = dict(labels)
        body: Json = {"metadata": meta, "spec": clone(mapping(claim_spec.get("spec")))}
        version = self.types()[CLAIMS].preferred
        return self.api.create(version, owner.namespace, body, self.api.write()).name

    # deallocation of claims

    def _deallocate(self, record: Record) -> None:
        """Remove ended pods from `reservedFor` of a ResourceClaim; deallocate the devices of a claim without
        consumers, and delete it if it was generated for an ended pod."""
        obj = record.load()
        status = mapping(obj.get("status"))
        consumers = [mapping(entry) for entry in sequence(status.get("reservedFor"))]
        if any((text(entry.get("apiGroup")), entry.get("resource")) not in _CONSUMERS for entry in consumers):
            return  # whether a consumer of another kind has ended is unknown
        alive = [entry for entry in consumers if self._consumes(record.namespace, entry)]
        changed = len(alive) < len(consumers)
        if changed:
            _set(obj["status"], "reservedFor", alive)
        meta = metadata(obj)
        deletable = record.terminating or self._owner_is_done(record, obj)
        allocated = status.get("allocation") is not None
        freed = not alive and allocated and (changed or deletable)
        if freed:
            del obj["status"]["allocation"]
            obj["status"].pop("devices", None)
            changed = True
        # A scheduler adds the finalizer before it allocates a claim: an unallocated claim can have it.
        protected = FINALIZER in sequence(meta.get("finalizers"))
        if protected and (freed or (record.terminating and not allocated)):
            _set(
                meta,
                "finalizers",
                [finalizer for finalizer in sequence(meta.get("finalizers")) if finalizer != FINALIZER],
            )
            changed = True
        type_ = self.types()[CLAIMS]
        if changed:
            record = self.save(type_, record, obj)
        if deletable and not alive and not record.terminating and self.current(CLAIMS, record.key) is not None:
            self.api.delete(type_, record, DeleteOptions(uid=record.uid), self.api.write())

    def _consumes(self, namespace: str, entry: Json) -> bool:
        storage = _CONSUMERS[text(entry.get("apiGroup")), text(entry.get("resource"))]
        record = self.current(storage, (namespace, text(entry.get("name"))))
        return (
            record is not None
            and record.uid == entry.get("uid")
            and record.fields.get("status.phase") not in TERMINAL
        )

    def _owner_is_done(self, record: Record, obj: Json) -> bool:
        """Return whether a ResourceClaim was generated for a pod that has ended or is deleted."""
        for reference in map(mapping, sequence(metadata(obj).get("ownerReferences"))):
            if reference.get("controller") is True and reference.get("kind") == "Pod":
                owner = {"resource": "pods", "name": reference.get("name"), "uid": reference.get("uid")}
                return not self._consumes(record.namespace, owner)
        return False

    # requeue of claims and owners

    def _wake_claims(self, owner: Record | None) -> None:
        if owner is None:
            return
        # A large pod without claims is not decoded.
        entries = _claim_entries(owner.load()) if b'"resourceClaimName"' in owner.body else ()
        names = {text(entry.get("resourceClaimName")) for entry in entries}
        for name in sorted(names - {""}):
            self.add((CLAIMS, owner.namespace, name))
        for storage, key in self.api.store.by_owner.get(owner.uid, ()):
            if storage == CLAIMS:
                self.add((CLAIMS, *key))

    def _wake_owner(self, reference: Json) -> None:
        owner = self.api.store.by_uid.get(text(reference.get("uid")))
        if owner is not None and owner[0] in (PODS, GROUPS):
            self.add((owner[0], *owner[1]))


def _claim_entries(obj: Json) -> list[Json]:
    entries = [
        *sequence(dig(obj, "spec", "resourceClaims")),
        *sequence(dig(obj, "status", "resourceClaimStatuses")),
    ]
    return [mapping(entry) for entry in entries]


def _reference(api_version: str, storage: str, owner: Record) -> dict[str, Any]:
    kind = "Pod" if storage == PODS else "PodGroup"
    return {"apiVersion": api_version, "kind": kind, "name": owner.name, "uid": owner.uid, "controller": True}


def _base(owner: str, claim: str) -> str:
    """Return the prefix of a generated ResourceClaim's name; long names are cut in proportion."""
    whole = f"{owner}-{claim}-"
    if len(whole) <= _MAX_BASE:
        return whole
    return f"{owner[: len(owner) * _MAX_BASE // len(whole)]}-{claim[: len(claim) * _MAX_BASE // len(whole)]}"


def _set(obj: dict[str, Any], field: str, values: list[Any]) -> None:
    if values:
        obj[field] = values
    else:
        obj.pop(field, None)
