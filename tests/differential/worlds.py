"""Random small clusters with realistic objects of users and controllers, mistakes included.

A world is drawn from a seed, so that a failing one can be named. Each object passes the API's validation, or is
from a manifest that was never validated.
"""

from __future__ import annotations

import random
from typing import Any

from tests.differential.device_worlds import DeviceMaker
from tests.differential.oracle.world import Wire, World
from tests.differential.storage_worlds import StorageMaker

OURS = "phalanx"
ZONE, HOST = "topology.kubernetes.io/zone", "kubernetes.io/hostname"
NAMESPACES: dict[str, dict[str, str]] = {
    "default": {},
    "team-a": {"team": "a", "env": "prod"},
    "team-b": {"team": "b"},
}
FEATURES = ("RestartAllContainersOnContainerExits", "UserNamespacesHostNetworkSupport")

# Topics of a world, by the plugin whose rule they exercise.
TOPICS = (
    "NodeUnschedulable",
    "TaintToleration",
    "NodeAffinity",
    "NodePorts",
    "NodeResourcesFit",
    "PodTopologySpread",
    "InterPodAffinity",
    "NodeDeclaredFeatures",
    "Volumes",
    "DynamicResources",
)


class WorldMaker:
    """`bound` is about the part of the pods that have a node."""

    def __init__(self, seed: int, topics: frozenset[str], bound: float = 0.6) -> None:
        self._bound = bound
        self.random = random.Random(seed)
        self.topics = topics
        self._storage = StorageMaker(self.random) if "Volumes" in topics else None
        self._devices = DeviceMaker(self.random) if "DynamicResources" in topics else None
        self._count = 0

    def world(self) -> World:
        chance = self.random
        world = World(namespaces=[self.namespace(name) for name in NAMESPACES])
        world.nodes = [self.node(f"n{at}") for at in range(chance.choice((1, 2, 3, 4, 5, 6, 8)))]
        self.furnish(world)
        world.pods = [self.pod(world) for _ in range(chance.randint(2, 18))]
        return world

    def furnish(self, world: World) -> None:
        """Everything that pods use beside nodes."""
        if self._storage is not None:
            self._storage.furnish(world)
        if self._devices is not None:
            self._devices.furnish(world)

    def namespace(self, name: str) -> Wire:
        return {"metadata": {"name": name, "labels": dict(NAMESPACES[name])}}

    # nodes

    def node(self, name: str) -> Wire:
        chance = self.random
        spec: Wire = {}
        status: Wire = {"allocatable": self._allocatable()}
        if "NodeUnschedulable" in self.topics and chance.random() < 0.2:
            spec["unschedulable"] = True
        if "TaintToleration" in self.topics:
            spec["taints"] = [self._taint() for _ in range(chance.choice((0, 0, 1, 2)))]
        if "NodeDeclaredFeatures" in self.topics:
            status["declaredFeatures"] = sorted(chance.sample(FEATURES, chance.randint(0, 2)))
        return {
            "metadata": {"name": name, "uid": f"node-{name}", "labels": self.node_labels(name)},
            "spec": spec,
            "status": status,
        }

    def node_labels(self, name: str) -> dict[str, str]:
        chance = self.random
        labels = {"disk": chance.choice(("ssd", "hdd", "")), "cores": chance.choice(("4", "8", "-1", "many", "08"))}
        labels = {key: value for key, value in labels.items() if chance.random() < 0.8}
        if chance.random() < 0.95:
            labels[HOST] = name
        if chance.random() < 0.88:
            labels[ZONE] = chance.choice("abc")
        return labels

    def _allocatable(self) -> Wire:
        if "NodeResourcesFit" not in self.topics:
            return {"cpu": "64", "memory": "256Gi", "pods": "110"}
        chance = self.random
        offered: Wire = {
            "cpu": chance.choice(("2", "3500m", "4", "0")),
            "memory": chance.choice(("4Gi", "8G", "1073741824")),
            "pods": chance.choice(("2", "4", "10")),
            "ephemeral-storage": chance.choice(("10Gi", "1")),
            "example.com/gpu": chance.choice(("0", "1", "4")),
            "hugepages-2Mi": chance.choice(("0", "64Mi")),
        }
        return {name: value for name, value in offered.items() if name == "pods" or chance.random() < 0.9}

    def _taint(self) -> Wire:
        chance = self.random
        taint = {
            "key": chance.choice(("dedicated", "gpu", "level")),
            "effect": chance.choice(("NoSchedule", "NoExecute", "PreferNoSchedule")),
        }
        if chance.random() < 0.7:
            taint["value"] = chance.choice(("a", "b", "1", "5", "10", "-3"))
        return taint

    # pods

    def pod(self, world: World) -> Wire:
        chance = self.random
        self._count += 1
        name = f"p{self._count}"
        namespace = chance.choice(("default",) * 6 + ("team-a",) * 2 + ("team-b",))
        metadata: Wire = {
            "name": name,
            "namespace": namespace,
            "uid": f"uid-{name}",
            "labels": self.pod_labels(),
            "creationTimestamp": "2026-01-01T00:00:00Z",
        }
        spec: Wire = {
            "schedulerName": OURS if chance.random() < 0.8 else "default-scheduler",
            "containers": [self._container("main")],
        }
        status: Wire = {"phase": "Pending"}
        self._constrain(spec)
        if chance.random() < self._bound and world.nodes:
            spec["nodeName"] = chance.choice(world.nodes)["metadata"]["name"]
            if chance.random() < 0.05:
                spec["nodeName"] = "gone"
            status["phase"] = chance.choice(("Pending", *["Running"] * 5, "Succeeded", "Failed", "Unknown"))
            self._report(spec, status)
        elif chance.random() < 0.1:
            spec["schedulingGates"] = [{"name": "example.com/wait"}]
        if chance.random() < 0.15:
            metadata["deletionTimestamp"] = "2026-01-01T01:00:00Z"
        pod = {"metadata": metadata, "spec": spec, "status": status}
        if self._storage is not None:
            self._storage.use(world, pod)
        if self._devices is not None:
            self._devices.use(world, pod)
        return pod

    def pod_labels(self) -> dict[str, str]:
        chance = self.random
        labels = {
            "app": chance.choice(("web", "web", "web", "db", "")),
            "tier": chance.choice("12"),
            "rev": chance.choice("xy"),
        }
        return {key: value for key, value in labels.items() if chance.random() < 0.8}

    def _constrain(self, spec: Wire) -> None:
        chance, topics = self.random, self.topics
        if "TaintToleration" in topics or "NodeUnschedulable" in topics:
            spec["tolerations"] = [self._toleration() for _ in range(chance.choice((0, 0, 1, 2, 3)))]
        affinity: Wire = {}
        if "NodeAffinity" in topics:
            if chance.random() < 0.3:
                spec["nodeSelector"] = {chance.choice((ZONE, "disk", "rack")): chance.choice(("a", "ssd", ""))}
            if chance.random() < 0.4:
                affinity["nodeAffinity"] = {
                    "requiredDuringSchedulingIgnoredDuringExecution": {
                        "nodeSelectorTerms": [self._node_term() for _ in range(chance.choice((1, 1, 2)))]
                    }
                }
        if "InterPodAffinity" in topics:
            for kind, likely in (("podAffinity", 0.3), ("podAntiAffinity", 0.35)):
                if chance.random() < likely:
                    terms = [self._affinity_term() for _ in range(chance.choice((1, 1, 1, 2)))]
                    affinity[kind] = {"requiredDuringSchedulingIgnoredDuringExecution": terms}
        if affinity:
            spec["affinity"] = affinity
        if "PodTopologySpread" in topics and chance.random() < 0.6:
            keys = chance.sample((ZONE, ZONE, HOST, HOST, "disk"), chance.choice((1, 1, 2)))
            spec["topologySpreadConstraints"] = [self._spread(key) for key in keys]
        if "NodePorts" in topics and chance.random() < 0.5:
            spec["containers"][0]["ports"] = [self._port() for _ in range(chance.choice((1, 1, 2)))]
            if chance.random() < 0.3:
                sidecar = {**self._container("beside"), "restartPolicy": chance.choice(("Always", None))}
                sidecar["ports"] = [self._port()]
                spec["initContainers"] = [sidecar]
        if "NodeResourcesFit" in topics:
            spec["containers"] = [self._container(f"c{at}") for at in range(chance.choice((1, 1, 2)))]
            spec["initContainers"] = [self._init_container(at) for at in range(chance.choice((0, 0, 1, 2, 3)))]
            if chance.random() < 0.2:
                spec["overhead"] = {"cpu": "250m", "memory": "120Mi"}
            if chance.random() < 0.2:
                spec["resources"] = {"requests": self._amounts(("cpu", "memory"))}
        if "NodeDeclaredFeatures" in topics:
            spec["hostNetwork"] = chance.random() < 0.5
            spec["hostUsers"] = chance.choice((True, False, None))
            if chance.random() < 0.3:
                spec["containers"][0]["restartPolicyRules"] = [{"action": "RestartAllContainers"}]

    def _toleration(self) -> Wire:
        chance = self.random
        operator = chance.choice(("Equal", "Exists", "", "Lt", "Gt"))
        toleration: Wire = {"key": chance.choice(("dedicated", "gpu", "level")), "operator": operator}
        if chance.random() < 0.15:
            toleration = {"operator": "Exists"}
        elif operator in ("Lt", "Gt"):
            toleration["value"] = chance.choice(("5", "0", "-10"))
        elif operator != "Exists" and chance.random() < 0.8:
            toleration["value"] = chance.choice(("a", "b", "1"))
        if chance.random() < 0.6:
            toleration["effect"] = chance.choice(("NoSchedule", "NoExecute", "PreferNoSchedule"))
        if chance.random() < 0.1:
            toleration = {"key": "node.kubernetes.io/unschedulable", "operator": "Exists", "effect": "NoSchedule"}
        return toleration

    def _node_term(self) -> Wire:
        chance = self.random
        term: Wire = {}
        if chance.random() < 0.85:
            term["matchExpressions"] = [self._node_expression() for _ in range(chance.choice((1, 1, 2)))]
        if chance.random() < 0.25:
            field = {"key": "metadata.name", "operator": chance.choice(("In", "NotIn")), "values": ["n1"]}
            term["matchFields"] = [field]
        return term

    def _node_expression(self) -> Wire:
        chance = self.random
        operator = chance.choice(("In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt"))
        if operator in ("Gt", "Lt"):
            return {"key": "cores", "operator": operator, "values": [chance.choice(("4", "7", "-5"))]}
        expression: Wire = {"key": chance.choice((ZONE, "disk", "rack", HOST)), "operator": operator}
        if operator in ("In", "NotIn"):
            expression["values"] = chance.sample(("a", "b", "ssd", "", "n1"), chance.choice((1, 2)))
        return expression

    def _affinity_term(self) -> Wire:
        chance = self.random
        term: Wire = {"topologyKey": chance.choice((ZONE, ZONE, HOST, "rack"))}
        selector = self._selector()
        if selector is not None:
            term["labelSelector"] = selector
        if chance.random() < 0.25:
            term["namespaces"] = chance.sample(sorted(NAMESPACES), chance.choice((1, 2)))
        if chance.random() < 0.25:
            term["namespaceSelector"] = chance.choice(
                (
                    {},
                    {"matchLabels": {"team": "a"}},
                    {"matchExpressions": [{"key": "team", "operator": "NotIn", "values": ["a"]}]},
                    {"matchExpressions": [{"key": "env", "operator": "DoesNotExist"}]},
                )
            )
        return term

    def _selector(self) -> dict[str, Any] | None:
        chance = self.random
        return chance.choice(
            (
                None,
                {},
                *[{"matchLabels": {"app": "web"}}] * 4,
                {"matchLabels": {"app": "db", "tier": "1"}},
                {"matchLabels": {"app": ""}},
                {"matchExpressions": [{"key": "app", "operator": "In", "values": ["web", "db"]}]},
                {"matchExpressions": [{"key": "app", "operator": "NotIn", "values": ["web"]}]},
                {"matchExpressions": [{"key": "tier", "operator": "Exists"}]},
                {"matchExpressions": [{"key": "tier", "operator": "DoesNotExist"}], "matchLabels": {"app": "web"}},
            )
        )

    def _spread(self, key: str) -> Wire:
        chance = self.random
        constraint: Wire = {
            "topologyKey": key,
            "maxSkew": chance.choice((1, 1, 2)),
            "whenUnsatisfiable": chance.choice(
                ("DoNotSchedule", "DoNotSchedule", "DoNotSchedule", "ScheduleAnyway")
            ),
        }
        selector = self._selector()
        if selector is not None:
            constraint["labelSelector"] = selector
            if chance.random() < 0.25:
                constraint["matchLabelKeys"] = ["rev", "absent"]
        if constraint["whenUnsatisfiable"] == "DoNotSchedule" and chance.random() < 0.3:
            constraint["minDomains"] = chance.choice((1, 3, 4, 5))
        if chance.random() < 0.35:
            constraint["nodeAffinityPolicy"] = chance.choice(("Honor", "Ignore"))
        if chance.random() < 0.35:
            constraint["nodeTaintsPolicy"] = chance.choice(("Honor", "Ignore"))
        return constraint

    def _port(self) -> Wire:
        chance = self.random
        port: Wire = {"containerPort": chance.choice((80, 53))}
        if chance.random() < 0.8:
            port["hostPort"] = chance.choice((8080, 8080, 53))
        if chance.random() < 0.5:
            port["protocol"] = chance.choice(("TCP", "UDP"))
        if chance.random() < 0.5:
            port["hostIP"] = chance.choice(("127.0.0.1", "10.0.0.1", "0.0.0.0", ""))
        return port

    def _container(self, name: str) -> Wire:
        if "NodeResourcesFit" not in self.topics:
            return {"name": name}
        names = ("cpu", "memory", "ephemeral-storage", "example.com/gpu", "hugepages-2Mi")
        resources: Wire = {"requests": self._amounts(names)}
        if self.random.random() < 0.2:
            resources["limits"] = self._amounts(names)
        return {"name": name, "resources": resources}

    def _init_container(self, at: int) -> Wire:
        container = self._container(f"i{at}")
        if self.random.random() < 0.5:
            container["restartPolicy"] = "Always"
        return container

    def _amounts(self, names: tuple[str, ...]) -> Wire:
        chance = self.random
        choices = {
            "cpu": ("500m", "1", "1.5", "0.1", "100u", "2", 0),
            "memory": ("1Gi", "100m", "512Mi", "1e9", "1.5Gi", 0),
            "ephemeral-storage": ("1Gi", "2"),
            "example.com/gpu": ("1", "2", "0"),
            "hugepages-2Mi": ("2Mi", "32Mi"),
        }
        return {name: chance.choice(choices[name]) for name in names if chance.random() < 0.4}

    def _report(self, spec: Wire, status: Wire) -> None:
        """Return a kubelet's report on resources, during a resize and otherwise."""
        chance = self.random
        if "NodeResourcesFit" not in self.topics or chance.random() < 0.6:
            return
        for field, containers in (("containerStatuses", "containers"), ("initContainerStatuses", "initContainers")):
            entries = []
            for container in spec.get(containers) or []:
                entry: Wire = {"name": container["name"]}
                if chance.random() < 0.7:
                    entry["resources"] = {"requests": self._amounts(("cpu", "memory"))}
                    entry["allocatedResources"] = self._amounts(("cpu", "memory"))
                entries.append(entry)
            status[field] = entries
        if chance.random() < 0.4:
            reason = chance.choice(("Infeasible", "Deferred"))
            status["conditions"] = [{"type": "PodResizePending", "status": "True", "reason": reason}]
        if "resources" in spec and chance.random() < 0.5:
            status["resources"] = {"requests": self._amounts(("cpu", "memory"))}
            status["allocatedResources"] = self._amounts(("cpu", "memory"))
