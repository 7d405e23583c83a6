"""All kinds of group objects, and the one door through which they become `GroupSpec`s."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from phalanx.dialects.families import kube_batch, native, scheduler_plugins, volcano
from phalanx.dialects.gangs.group_spec import GroupSpec
from phalanx.dialects.kinds import ServedKind, WantedKind
from phalanx.dialects.reader import Document
from phalanx.model.gang import Dialect, GroupRef, Problem

GROUP_RESOURCES = (
    WantedKind(native.GROUP, "podgroups", "PodGroup", ("v1beta1", "v1alpha3", "v1alpha2")),
    # From v1alpha2 on a Workload is only a template for PodGroups.
    WantedKind(native.GROUP, "workloads", "Workload", ("v1alpha1",)),
    WantedKind(scheduler_plugins.GROUP, "podgroups", "PodGroup", ("v1alpha1",)),
    WantedKind(scheduler_plugins.OLD_GROUP, "podgroups", "PodGroup", ("v1alpha1",)),
    WantedKind(volcano.GROUP, "podgroups", "PodGroup", ("v1beta1",)),
    WantedKind(kube_batch.GROUP, "podgroups", "PodGroup", ("v1alpha1",)),
    WantedKind(kube_batch.DESIGN_GROUP, "podgroups", "PodGroup", ("v1alpha1",)),
    WantedKind(kube_batch.LAST_GROUP, "podgroups", "PodGroup", ("v1alpha2",)),
)

# Which objects a pod's way of naming its group looks at first; the rest follow in the order of ANY.
_KUBE_BATCH_FAMILY = (volcano.GROUP, *kube_batch.GROUPS)
_ANY = (scheduler_plugins.GROUP, scheduler_plugins.OLD_GROUP, *_KUBE_BATCH_FAMILY, native.GROUP)
_SIGS_FIRST = (scheduler_plugins.OLD_GROUP, scheduler_plugins.GROUP)
_FIRST: Mapping[Dialect, tuple[str, ...]] = {
    Dialect.NATIVE: (native.GROUP,),
    Dialect.OWN: (native.GROUP,),
    Dialect.SIGS: _SIGS_FIRST,
    Dialect.SIGS_NAME: _SIGS_FIRST,
    Dialect.KOORDINATOR: _SIGS_FIRST,
    Dialect.KUBE_BATCH: _KUBE_BATCH_FAMILY,
    Dialect.SHADOW: _KUBE_BATCH_FAMILY,
}

_READERS: Mapping[tuple[str, str], Callable[[ServedKind, Document], GroupSpec]] = {
    (native.GROUP, "podgroups"): native.read_pod_group,
    (scheduler_plugins.GROUP, "podgroups"): scheduler_plugins.read_pod_group,
    (scheduler_plugins.OLD_GROUP, "podgroups"): scheduler_plugins.read_pod_group,
    (volcano.GROUP, "podgroups"): volcano.read_pod_group,
    (kube_batch.GROUP, "podgroups"): kube_batch.read_pod_group,
    (kube_batch.DESIGN_GROUP, "podgroups"): kube_batch.read_pod_group,
    (kube_batch.LAST_GROUP, "podgroups"): kube_batch.read_pod_group,
}


def read_group(resource: ServedKind, document: Document) -> tuple[GroupSpec, ...]:
    """What one object declares: one gang, or one per pod group of a Workload. Never raises for bad fields."""
    if resource.plural == "workloads":
        return native.read_workload(resource, document)
    return (_READERS[resource.group, resource.plural](resource, document),)


def unreadable_group(resource: ServedKind, namespace: str, name: str, uid: str, error: str) -> GroupSpec:
    """Stands for an object that could not be decoded: its gang is held, and told why.

    It may have forbidden that its members are evicted, or that some go without the others: so they are not.
    """
    ref = GroupRef(resource.group, resource.version, resource.kind, resource.plural, namespace, name, uid)
    message = f"{resource.kind} {namespace}/{name} ({resource.group}) cannot be read: {error}; apply it again"
    problem = Problem("InvalidPodGroup", message)
    return GroupSpec(ref, name, Dialect.X_K8S, unit=True, preemptable=False, problem=problem)


def preference(dialect: Dialect | None, spec: GroupSpec) -> int:
    """The rank of an object among those of one name, the best being 0 (coscheduling.md, 1.3, rule 2)."""
    first = _FIRST.get(dialect, ()) if dialect is not None else ()
    order = (*first, *(group for group in _ANY if group not in first))
    return order.index(spec.ref.group)
