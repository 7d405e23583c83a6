"""Warnings about protection from eviction that the policy or queue ignores."""

from __future__ import annotations

from collections.abc import Iterable

from phalanx.cluster.pods.records import PodRecord
from phalanx.cluster.state import ClusterState
from phalanx.dialects.pods.decoder import PREEMPTIBLE
from phalanx.dialects.pods.evictability import COOLDOWN, PREEMPTABLE
from phalanx.dialects.warnings import ObjectRef, ObjectWarning, group_ref, pod_ref
from phalanx.model.account import SelfProtection
from phalanx.model.decisions import Bind
from phalanx.scheduling.preemption.rules.self_protection import protection_rule


def ignored_protection(state: ClusterState, binds: Iterable[Bind], default: SelfProtection) -> list[ObjectWarning]:
    """Return one warning per pod or PodGroup that is bound now and whose protection from eviction has no effect at
    all.

    Protection with a limited effect depends on the preemptor: its warning is part of the eviction.
    """
    found: dict[ObjectRef, ObjectWarning] = {}
    for bind in binds:
        record = state.pods.get(bind.uid)
        if record is None or record.charge_path is None or not (words := _words(record)):
            continue
        rule = protection_rule(record.charge_path, default)
        if rule.reach is SelfProtection.NONE:
            about, subject = told_about(record)
            said = " and ".join(words) + (" has" if len(words) == 1 else " have")
            message = f"{said} no effect on {subject}: {rule.word} lets no pod protect itself"
            found.setdefault(about, ObjectWarning(about, "Warning", "SelfProtectionIgnored", message))
    return list(found.values())


def _words(record: PodRecord) -> list[str]:
    pod, gang = record.pod, record.gang
    marked = not pod.preemptable or (gang is not None and gang.spec is not None and not gang.spec.preemptable)
    said = ((PREEMPTABLE, marked), (COOLDOWN, pod.cooldown > 0), (PREEMPTIBLE, pod.firm))
    return [key for key, stated in said if stated]


def told_about(record: PodRecord) -> tuple[ObjectRef, str]:
    """Return the object to warn about protection, which is the pod's PodGroup or else the pod, with its name in
    messages."""
    pod, gang = record.pod, record.gang
    if gang is not None and gang.spec is not None and gang.spec.source is not None:
        return group_ref(gang.spec.source), f"the members of gang {gang.title}"
    return pod_ref(pod.namespace, pod.name, pod.uid), f"pod {pod.key}"
