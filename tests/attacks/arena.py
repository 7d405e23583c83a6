"""A cluster with a scheduler that has its own rights only, and tenants that have theirs."""

from __future__ import annotations

import itertools
import json
import logging
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import yaml

from phalanx.cli.installation.manifests import LEASE_NAMESPACE
from phalanx.daemon.service import SchedulerOptions
from phalanx.kube.auth.config import load_config
from phalanx.kube.client import KubeClient, PatchType
from phalanx.kube.errors import ApiError
from phalanx.kube.paths import Resource
from tests.e2e.world import NODES, PODS, QUICK, Cluster, Object, Running, World

ACCOUNT, ACCOUNT_NAMESPACE = "phalanx-scheduler", "phalanx-system"
GROUPS = [
    "scheduling.k8s.io",
    "scheduling.x-k8s.io",
    "scheduling.sigs.k8s.io",
    "scheduling.volcano.sh",
    "scheduling.incubator.k8s.io",
]
_RBAC = "rbac.authorization.k8s.io"
_TENANT = "tenant"
_READ, _WRITE = ["get", "list", "watch"], ["create", "update", "patch", "delete", "deletecollection"]
# The relevant rules of the role `edit`. (A controller aggregates it, which this server lacks.)
_EDIT: list[Object] = [
    {"apiGroups": [""], "resources": ["pods", "configmaps", "persistentvolumeclaims"], "verbs": _READ + _WRITE},
    {"apiGroups": [""], "resources": ["pods/eviction"], "verbs": ["create"]},
    {"apiGroups": [""], "resources": ["pods/status", "events", "resourcequotas", "namespaces"], "verbs": _READ},
    {"apiGroups": ["events.k8s.io"], "resources": ["events"], "verbs": _READ},
    {"apiGroups": ["policy"], "resources": ["poddisruptionbudgets"], "verbs": _READ + _WRITE},
    {"apiGroups": ["resource.k8s.io"], "resources": ["resourceclaims"], "verbs": _READ + _WRITE},
]
# Limit of the processor time of this process until a gang of another namespace is bound, during any attack.
CANARY_SECONDS = 10.0
# Probe pods that are bound one after another before a test concludes that other pods stay unbound.
_PROBES = 3
X_K8S = Resource("scheduling.x-k8s.io", "v1alpha1", "podgroups", "PodGroup")
VOLCANO = Resource("scheduling.volcano.sh", "v1beta1", "podgroups", "PodGroup")
NATIVE = Resource("scheduling.k8s.io", "v1alpha2", "podgroups", "PodGroup")
QUEUE = Resource("scheduling.volcano.sh", "v1beta1", "queues", "Queue", namespaced=False)
QUEUE_NAME = "scheduling.volcano.sh/queue-name"
MARK = "phalanx.dev/gang-plan"
SIGS = "pod-group.scheduling.sigs.k8s.io"


