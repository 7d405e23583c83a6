"""Admission rules for pods: defaults of resource groups, and annotations of disruption budgets."""

from __future__ import annotations

from typing import Any

import msgspec
import yaml

from phalanx.admission.context import AdmissionContext, ResourceGroup
from phalanx.admission.fields import Json, PatchBuilder, annotations_of, mapping, name_of, sequence, text
from phalanx.model.text.decoding import decode_json, parse_whole, quoted
from phalanx.model.text.yaml_text import decode_yaml

_BUDGETS = ("volcano.sh/jdb-min-available", "volcano.sh/jdb-max-unavailable")
_RESOURCE_GROUP = "volcano.sh/resource-group"
#: Gate that the scheduler removes once the queue has capacity for the pod; the annotation of this name requests it.
QUEUE_GATE = "scheduling.volcano.sh/queue-allocation-gate"


class ResourceGroupError(ValueError):
    """Error for an invalid configuration of resource groups; the text names the fault."""


def read_resource_groups(content: bytes) -> tuple[ResourceGroup, ...]:
    """Decode the `resourceGroups` of a file of Volcano's webhook (YAML). Raises ResourceGroupError."""
    try:
        document = decode_yaml(content)
    except yaml.YAMLError as error:
        raise ResourceGroupError(f"no YAML: {error}") from error
    entries = mapping(document or {}).get("resourceGroups")
    if document is not None and (not isinstance(document, dict) or not isinstance(entries, list | None)):
        raise ResourceGroupError("resourceGroups must be a list of resource groups")
    return tuple(_resource_group(entry, f"resourceGroups[{index}]") for index, entry in enumerate(entries or ()))


def _resource_group(entry: object, path: str) -> ResourceGroup:
    if not isinstance(entry, dict):
        raise ResourceGroupError(f"{path} must be an object with resourceGroup, object, labels, …")
    name, selector = text(entry.get("resourceGroup")), mapping(entry.get("object"))
    key, values = selector.get("key") or "", sequence(selector.get("value"))
    if key not in ("", "annotation", "namespace"):
        raise ResourceGroupError(f"{path}.object.key is {quoted(key)}; write namespace or annotation")
    notes: dict[str, str] = {}
    if key != "namespace":
        for value in values:
            try:
                read = decode_yaml(value) if isinstance(value, str) else value
            except yaml.YAMLError:
                read = None
            if not isinstance(read, dict):
                raise ResourceGroupError(f"{path}.object.value has {quoted(value)}; write 'KEY: VALUE'")
            notes.update((str(annotation), str(expected)) for annotation, expected in read.items())
        if not key and name:
            notes.setdefault(_RESOURCE_GROUP, name)
    affinity = entry.get("affinity") or None
    try:
        if isinstance(affinity, str):
            affinity = decode_json(affinity)
        return msgspec.convert(
            {
                "name": name,
                "namespaces": [str(value) for value in values] if key == "namespace" else [],
                "annotations": notes,
                "node_selector": entry.get("labels") or {},
                "affinity": affinity,
                "tolerations": entry.get("tolerations") or [],
                "scheduler_name": entry.get("schedulerName") or "",
            },
            ResourceGroup,
        )
    except msgspec.DecodeError as error:
        raise ResourceGroupError(f"{path}: {error}") from error


def defaults(document: Json, context: AdmissionContext) -> PatchBuilder:
    """Return the defaults of the first resource group that a pod belongs to, and the scheduling gate that its
    annotation requests."""
    built = PatchBuilder(document)
    notes, spec = annotations_of(document), mapping(document.get("spec"))
    gates = sequence(spec.get("schedulingGates"))
    ours = spec.get("schedulerName") in context.scheduler_names
    if (
        ours
        and notes.get(QUEUE_GATE) == "true"
        and not any(mapping(gate).get("name") == QUEUE_GATE for gate in gates)
    ):
        gate = {"name": QUEUE_GATE}
        built.add(("spec", "schedulingGates", *(("-",) if gates else ())), gate if gates else [gate])
    namespace = text(mapping(document.get("metadata")).get("namespace")) or name_of(context.namespace)
    for group in context.resource_groups:
        if namespace in group.namespaces or any(
            notes.get(key) == value for key, value in group.annotations.items()
        ):
            _fill(built, spec, group)
            break
    return built


def _fill(built: PatchBuilder, spec: Json, group: ResourceGroup) -> None:
    selector = {**mapping(spec.get("nodeSelector")), **group.node_selector}
    if selector != mapping(spec.get("nodeSelector")):
        built.add(("spec", "nodeSelector"), selector)
    if group.affinity is not None and not spec.get("affinity"):
        built.add(("spec", "affinity"), group.affinity)
    present = sequence(spec.get("tolerations"))
    added: list[Any] = [toleration for toleration in group.tolerations if toleration not in present]
    if added:
        built.add(("spec", "tolerations"), [*present, *added])
    if group.scheduler_name and spec.get("schedulerName") != group.scheduler_name:
        built.add(("spec", "schedulerName"), group.scheduler_name)


def validate(document: Json, old: Json | None, context: AdmissionContext) -> list[str]:
    """Return the reasons to deny the creation of a pod of this scheduler; pods of other schedulers and existing
    pods are allowed."""
    if old is not None or mapping(document.get("spec")).get("schedulerName") not in context.scheduler_names:
        return []
    notes = annotations_of(document)
    stated = [key for key in _BUDGETS if key in notes]
    for key in stated:
        if fault := _budget_fault(key, notes[key]):
            return [fault]
    if len(stated) > 1:
        return [f"not allow configure multiple annotations <[{' '.join(_BUDGETS)}]> at same time"]
    return []


def _budget_fault(key: str, value: object) -> str:
    stated = text(value)
    number = parse_whole(stated)
    if number is not None:
        return "" if number > 0 else f'invalid value <"{stated}"> for {key}, it must be a positive integer'
    share = parse_whole(stated.removesuffix("%")) if stated.endswith("%") else None
    if share is None:
        return f"invalid value <{quoted(stated)}> for {key}, it must be a positive integer or a percentage"
    if 0 < share < 100:
        return ""
    return f'invalid value <"{stated}"> for {key}, it must be a valid percentage which between 1% ~ 99%'
