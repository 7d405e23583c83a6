"""Resource claims: made from templates for pods and PodGroups, freed when their consumers are done.

As kube-controller-manager 1.36 does it (pkg/controller/resourceclaim): a generated claim is named in the status of
its pod (or PodGroup) and owned by it; a claim without consumers loses its devices, and one that was made for a pod
goes with the pod's end.
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

# Room for a hyphen and five random characters in a name of 63.
_LONGEST_BASE = 57


class ResourceClaimController(Controller):
    """Keys are (storage, namespace, name) of pods, PodGroups and claims."""

    def __init__(self, api: Api) -> None:
        super().__init__(api)
        # Pods and groups that wait for a template that does not exist yet, by the template's key.
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
            self._free(record)
        elif not record.terminating and record.fields.get("status.phase") not in TERMINAL:
            self._furnish(storage, record)

    # making claims

    def _furnish(self, storage: str, owner: Record) -> None:
        """Makes the claims that a pod or PodGroup has templates for, and names them in its status."""
        obj = owner.load()
        wanted = [mapping(entry) for entry in sequence(dig(obj, "spec", "resourceClaims"))]
        if not wanted:
            return
        status = mapping(obj.get("status"))
        named = {
            text(entry.get("name")): entry for entry in map(mapping, sequence(status.get("resourceClaimStatuses")))
        }
        found = dict(named)
        for entry in wanted:
            template, name = text(entry.get("resourceClaimTemplateName")), text(entry.get("name"))
            if not template or self._is_there(owner, text(mapping(named.get(name)).get("resourceClaimName"))):
                continue
            claim = self._of_group(owner, obj, entry) if storage == PODS else None
            if claim is None:
                claim = self._made(storage, owner, name, template)
            if claim:
                found[name] = {"name": name, "resourceClaimName": claim}
        if found != named:
            obj.setdefault("status", {})["resourceClaimStatuses"] = [found[name] for name in sorted(found)]
            self.save(self.types()[storage], owner, obj)

    def _is_there(self, owner: Record, claim: str) -> bool:
        return bool(claim) and self.current(CLAIMS, (owner.namespace, claim)) is not None

    def _of_group(self, pod: Record, obj: Json, entry: Json) -> str | None:
        """The claim of the pod's group if the entry says the same as one of the group; "" while it is not there."""
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

    def _made(self, storage: str, owner: Record, name: str, template: str) -> str:
        """The name of the claim that was made for an owner, now or before; "" while the template is not there."""
        for kept, key in self.api.store.by_owner.get(owner.uid, ()):
            claim = self.current(CLAIMS, key) if kept == CLAIMS else None
            if claim is not None and mapping(metadata(claim.load()).get("annotations")).get(POD_CLAIM) == name:
                return claim.name
        source = self.current(TEMPLATES, (owner.namespace, template))
        if source is None:
            self._waiting.setdefault((owner.namespace, template), set()).add((storage, *owner.key))
            return ""
        given = mapping(source.load().get("spec"))
        meta: dict[str, Any] = {
            "generateName": _base(owner.name, name),
            "annotations": {**mapping(mapping(given.get("metadata")).get("annotations")), POD_CLAIM: name},
            "ownerReferences": [_reference(self.types()[storage].preferred.api_version, storage, owner)],
        }
        if labels := mapping(mapping(given.get("metadata")).get("labels")):
            meta["labels"] = dict(labels)
        body: Json = {"metadata": meta, "spec": clone(mapping(given.get("spec")))}
        version = self.types()[CLAIMS].preferred
        return self.api.create(version, owner.namespace, body, self.api.write()).name

    # freeing claims

    def _free(self, record: Record) -> None:
        """Strikes consumers that are done; a claim without any loses its devices, and goes with its pod's end."""
        obj = record.load()
        status = mapping(obj.get("status"))
        consumers = [mapping(entry) for entry in sequence(status.get("reservedFor"))]
        alive = [entry for entry in consumers if self._consumes(record.namespace, entry)]
        changed = len(alive) < len(consumers)
        if changed:
            _set(obj["status"], "reservedFor", alive)
        meta = metadata(obj)
        leaving = record.terminating or self._owner_is_done(record, obj)
        allocated = status.get("allocation") is not None
        freed = not alive and allocated and (changed or leaving)
        if freed:
            del obj["status"]["allocation"]
            obj["status"].pop("devices", None)
            changed = True
        # A scheduler protects a claim before it allocates it: that must stand.
        protected = FINALIZER in sequence(meta.get("finalizers"))
        if protected and (freed or (record.terminating and not allocated)):
            _set(meta, "finalizers", [each for each in sequence(meta.get("finalizers")) if each != FINALIZER])
            changed = True
        type_ = self.types()[CLAIMS]
        if changed:
            record = self.save(type_, record, obj)
        if leaving and not alive and not record.terminating and self.current(CLAIMS, record.key) is not None:
            self.api.delete(type_, record, DeleteOptions(uid=record.uid), self.api.write())

    def _consumes(self, namespace: str, entry: Json) -> bool:
        storage = GROUPS if entry.get("resource") == "podgroups" else PODS
        record = self.current(storage, (namespace, text(entry.get("name"))))
        return (
            record is not None
            and record.uid == entry.get("uid")
            and record.fields.get("status.phase") not in TERMINAL
        )

    def _owner_is_done(self, record: Record, obj: Json) -> bool:
        """Whether the claim was made for a pod that is finished or gone."""
        for reference in map(mapping, sequence(metadata(obj).get("ownerReferences"))):
            if reference.get("controller") is True and reference.get("kind") == "Pod":
                owner = {"name": reference.get("name"), "uid": reference.get("uid")}
                return not self._consumes(record.namespace, owner)
        return False

    # who is to be looked at again

    def _wake_claims(self, owner: Record | None) -> None:
        if owner is None:
            return
        # A giant pod is not decoded to find that it has no claims.
        entries = _claim_entries(owner.load()) if b'"resourceClaimName"' in owner.body else ()
        names = {text(entry.get("resourceClaimName")) for entry in entries}
        for name in sorted(names - {""}):
            self.add((CLAIMS, owner.namespace, name))
        for kept, key in self.api.store.by_owner.get(owner.uid, ()):
            if kept == CLAIMS:
                self.add((CLAIMS, *key))

    def _wake_owner(self, reference: Json) -> None:
        found = self.api.store.by_uid.get(text(reference.get("uid")))
        if found is not None and found[0] in (PODS, GROUPS):
            self.add((found[0], *found[1]))


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
    """What a generated name begins with; of long names both parts are cut in proportion."""
    whole = f"{owner}-{claim}-"
    if len(whole) <= _LONGEST_BASE:
        return whole
    return (
        f"{owner[: len(owner) * _LONGEST_BASE // len(whole)]}-{claim[: len(claim) * _LONGEST_BASE // len(whole)]}"
    )


def _set(obj: dict[str, Any], field: str, values: list[Any]) -> None:
    if values:
        obj[field] = values
    else:
        obj.pop(field, None)
