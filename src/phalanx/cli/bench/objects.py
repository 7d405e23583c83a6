"""Objects of a benchmark in the cluster: nodes without kubelets, gangs and their pods, with one common label."""

from __future__ import annotations

import asyncio
import enum
from collections.abc import Awaitable, Callable, Iterable
from typing import Any

import msgspec

from phalanx.dialects.api_groups import NATIVE, NATIVE_VERSIONS
from phalanx.kube.client import KubeClient, PatchType
from phalanx.kube.core_resources import NODES, PODS
from phalanx.kube.errors import ApiError
from phalanx.kube.paths import Resource

LABEL = "phalanx.dev/bench"
"""Label of all objects of a benchmark; its value is the benchmark's namespace."""
BARE = "phalanx-bench-bare"
"""Scheduler name that no scheduler serves: a client binds the pods with this name directly."""
NAMESPACES = Resource("", "v1", "namespaces", "Namespace", namespaced=False)
ACCOUNTS = Resource("", "v1", "serviceaccounts", "ServiceAccount")
_AMOUNTS = {"cpu": "64", "memory": "256Gi", "pods": "250"}
#: Maximum number of attempts of one delete-collection request.
_MAX_ATTEMPTS = 10
#: Number of pods with one CPU that fit on a node.
PODS_PER_NODE = 64


class Groups(enum.StrEnum):
    """Declaration of the benchmark's gangs: labels, PodGroups of an API, or none."""

    LABELS = "labels"
    SCHEDULER_PLUGINS = "scheduler-plugins"
    VOLCANO = "volcano"
    NATIVE = "native"
    NONE = "none"


class BenchWorkload(msgspec.Struct, frozen=True):
    """Pods of a benchmark: `gangs` gangs of `size` pods for `scheduler` in `namespace`, declared as `groups`.

    `version` is the server's version of the native API. The gang names start with `prefix`.
    """

    namespace: str
    gangs: int
    size: int
    scheduler: str
    groups: Groups
    version: str = ""
    prefix: str = "gang"

    @property
    def pods(self) -> int:
        return self.gangs * self.size

    def group(self, gang: int) -> tuple[Resource, dict[str, Any]] | None:
        """Return the resource and the object that declare a gang of the benchmark; None for labels and for no
        declaration."""
        match self.groups:
            case Groups.SCHEDULER_PLUGINS:
                resource = Resource("scheduling.x-k8s.io", "v1alpha1", "podgroups", "PodGroup")
                spec: dict[str, Any] = {"minMember": self.size, "scheduleTimeoutSeconds": 600}
            case Groups.VOLCANO:
                resource = Resource("scheduling.volcano.sh", "v1beta1", "podgroups", "PodGroup")
                spec = {"minMember": self.size}
            case Groups.NATIVE:
                resource = Resource(NATIVE, self.version, "podgroups", "PodGroup")
                spec = {"schedulingPolicy": {"gang": {"minCount": self.size}}}
            case _:
                return None
        document = {"apiVersion": resource.api_version, "kind": resource.kind, "spec": spec}
        return resource, document | {"metadata": {"name": self._name(gang), "labels": {LABEL: self.namespace}}}

    def _name(self, gang: int) -> str:
        return f"{self.prefix}-{gang:05}"

    def pod(self, gang: int, member: int) -> dict[str, Any]:
        name, labels, annotations = self._name(gang), {LABEL: self.namespace}, {}
        spec: dict[str, Any] = {
            "schedulerName": self.scheduler,
            "terminationGracePeriodSeconds": 0,
            "nodeSelector": {LABEL: self.namespace},
            "containers": [{"name": "c", "image": "x", "resources": {"requests": {"cpu": "1", "memory": "1Gi"}}}],
        }
        match self.groups:
            case Groups.LABELS:
                prefix = "pod-group.scheduling.sigs.k8s.io"
                labels |= {f"{prefix}/name": name, f"{prefix}/min-available": str(self.size)}
            case Groups.SCHEDULER_PLUGINS:
                labels["scheduling.x-k8s.io/pod-group"] = name
            case Groups.VOLCANO:
                annotations["scheduling.k8s.io/group-name"] = name
            case Groups.NATIVE:
                spec["schedulingGroup"] = {"podGroupName": name}
        metadata = {"name": f"{name}-{member:04}", "labels": labels, "annotations": annotations}
        return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


