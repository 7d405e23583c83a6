"""Dialect of Kubernetes' own gang API, scheduling.k8s.io."""

from __future__ import annotations

from phalanx.dialects.api_groups import NATIVE, NATIVE_VERSIONS
from phalanx.dialects.core import PodObject
from phalanx.dialects.dialect import READ, AccessRule, Dialect, GroupKind
from phalanx.dialects.families.native_groups import read_pod_group, read_workload
from phalanx.dialects.families.native_status import status_of
from phalanx.dialects.gangs.extras import Stated
from phalanx.dialects.gangs.naming import NOT_FOUND, GangNaming, Precedence
from phalanx.dialects.kinds import WantedKind
from phalanx.model.gang import GangKey, GangRules, MatchPolicy, Problem

_WORKLOAD_REF = "spec.workloadRef"


def _names(pod: PodObject) -> tuple[Stated, ...]:
    group, workload = pod.spec.scheduling_group, pod.spec.workload_ref
    if group is None and workload is None:
        return ()
    names = []
    if group is not None and group.pod_group_name:
        names.append(Stated("spec.schedulingGroup.podGroupName", group.pod_group_name))
    if workload is not None and workload.name:
        parts = (workload.name, workload.pod_group, workload.pod_group_replica_key)
        names.append(Stated(_WORKLOAD_REF, "/".join(filter(None, parts))))
    return tuple(names)


def _missing(key: GangKey, place: str, native_served: bool) -> Problem:
    advice = "create it"
    if not native_served:
        advice = (
            f"this API server serves no PodGroup of {NATIVE} ({', '.join(NATIVE_VERSIONS)}); switch it on, or use "
            "the annotations phalanx.dev/pod-group and phalanx.dev/min-count"
        )
    subject = f"a Workload that declares the pod group {key}" if place == _WORKLOAD_REF else f"PodGroup {key}"
    return Problem.of(NOT_FOUND, f"waiting for {subject}", advice, waits=True)


NAMING = GangNaming(
    GangRules("native", by_native_rules=True, native=True),
    MatchPolicy.UNTIL_SCHEDULED,
    Precedence.FIELD,
    read=_names,
    objects=(NATIVE,),
    needed=True,
    missing=_missing,
)

NATIVE_DIALECT = Dialect(
    "native",
    (NAMING,),
    (
        GroupKind(
            WantedKind(NATIVE, "podgroups", "PodGroup", NATIVE_VERSIONS),
            read_pod_group,
            NAMING,
            status_of,
            strategic=True,
            says_short=False,
            says_eviction=True,
        ),
        # From v1alpha2 on, a Workload is only a template for PodGroups.
        GroupKind(
            WantedKind(NATIVE, "workloads", "Workload", ("v1alpha1",)), read_workload, NAMING, says_short=False
        ),
    ),
    access=(
        AccessRule(NATIVE, ("podgroups", "compositepodgroups", "workloads"), READ),
        AccessRule(NATIVE, ("podgroups/status", "compositepodgroups/status"), ("patch",)),
    ),
)
