"""Gangs of Kubeflow's training jobs (v1) and MPIJobs. Jobs of Trainer v2 are JobSets."""

from __future__ import annotations

from functools import partial

from phalanx.dialects.core import PodObject
from phalanx.dialects.gangs.declaration import controlling_owner
from phalanx.dialects.kinds import WantedKind
from phalanx.dialects.workloads.rule import (
    Membership,
    OwnerReader,
    WorkloadPart,
    WorkloadRule,
    WorkloadSize,
    by_owner,
    group_of,
    inner,
    one_gang,
    requests_of_template,
    tied,
    whole,
)

_GROUP = "kubeflow.org"
_LABEL = "training.kubeflow.org/"
_POLICY = "spec.runPolicy.schedulingPolicy"


def _member(kind: WantedKind, pod: PodObject) -> Membership | None:
    owner = controlling_owner(pod.metadata)
    if owner is None or owner.kind != kind.kind:
        return None
    gang = by_owner(owner.kind, owner.name, owner.uid)
    role = pod.metadata.labels.get(f"{_LABEL}replica-type", "").lower()
    return Membership(gang, f"{owner.kind} {owner.name}", role, kind=(kind.group, kind.plural))


def _sizes(kind: WantedKind, field: str, job: OwnerReader) -> tuple[WorkloadSize, ...]:
    """Return the size of a training job. An elastic PyTorchJob starts with its minimum of workers;
    `minAvailable` has precedence."""
    if job.is_over("Succeeded", "Failed"):
        return ()
    path = f"spec.{field}"
    replicas = inner(job.spec, path)
    roles = {
        role.lower(): whole(inner(replicas, f"{path}.{role}"), f"{path}.{role}.replicas", 1) for role in replicas
    }
    elastic = inner(job.spec, "spec.elasticPolicy")
    if "worker" in roles and "minReplicas" in elastic:
        roles["worker"] = min(roles["worker"], whole(elastic, "spec.elasticPolicy.minReplicas"))
    (size,) = one_gang(job, kind.kind, roles)
    stated = _min_available(job)
    if stated and not job.opts_out() and job.stated_minimum() is None:
        size = WorkloadSize(size.gang, stated, uid=job.uid)
    return (size,)


def _min_available(job: OwnerReader) -> int:
    policy = inner(inner(job.spec, "spec.runPolicy"), _POLICY)
    return whole(policy, f"{_POLICY}.minAvailable")


def _rule(kind: str, plural: str, field: str) -> WorkloadRule:
    wanted = WantedKind(_GROUP, plural, kind, ("v1",))
    return WorkloadRule(
        kind,
        partial(_member, wanted),
        controllers=((_GROUP, kind),),
        owner=wanted,
        sizes=partial(_sizes, wanted, field),
    )


_MPI = WantedKind(_GROUP, "mpijobs", "MPIJob", ("v2beta1", "v1"))


def _mpi_member(pod: PodObject) -> Membership | None:
    """Return the gang of an MPIJob's pod, by name: the launcher can belong to a Job of its own."""
    labels = pod.metadata.labels
    name = labels.get(f"{_LABEL}job-name", "")
    role = (labels.get(f"{_LABEL}job-role") or labels.get(f"{_LABEL}replica-type", "")).lower()
    owner = controlling_owner(pod.metadata)
    mpi = labels.get(f"{_LABEL}operator-name") == "mpi-operator" or (owner is not None and owner.kind == "MPIJob")
    if not mpi or not name or role not in ("launcher", "worker"):
        return None
    return Membership(f"mpijob:{name}/{role}", f"MPIJob {name}", role, kind=(_MPI.group, _MPI.plural))


def _mpi_sizes(job: OwnerReader) -> tuple[WorkloadSize, ...]:
    """Return the gang sizes of an MPIJob: launcher and workers start together, unless the launcher is created after
    them."""
    if job.is_over("Succeeded", "Failed"):
        return ()
    launcher, worker = f"mpijob:{job.name}/launcher", f"mpijob:{job.name}/worker"
    if job.opts_out():
        return (WorkloadSize(launcher), WorkloadSize(worker))
    replicas = inner(inner(job.spec, "spec.mpiReplicaSpecs"), "spec.mpiReplicaSpecs.Worker")
    workers = whole(replicas, "spec.mpiReplicaSpecs.Worker.replicas")
    stated = job.stated_minimum() or _min_available(job)
    minimum = max(1, min(workers, stated - 1) if stated else workers)
    if not workers:
        return (WorkloadSize(launcher),)
    if job.spec.get("launcherCreationPolicy") == "WaitForWorkersReady":
        later = "the launcher is created only after all workers are ready"
        parts = (WorkloadPart("worker", workers), WorkloadPart("launcher", 1, False, later))
        path = "spec.mpiReplicaSpecs.Launcher"
        requests = requests_of_template(
            inner(inner(inner(job.spec, "spec.mpiReplicaSpecs"), path), f"{path}.template")
        )
        sizes = tied(WorkloadSize(worker, minimum, later=later), WorkloadSize(launcher), 1, requests)
        return (*sizes, WorkloadSize(group_of(job.uid), parts=parts))
    return (
        WorkloadSize(launcher, gang_group=(launcher, worker)),
        WorkloadSize(worker, minimum, gang_group=(launcher, worker)),
    )


MPI_JOB = WorkloadRule(
    "MPIJob", _mpi_member, labels=(f"{_LABEL}job-name",), owner=_MPI, sizes=_mpi_sizes, staged=True
)

TRAINING_RULES = (
    MPI_JOB,
    _rule("TFJob", "tfjobs", "tfReplicaSpecs"),
    _rule("PyTorchJob", "pytorchjobs", "pytorchReplicaSpecs"),
    _rule("XGBoostJob", "xgboostjobs", "xgbReplicaSpecs"),
    _rule("PaddleJob", "paddlejobs", "paddleReplicaSpecs"),
    _rule("JAXJob", "jaxjobs", "jaxReplicaSpecs"),
)
