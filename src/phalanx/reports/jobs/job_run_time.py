"""Run-time limit of a job from the objects in its namespace, without its queue's limit."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec

from phalanx.dialects.core import decode_pod
from phalanx.dialects.intake import Intake
from phalanx.dialects.kinds import ServedKind
from phalanx.dialects.registry import installed_dialects
from phalanx.dialects.run_times.owners import BY_KIND
from phalanx.model.events import PodUpdated
from phalanx.model.pod import Pod
from phalanx.reports.run_times import RunTimeEntry, run_time_of

Json = dict[str, Any]


def documented_run_time(document: Json, groups: Iterable[Json], pods: Iterable[Json]) -> RunTimeEntry | None:
    """Return the run time limits of a job's pods; None without pods."""
    intake = Intake((), dialects=installed_dialects())
    shown: dict[str, Pod] = {}
    events = []
    for pod in pods:
        try:
            events += intake.pod(decode_pod(msgspec.json.encode(pod)))
        except msgspec.DecodeError:
            continue
    for pod_group in groups:
        group, _, version = str(pod_group.get("apiVersion")).partition("/")
        kind = ServedKind(group, version, "podgroups")
        if (group, "podgroups") in intake.dialects.groups:
            events += intake.group(kind, pod_group)
    group, _, version = str(document.get("apiVersion")).partition("/")
    owner = BY_KIND.get((group, str(document.get("kind"))))
    if owner is not None:
        served = owner.wanted.served_as(version)
        events += intake.apply(intake.enrichers.updated(served, document))
    for event in events:
        if isinstance(event, PodUpdated):
            shown[event.pod.uid] = event.pod
    return run_time_of(list(shown.values()))