class Faults(logging.Handler):
    """The scheduler's own faults in its log: errors, and any message with a traceback."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.said: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        # (A scheduler that a test has killed in this process tries to write to closed connections.)
        text = self.format(record)
        if (record.exc_info or record.levelno >= logging.ERROR) and "the client is closed" not in text:
            self.said.append(text)


class Arena(World):
    """A world whose scheduler runs with the account that `phalanx install` creates for it.

    `tenant` creates namespaces, each with a user whose rights are the role `edit` and PodGroups there, and
    nothing else. The arena itself acts as an administrator.
    """

    def __init__(self, cluster: Cluster, directory: Path) -> None:
        super().__init__(cluster)
        self.directory = directory
        self.tenants: list[Tenant] = []
        self._canaries: list[World] = []
        self._probe_node = ""
        self.faults = Faults()
        self._numbers = itertools.count(1)

    async def open(self, namespace: str = "") -> None:
        await super().open(namespace)
        logging.getLogger("phalanx").addHandler(self.faults)

    async def close(self) -> None:
        logging.getLogger("phalanx").removeHandler(self.faults)
        for tenant in self.tenants:
            await tenant.close()
            await tenant.client.close()
        for canary in self._canaries:
            await canary.close()
        await super().close()

    async def scheduler(self, *, wait: bool = True, **options: Any) -> Running:
        options.setdefault("pace", QUICK)
        kubeconfig = await self.kubeconfig_for(ACCOUNT_NAMESPACE, ACCOUNT)
        made = Running(kubeconfig, SchedulerOptions(lease_namespace=LEASE_NAMESPACE, **options))
        self.schedulers.append(made)
        if wait:
            await made.ready()
        return made

    async def tenant(self, name: str = "", also: Iterable[str] = ()) -> Tenant:
        """`also` are resources of the groups' API groups that a careless role hands out as well."""
        number = next(self._numbers)
        namespace = f"{self.name}-{name or f'tenant-{number}'}"
        await self.client.create("/api/v1/namespaces", _object("v1", "Namespace", namespace))
        # (A cluster's controllers would make `default`.)
        for account in (_TENANT, "default"):
            path = f"/api/v1/namespaces/{namespace}/serviceaccounts"
            await self._create(path, _object("v1", "ServiceAccount", account))
        kubeconfig = await self.kubeconfig_for(namespace, _TENANT)
        client = KubeClient(load_config(str(kubeconfig)))
        made = Tenant(self, namespace, client)
        self.tenants.append(made)
        await self.grant(made, [*_EDIT, {"apiGroups": GROUPS, "resources": ["podgroups", *also], "verbs": ["*"]}])
        return made

    async def grant(self, tenant: Tenant, rules: list[Object], *, everywhere: bool = False) -> None:
        """Gives a tenant further rights, in its namespace or everywhere."""
        name, kind = f"{tenant.namespace}-{next(self._numbers)}", "ClusterRole" if everywhere else "Role"
        path = f"/apis/{_RBAC}/v1" + ("" if everywhere else f"/namespaces/{tenant.namespace}")
        role = await self.client.create(
            f"{path}/{kind.lower()}s", {**_object(f"{_RBAC}/v1", kind, name), "rules": rules}
        )
        self._made.append(f"{path}/{kind.lower()}s/{role['metadata']['name']}")
        await self.bind(tenant, kind, name, everywhere=everywhere)

    async def bind(self, tenant: Tenant, kind: str, role: str, *, everywhere: bool = False) -> None:
        path = f"/apis/{_RBAC}/v1" + ("" if everywhere else f"/namespaces/{tenant.namespace}")
        bound = "ClusterRoleBinding" if everywhere else "RoleBinding"
        binding = _object(f"{_RBAC}/v1", bound, role)
        binding["roleRef"] = {"apiGroup": _RBAC, "kind": kind, "name": role}
        binding["subjects"] = [{"kind": "ServiceAccount", "name": _TENANT, "namespace": tenant.namespace}]
        await self.client.create(f"{path}/{bound.lower()}s", binding)
        self._made.append(f"{path}/{bound.lower()}s/{role}")

    async def kubeconfig_for(self, namespace: str, account: str) -> Path:
        """Write a kubeconfig of a service account: with a token, or with impersonation over plain HTTP."""
        document = yaml.safe_load(self.cluster.kubeconfig.read_text(encoding="utf-8"))
        user = {"as": f"system:serviceaccount:{namespace}:{account}"}
        if self.cluster.server is None or not self.cluster.server.options.insecure:
            path = f"/api/v1/namespaces/{namespace}/serviceaccounts/{account}/token"
            request = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "metadata": {}, "spec": {}}
            user = {"token": (await self.client.create(path, request))["status"]["token"]}
        document["users"] = [{"name": entry["name"], "user": user} for entry in document["users"]]
        made = self.directory / f"{namespace}-{account}.kubeconfig"
        made.write_text(json.dumps(document), encoding="utf-8")
        return made

    async def priority(self, value: int) -> str:
        """The name of a class of this priority."""
        name = f"{self.name}-{value}"
        path = "/apis/scheduling.k8s.io/v1/priorityclasses"
        if name not in {item["metadata"]["name"] for item in (await self.client.get(path))["items"]}:
            await self.make({**_object("scheduling.k8s.io/v1", "PriorityClass", name), "value": value})
        return name

    async def queue(self, **spec: Any) -> str:
        """A queue of this test's own; its name."""
        name = f"{self.name}-q{next(self._numbers)}"
        await self.make({**_object(QUEUE.api_version, "Queue", name), "spec": spec})
        return name

    async def canary(self) -> None:
        """Check that a gang of two in a namespace of its own, on a node of its own, is bound."""
        name = f"{self.name}-canary{next(self._numbers)}"
        other = World(self.cluster)
        self._canaries.append(other)
        await other.open(name)
        place = await self._reserved_node(name, {"cpu": "2", "pods": "9"})
        await other.make({**_object(X_K8S.api_version, "PodGroup", "canary"), "spec": {"minMember": 2}})
        started = time.process_time()
        await other.pods("c-0", "c-1", labels={"scheduling.x-k8s.io/pod-group": "canary"}, **place)
        await other.until_bound("c-0", "c-1")
        used = time.process_time() - started
        assert used < CANARY_SECONDS, f"the canary was bound after {used:.1f} s of processor time"

    async def pass_cycles(self) -> None:
        """Return after the scheduler has seen all pods that exist now and has planned with them.

        The scheduler sees pods in the order of their creation. A probe pod that is bound proves that the scheduler
        has seen each earlier pod; the next probe proves that the cycle of the first has ended and that its
        bindings were sent. The third allows for the delay between the watches of pods and those of groups.
        """
        if not self._probe_node:
            self._probe_node = f"{self.name}-probes"
            # (No CPU and no memory: the amounts of the cluster stay as the test has made them.)
            await self._reserved_node(self._probe_node, {"cpu": "0", "memory": "0", "pods": "99"})
        place = self._on_reserved_node(self._probe_node)
        for _ in range(_PROBES):
            name = f"probe-{next(self._numbers)}"
            await self.pod(name, requests={}, **place)
            await self.until_bound(name)

    async def unharmed(self) -> None:
        """Check that the scheduler runs, logs no fault of its own, and schedules gangs of other namespaces."""
        await self.canary()
        assert not [
            scheduler for scheduler in self.schedulers if not scheduler.wire.dead.is_set() and scheduler.task.done()
        ]
        assert not self.faults.said

    async def _create(self, path: str, document: Object) -> None:
        try:
            await self.client.create(path, document)
        except ApiError as error:
            if error.status != 409:
                raise

    async def _reserved_node(self, name: str, amounts: Object) -> dict[str, Any]:
        """Create a node that admits only pods with the returned fields of a spec."""
        taint = {"key": name, "effect": "NoSchedule"}
        node = _object("v1", "Node", name, labels={"kubernetes.io/hostname": name})
        await self.make(
            {**node, "spec": {"taints": [taint]}, "status": {"capacity": amounts, "allocatable": amounts}}
        )
        await self.client.patch(NODES.path(None, name), {"spec": {"taints": [taint]}}, PatchType.MERGE)
        return self._on_reserved_node(name)

    @staticmethod
    def _on_reserved_node(name: str) -> dict[str, Any]:
        tolerations = [{"key": name, "operator": "Exists"}]
        return {"nodeSelector": {"kubernetes.io/hostname": name}, "tolerations": tolerations}


