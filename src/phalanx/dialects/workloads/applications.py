"""Applications that are recognized by pod labels alone: Spark, Flink, Dask, and YuniKorn's task groups."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from phalanx.dialects.core import PodObject
from phalanx.dialects.gangs.extras import Stated
from phalanx.dialects.reader import MAX_WHOLE, is_whole
from phalanx.dialects.workloads.rule import Membership, WorkloadRule

SPARK_APP, SPARK_ROLE = "spark-app-selector", "spark-role"
SPARK_ROLES = ("driver", "executor")


def _spark(pod: PodObject) -> Membership | None:
    """Return the gang of a Spark pod: the driver alone starts, and its executors are surplus members."""
    labels = pod.metadata.labels
    app, role = labels.get(SPARK_APP, ""), labels.get(SPARK_ROLE, "")
    if not app or role not in SPARK_ROLES:
        return None
    return Membership(f"spark:{app}", f"Spark application {app}", role, Stated(f"label {SPARK_ROLE}", "1"))


def _flink(pod: PodObject) -> Membership | None:
    """Return the gang of a Flink task manager. They are requested on demand, so only an annotation sets a
    minimum."""
    labels = pod.metadata.labels
    cluster = labels.get("app", "")
    if labels.get("type") != "flink-native-kubernetes" or labels.get("component") != "taskmanager" or not cluster:
        return None
    return Membership(f"flink:{cluster}", f"Flink cluster {cluster}", "taskmanager")


def _dask(pod: PodObject) -> Membership | None:
    """Return the gang of a Dask pod. Workers are independent, so only an annotation sets a minimum."""
    labels = pod.metadata.labels
    cluster = labels.get("dask.org/cluster-name", "")
    if not cluster:
        return None
    return Membership(f"dask:{cluster}", f"Dask cluster {cluster}", labels.get("dask.org/component", ""))


_TASK_GROUP, _TASK_GROUPS = "yunikorn.apache.org/task-group-name", "yunikorn.apache.org/task-groups"


def _yunikorn(pod: PodObject) -> Membership | None:
    """Return the gang of a task group with a known size; its pods can create the other groups."""
    labels, annotations = pod.metadata.labels, pod.metadata.annotations
    app = labels.get("applicationId") or labels.get("yunikorn.apache.org/app-id", "")
    group = annotations.get(_TASK_GROUP, "")
    minimum = _task_groups(annotations.get(_TASK_GROUPS, "")).get(group) if app and group else None
    if minimum is None:
        return None
    name = f"YuniKorn application {app}"
    return Membership(f"yunikorn:{app}/{group}", name, group, Stated(f"annotation {_TASK_GROUPS}", str(minimum)))


def _task_groups(text: str) -> dict[str, int]:
    """Return the minimum of each YuniKorn task group by name; unreadable ones are skipped."""
    try:
        stated = msgspec.json.decode(text)
    except msgspec.DecodeError:
        return {}
    return {
        str(task_group["name"]): task_group["minMember"]
        for task_group in (stated if isinstance(stated, list) else ())
        if isinstance(task_group, Mapping)
        and task_group.get("name")
        and is_whole(minimum := task_group.get("minMember"))
        if 1 <= minimum <= MAX_WHOLE
    }


SPARK = WorkloadRule("Spark", _spark, labels=(SPARK_APP,))
YUNIKORN = WorkloadRule("YuniKorn", _yunikorn, annotations=(_TASK_GROUP,))
FLINK = WorkloadRule("Flink", _flink, labels=("type",))
DASK = WorkloadRule("Dask", _dask, labels=("dask.org/cluster-name",))
