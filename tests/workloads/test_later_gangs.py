"""Pods that their owner creates only when other pods run, without a PodGroup: gangs of their own that find
room.
"""

from __future__ import annotations

from typing import Any

import pytest

from phalanx.model.gang import MOST_EXPECTED
from tests.dialects.objects import container
from tests.workloads.played import JOBSET, LWS, Played
from tests.workloads.test_jobsets import created, part
from tests.workloads.test_leader_workers import member
from tests.workloads.test_training import KEY, MPI, mpi_pod


def template(cpu: int = 1) -> dict[str, Any]:
    return {"spec": {"containers": [container(cpu=cpu)]}}


def other(play: Played) -> bool:
    """Return whether a foreign pod finds room."""
    return "other" in play.create("other").run().placed()


@pytest.mark.parametrize("launcher", [1, 2])
def test_workers_start_where_their_launcher_has_room_too(launcher: int) -> None:
    specs = {"Launcher": {"replicas": 1, "template": template(launcher)}, "Worker": {"replicas": 2}}
    play = Played().room(1 + launcher)
    play.owner(MPI, "t", mpiReplicaSpecs=specs, launcherCreationPolicy="WaitForWorkersReady")
    mpi_pod(play, "w0", "worker").run()
    mpi_pod(play, "w1", "worker").run()
    assert play.placed() == []
    play.room(2 + launcher).run()
    assert play.placed() == ["w0", "w1"]
    assert not other(play)
    assert "launcher" in mpi_pod(play, "launcher", "launcher").run().placed()
    # The room reserved for it is its own now, or free.
    assert ("other" in play.placed()) == (launcher == 2)


def test_a_launcher_that_asks_for_nothing_needs_no_room() -> None:
    specs = {"Launcher": {"replicas": 1, "template": {"spec": {"containers": [{}]}}}, "Worker": {"replicas": 2}}
    play = Played().room(2).owner(MPI, "t", mpiReplicaSpecs=specs, launcherCreationPolicy="WaitForWorkersReady")
    mpi_pod(play, "w0", "worker").run()
    assert mpi_pod(play, "w1", "worker").run().placed() == ["w0", "w1"]


def test_leaders_start_where_their_workers_have_room_too_and_do_not_take_it_from_each_other() -> None:
    """With ten leaders at once none would have a worker."""
    play = Played().room(9)
    worker = {"size": 4, "workerTemplate": template()}
    play.owner(LWS, "serve", replicas=3, startupPolicy="LeaderReady", leaderWorkerTemplate=worker)
    for group in range(3):
        member(play, group, 0)
    play.run()
    assert len(play.placed()) == 2
    started = [name for name in play.placed() if name.startswith("serve")]
    for name in started:
        for number in (1, 2, 3):
            member(play, int(name.split("-")[1]), number)
            play.run()
    assert len(play.placed()) == 8
    assert all(play.placed(name) for name in started)


def test_job_set_parts_created_when_earlier_ones_are_ready_find_room() -> None:
    ps, workers = part("ps", 2), part("w", 2, after="ps", status="Ready")
    workers["template"]["spec"]["template"] = template()
    play = Played().room(3).owner(JOBSET, "js", replicatedJobs=[ps, workers])
    created(play, "ps", 2).run()
    assert play.placed() == []
    play.room(4).run()
    assert len(play.placed()) == 2
    assert not other(play)
    status = {"replicatedJobsStatus": [{"name": "ps", "ready": 1}]}
    play.owner(JOBSET, "js", replicatedJobs=[ps, workers], status=status)
    created(play, "w", 2).run()
    assert len(play.placed()) == 4


def test_job_set_parts_created_after_earlier_ones_complete_need_no_reserved_room() -> None:
    ps, workers = part("ps", 2), part("w", 2, after="ps", status="Complete")
    workers["template"]["spec"]["template"] = template()
    play = Played().room(2).owner(JOBSET, "js", replicatedJobs=[ps, workers])
    assert len(created(play, "ps", 2).run().placed()) == 2


def test_owner_seen_after_its_pods_declares_the_same_gang() -> None:
    """The first pod of a kind starts the watch of its owners."""
    play = Played().room(9)
    for group in range(3):
        member(play, group, 0)
    assert play.run().placed() == []
    worker = {"size": 4, "workerTemplate": template()}
    play.owner(LWS, "serve", replicas=3, startupPolicy="LeaderReady", leaderWorkerTemplate=worker)
    assert len(play.run().placed()) == 2


def test_owner_that_opts_out_reserves_no_room() -> None:
    """An autoscaler creates nodes only for existing pods."""
    specs = {"Launcher": {"replicas": 1, "template": template()}, "Worker": {"replicas": 2}}
    play = Played().room(2).owner(MPI, "t", mpiReplicaSpecs=specs, launcherCreationPolicy="WaitForWorkersReady")
    labels = {f"{KEY}job-name": "t", f"{KEY}job-role": "worker", f"{KEY}operator-name": "mpi-operator"}
    for name in ("w0", "w1"):
        annotations = {"phalanx.dev/expected-members": "none"}
        play.create(name, of="kubeflow.org/v2beta1/MPIJob/t", labels=labels, annotations=annotations).run()
    assert play.placed() == ["w0", "w1"]


def test_no_number_that_a_tenant_writes_makes_more_placeholders_than_there_may_be() -> None:
    play = Played().room(9)
    worker = {"size": 20_000, "workerTemplate": template()}
    play.owner(LWS, "serve", replicas=1, startupPolicy="LeaderReady", leaderWorkerTemplate=worker)
    member(play, 0, 0, size=20_000)
    assert len(play.state.pods.placeholders) == MOST_EXPECTED
