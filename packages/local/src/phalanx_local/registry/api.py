"""Operations of the API on stored objects, without HTTP.

No operation awaits, so each is atomic. The controllers of the server use them too.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from phalanx.model.text.decoding import quoted
from phalanx_local.clock import Clock, TimestampCache, timestamp
from phalanx_local.errors import (
    StatusCause,
    StatusError,
    already_exists,
    conflict,
    forbidden,
    invalid,
    not_found,
    stale,
)
from phalanx_local.objects import Json, clone, mapping, metadata, sequence, text
from phalanx_local.registry import managed_fields, object_meta
from phalanx_local.registry.admitters import Admission, MutatingAdmission
from phalanx_local.registry.decoding import decode_object
from phalanx_local.registry.resources import Registry, ResourceType, Version
from phalanx_local.storage.records import Record
from phalanx_local.storage.store import Collection, Store, make_record
from phalanx_local.strategies.base import Write

if TYPE_CHECKING:
    from phalanx_local.admission.quota import QuotaLedger

NAMESPACES = "/namespaces"
PROTECTED_NAMESPACES = ("default", "kube-public", "kube-system")
FOREGROUND, ORPHAN = "foregroundDeletion", "orphan"


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteOptions:
    """Options of a delete request; None for an option that the client does not set."""

    grace_period: int | None = None
    uid: str | None = None
    revision: str | None = None
    propagation: str | None = None


@dataclass(slots=True)
class _Cached:
    """Decoded objects of a resource that admission reads at every write, cached until an object changes."""

    revision: int = -1
    objects: list[Json] = field(default_factory=list)


class Api:
    """Reads and writes of objects by resource type. Errors are StatusError.

    `policies`, `webhooks` and `quotas` admit writes, once they are set.
    """

    def __init__(self, store: Store, registry: Registry, clock: Clock) -> None:
        self.store = store
        self.registry = registry
        self.clock = clock
        self.now = TimestampCache(clock)
        self.policies: Admission | None = None
        self.webhooks: MutatingAdmission | None = None
        self.quotas: QuotaLedger | None = None
        self._cache: dict[str, _Cached] = {}

    # --- reads

    def collection(self, type_: ResourceType) -> Collection:
        collection = self.store.collections.get(type_.storage)
        return collection if collection is not None else self.store.open(type_.storage, type_.strategy.fields)

    def record(self, type_: ResourceType, namespace: str, name: str) -> Record:
        """Return the current stored object as a record. Raise 404 if the object does not exist."""
        record = self.collection(type_).records.get((namespace, name))
        if record is None:
            raise not_found(type_, name)
        return record

    def type(self, group: str, plural: str) -> ResourceType:
        """Return the resource type of a group and plural. Raise LookupError if the server does not serve it."""
        resource_type = self.registry.find(group, plural)
        if resource_type is None:
            raise LookupError(f"no resource {plural} in group {quoted(group)}")
        return resource_type

    def exists(self, group: str, plural: str, namespace: str, name: str) -> bool:
        """Return whether an object exists, without decoding it."""
        collection = self.store.collections.get(f"{group}/{plural}")
        return collection is not None and (namespace, name) in collection.records

    def find(self, group: str, plural: str, namespace: str, name: str) -> Json | None:
        """Return a fresh copy of the stored object without kind and apiVersion; None if it does not exist."""
        collection = self.store.collections.get(f"{group}/{plural}")
        record = collection.records.get((namespace, name)) if collection is not None else None
        return record.load() if record is not None else None

    def all(self, group: str, plural: str, namespace: str = "") -> list[Json]:
        """Return all stored objects of a resource in key order. The returned objects are shared and must not be
        changed."""
        storage = f"{group}/{plural}"
        collection = self.store.collections.get(storage)
        if collection is None:
            return []
        cached = self._cache.setdefault(storage, _Cached())
        if cached.revision != collection.changed:
            cached.objects = [collection.records[key].load() for key in collection.keys("")]
            cached.revision = collection.changed
        if not namespace:
            return cached.objects
        return [item for item in cached.objects if item["metadata"].get("namespace") == namespace]

    def write(self, **circumstances: object) -> Write:
        """Return the context of a write that the server itself makes: its user, warnings and dry-run mode."""
        return Write(now=self.now(), cluster=self, **circumstances)  # type: ignore[arg-type]

    # --- create

    def create(self, version: Version, namespace: str, body: Json, write: Write) -> Record:
        """Store a new object that is given in the form of the version. Raise 400, 403, 404, 409 or 422."""
        type_ = version.type
        managed = metadata(body).get("managedFields")
        if version.check_new is not None:
            wrong = version.check_new(body)
            if wrong:
                raise invalid(_Named("", "events", "Event"), text(metadata(body).get("name")), wrong)
        obj = decode_object(version, body, write)
        if self.webhooks is not None:
            obj = self._mutated_new(version, namespace, obj, write)
        object_meta.fill_system_fields(obj, type_, namespace, write)
        meta = metadata(obj)
        self._admit_namespace(type_, namespace, text(meta.get("name")))
        collection = self.collection(type_)
        self._name(collection, meta)
        strategy = type_.strategy
        strategy.prepare_create(obj, write)
        if "status" in version.subresources:
            status = strategy.initial_status(obj, write)
            if status is not None:
                obj["status"] = status
            elif type_.custom or "status" in obj:
                obj.pop("status", None)
        self._validate(version, obj, None, "", write)
        to_stored_version(version, obj)
        name = meta["name"]
        self.admit("CREATE", version, obj, None, write, of=(meta.get("namespace", ""), name, ""))
        if self.quotas is not None and type_.namespaced:
            self.quotas.admit(type_, type_.storage, obj)
        if (namespace if type_.namespaced else "", name) in collection.records:
            raise already_exists(type_, name)
        if managed is not None:
            meta["managedFields"] = managed
        elif write.track_fields:
            obj = managed_fields.tracked(None, obj, version, write, "")
        if write.dry_run:
            return self._unsaved(collection, obj, "")
        record = self.store.put(collection, obj, None)
        if type_.storage == NAMESPACES:
            self._open_namespace(name)
        return record

    def _name(self, collection: Collection, meta: Json) -> None:
        base = text(meta.get("generateName"))
        if text(meta.get("name")) or not base:
            return
        namespace = meta.get("namespace", "")
        for _ in range(8):
            meta["name"] = object_meta.generated_name(base)
            if (namespace, meta["name"]) not in collection.records:
                return

    def _admit_namespace(self, type_: ResourceType, namespace: str, name: str) -> None:
        if not type_.namespaced:
            return
        namespaces = self.store.collections.get(NAMESPACES)
        record = namespaces.records.get(("", namespace)) if namespaces is not None else None
        if record is None:
            raise not_found(self.type("", "namespaces"), namespace)
        if record.terminating:
            reason = f"unable to create new content in namespace {namespace} because it is being terminated"
            cause = {
                "reason": "NamespaceTerminating",
                "message": f"namespace {namespace} is being terminated",
                "field": "metadata.namespace",
            }
            raise forbidden(type_, name, reason, [cause])

    def _open_namespace(self, name: str) -> None:
        """Create the default service account in a new namespace, which its pods use."""
        accounts = self.type("", "serviceaccounts")
        if not self.exists("", "serviceaccounts", name, "default"):
            self.create(accounts.preferred, name, {"metadata": {"name": "default"}}, self.write())

    # --- update

    def update(
        self, version: Version, namespace: str, name: str, body: Json, write: Write, subresource: str = ""
    ) -> tuple[Record, bool]:
        """Replace an object (PUT), or create it if the kind allows this. Return the new record and whether it was
        created."""
        type_ = version.type
        object_meta.check_names(body, name, namespace)
        record = self.collection(type_).records.get((namespace, name))
        if record is None:
            if type_.strategy.create_on_update and not subresource:
                metadata(body).setdefault("name", name)
                return self.create(version, namespace, body, write), True
            raise not_found(type_, name)
        must = not type_.strategy.unconditional_update
        return self.replace(version, record, body, write, subresource, must_state_revision=must), False

    def replace(
        self,
        version: Version,
        record: Record,
        body: Json,
        write: Write,
        subresource: str = "",
        *,
        must_state_revision: bool = False,
        tracks: bool = True,
        admitted: bool = False,
    ) -> Record:
        """Replace a stored object with `body` (complete, in the form of the version), if the preconditions hold.

        `tracks` is False if `body` has its managedFields already, after a server-side apply. `admitted`: the
        policies have admitted the body of the client already.
        """
        type_ = version.type
        object_meta.check_names(body, record.name, record.namespace)
        body_meta = metadata(body)
        uid = text(body_meta.get("uid"))
        if uid and uid != record.uid:
            raise stored_mismatch(type_, record, "UID", uid, record.uid)
        current, causes = object_meta.check_revision(body_meta, record, must=must_state_revision)
        if causes:
            raise invalid(plural_kind(type_), record.name, causes)
        if not current:
            raise stale(type_, record.name)
        managed = body_meta.get("managedFields")
        new = decode_object(version, body, write)
        old = record.load()
        if self.webhooks is not None and not admitted:
            of = (record.namespace, record.name, subresource)
            new = self.webhooks.mutate("UPDATE", version, new, old, write, of=of)
            object_meta.check_names(new, record.name, record.namespace)
        new = self._allowed_changes(version, new, old, write, subresource)
        self._validate(version, new, old, subresource, write)
        to_stored_version(version, new)
        if not admitted:
            self.admit("UPDATE", version, new, old, write, of=(record.namespace, record.name, subresource))
        if self.quotas is not None and type_.namespaced:
            self.quotas.admit(type_, type_.storage, new, old, subresource)
        if tracks:
            new = managed_fields.tracked(old, new, version, write, subresource)
        elif managed is not None:
            metadata(new)["managedFields"] = managed
        managed_fields.keep_times(new, old)
        return self.save(type_, record, new, old, write, counts_status="status" not in version.subresources)

    def save(
        self,
        type_: ResourceType,
        record: Record,
        new: Json,
        old: Json,
        write: Write,
        *,
        counts: bool = True,
        counts_status: bool = False,
    ) -> Record:
        """Store the final form of an object over its stored form; remove a terminating object without finalizers.

        `counts` is False for writes that bypass the strategies upstream, such as binding. `counts_status`: the
        version has no status subresource, so that changes of the status increase the generation.
        """
        collection = self.collection(type_)
        if new == old:
            return record
        if counts:
            self._count_generation(type_, new, old, counts_status=type_.custom and counts_status)
        if write.dry_run:
            return self._unsaved(collection, new, str(record.revision))
        if "deletionTimestamp" in metadata(new) and is_released(type_, new):
            self.store.remove(collection, record)
            return self._unsaved(collection, new, str(self.store.revision))
        return self.store.put(collection, new, record)

    def _allowed_changes(self, version: Version, new: Json, old: Json, write: Write, subresource: str) -> Json:
        """Return the client's object with changes only in fields that the client can change through this
        endpoint."""
        strategy = version.type.strategy
        if subresource == "status":
            meta = metadata(new) if strategy.status_keeps_metadata else clone(metadata(old))
            new = {**old, "metadata": meta, "status": new.get("status")}
            if new["status"] is None:
                new.pop("status")
            object_meta.keep_system_fields(meta, metadata(old))
            strategy.prepare_status(new, old, write)
            return new
        object_meta.keep_system_fields(metadata(new), metadata(old))
        if "status" in version.subresources:
            if "status" in old:
                new["status"] = clone(old)["status"]
            else:
                new.pop("status", None)
        strategy.prepare_update(new, old, write)
        return new

    def _count_generation(self, type_: ResourceType, new: Json, old: Json, *, counts_status: bool) -> None:
        if not type_.strategy.counts_generation:
            return
        ignored = {"metadata"} if counts_status else {"metadata", "status"}
        changed = any(new.get(key) != old.get(key) for key in {*new, *old} - ignored)
        begins_deletion = "deletionTimestamp" in metadata(new) and "deletionTimestamp" not in metadata(old)
        if changed or begins_deletion:
            meta = metadata(new)
            meta["generation"] = int(meta.get("generation", 0)) + 1

    # --- delete

    def delete(
        self, type_: ResourceType, record: Record, options: DeleteOptions, write: Write
    ) -> tuple[Record, bool]:
        """Delete an object, or start its graceful deletion. Return its last state and whether it is removed."""
        if type_.storage == NAMESPACES and record.name in PROTECTED_NAMESPACES:
            raise forbidden(type_, record.name, "this namespace may not be deleted")
        self.check_preconditions(type_, record, options)
        obj = record.load()
        meta = metadata(obj)
        type_.strategy.prepare_delete(obj)
        self._set_propagation(type_, record, meta, options)
        grace = type_.strategy.grace_period(obj, options.grace_period)
        terminating = record.terminating
        if grace is not None and grace > 0:
            current_grace = meta.get("deletionGracePeriodSeconds")
            if terminating and isinstance(current_grace, int) and grace >= current_grace:
                return record, False
            return self._mark(type_, record, obj, grace, write), False
        if sequence(meta.get("finalizers")) or _has_spec_finalizers(type_, obj):
            if terminating and meta.get("deletionGracePeriodSeconds") in (0, None):
                old = record.load()
                return self.save(type_, record, obj, old, write), False
            return self._mark(type_, record, obj, 0, write), False
        if not write.dry_run:
            self.store.remove(self.collection(type_), record)
        if grace is None:
            return record, True
        meta["deletionTimestamp"] = timestamp(self.clock.now())
        meta["deletionGracePeriodSeconds"] = 0
        return self._unsaved(self.collection(type_), obj, str(record.revision)), True

    def check_preconditions(self, type_: ResourceType, record: Record, options: DeleteOptions) -> None:
        """Raise 409 if uid or resourceVersion of the object differ from the preconditions of a deletion."""
        if options.uid is not None and options.uid != record.uid:
            message = (
                f"the UID in the precondition ({options.uid}) does not match the UID in record ({record.uid}). "
                "The object might have been deleted and then recreated"
            )
            raise conflict(singular_kind(type_), record.name, message)
        if options.revision is not None and options.revision != str(record.revision):
            message = (
                f"the ResourceVersion in the precondition ({options.revision}) does not match the "
                f"ResourceVersion in record ({record.revision}). The object might have been modified"
            )
            raise conflict(singular_kind(type_), record.name, message)

    def _set_propagation(self, type_: ResourceType, record: Record, meta: Json, options: DeleteOptions) -> None:
        """Add the finalizer of a deletion's propagation policy (foreground or orphan), which the garbage collector
        removes.

        Without dependents the policy has no effect, so no finalizer is added.
        """
        finalizers = [item for item in sequence(meta.get("finalizers")) if item not in (ORPHAN, FOREGROUND)]
        had = [item for item in sequence(meta.get("finalizers")) if item in (ORPHAN, FOREGROUND)]
        policy = options.propagation
        if policy is None and had:
            return
        if policy is None and type_.strategy.orphans_by_default:
            policy = "Orphan"
        if self.store.by_owner.get(record.uid):
            if policy == "Orphan":
                finalizers.append(ORPHAN)
            elif policy == "Foreground":
                finalizers.append(FOREGROUND)
        if finalizers:
            meta["finalizers"] = finalizers
        else:
            meta.pop("finalizers", None)

    def _mark(self, type_: ResourceType, record: Record, obj: Json, grace: int, write: Write) -> Record:
        meta = metadata(obj)
        meta["deletionTimestamp"] = timestamp(self.clock.now() + grace)
        meta["deletionGracePeriodSeconds"] = grace
        if type_.storage == NAMESPACES:
            mapping(obj.setdefault("status", {}))["phase"] = "Terminating"
        return self.save(type_, record, obj, record.load(), write)

    # --- shared

    def admit(
        self,
        operation: str,
        version: Version,
        obj: Json | None,
        old: Json | None,
        write: Write,
        *,
        of: tuple[str, str, str],
    ) -> None:
        """Call the admission policies, then the validating webhooks, for a write. Raise their rejection."""
        if self.policies is not None:
            self.policies.admit(operation, version, obj, old, write, of=of)
        if self.webhooks is not None:
            self.webhooks.validate(operation, version, obj, old, write, of=of)

    def _mutated_new(self, version: Version, namespace: str, obj: Json, write: Write) -> Json:
        assert self.webhooks is not None
        meta = metadata(obj)
        if version.type.namespaced:
            meta.setdefault("namespace", namespace)
        of = (namespace, text(meta.get("name")), "")
        return self.webhooks.mutate("CREATE", version, obj, None, write, of=of)

    def _validate(self, version: Version, obj: Json, old: Json | None, subresource: str, write: Write) -> None:
        from phalanx_local.validation import validate

        type_ = version.type
        causes: list[StatusCause] = list(object_meta.require_name(metadata(obj)))
        if not causes:
            named = {"kind": type_.kind, "apiVersion": version.api_version, **obj}
            # Upstream checks the metadata of definitions like that of custom resources: its own finalizer on
            # definitions would violate the stricter rules of the other built-in kinds.
            kind = "" if type_.group == "apiextensions.k8s.io" else type_.kind
            causes += validate(type_.group, kind, named, old, subresource)
            causes += type_.strategy.check(obj, old, subresource)
        if old is not None:
            causes += object_meta.check_deleting(metadata(obj), metadata(old))
        if version.schema is not None:
            causes += version.schema.validate(obj, old)
        if causes:
            raise invalid(type_, text(metadata(obj).get("name")), causes)

    def _unsaved(self, collection: Collection, obj: Json, revision: str) -> Record:
        if revision:
            metadata(obj)["resourceVersion"] = revision
        return make_record(collection, obj, int(revision or 0))


def to_stored_version(version: Version, obj: Json) -> None:
    """Convert a custom resource from its request version to the stored version, in place."""
    schema = version.type.stored_schema
    if schema is not None and version.name != version.type.stored_version:
        schema.prune(obj)
        schema.default(obj)


def stored_mismatch(type_: ResourceType, record: Record, what: str, asked: str, found: str) -> StatusError:
    """Return the 409 of the storage layer for a failed precondition; it names the storage key."""
    parts = ["registry", type_.group, type_.plural, record.namespace, record.name]
    key = "/" + "/".join(part for part in parts if part)
    message = (
        f"StorageError: invalid object, Code: 4, Key: {key}, ResourceVersion: 0, AdditionalErrorMsg: "
        f"Precondition failed: {what} in precondition: {asked}, {what} in object meta: {found}"
    )
    return conflict(type_, record.name, message)


class _Named(NamedTuple):
    """Resource under another name in some error messages."""

    group: str
    plural: str
    kind: str


def plural_kind(type_: ResourceType) -> _Named:
    """Return the resource to name in errors, with `leases.coordination.k8s.io` instead of
    `Lease.coordination.k8s.io`."""
    return _Named(type_.group, type_.plural, type_.plural)


def singular_kind(type_: ResourceType) -> _Named:
    """Return the resource to name in errors, with `ConfigMap` instead of `configmaps`."""
    return _Named(type_.group, type_.kind, type_.kind)


def _has_spec_finalizers(type_: ResourceType, obj: Json) -> bool:
    """Return whether the object is a namespace whose spec.finalizers is not empty."""
    return type_.storage == NAMESPACES and bool(sequence(mapping(obj.get("spec")).get("finalizers")))


def is_released(type_: ResourceType, obj: Json) -> bool:
    """Return whether a terminating object can be removed: it has no finalizers and no grace period left."""
    meta = metadata(obj)
    if sequence(meta.get("finalizers")) or _has_spec_finalizers(type_, obj):
        return False
    return not meta.get("deletionGracePeriodSeconds")
