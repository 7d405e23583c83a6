"""The native gang API: Workload and PodGroup of scheduling.k8s.io, in the shape of the served version.

v1alpha2 (1.36) keeps the whole spec; v1beta1 (1.37) lets only gang.minCount change.
"""

from __future__ import annotations

from typing import Final

from phalanx.local.errors import FieldCause, forbidden, required, wrong_value
from phalanx.local.objects import Json, clone, mapping, metadata, sequence, text
from phalanx.local.strategies.base import SpecStrategy, Write
from phalanx.local.strategies.priority import admit_priority

PROTECTION: Final = "scheduling.k8s.io/podgroup-protection"


class _PodGroups:
    group: Final = "scheduling.k8s.io"
    plural: Final = "podgroups"
    kind: Final = "PodGroup"


class WorkloadTemplateStrategy(SpecStrategy):
    """scheduling.k8s.io Workload: templates never change; controllerRef is set once."""

    def check(self, obj: Json, old: Json | None, subresource: str) -> list[FieldCause]:
        spec = mapping(obj.get("spec"))
        templates = sequence(spec.get("podGroupTemplates"))
        causes: list[FieldCause] = []
        if not 1 <= len(templates) <= 8 and not spec.get("compositePodGroupTemplates"):
            causes.append(required("spec.podGroupTemplates", "between 1 and 8 templates"))
        for index, template in enumerate(templates):
            path = f"spec.podGroupTemplates[{index}]"
            if not text(mapping(template).get("name")):
                causes.append(required(f"{path}.name"))
            policy = mapping(mapping(template).get("schedulingPolicy"))
            causes += _check_policy(policy, f"{path}.schedulingPolicy")
        if old is not None:
            before = mapping(old.get("spec"))
            if before.get("podGroupTemplates") != spec.get("podGroupTemplates"):
                causes.append(wrong_value("spec.podGroupTemplates", templates, "field is immutable"))
            if before.get("controllerRef") and before["controllerRef"] != spec.get("controllerRef"):
                causes.append(wrong_value("spec.controllerRef", spec.get("controllerRef"), "field is immutable"))
        return causes


class PodGroupStrategy(SpecStrategy):
    """scheduling.k8s.io PodGroup. `protect` adds the finalizer that the real server adds at create."""

    def __init__(self, version: str, *, protect: bool) -> None:
        self._alpha = version == "v1alpha2"
        self._protect = protect

    def prepare_create(self, obj: Json, write: Write) -> None:
        spec = obj.setdefault("spec", {})
        if not isinstance(spec, dict):
            return
        if self._alpha:
            spec.setdefault("disruptionMode", "Pod")
        else:
            spec.setdefault("disruptionMode", {"single": {}})
        self._admit_template(obj, spec, write)
        admit_priority(obj, write, _PodGroups())
        if self._protect:
            finalizers = metadata(obj).setdefault("finalizers", [])
            if isinstance(finalizers, list) and PROTECTION not in finalizers:
                finalizers.append(PROTECTION)

    def _admit_template(self, obj: Json, spec: Json, write: Write) -> None:
        meta = metadata(obj)
        if self._alpha:
            reference = mapping(mapping(spec.get("podGroupTemplateRef")).get("workload"))
            template_key = "podGroupTemplateName"
        else:
            reference = mapping(spec.get("workloadRef"))
            template_key = "templateName"
        if not reference:
            return
        name, namespace = text(meta.get("name")), text(meta.get("namespace"))
        wanted, template = text(reference.get("workloadName")), text(reference.get(template_key))
        workload = write.cluster.find("scheduling.k8s.io", "workloads", namespace, wanted)
        if workload is None:
            raise forbidden(_PodGroups(), name, f'workload "{wanted}" does not exist')
        if "deletionTimestamp" in metadata(workload):
            raise forbidden(_PodGroups(), name, f'workload "{wanted}" is being deleted')
        templates = sequence(mapping(workload.get("spec")).get("podGroupTemplates"))
        if template not in [mapping(item).get("name") for item in templates]:
            raise forbidden(_PodGroups(), name, f'workload "{wanted}" has no template "{template}"')

    def check(self, obj: Json, old: Json | None, subresource: str) -> list[FieldCause]:
        if subresource:
            return []
        spec = mapping(obj.get("spec"))
        causes = _check_policy(mapping(spec.get("schedulingPolicy")), "spec.schedulingPolicy")
        topology = sequence(mapping(spec.get("schedulingConstraints")).get("topology"))
        if len(topology) > 1:
            text_ = "Too many: must have at most 1 item"
            causes.append(FieldCause("spec.schedulingConstraints.topology", "FieldValueTooMany", text_))
        if old is not None and self._frozen(spec) != self._frozen(mapping(old.get("spec"))):
            causes.append(wrong_value("spec", spec, "field is immutable"))
        return causes

    def _frozen(self, spec: Json) -> Json:
        kept = clone(spec)
        if not self._alpha:
            mapping(mapping(kept.get("schedulingPolicy")).get("gang")).pop("minCount", None)
        return kept


def _check_policy(policy: Json, path: str) -> list[FieldCause]:
    chosen = [key for key in ("basic", "gang") if policy.get(key) is not None]
    if len(chosen) != 1:
        return [wrong_value(path, policy, "must specify exactly one of: `basic`, `gang`")]
    if chosen == ["gang"]:
        count = mapping(policy["gang"]).get("minCount")
        if not isinstance(count, int) or count < 1:
            return [wrong_value(f"{path}.gang.minCount", count, "must be greater than or equal to 1")]
    return []
