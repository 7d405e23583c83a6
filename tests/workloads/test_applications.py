"""Applications that grow by themselves, and declarations on their pods."""

from __future__ import annotations

import json
from typing import Any

from phalanx.dialects.kinds import ServedKind
from tests.workloads.played import Played

POD_GANG = ServedKind("scheduler.grove.io", "v1alpha1", "podgangs", "PodGang")
MINIMUM = "phalanx.dev/min-count"


def spark(play: Played, name: str, role: str, app: str = "spark-1") -> Played:
    of = "v1/Pod/driver" if role == "executor" else ""
    return play.create(name, of=of, labels={"spark-app-selector": app, "spark-role": role})


def test_a_spark_driver_does_not_wait_for_the_executors_that_it_will_create() -> None:
    play = spark(Played().room(3), "driver", "driver").run()
    assert play.placed() == ["driver"]
    for number in range(4):
        spark(play, f"exec-{number}", "executor")
    play.run()
    assert len(play.placed("exec")) == 2
    gang = play.gang_of("exec-0")
    assert gang.key == play.gang_of("driver").key
    assert {play.state.pods[name].pod.role for name in ("driver", "exec-0")} == {"driver", "executor"}


def flink(play: Played, number: int, **annotations: str) -> Played:
    labels = {"app": "session", "type": "flink-native-kubernetes", "component": "taskmanager"}
    return play.create(f"tm-{number}", of="apps/v1/Deployment/session", labels=labels, annotations=annotations)


def test_task_managers_of_flink_are_together_only_where_they_say_so() -> None:
    assert flink(Played(), 1).alone() == ["tm-1"]
    play = flink(Played().room(4), 1, **{MINIMUM: "2"}).run()
    assert play.placed() == []
    assert len(flink(play, 2, **{MINIMUM: "2"}).run().placed()) == 2


def dask(play: Played, name: str, component: str, **annotations: str) -> Played:
    labels = {"dask.org/cluster-name": "d", "dask.org/component": component}
    return play.create(name, of=f"apps/v1/ReplicaSet/{name}-rs", labels=labels, annotations=annotations)


def test_dask_workers_are_independent_unless_they_say_how_many_start_together() -> None:
    play = dask(Played().room(1), "worker-1", "worker").run()
    assert (play.alone(), play.placed()) == (["worker-1"], ["worker-1"])
    play = dask(Played().room(4), "scheduler", "scheduler", **{MINIMUM: "2"}).run()
    assert play.placed() == []
    assert len(dask(play, "worker-1", "worker", **{MINIMUM: "2"}).run().placed()) == 2


def test_steps_of_a_workflow_are_on_their_own() -> None:
    play = Played().create(
        "step", of="argoproj.io/v1alpha1/Workflow/wf", labels={"workflows.argoproj.io/workflow": "wf"}
    )
    assert play.alone() == ["step"]


def task(play: Played, name: str, group: str, groups: Any) -> Played:
    key = "yunikorn.apache.org/task-group"
    text = groups if isinstance(groups, str) else json.dumps(groups)
    annotations = {f"{key}-name": group, **({f"{key}s": text} if groups else {})}
    return play.create(name, labels={"applicationId": "app"}, annotations=annotations)


def test_a_task_group_of_yunikorn_starts_with_its_minimum() -> None:
    groups = [{"name": "driver", "minMember": 1}, {"name": "workers", "minMember": 2}]
    play = task(Played().room(4), "driver", "driver", groups).run()
    assert play.placed() == ["driver"]
    task(play, "w1", "workers", groups).run()
    assert play.placed() == ["driver"]
    assert len(task(play, "w2", "workers", groups).run().placed()) == 3


def test_task_groups_that_cannot_be_read_make_no_gang() -> None:
    for groups in (
        "[",
        '{"name": 3}',
        [{"name": "workers", "minMember": "two"}],
        [{"name": "other", "minMember": 2}],
        "",
    ):
        assert task(Played(), "w1", "workers", groups).alone() == ["w1"]


def grove(play: Played, name: str, clique: str) -> Played:
    return play.create(
        name,
        of=f"grove.io/v1alpha1/PodClique/{clique}",
        labels={"grove.io/podgang": "g", "grove.io/podclique": clique},
    )


def test_a_pod_gang_starts_with_the_fewest_replicas_of_each_clique() -> None:
    groups = [{"name": "prefill", "minReplicas": 1}, {"name": "decode", "minReplicas": 2}]
    play = Played().room(8).owner(POD_GANG, "g", podgroups=groups)
    for number in range(3):
        grove(play, f"decode-{number}", "decode")
    assert play.run().placed() == []
    assert len(grove(play, "prefill-0", "prefill").run().placed()) == 4
