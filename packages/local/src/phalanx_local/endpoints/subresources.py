"""Subresources with their own logic: binding, eviction, scale, finalize; and delete options."""

from __future__ import annotations

from dataclasses import replace
from typing import Final, NamedTuple

from phalanx.model.matching import all_hold
from phalanx_local.errors import (
    bad_request,
    conflict,
    internal,
    invalid,
    invalid_options,
    nameless,
    too_many_requests,
    unsupported_value,
    wrong_value,
)
from phalanx_local.objects import Json, dig, mapping, metadata, sequence, text
from phalanx_local.registry.api import Api, DeleteOptions, stored_mismatch
from phalanx_local.registry.managed_fields import tracked
from phalanx_local.registry.object_meta import check_names
from phalanx_local.registry.resources import ResourceType, ScalePaths, Version
from phalanx_local.registry.selectors import selector_from_object
from phalanx_local.storage.records import Record
from phalanx_local.strategies.base import Write
from phalanx_local.strategies.pods import TERMINAL

SUCCESS: Final[Json] = {
    "kind": "Status",
    "apiVersion": "v1",
    "metadata": {},
    "status": "Success",
    "code": 201,
}


class _Named(NamedTuple):
    """Resource under another name in error messages."""

    group: str
    plural: str
    kind: str


_POD_BINDING: Final = _Named("", "pods/binding", "Binding")
_SCALE: Final = _Named("autoscaling", "scales", "Scale")


def bind(api: Api, version: Version, namespace: str, name: str, binding: Json, write: Write) -> Json:
    """Bind a pod to a node. Raise 409 unless the pod is unbound and has the given uid."""
    type_ = version.type
    target, given = mapping(binding.get("target")), metadata(binding)
    _require_request(binding, "Binding", name, namespace)
    if target.get("kind") not in ("Node", "", None):
        cause = unsupported_value("target.kind", target["kind"], ("Node", "<empty>"))
        raise nameless(500, f"{cause.field}: {cause.message}")
    node = text(target.get("name"))
    if not node:
        raise nameless(500, "target.name: Required value")
    record = api.record(type_, namespace, name)
    uid, revision = text(given.get("uid")), text(given.get("resourceVersion"))
    if uid and uid != record.uid:
        raise stored_mismatch(type_, record, "UID", uid, record.uid)
    if revision and revision != str(record.revision):
        raise stored_mismatch(type_, record, "ResourceVersion", revision, str(record.revision))
    old = record.load()
    spec = mapping(old.get("spec"))
    if record.terminating:
        raise conflict(_POD_BINDING, name, f"pod {name} is being deleted, cannot be assigned to a host")
    if spec.get("nodeName"):
        raise conflict(_POD_BINDING, name, f'pod {name} is already assigned to node "{spec["nodeName"]}"')
    if spec.get("schedulingGates"):
        raise conflict(_POD_BINDING, name, f"pod {name} has non-empty .spec.schedulingGates")
    new = record.load()
    new["spec"]["nodeName"] = node
    for part in ("annotations", "labels"):
        copied = mapping(given.get(part))
        if copied:
            metadata(new).setdefault(part, {}).update(copied)
    status = mapping(new.setdefault("status", {}))
    status.pop("nominatedNodeName", None)
    set_condition(status, {"type": "PodScheduled", "status": "True"}, write.now, probe=True)
    new = tracked(old, new, version, write, "binding")
    api.save(type_, record, new, old, write, counts=False)
    return SUCCESS


def _require_request(body: Json, kind: str, name: str, namespace: str) -> None:
    """Raise 400 if the body of a request to a pod's subresource has another kind or names another pod."""
    body_kind = body.get("kind")
    if body_kind and body_kind != kind:
        raise bad_request(f'{body_kind} in version "v1" cannot be handled as a {kind}: unknown conversion')
    meta = metadata(body)
    if meta.get("name") != name:
        raise bad_request(f"name in URL does not match name in {kind} object")
    if meta.get("namespace") not in (None, "", namespace):
        raise bad_request("the namespace of the provided object does not match the namespace sent on the request")