class Tenant(World):
    """A user with a namespace and a token of its own."""

    def __init__(self, arena: Arena, namespace: str, client: KubeClient) -> None:
        super().__init__(arena.cluster)
        self._arena = arena
        self.name = namespace.rpartition("-")[0]
        self.namespace = namespace
        self.client = client

    async def group(self, name: str, least: int, queue: str = "", **metadata: Any) -> None:
        """A PodGroup of Volcano's where a queue is named, else of scheduler-plugins'."""
        kind = VOLCANO if queue else X_K8S
        spec = {"minMember": least, **({"queue": queue} if queue else {})}
        await self.make({**_object(kind.api_version, "PodGroup", name, **metadata), "spec": spec})

    async def until_bound_count(self, count: int, prefix: str = "") -> None:
        async def enough() -> bool:
            return len(await self.bound(prefix)) >= count

        await self.until(enough, f"{count} of {prefix or 'all'} are bound")

    async def bound(self, prefix: str = "") -> list[str]:
        """Return the bound pods whose names have this prefix."""
        placement = await self.placement()
        return sorted(name for name, node in placement.items() if node and name.startswith(prefix))

    async def stays_at_most(self, count: int, prefix: str = "") -> None:
        """Check that at most `count` of these pods have a node after the scheduler has planned with all of them."""
        await self._arena.pass_cycles()
        bound = await self.bound(prefix)
        assert len(bound) <= count, f"more than {count} of {prefix or 'all'} are bound: {bound}"

    async def phase_by(self, arena: Arena, phase: str, *names: str) -> None:
        """Publish a phase as a kubelet would; a tenant has no right to."""
        for name in names:
            path = PODS.path(self.namespace, name) + "/status"
            await arena.client.patch(path, {"status": {"phase": phase}}, PatchType.MERGE)

    async def copied(self, name: str, as_name: str) -> Object:
        """A copy of a pod under another name."""
        found = await self.copy(name)
        found["metadata"]["name"] = as_name
        return found

    async def copy(self, name: str) -> Object:
        """Return a pod as a backup stores it: without the fields that the server sets for this one pod."""
        kept = await self.get(PODS, name)
        metadata = {
            key: kept["metadata"][key] for key in ("name", "labels", "annotations") if key in kept["metadata"]
        }
        spec = {key: value for key, value in kept["spec"].items() if key != "nodeName"}
        return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


def made(resource: Resource, name: str, **metadata: Any) -> Object:
    return _object(resource.api_version, resource.kind, name, **metadata)


def _object(api_version: str, kind: str, name: str, **metadata: Any) -> Object:
    return {"apiVersion": api_version, "kind": kind, "metadata": {"name": name, **metadata}}


def member(group: str) -> dict[str, Any]:
    """Return the fields that make a pod a member of a group of `Tenant.group`."""
    return {
        "labels": {"scheduling.x-k8s.io/pod-group": group},
        "annotations": {"scheduling.k8s.io/group-name": group},
    }
