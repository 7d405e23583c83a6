"""Jobs as users write them."""

from __future__ import annotations

from typing import Any

from phalanx.jobs.plugins.plugin import SshKey
from phalanx.jobs.plugins.registry import desired_objects, plugins_of, shape
from phalanx.jobs.pods import desired_pod
from phalanx.jobs.spec import Job, read_job

Json = dict[str, Any]

OWNER = {
    "apiVersion": "batch.volcano.sh/v1alpha1",
    "kind": "Job",
    "name": "train",
    "uid": "123",
    "controller": True,
    "blockOwnerDeletion": True,
}
KEY = SshKey("PRIVATE\n", "ssh-rsa AAAA\n")


def task(name: str = "worker", replicas: int = 1, spec: Json | None = None, **more: Any) -> Json:
    template = {"spec": spec if spec is not None else {"containers": [{"name": "main", "image": "i"}]}}
    return {"name": name, "replicas": replicas, "template": template, **more}


def job(*tasks: Json, metadata: Json | None = None, status: Json | None = None, **spec: Any) -> Job:
    document = {
        "metadata": {"name": "train", "namespace": "team", "uid": "123", **(metadata or {})},
        "spec": {"tasks": list(tasks or [task()]), **spec},
        "status": status or {},
    }
    read, faults = read_job(document)
    assert not faults
    return read


def pod(made: Job, name: str = "worker", index: int = 0) -> Json:
    """Shaped by the plugins."""
    of = made.spec.task(name)
    assert of is not None
    bare = desired_pod(made, of, index, version=0, retry_count=0)
    return shape(plugins_of(made), made, of, index, bare)


def container(made: Json, at: int = 0, kind: str = "containers") -> Json:
    found = made["spec"][kind][at]
    assert isinstance(found, dict)
    return found


def env(made: Json, at: int = 0, kind: str = "containers") -> dict[str, str]:
    """Variables with a plain value; of those with the same name the last counts."""
    return {each["name"]: each["value"] for each in container(made, at, kind).get("env", []) if "value" in each}


def manifests(made: Job) -> dict[str, Json]:
    """Return the objects that the plugins create, by kind and name."""
    return {f"{each.kind}/{each.name}": each.manifest() for each in desired_objects(made, lambda: KEY)}
