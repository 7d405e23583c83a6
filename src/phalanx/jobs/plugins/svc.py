"""Job plugin svc: host names of the job's pods, also in files and variables, and a network policy around the
job."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from phalanx.jobs.members import JOB_NAME
from phalanx.jobs.naming import hosts, volume_name
from phalanx.jobs.plugins.flags import Flags
from phalanx.jobs.plugins.plugin import DesiredObject, Json, SshKey
from phalanx.jobs.pod_template import ALL_CONTAINERS, add_env, add_mount, add_volume, containers
from phalanx.jobs.pods import JOB_NAMESPACE
from phalanx.jobs.spec import Job, TaskSpec

_MOUNT_PATH = "/etc/volcano"


class SvcPlugin:
    name = "svc"

    def __init__(self, arguments: Sequence[str]) -> None:
        flags = Flags(
            self.name,
            arguments,
            {"publish-not-ready-addresses": False, "disable-network-policy": False, "inject-hosts-env": True},
        )
        self._publish_not_ready = flags.is_set("publish-not-ready-addresses")
        self._closed = not flags.is_set("disable-network-policy")
        self._inject = flags.is_set("inject-hosts-env")

    def shape_pod(self, job: Job, task: TaskSpec, index: int, pod: Json) -> None:
        spec, config_map = pod["spec"], _config_map(job)
        if not spec.get("hostname"):
            spec["hostname"] = pod["metadata"]["name"]
        if not spec.get("subdomain"):
            spec["subdomain"] = job.metadata.name
        volume = volume_name(config_map)
        add_volume(pod, {"name": volume, "configMap": {"name": config_map}})
        keys = (
            [key for named_task in job.spec.named_tasks() for key in _variables(named_task)] if self._inject else []
        )
        for container in containers(pod, ALL_CONTAINERS):
            if self._inject:
                add_env(container, [_reference(config_map, key) for key in keys])
            add_mount(container, {"name": volume, "mountPath": _MOUNT_PATH})

    def objects(self, job: Job, generate_key: Callable[[], SshKey]) -> tuple[DesiredObject, ...]:
        members = {JOB_NAME: job.metadata.name, JOB_NAMESPACE: job.metadata.namespace}
        service = {"clusterIP": "None", "selector": members, "publishNotReadyAddresses": self._publish_not_ready}
        policy = {
            "podSelector": {"matchLabels": members},
            "ingress": [{"from": [{"podSelector": {"matchLabels": members}}]}],
            "policyTypes": ["Ingress"],
        }
        desired = [
            DesiredObject("v1", "ConfigMap", _config_map(job), job, lambda: {"data": host_files(job)}, ("data",)),
            DesiredObject(
                "v1",
                "Service",
                job.metadata.name,
                job,
                lambda: {"spec": service},
                ("spec.selector", "spec.publishNotReadyAddresses"),
            ),
        ]
        if self._closed:
            desired.append(
                DesiredObject(
                    "networking.k8s.io/v1",
                    "NetworkPolicy",
                    job.metadata.name,
                    job,
                    lambda: {"spec": policy},
                    ("spec.podSelector", "spec.ingress", "spec.policyTypes"),
                )
            )
        return tuple(desired)


def host_files(job: Job) -> dict[str, str]:
    """Return the ConfigMap entries with the hosts of each task: a file with one host per line, and two
    variables."""
    data = {}
    for task in job.spec.named_tasks():
        task_hosts = hosts(job, task)
        listed, number = _variables(task)
        data[f"{task.name.replace('-', '_')}.host"] = "\n".join(task_hosts)
        data[listed] = ",".join(task_hosts)
        data[number] = str(len(task_hosts))
    return data


def _config_map(job: Job) -> str:
    return f"{job.metadata.name}-svc"


def _variables(task: TaskSpec) -> tuple[str, str]:
    word = task.name.replace("-", "_").upper()
    return f"VC_{word}_HOSTS", f"VC_{word}_NUM"


def _reference(config_map: str, key: str) -> Json:
    return {"name": key, "valueFrom": {"configMapKeyRef": {"name": config_map, "key": key}}}