async def native_version(client: KubeClient) -> str:
    """Return the server's version of native PodGroups; "" if it has none."""
    for version in NATIVE_VERSIONS:
        try:
            served = await client.get(f"/apis/{NATIVE}/{version}")
        except ApiError as error:
            if error.status not in (403, 404):
                raise
            continue
        if any(resource.get("name") == "podgroups" for resource in served.get("resources", [])):
            return version
    return ""


async def each_of(items: Iterable[int], work: Callable[[int], Awaitable[None]], concurrency: int) -> None:
    """Call `work` for every item, `concurrency` items at a time. The first error stops all calls and is raised."""
    pending = iter(items)

    async def work_off() -> None:
        for item in pending:
            await work(item)

    try:
        async with asyncio.TaskGroup() as group:
            for _ in range(concurrency):
                group.create_task(work_off())
    except ExceptionGroup as failures:
        raise failures.exceptions[0] from None


async def make_namespace(client: KubeClient, name: str) -> None:
    metadata = {"name": name, "labels": {LABEL: name}}
    await client.create(NAMESPACES.path(), {"apiVersion": "v1", "kind": "Namespace", "metadata": metadata})
    # Pods need the service account; its controller is slow or absent, so it is created here.
    try:
        account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default"}}
        await client.create(ACCOUNTS.path(name), account)
    except ApiError as error:
        if error.status != 409:
            raise


async def make_nodes(client: KubeClient, namespace: str, count: int, concurrency: int) -> None:
    ready = [{"type": "Ready", "status": "True", "reason": "Benchmark"}]

    async def make(number: int) -> None:
        name = node_name(namespace, number)
        metadata = {"name": name, "labels": {LABEL: namespace}}
        status = {"allocatable": _AMOUNTS, "capacity": _AMOUNTS, "conditions": ready}
        await client.create(
            NODES.path(), {"apiVersion": "v1", "kind": "Node", "metadata": metadata, "status": status}
        )
        # A real API server taints new nodes; without node controller the taint would stay.
        await client.patch(NODES.path(name=name), {"spec": {"taints": None}}, PatchType.MERGE)

    await each_of(range(count), make, concurrency)


def node_name(namespace: str, number: int) -> str:
    return f"{namespace}-{number:05}"


async def make_gangs(
    client: KubeClient,
    workload: BenchWorkload,
    concurrency: int,
    on_created: Callable[[str], None] = lambda name: None,
) -> None:
    """Create each gang's object and its pods; call `on_created` with the name of each created pod."""

    path = PODS.path(workload.namespace)

    async def make(gang: int) -> None:
        group = workload.group(gang)
        if group is not None:
            resource, document = group
            await client.request("POST", resource.path(workload.namespace), body=msgspec.json.encode(document))
        for member in range(workload.size):
            pod = workload.pod(gang, member)
            # The response body is not decoded, so that the benchmark client does not slow down the measurement.
            await client.request("POST", path, body=msgspec.json.encode(pod))
            on_created(pod["metadata"]["name"])

    await each_of(range(workload.gangs), make, concurrency)


async def clear(client: KubeClient, workload: BenchWorkload) -> None:
    """Delete the pods and groups of a benchmark's workload."""
    await _delete_all(client, PODS.path(workload.namespace), workload.namespace)
    group = workload.group(0)
    if group is not None:
        await _delete_all(client, group[0].path(workload.namespace), workload.namespace)


async def _delete_all(client: KubeClient, path: str, namespace: str) -> None:
    """Delete all objects of the benchmark at a path; repeat the request while the server times out after one
    minute."""
    selected: dict[str, str | int] = {"labelSelector": f"{LABEL}={namespace}", "gracePeriodSeconds": 0}
    for attempts_left in reversed(range(_MAX_ATTEMPTS)):
        try:
            await client.request("DELETE", path, params=selected, timeout=300)
            return
        except ApiError as error:
            if error.status != 504 or not attempts_left:
                raise


async def remove_all(client: KubeClient, namespace: str) -> None:
    """Delete the nodes and the namespace of a benchmark."""
    await _delete_all(client, NODES.path(), namespace)
    try:
        await client.delete(NAMESPACES.path(name=namespace))
    except ApiError as error:
        if error.status != 404:
            raise
