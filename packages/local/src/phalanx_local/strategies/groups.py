"""Native gang API, scheduling.k8s.io: Workload, PodGroup, CompositePodGroup in the form of the served version.

In v1alpha2 (1.36) the spec is immutable; in v1beta1 and v1alpha3 (1.37) only gang.minCount is mutable.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from phalanx_local.errors import forbidden
from phalanx_local.objects import Json, mapping, metadata, sequence, text
from phalanx_local.strategies.base import RestStrategy, Write
from phalanx_local.strategies.priority import admit_priority

PROTECTION: Final = "scheduling.k8s.io/podgroup-protection"


class _PodGroups:
    group: Final = "scheduling.k8s.io"
    plural: Final = "podgroups"
    kind: Final = "PodGroup"


class _Composites:
    group: Final = "scheduling.k8s.io"
    plural: Final = "compositepodgroups"
    kind: Final = "CompositePodGroup"


class PodGroupStrategy(RestStrategy):
    """Strategy of native PodGroups (scheduling.k8s.io).

    `protect` adds the finalizer that the real server adds at create. Without `composites` the name of a parent is
    dropped, as with a disabled feature gate.
    """

    def __init__(self, version: str, *, protect: bool, composites: bool = False) -> None:
        self._alpha = version == "v1alpha2"
        self._composites = composites
        self._protect = protect
        # An immutable spec has no generation.
        self.counts_generation = not self._alpha

    def initial_status(self, obj: Json, write: Write) -> Json:
        return {}

    def prepare_update(self, obj: Json, old: Json, write: Write) -> None:
        self._spell(mapping(obj.get("spec")))

    def _spell(self, spec: Json) -> None:
        if self._alpha:
            spec.setdefault("podGroupTemplateRef", None)  # Go encodes the absent reference as null

    def prepare_create(self, obj: Json, write: Write) -> None:
        spec = obj.setdefault("spec", {})
        if not isinstance(spec, dict):
            return
        if not self._composites:
            spec.pop("parentCompositePodGroupName", None)
        if self._alpha:
            spec.setdefault("disruptionMode", "Pod")
        else:
            spec.setdefault("disruptionMode", {"single": {}})
        self._spell(spec)
        self._admit_template(obj, spec, write)
        admit_priority(obj, write, _PodGroups())
        if self._protect:
            finalizers = metadata(obj).setdefault("finalizers", [])
            if isinstance(finalizers, list) and PROTECTION not in finalizers:
                finalizers.append(PROTECTION)

    def _admit_template(self, obj: Json, spec: Json, write: Write) -> None:
        if self._alpha:
            reference = mapping(mapping(spec.get("podGroupTemplateRef")).get("workload"))
            wanted = reference.get("podGroupTemplateName")
        else:
            reference = mapping(spec.get("workloadRef"))
            wanted = reference.get("templateName")
        if reference:
            _admit_template(obj, _PodGroups(), text(reference.get("workloadName")), text(wanted), write)


class CompositePodGroupStrategy(RestStrategy):
    """Strategy of CompositePodGroups (scheduling.k8s.io), whose spec is immutable."""

    counts_generation = True

    def initial_status(self, obj: Json, write: Write) -> Json:
        return {}

    def prepare_create(self, obj: Json, write: Write) -> None:
        spec = obj.setdefault("spec", {})
        if not isinstance(spec, dict):
            return
        spec.setdefault("disruptionMode", {"single": {}})
        reference = mapping(spec.get("workloadRef"))
        if reference:
            wanted = text(reference.get("templateName"))
            _admit_template(obj, _Composites(), text(reference.get("workloadName")), wanted, write)
        admit_priority(obj, write, _Composites())


def _admit_template(obj: Json, kind: _PodGroups | _Composites, wanted: str, template: str, write: Write) -> None:
    """Raise 403 if the Workload template that a new PodGroup references does not exist."""
    meta, kind_name = metadata(obj), kind.kind
    name, namespace = text(meta.get("name")), text(meta.get("namespace"))
    workload = write.cluster.find("scheduling.k8s.io", "workloads", namespace, wanted)
    if workload is None:
        raise forbidden(kind, name, f'{kind_name} rejected: Workload "{wanted}" not found')
    if "deletionTimestamp" in metadata(workload):
        raise forbidden(kind, name, f'{kind_name} rejected: Workload "{wanted}" is being deleted')
    field = "podGroupTemplates" if isinstance(kind, _PodGroups) else "compositePodGroupTemplates"
    if template not in _templates(mapping(workload.get("spec")), field):
        message = f'{kind_name} rejected: {kind_name}Template "{template}" not found in Workload "{wanted}"'
        raise forbidden(kind, name, message)


def _templates(holder: Json, field: str) -> Iterator[str]:
    """Yield the names of all templates of one kind in a Workload's tree of templates."""
    for item in map(mapping, sequence(holder.get(field))):
        yield text(item.get("name"))
    for item in map(mapping, sequence(holder.get("compositePodGroupTemplates"))):
        yield from _templates(item, field)


class WorkloadTemplateStrategy(RestStrategy):
    """Strategy of Workloads (scheduling.k8s.io): templates of groups; immutable except for controllerRef, which can
    be set once.

    Without `composites` composite templates are dropped, as with a disabled feature gate.
    """

    def __init__(self, version: str, *, composites: bool = False) -> None:
        self._alpha = version == "v1alpha2"
        self._composites = composites
        self.counts_generation = not self._alpha

    def prepare_create(self, obj: Json, write: Write) -> None:
        if not self._composites:
            mapping(obj.get("spec")).pop("compositePodGroupTemplates", None)
        if self._alpha:
            for template in sequence(mapping(obj.get("spec")).get("podGroupTemplates")):
                if isinstance(template, dict):
                    template.setdefault("schedulingConstraints", None)

    def prepare_update(self, obj: Json, old: Json, write: Write) -> None:
        self.prepare_create(obj, write)
