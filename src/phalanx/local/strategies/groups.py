"""The native gang API: Workload and PodGroup of scheduling.k8s.io, in the shape of the served version.

v1alpha2 (1.36) keeps the whole spec; v1beta1 (1.37) lets only gang.minCount change.
"""

from __future__ import annotations

from typing import Final

from phalanx.local.errors import forbidden
from phalanx.local.objects import Json, mapping, metadata, sequence, text
from phalanx.local.strategies.base import SpecStrategy, Write
from phalanx.local.strategies.priority import admit_priority

PROTECTION: Final = "scheduling.k8s.io/podgroup-protection"


class _PodGroups:
    group: Final = "scheduling.k8s.io"
    plural: Final = "podgroups"
    kind: Final = "PodGroup"


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
