"""Annotations of Volcano's task-topology plugin: `ps,worker;chief` are two sets of tasks."""

from __future__ import annotations

from phalanx.dialects.gangs.group_spec import GroupReader
from phalanx.model.tasks import TaskTopology

AFFINITY = "volcano.sh/task-topology-affinity"
ANTI_AFFINITY = "volcano.sh/task-topology-anti-affinity"
ORDER = "volcano.sh/task-topology-task-order"
_KEYS = frozenset((AFFINITY, ANTI_AFFINITY, ORDER))


def task_topology(reader: GroupReader) -> TaskTopology | None:
    """Decode the task-topology annotations of a Volcano PodGroup; None without any. They are preferences, so a set
    with a duplicate is ignored with a warning."""
    if _KEYS.isdisjoint(reader.annotations):
        return None
    affinity, anti_affinity = _sets(reader, AFFINITY), _sets(reader, ANTI_AFFINITY)
    order = next(iter(_sets(reader, ORDER)), ())
    return TaskTopology(affinity, anti_affinity, order) if affinity or anti_affinity or order else None


def _sets(reader: GroupReader, key: str) -> tuple[tuple[str, ...], ...]:
    text = reader.annotations.get(key, "")
    sets = [tuple(name.strip() for name in part.split(",") if name.strip()) for part in text.split(";")]
    if any(len(set(names)) != len(names) for names in sets):
        reader.warn(
            "InvalidAnnotation", f"annotation {key}", text, "name each task once in a set; the set is ignored"
        )
        return ()
    return tuple(names for names in sets if names)
