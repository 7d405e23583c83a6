"""Objects of a gang in the API: the Volcano Job, and the Secret with its certificates, which the job owns."""

from __future__ import annotations

import base64
import dataclasses
import os
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from phalanx.sdk.gang.settings import KEYS_PATH, PORT, PREFIX, VOLUME
from phalanx.sdk.requests import SubmitOptions, command_job

if TYPE_CHECKING:
    from phalanx.sdk.gang.certificates import GangKeys

Json = dict[str, Any]

HUB_TASK, WORKER_TASK = "hub", "worker"
#: Restarts of lost pods until the gang fails.
_RESTARTS = 1000
# Seconds until an ended gang and its Secret are deleted.
_TTL = 10


@dataclasses.dataclass(frozen=True)
class GangProgram:
    """Program of a gang's pods: a module of Python, the names of its two tasks, and the port of the first one."""

    module: str = "phalanx.sdk.gang.member"
    first: str = HUB_TASK
    others: str = WORKER_TASK
    port: int = PORT


FUNCTIONS = GangProgram()


def gang_job(
    name: str,
    options: SubmitOptions,
    *,
    client_timeout: float,
    python: str,
    local: bool,
    namespace: str,
    program: GangProgram = FUNCTIONS,
) -> Json:
    """Return the job of a gang: a task of one pod for the hub, and a task for the other workers.

    With `local` the pods are processes of this machine: they get this process's module path and directory.
    """
    words = [python or (sys.executable if local else "python3"), "-m", program.module]
    document = command_job(words, name, options, namespace)
    spec = document["spec"]
    restart = {"events": ["PodFailed", "PodEvicted"], "action": "RestartPod"}
    ended = {"event": "TaskCompleted", "action": "CompleteJob"}
    replicas, minimum = spec["tasks"][0]["replicas"], spec["minAvailable"]
    template = spec["tasks"][0]["template"]
    spec["plugins"] = {
        # The hub refuses peers without a certificate of this gang; a client in another pod must reach it.
        "svc": ["--publish-not-ready-addresses=true", "--disable-network-policy=true"],
    }
    spec["maxRetry"] = _RESTARTS
    spec["ttlSecondsAfterFinished"] = _TTL
    spec["policies"] = [restart]
    spec["tasks"] = [
        {
            "name": task,
            "replicas": number,
            "minAvailable": least,
            "policies": [restart, ended] if task == program.first else [restart],
            "template": _template(template, name, task, client_timeout, local, program),
        }
        for task, number, least in ((program.first, 1, 1), (program.others, replicas - 1, minimum - 1))
        if number
    ]
    return document


def _template(
    template: Json, name: str, task: str, client_timeout: float, local: bool, program: GangProgram
) -> Json:
    container = dict(template["spec"]["containers"][0], name=task)
    first = task == program.first
    variables: dict[str, Any] = {
        "TASK": HUB_TASK if first else WORKER_TASK,
        "HUB": f"{name}-{program.first}-0.{name}",
        "PORT": str(program.port),
        "CLIENT_TIMEOUT": f"{client_timeout:g}",
    }
    fields = {"POD": "metadata.name", "ADDRESS": "status.podIP"}
    container["env"] = [
        *({"name": PREFIX + key, "value": value} for key, value in variables.items()),
        *({"name": PREFIX + key, "valueFrom": {"fieldRef": {"fieldPath": path}}} for key, path in fields.items()),
        # The log shows a line as soon as a function prints it, and before a killed process loses it.
        {"name": "PYTHONUNBUFFERED", "value": "1"},
        *(_local_variables(container) if local else ()),
        *container.get("env", ()),
    ]
    container["volumeMounts"] = [{"name": VOLUME, "mountPath": KEYS_PATH, "readOnly": True}]
    if first:
        container["ports"] = [{"name": "gang", "containerPort": program.port}]
    if local:
        container["workingDir"] = os.getcwd()
    spec = {
        **template["spec"],
        "containers": [container],
        "volumes": [{"name": VOLUME, "secret": {"secretName": secret_name(name)}}],
        "terminationGracePeriodSeconds": 5,
    }
    return {**template, "spec": spec}


def _local_variables(container: Mapping[str, Any]) -> list[Json]:
    named = {variable["name"] for variable in container.get("env", ())}
    path = os.pathsep.join(entry or os.getcwd() for entry in sys.path)
    return [] if "PYTHONPATH" in named else [{"name": "PYTHONPATH", "value": path}]


def secret_name(name: str) -> str:
    return f"{name}-keys"


def keys_secret(name: str, uid: str, keys: GangKeys) -> Json:
    """Return the Secret with the members' certificates; it is deleted with the job that has this uid."""
    owner = {
        "apiVersion": "batch.volcano.sh/v1alpha1",
        "kind": "Job",
        "name": name,
        "uid": uid,
        "controller": True,
        "blockOwnerDeletion": True,
    }
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": secret_name(name), "ownerReferences": [owner]},
        "type": "Opaque",
        "immutable": True,
        "data": {file: base64.b64encode(content).decode() for file, content in keys.of_members.items()},
    }
