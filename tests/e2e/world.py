"""A cluster with its API server, a scheduler in this process, and short ways to act and to ask."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import re
import secrets
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import yaml

from phalanx.daemon.controllers import policy_record
from phalanx.daemon.service import SchedulerOptions, SchedulerService, ServiceError
from phalanx.kube.auth.config import load_config
from phalanx.kube.client import KubeClient, PatchType
from phalanx.kube.core_resources import CONFIG_MAPS
from phalanx.kube.errors import ApiError
from phalanx.kube.paths import Resource
from phalanx.status.verdict_publisher import PublishingPace
from phalanx_local.authorization.attributes import Attributes
from phalanx_local.server import ApiServer
from tests.e2e.clock import CLOCK
from tests.e2e.election import elect_on_this_loop
from tests.e2e.rights import Rights
from tests.e2e.wire import Wire

# Most waits end in a fraction of a second; a busy machine needs much longer.
PATIENCE = 45.0
_POLL = 0.02
_PLURALS = {
    "PriorityClass": "priorityclasses",
    "StorageClass": "storageclasses",
    "DeviceClass": "deviceclasses",
    "CSIStorageCapacity": "csistoragecapacities",
    "Numatopology": "numatopologies",
}
_CLUSTER_SCOPED = frozenset(
    {
        "Node",
        "Namespace",
        "PriorityClass",
        "CustomResourceDefinition",
        "Queue",
        "HyperNode",
        "MaintenanceWindow",
        "Reservation",
        "PersistentVolume",
        "StorageClass",
        "CSINode",
        "CSIDriver",
        "VolumeAttachment",
        "DeviceClass",
        "ResourceSlice",
        "Device",
        "Numatopology",
    }
)
PODS = Resource("", "v1", "pods", "Pod")
NODES = Resource("", "v1", "nodes", "Node", namespaced=False)
EVENTS = Resource("events.k8s.io", "v1", "events", "Event")
DEFINITIONS = Resource(
    "apiextensions.k8s.io", "v1", "customresourcedefinitions", "CustomResourceDefinition", namespaced=False
)
# Verdicts are published early, so that tests need not wait for them to settle.
QUICK = PublishingPace(settle=0.05, settle_members=0.15, settle_undeclared=0.5, repeat=0.3, repeat_per_listener=0.0)

Object = dict[str, Any]


class Cluster:
    """An API server for a whole test session: the embedded one (`server`), or one that was there before us."""

    def __init__(self, kubeconfig: Path, client: KubeClient, server: ApiServer | None) -> None:
        self.kubeconfig = kubeconfig
        self.client = client
        self.server = server
        # Namespaces of an earlier session may still be there on a server that was there before us.
        self.session = "e2e" if server is not None else f"e2e-{secrets.token_hex(2)}"
        self.numbers = itertools.count(1)
        # Rights that ended schedulers have used.
        self.asked: set[Attributes] = set()


class Running:
    """A scheduler in this process, over a wire of its own."""

    def __init__(self, kubeconfig: Path, options: SchedulerOptions) -> None:
        self.wire = Wire()
        self.rights = Rights(options.lease_namespace, options.scheduler_names[0], options.lease_name)
        self.client = KubeClient(load_config(str(kubeconfig)), transports=self.wire.transports)
        self.service = SchedulerService(self.client, options)
        if CLOCK.in_force:
            elect_on_this_loop(self.service.leadership, self.wire)
        self.task = asyncio.create_task(self.service.run())

    async def ready(self) -> None:
        waiting = asyncio.create_task(self.service.ready.wait())
        async with asyncio.timeout(PATIENCE):
            await asyncio.wait([waiting, self.task], return_when=asyncio.FIRST_COMPLETED)
        waiting.cancel()
        if self.task.done():
            self.task.result()

    def without_right(self) -> list[Attributes]:
        """Return the requests for which the account has no right."""
        return [asked for asked in self.wire.asked if not self.rights.allow(asked)]

    async def stop(self) -> None:
        """Stop the scheduler as SIGTERM does."""
        if self.task.done():
            return
        self.service.stop()
        async with asyncio.timeout(PATIENCE):
            await self.task
        await self.client.close()

    async def kill(self) -> None:
        """Kill the scheduler as SIGKILL does: it sends nothing more and cleans up nothing."""
        self.wire.dead.set()
        while not self.task.done():
            self.task.cancel()
            await asyncio.sleep(0)
        with contextlib.suppress(asyncio.CancelledError, ServiceError):
            await self.task
        self.wire.buried.set()
        for _ in range(5):
            await asyncio.sleep(0)
        await self.client.close()


class World:
    """One test's part of a cluster: a namespace or two, nodes, schedulers. `close` leaves nothing behind."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.client = cluster.client
        self.name = f"{cluster.session}-{next(cluster.numbers)}"
        self.namespace = self.name
        self.schedulers: list[Running] = []
        self._made: list[str] = []

    @property
    def server(self) -> ApiServer:
        """Return the embedded server, whose faults tests choose."""
        assert self.cluster.server is not None
        return self.cluster.server

    # acting

    async def open(self, namespace: str = "") -> None:
        """Create a namespace and continue in it (to continue in another, set `namespace`)."""
        self.namespace = namespace or self.name
        await self.make({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": self.namespace}})

    async def close(self) -> None:
        for scheduler in self.schedulers:
            await scheduler.kill()
        if self.cluster.server is not None:
            self.cluster.server.faults.clear()
        refused: list[str] = []
        for path in reversed(self._made):
            try:
                await self.client.delete(path, grace_seconds=0)
            except ApiError as error:
                refused += [f"{path}: {error}"] if error.status != 404 else []
        # Commands go by the policy of the scheduler that ran last: the next test's is another.
        # Schedulers in processes of their own write theirs beside the default lease.
        for place in {"kube-system", *(each.service.options.lease_namespace for each in self.schedulers)}:
            with contextlib.suppress(ApiError):
                await self.client.delete(CONFIG_MAPS.path(place, policy_record.NAME))
        # Objects of commands and controllers: a remaining pod would occupy the nodes of the next test.
        for item in await self.list(PODS):
            with contextlib.suppress(ApiError):
                await self.delete(PODS, item["metadata"]["name"])
        assert not refused, f"{refused} is left in the cluster"
        for scheduler in self.schedulers:
            self.cluster.asked |= scheduler.wire.asked
            assert not scheduler.without_right(), scheduler.without_right()

    async def scheduler(self, *, wait: bool = True, **options: Any) -> Running:
        options.setdefault("pace", QUICK)
        made = Running(self.cluster.kubeconfig, SchedulerOptions(**options))
        self.schedulers.append(made)
        if wait:
            await made.ready()
        return made

    async def make(self, document: Object) -> Object:
        """Creates one object as it is written; it is deleted when the test ends."""
        resource = resource_of(document)
        namespace = document["metadata"].get("namespace", self.namespace) if resource.namespaced else None
        created: Object = await self.client.create(resource.path(namespace), document)
        if resource.kind != "Namespace":  # the server preserves those until a controller has emptied them
            self._made.append(resource.path(namespace, created["metadata"]["name"]))
        return created

    async def apply(self, text: str) -> None:
        """Creates every document of a manifest."""
        for document in yaml.safe_load_all(text):
            await self.make(document)

    async def node(self, name: str, **allocatable: Any) -> Object:
        """An empty node; 8 CPU where nothing else is said. Names are this test's own."""
        amounts = {"cpu": "8", "memory": "32Gi", "pods": "110", **_dotted(allocatable)}
        document: Object = {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {"name": f"{self.name}-{name}", "labels": {"kubernetes.io/hostname": name}},
            "status": {"capacity": amounts, "allocatable": amounts},
        }
        created = await self.make(document)
        if created["spec"].get("taints"):
            # A real server taints new nodes as not ready; their kubelet would lift that.
            path = NODES.path(None, created["metadata"]["name"])
            created = await self.client.patch(path, {"spec": {"taints": None}}, PatchType.MERGE)
        return created

    async def patch_node(self, name: str, patch: Object, *, status: bool = False) -> None:
        path = NODES.path(None, f"{self.name}-{name}") + ("/status" if status else "")
        await self.client.patch(path, patch, PatchType.MERGE)

    async def pod(self, name: str, **what: Any) -> Object:
        return await self.make(pod(name, **what))

    async def pods(self, *names: str, **what: Any) -> None:
        for name in names:
            await self.pod(name, **what)

    async def patch(self, resource: Resource, name: str, patch: Object, *, status: bool = False) -> None:
        path = resource.path(self.namespace, name) + ("/status" if status else "")
        await self.client.patch(path, patch, PatchType.MERGE)

    async def phase(self, phase: str, *names: str) -> None:
        """Publish a phase as a kubelet would."""
        for name in names:
            await self.patch(PODS, name, {"status": {"phase": phase}}, status=True)

    async def delete(self, resource: Resource, *names: str) -> None:
        for name in names:
            await self.client.delete(resource.path(self.namespace, name), grace_seconds=0)

    async def noticed(self, seconds: float) -> None:
        """Wait for state that a real API server notices with a delay: rights, policies, namespaces.

        The embedded one notices at once.
        """
        if self.cluster.server is None:
            await asyncio.sleep(seconds)

    # asking

    async def list(self, resource: Resource) -> list[Object]:
        namespace = self.namespace if resource.namespaced else None
        items: list[Object] = (await self.client.list_all(resource.path(namespace)))["items"]
        return items

    async def get(self, resource: Resource, name: str) -> Object:
        found: Object = await self.client.get(resource.path(self.namespace, name))
        return found

    async def placement(self) -> dict[str, str]:
        """pod -> node, "" while it waits; node names as the test knows them."""
        return {
            item["metadata"]["name"]: item["spec"].get("nodeName", "").removeprefix(f"{self.name}-")
            for item in await self.list(PODS)
        }

    async def until(self, holds: Callable[[], Any], what: str, seconds: float = PATIENCE) -> Any:
        """Waits until an asynchronous question has a truthy answer, and returns it."""
        answer = None
        deadline = asyncio.get_running_loop().time() + seconds
        while asyncio.get_running_loop().time() < deadline:
            answer = await holds()
            if answer:
                return answer
            await asyncio.sleep(_POLL)
        events = [(e["reason"], (e.get("regarding") or {}).get("name"), e["note"]) for e in await self.list(EVENTS)]
        raise AssertionError(f"waited in vain: {what}; pods: {await self.placement()}; events: {events}")

    async def until_bound(self, *names: str, seconds: float = PATIENCE) -> dict[str, str]:
        """Waits until these pods have nodes."""

        async def bound() -> dict[str, str]:
            placement = await self.placement()
            return placement if all(placement.get(name) for name in names) else {}

        found: dict[str, str] = await self.until(bound, f"{', '.join(names)} are bound", seconds)
        return found

    async def until_held(self, *names: str, words: str = "", reason: str = "Unschedulable") -> Object:
        """Wait until these pods have a waiting reason that matches; return the condition of the first."""

        async def held() -> Object:
            pods = {item["metadata"]["name"]: item for item in await self.list(PODS)}
            found = [condition(pods[name], "PodScheduled") for name in names if name in pods]
            said = [
                entry
                for entry in found
                if entry.get("status") == "False"
                and entry.get("reason") == reason
                and re.search(words, entry.get("message", ""))
            ]
            return said[0] if len(said) == len(names) else {}

        said: Object = await self.until(held, f"{', '.join(names)} are held: {reason} {words}")
        placement = await self.placement()
        assert not any(placement[name] for name in names)
        return said

    async def until_status(self, resource: Resource, name: str, **wanted: Any) -> Object:
        """Waits until an object's status has these values (camelCase as in the API)."""
        seen: Object = {}

        async def shown() -> Object:
            seen.clear()
            seen.update((await self.get(resource, name)).get("status") or {})
            return seen if all(seen.get(key, 0) == value for key, value in wanted.items()) else {}

        try:
            found: Object = await self.until(shown, f"the status of {name} is {wanted}")
        except AssertionError as error:
            raise AssertionError(f"{error}; status: {seen}") from None
        return found

    async def until_event(self, reason: str, about: str = "", words: str = "") -> Object:
        """Wait for an event of this reason, regarding an object of this name, whose note matches."""

        async def told() -> Object:
            for event in await self.list(EVENTS):
                regarding = event.get("regarding") or {}
                if (
                    event.get("reason") == reason
                    and (not about or regarding.get("name") == about)
                    and re.search(words, event.get("note", ""))
                ):
                    return event
            return {}

        found: Object = await self.until(told, f"event {reason} about {about or 'anything'} saying {words!r}")
        return found

    async def settled(self, *schedulers: Running, quiet: float = 0.6) -> None:
        """Wait until these schedulers have written nothing for a while: at most three times their timeout."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + PATIENCE
        last, since = [0] * len(schedulers), loop.time()
        while loop.time() < deadline:
            counts = [scheduler.wire.count() for scheduler in schedulers]
            if counts != last:
                last, since = counts, loop.time()
            if loop.time() - since >= quiet:
                return
            await asyncio.sleep(_POLL)
        raise AssertionError(f"writes do not end: {[entry.wire.writes[-10:] for entry in schedulers]}")


def pod(
    name: str,
    *,
    labels: Mapping[str, str] | None = None,
    annotations: Mapping[str, str] | None = None,
    cpu: str = "1",
    requests: Mapping[str, str] | None = None,
    namespace: str = "",
    scheduler: str = "phalanx",
    owner: str = "",
    **spec: Any,
) -> Object:
    """A pod of one container for our scheduler. `spec` are further fields of its spec."""
    wanted = dict(requests) if requests is not None else {"cpu": cpu}
    metadata: Object = {"name": name, "labels": dict(labels or {}), "annotations": dict(annotations or {})}
    if namespace:
        metadata["namespace"] = namespace
    if owner:
        reference = {"apiVersion": "batch/v1", "kind": "Job", "name": owner, "uid": f"uid-{owner}"}
        metadata["ownerReferences"] = [reference]
    limits = {key: value for key, value in wanted.items() if "/" in key}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": metadata,
        "spec": {
            "schedulerName": scheduler,
            "restartPolicy": "Never",
            "terminationGracePeriodSeconds": 0,
            "containers": [
                {"name": "main", "image": "example/main", "resources": {"requests": wanted, "limits": limits}}
            ],
            **spec,
        },
    }


def condition(body: Object, kind: str) -> Object:
    found: Iterable[Object] = (body.get("status") or {}).get("conditions") or ()
    return next((entry for entry in found if entry["type"] == kind), {})


def resource_of(document: Object) -> Resource:
    group, _, version = document["apiVersion"].rpartition("/")
    kind = document["kind"]
    namespaced = kind not in _CLUSTER_SCOPED
    return Resource(group, version, _PLURALS.get(kind, f"{kind.lower()}s"), kind, namespaced=namespaced)


def _dotted(amounts: Mapping[str, Any]) -> dict[str, str]:
    """`nvidia_com__gpu` is `nvidia.com/gpu`, so that it can be a keyword."""
    return {key.replace("__", "/").replace("_", "."): str(value) for key, value in amounts.items()}
