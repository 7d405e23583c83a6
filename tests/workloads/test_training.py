"""Training jobs of Kubeflow and MPI: all replicas together, without a wait for later pods."""

from __future__ import annotations

from typing import Any

import pytest

from phalanx.dialects.kinds import ServedKind
from tests.workloads.played import Played

KEY = "training.kubeflow.org/"
MPI = ServedKind("kubeflow.org", "v2beta1", "mpijobs", "MPIJob")

# kind -> (plural, the field of its replicas, the types in the order in which their pods are created)
KINDS = {
    "TFJob": ("tfjobs", "tfReplicaSpecs", {"PS": 1, "Worker": 2}),
    "PyTorchJob": ("pytorchjobs", "pytorchReplicaSpecs", {"Master": 1, "Worker": 2}),
    "XGBoostJob": ("xgboostjobs", "xgbReplicaSpecs", {"Master": 1, "Worker": 2}),
    "PaddleJob": ("paddlejobs", "paddleReplicaSpecs", {"Master": 1, "Worker": 2}),
    "JAXJob": ("jaxjobs", "jaxReplicaSpecs", {"Worker": 3}),
}


def made(kind: str) -> tuple[ServedKind, dict[str, Any]]:
    plural, field, types = KINDS[kind]
    return ServedKind("kubeflow.org", "v1", plural, kind), {
        field: {each: {"replicas": count} for each, count in types.items()}
    }


def pods_of(kind: str) -> list[tuple[str, str]]:
    """(name, replica type) in the order of their creation."""
    return [(f"t-{each.lower()}-{n}", each.lower()) for each, count in KINDS[kind][2].items() for n in range(count)]


def create(play: Played, kind: str, name: str, role: str) -> Played:
    labels = {
        f"{KEY}job-name": "t",
        f"{KEY}replica-type": role,
        f"{KEY}operator-name": f"{kind.lower()}-controller",
    }
    return play.create(name, of=f"kubeflow.org/v1/{kind}/t", labels=labels)


@pytest.mark.parametrize("kind", KINDS)
def test_all_replicas_start_together(kind: str) -> None:
    served, spec = made(kind)
    play = Played().room(8).owner(served, "t", **spec)
    *most, last = pods_of(kind)
    for name, role in most:
        create(play, kind, name, role)
    assert play.run().placed() == []
    assert len(create(play, kind, *last).run().placed()) == 3


def test_scheduling_policy_precedes_the_number_of_replicas() -> None:
    served, spec = made("PyTorchJob")
    play = Played().room(8).owner(served, "t", runPolicy={"schedulingPolicy": {"minAvailable": 2}}, **spec)
    create(play, "PyTorchJob", "t-master-0", "master")
    create(play, "PyTorchJob", "t-worker-0", "worker").run()
    assert len(play.placed()) == 2


def test_an_elastic_job_starts_with_its_fewest_workers() -> None:
    """Its group of upstream's would wait for all of them."""
    served, _ = made("PyTorchJob")
    play = Played().room(3)
    elastic = {"minReplicas": 2, "maxReplicas": 8}
    play.owner(served, "t", elasticPolicy=elastic, pytorchReplicaSpecs={"Worker": {"replicas": 8}})
    for number in range(8):
        create(play, "PyTorchJob", f"t-worker-{number}", "worker")
    assert len(play.run().placed()) == 3


def mpi(play: Played, **spec: Any) -> Played:
    return play.owner(MPI, "t", mpiReplicaSpecs={"Launcher": {"replicas": 1}, "Worker": {"replicas": 2}}, **spec)


def mpi_pod(play: Played, name: str, role: str) -> Played:
    labels = {f"{KEY}job-name": "t", f"{KEY}job-role": role, f"{KEY}operator-name": "mpi-operator"}
    of = "batch/v1/Job/t-launcher" if role == "launcher" else "kubeflow.org/v2beta1/MPIJob/t"
    return play.create(name, of=of, labels=labels)


def test_the_launcher_starts_with_its_workers() -> None:
    play = mpi(Played().room(8))
    mpi_pod(play, "w0", "worker")
    mpi_pod(play, "w1", "worker").run()
    assert play.placed() == []
    assert len(mpi_pod(play, "launcher", "launcher").run().placed()) == 3


def test_a_launcher_that_comes_when_all_workers_are_ready_is_not_waited_for() -> None:
    play = mpi(Played().room(8), launcherCreationPolicy="WaitForWorkersReady")
    mpi_pod(play, "w0", "worker").run()
    assert play.placed() == []
    assert play.why_of("w0").endswith("the launcher is created only after all workers are ready")
    mpi_pod(play, "w1", "worker").run()
    assert play.placed() == ["w0", "w1"]
    assert len(mpi_pod(play, "launcher", "launcher").run().placed()) == 3


def test_a_launcher_is_restarted_while_its_workers_run() -> None:
    play = mpi(Played().room(8))
    for name, role in (("w0", "worker"), ("w1", "worker"), ("launcher", "launcher")):
        mpi_pod(play, name, role)
    play.run().finishes("launcher")
    mpi_pod(play, "launcher-2", "launcher").run()
    assert "launcher-2" in play.placed()