def set_condition(status: Json, condition: Json, now: str, *, probe: bool = False) -> None:
    """Set a condition in status.conditions by type; lastTransitionTime changes only with the condition's status."""
    conditions = status.setdefault("conditions", [])
    for index, item in enumerate(conditions):
        if mapping(item).get("type") == condition["type"]:
            same = item.get("status") == condition["status"]
            since = item.get("lastTransitionTime") if same else None
            conditions[index] = _stamped(condition, since or now, probe)
            return
    conditions.append(_stamped(condition, now, probe))


def _stamped(condition: Json, since: str, probe: bool) -> Json:
    stamped = {**condition, "lastTransitionTime": since}
    if probe:
        stamped["lastProbeTime"] = None
    return stamped


def evict(api: Api, version: Version, namespace: str, name: str, eviction: Json, write: Write) -> Json:
    """Delete a pod if its PodDisruptionBudget allows it. Raise 429 if not, 500 if several budgets match the pod."""
    type_ = version.type
    _require_request(eviction, "Eviction", name, namespace)
    record = api.record(type_, namespace, name)
    options = parse_delete_options(mapping(eviction.get("deleteOptions")), write)
    pod = record.load()
    phase = dig(pod, "status", "phase")
    if phase not in (*TERMINAL, "Pending") and not record.terminating:
        _charge_budget(api, namespace, name, record, pod, write)
    if not write.dry_run:
        api.check_preconditions(type_, record, options)
        record = _announce_eviction(api, type_, record, write)
        options = replace(options, revision=None)
    api.delete(type_, record, options, write)
    return SUCCESS


def _announce_eviction(api: Api, type_: ResourceType, record: Record, write: Write) -> Record:
    """Set the DisruptionTarget condition of a pod before its eviction, so that its controller counts no failure."""
    new = record.load()
    condition = {
        "type": "DisruptionTarget",
        "status": "True",
        "reason": "EvictionByEvictionAPI",
        "message": "Eviction API: evicting",
    }
    set_condition(mapping(new.setdefault("status", {})), condition, write.now)
    return api.save(type_, record, new, record.load(), write)


def _charge_budget(api: Api, namespace: str, name: str, record: Record, pod: Json, write: Write) -> None:
    budgets = api.type("policy", "poddisruptionbudgets")
    matching = []
    for budget in api.all("policy", "poddisruptionbudgets", namespace):
        selector = selector_from_object(dig(budget, "spec", "selector"))
        if selector is not None and all_hold(selector, record.labels):
            matching.append(budget)
    if not matching:
        return
    if len(matching) > 1:
        raise internal(
            "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support."
        )
    budget_name = text(metadata(matching[0]).get("name"))
    budget_record = api.record(budgets, namespace, budget_name)
    old = budget_record.load()
    spec, status = mapping(old.get("spec")), mapping(old.get("status"))
    ready = _is_ready(pod)
    healthy, desired = int(status.get("currentHealthy", 0)), int(status.get("desiredHealthy", 0))
    if not ready:
        always = spec.get("unhealthyPodEvictionPolicy") == "AlwaysAllow"
        if always or (healthy >= desired and desired > 0):
            return
    message = "Cannot evict pod as it would violate the pod's disruption budget."
    if int(status.get("observedGeneration", 0)) < int(metadata(old).get("generation", 0)):
        why = f"The disruption budget {budget_name} is still being processed by the server."
        cause = {"reason": "DisruptionBudget", "message": why}
        raise too_many_requests(message, 10, [cause])
    allowed = int(status.get("disruptionsAllowed", 0))
    if allowed <= 0:
        why = f"The disruption budget {budget_name} needs {desired} healthy pods and has {healthy} currently"
        raise too_many_requests(message, 0, [{"reason": "DisruptionBudget", "message": why}])
    if write.dry_run:
        return
    new = budget_record.load()
    charged = mapping(new.setdefault("status", {}))
    charged["disruptionsAllowed"] = allowed - 1
    charged.setdefault("disruptedPods", {})[name] = write.now
    api.save(budgets, budget_record, new, old, write)


def _is_ready(pod: Json) -> bool:
    return any(
        mapping(item).get("type") == "Ready" and mapping(item).get("status") == "True"
        for item in sequence(dig(pod, "status", "conditions"))
    )


