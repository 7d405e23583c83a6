"""The native gang API: Workload and PodGroup of scheduling.k8s.io, in the shape of the served version.

v1alpha2 (1.36) keeps the whole spec; v1beta1 (1.37) lets only gang.minCount change.
"""

from __future__ import annotations

from typing import Final

from phalanx.local.errors import forbidden
from phalanx.local.objects import Json, mapping, metadata, sequence, text
from phalanx.local.strategies.base import Strategy, Write
from phalanx.local.strategies.priority import admit_priority, default_class

PROTECTION: Final = "scheduling.k8s.io/podgroup-protection"


class _PodGroups:
    group: Final = "scheduling.k8s.io"
    plural: Final = "podgroups"
    kind: Final = "PodGroup"


class PodGroupStrategy(Strategy):
    """scheduling.k8s.io PodGroup. `protect` adds the finalizer that the real server adds at create."""

    def __init__(self, version: str, *, protect: bool) -> None:
        self._alpha = version == "v1alpha2"
        self._protect = protect
        # A spec that never changes has no generation.
        self.counts_generation = not self._alpha

    def initial_status(self, obj: Json, write: Write) -> Json:
        return {}

    def prepare_update(self, obj: Json, old: Json, write: Write) -> None:
        self._spell(mapping(obj.get("spec")))

    def _spell(self, spec: Json) -> None:
        if self._alpha:
            spec.setdefault("podGroupTemplateRef", None)  # Go writes the absent reference as null

    def prepare_create(self, obj: Json, write: Write) -> None:
        spec = obj.setdefault("spec", {})
        if not isinstance(spec, dict):
            return
        if self._alpha:
            spec.setdefault("disruptionMode", "Pod")
        else:
            spec.setdefault("disruptionMode", {"single": {}})
        self._spell(spec)
        self._admit_template(obj, spec, write)
        if spec.get("priorityClassName") or spec.get("priority") is not None or default_class(write):
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
            raise forbidden(_PodGroups(), name, f'PodGroup rejected: Workload "{wanted}" not found')
        if "deletionTimestamp" in metadata(workload):
            raise forbidden(_PodGroups(), name, f'PodGroup rejected: Workload "{wanted}" is being deleted')
        templates = sequence(mapping(workload.get("spec")).get("podGroupTemplates"))
        if template not in [mapping(item).get("name") for item in templates]:
            why = f'PodGroup rejected: PodGroupTemplate "{template}" not found in Workload "{wanted}"'
            raise forbidden(_PodGroups(), name, why)


class WorkloadTemplateStrategy(Strategy):
    """scheduling.k8s.io Workload: templates of groups; nothing of it ever changes but controllerRef, once."""

    def __init__(self, version: str) -> None:
        self._alpha = version == "v1alpha2"
        self.counts_generation = not self._alpha

    def prepare_create(self, obj: Json, write: Write) -> None:
        if self._alpha:
            for template in sequence(mapping(obj.get("spec")).get("podGroupTemplates")):
                if isinstance(template, dict):
                    template.setdefault("schedulingConstraints", None)

    def prepare_update(self, obj: Json, old: Json, write: Write) -> None:
        self.prepare_create(obj, write)
