"""Applications whose pods' labels say all that is known: Spark, Flink, Dask, and task groups of YuniKorn."""

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
    """The driver creates the executors once it runs: a gang of one at first, whose further members are surplus."""
    labels = pod.metadata.labels
    app, role = labels.get(SPARK_APP, ""), labels.get(SPARK_ROLE, "")
    if not app or role not in SPARK_ROLES:
        return None
    return Membership(f"spark:{app}", f"Spark application {app}", role, Stated(f"label {SPARK_ROLE}", "1"))


def _flink(pod: PodObject) -> Membership | None:
    """Task managers are asked for as they are needed: together only where their annotation says how many."""
    labels = pod.metadata.labels
    cluster = labels.get("app", "")
    if labels.get("type") != "flink-native-kubernetes" or labels.get("component") != "taskmanager" or not cluster:
        return None
    return Membership(f"flink:{cluster}", f"Flink cluster {cluster}", "taskmanager")


def _dask(pod: PodObject) -> Membership | None:
    """Workers are independent: together only where their annotation says how many."""
    labels = pod.metadata.labels
    cluster = labels.get("dask.org/cluster-name", "")
    if not cluster:
        return None
    return Membership(f"dask:{cluster}", f"Dask cluster {cluster}", labels.get("dask.org/component", ""))


_TASK_GROUP, _TASK_GROUPS = "yunikorn.apache.org/task-group-name", "yunikorn.apache.org/task-groups"


def _yunikorn(pod: PodObject) -> Membership | None:
    """A gang for each task group whose size the pod knows: another group may be created by this one's pods."""
    labels, annotations = pod.metadata.labels, pod.metadata.annotations
    app = labels.get("applicationId") or labels.get("yunikorn.apache.org/app-id", "")
    group = annotations.get(_TASK_GROUP, "")
    least = _task_groups(annotations.get(_TASK_GROUPS, "")).get(group) if app and group else None
    if least is None:
        return None
    name = f"YuniKorn application {app}"
    return Membership(f"yunikorn:{app}/{group}", name, group, Stated(f"annotation {_TASK_GROUPS}", str(least)))


def _task_groups(text: str) -> dict[str, int]:
    """The minimum of each task group by its name; what cannot be read is none."""
    try:
        stated = msgspec.json.decode(text)
    except msgspec.DecodeError:
        return {}
    return {
        str(each["name"]): each["minMember"]
        for each in (stated if isinstance(stated, list) else ())
        if isinstance(each, Mapping) and each.get("name") and is_whole(least := each.get("minMember"))
        if 1 <= least <= MAX_WHOLE
    }


SPARK = WorkloadRule("Spark", _spark, labels=(SPARK_APP,))
YUNIKORN = WorkloadRule("YuniKorn", _yunikorn, annotations=(_TASK_GROUP,))
FLINK = WorkloadRule("Flink", _flink, labels=("type",))
DASK = WorkloadRule("Dask", _dask, labels=("dask.org/cluster-name",))