def parse_delete_options(body: Json, write: Write) -> DeleteOptions:
    """Parse a metav1.DeleteOptions. A dry run in the body (kubectl sends it there) makes the write a dry run.

    Raises 422 for an invalid propagation policy or dry run.
    """
    dry_run = body.get("dryRun") or []
    if dry_run:
        if dry_run != ["All"]:
            raise invalid_options("DeleteOptions", unsupported_value("dryRun", dry_run, ("All",)))
        write.dry_run = True
    preconditions = mapping(body.get("preconditions"))
    propagation = body.get("propagationPolicy")
    if propagation not in (None, "Background", "Foreground", "Orphan"):
        supported = ("Foreground", "Background", "Orphan", "nil")
        raise invalid_options("DeleteOptions", unsupported_value("propagationPolicy", propagation, supported))
    if propagation is not None and body.get("orphanDependents") is not None:
        why = "orphanDependents and deletionPropagation cannot be both set"
        raise invalid_options("DeleteOptions", wrong_value("propagationPolicy", propagation, why))
    if propagation is None and isinstance(body.get("orphanDependents"), bool):
        propagation = "Orphan" if body["orphanDependents"] else "Background"
    grace = body.get("gracePeriodSeconds")
    return DeleteOptions(
        grace_period=grace if isinstance(grace, int) else None,
        uid=preconditions.get("uid"),
        revision=preconditions.get("resourceVersion"),
        propagation=propagation,
    )


def scale_of(record: Record, version: Version) -> Json:
    """Return the autoscaling/v1 Scale of an object with replicas."""
    obj = record.load()
    paths = version.scale or ScalePaths()
    meta = metadata(obj)
    fields = ("name", "namespace", "uid", "resourceVersion", "creationTimestamp")
    status: Json = {"replicas": _number(obj, paths.status_replicas)}
    selector = _selector_text(obj, version, paths)
    if selector:
        status["selector"] = selector
    return {
        "kind": "Scale",
        "apiVersion": "autoscaling/v1",
        "metadata": {key: meta[key] for key in fields if key in meta},
        "spec": {"replicas": _number(obj, paths.replicas)},
        "status": status,
    }


def rescale(api: Api, version: Version, record: Record, scale: Json, write: Write) -> Record:
    """Write the replicas of a Scale to the scaled object. Raise 422 for an invalid number."""
    check_names(scale, record.name, record.namespace)
    replicas = dig(scale, "spec", "replicas")
    replicas = 0 if replicas is None else replicas
    if not isinstance(replicas, int) or replicas < 0:
        cause = wrong_value("spec.replicas", replicas, "must be greater than or equal to 0")
        raise invalid(_SCALE, record.name, [cause])
    from phalanx_local.storage.records import view

    obj = view(record, version)
    holder = obj
    *parents, last = (version.scale or ScalePaths()).replicas.split(".")
    for key in parents:
        holder = holder.setdefault(key, {})
    holder[last] = replicas
    given = metadata(scale)
    for key in ("resourceVersion", "uid"):
        if given.get(key):
            metadata(obj)[key] = given[key]
    named = {**scale, "kind": "Scale", "apiVersion": "autoscaling/v1"}
    of = (record.namespace, record.name, "scale")
    api.admit("UPDATE", version, named, scale_of(record, version), write, of=of)
    return api.replace(version, record, obj, write, admitted=True)


def _number(obj: Json, path: str) -> int:
    value = dig(obj, *path.split("."))
    return value if isinstance(value, int) else 0


def _selector_text(obj: Json, version: Version, paths: ScalePaths) -> str:
    if version.type.custom:
        return text(dig(obj, *paths.selector.split("."))) if paths.selector else ""
    selector = dig(obj, "spec", "selector")
    labels = mapping(selector)
    if "matchLabels" in labels or "matchExpressions" in labels:
        labels = mapping(labels.get("matchLabels"))
    return ",".join(f"{key}={value}" for key, value in sorted(labels.items()))


def finalize_namespace(api: Api, version: Version, name: str, body: Json, write: Write) -> Record:
    """Replace a namespace's spec.finalizers; a terminating namespace without finalizers is removed."""
    type_: ResourceType = version.type
    check_names(body, name, "")
    record = api.record(type_, "", name)
    uid = text(metadata(body).get("uid"))
    if uid and uid != record.uid:
        raise stored_mismatch(type_, record, "UID", uid, record.uid)
    old, new = record.load(), record.load()
    new["spec"] = {**mapping(new.get("spec")), "finalizers": sequence(dig(body, "spec", "finalizers"))}
    return api.save(type_, record, new, old, write)
