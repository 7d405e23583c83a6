"""Construction of a Volcano Job from a short request, valid for upstream's CRD, webhook and controllers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from phalanx.orders.errors import InvalidRequestError

Json = dict[str, Any]

GPU = "nvidia.com/gpu"
FRAMEWORKS = ("pytorch", "tensorflow", "mpi", "ray")
#: Image of containers on nodes that run commands as local processes; the API requires a name.
LOCAL_IMAGE = "localhost/process"
RESTARTS = ("job", "pod", "never")
# Command of MPI workers: they serve SSH, and the launcher connects to them.
_SSHD = ["/bin/sh", "-c", "mkdir -p /var/run/sshd && exec /usr/sbin/sshd -D"]


class JobRequest(msgspec.Struct, frozen=True, kw_only=True):
    """Job that the flags of `phalanx submit` or the arguments of the SDK describe.

    `replicas` is the number of all pods, including the roles of a framework. `minimum` None means all.
    `resources` are the requests of each pod, in the API's names and units. `restart` is one of RESTARTS: what
    is recreated when a pod fails or is evicted ("": the framework's default). With `resubmit` an eviction alone
    restarts the whole job. A container without an image is for clusters whose nodes run local processes.
    """

    name: str
    image: str
    replicas: int = 1
    minimum: int | None = None
    namespace: str = ""
    queue: str = ""
    priority_class: str = ""
    scheduler_name: str = "phalanx"
    framework: str = ""
    resources: Mapping[str, str] = {}
    environment: Mapping[str, str] = {}
    command: Sequence[str] = ()
    restart: str = ""
    max_retry: int | None = None
    resubmit: bool = False


def build_job(request: JobRequest) -> Json:
    """Return the Volcano Job for a request. Raises InvalidRequestError for invalid numbers."""
    minimum = request.replicas if request.minimum is None else request.minimum
    if not 1 <= minimum <= request.replicas:
        problem = f": must be between 1 and {request.replicas}, the number of replicas"
        raise InvalidRequestError("minimum", minimum, problem)
    if request.framework in ("mpi", "ray") and request.replicas < 2:
        problem = ": needs at least 2 replicas: one leader pod and one worker"
        raise InvalidRequestError("framework", request.framework, problem)
    metadata: Json = {"name": request.name}
    if request.namespace:
        metadata["namespace"] = request.namespace
    spec: Json = {"schedulerName": request.scheduler_name, "minAvailable": minimum}
    if request.queue:
        spec["queue"] = request.queue
    if request.priority_class:
        spec["priorityClassName"] = request.priority_class
    if request.max_retry is not None:
        spec["maxRetry"] = request.max_retry
    spec.update(_parts(request, minimum))
    return {"apiVersion": "batch.volcano.sh/v1alpha1", "kind": "Job", "metadata": metadata, "spec": spec}


def _parts(request: JobRequest, minimum: int) -> Json:
    """Return plugins, policies and tasks of the Volcano Job for a framework.

    A framework cannot continue without one of its members. So all pods are recreated, unless `restart` says
    otherwise.
    """
    action = {"job": "RestartJob", "pod": "RestartPod"}.get(request.restart or ("job" if request.framework else ""))
    policies: list[Json] = [{"events": ["PodFailed", "PodEvicted"], "action": action}] if action else []
    if request.resubmit and not action:
        policies = [{"event": "PodEvicted", "action": "RestartJob"}]
    complete = [{"event": "TaskCompleted", "action": "CompleteJob"}]
    workers, worker_minimum = request.replicas - 1, minimum - 1
    tasks: list[Json]
    match request.framework:
        case "pytorch":
            plugins = {"svc": [], "pytorch": ["--master=master", "--worker=worker", "--port=23456"]}
            tasks = [
                _task(request, "master", 1, 1, policies=complete),
                _task(request, "worker", workers, worker_minimum),
            ]
        case "tensorflow":
            plugins = {"svc": [], "tensorflow": ["--worker=worker", "--port=2222"]}
            tasks = [_task(request, "worker", request.replicas, minimum)]
        case "mpi":
            plugins = {"svc": [], "ssh": [], "mpi": ["--master=master", "--worker=worker", "--port=22"]}
            tasks = [
                _task(request, "master", 1, 1, policies=complete),
                _task(request, "worker", workers, worker_minimum, command=_SSHD),
            ]
        case "ray":
            # The plugin ray writes the commands of head and workers.
            plugins = {"svc": [], "ray": ["--head=head", "--worker=worker"]}
            tasks = [_task(request, "head", 1, 1), _task(request, "worker", workers, worker_minimum)]
        case _:
            plugins = {"env": [], "svc": []}
            tasks = [_task(request, "task", request.replicas, minimum)]
    parts: Json = {"plugins": plugins, "tasks": [task for task in tasks if task["replicas"]]}
    return {**parts, "policies": policies} if policies else parts


def _task(
    request: JobRequest,
    name: str,
    replicas: int,
    minimum: int,
    *,
    policies: Sequence[Json] = (),
    command: Sequence[str] | None = None,
) -> Json:
    container: Json = {"name": name, "image": request.image or LOCAL_IMAGE}
    if words := list(request.command if command is None else command):
        container["command"] = words
    if request.environment:
        container["env"] = [{"name": key, "value": value} for key, value in request.environment.items()]
    if request.resources:
        extended = {key: amount for key, amount in request.resources.items() if "/" in key}
        container["resources"] = {"requests": dict(request.resources)}
        if extended:
            # The API accepts extended resources only with a limit equal to the request.
            container["resources"]["limits"] = extended
    task: Json = {"name": name, "replicas": replicas, "minAvailable": minimum}
    if policies:
        task["policies"] = list(policies)
    task["template"] = {"spec": {"restartPolicy": "Never", "containers": [container]}}
    return task
