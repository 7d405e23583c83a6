"""Stage of a scenario: a cluster, a clock, and a timeline on the terminal."""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

import msgspec
import yaml

from phalanx.daemon.policy_file import dialect_options, read_policy
from phalanx.demo.localcluster import LocalCluster
from phalanx.execution.conditions import ADMITTED, POD_SCHEDULED
from phalanx.kube.core_resources import NAMESPACES, PODS
from phalanx.kube.errors import ApiError
from phalanx.kube.paths import Resource
from phalanx.model.gang import GangKey
from phalanx.reports.snapshot import read_cluster
from phalanx.reports.why import WhyReport
from phalanx.reports.why_answer import WhyAnswer

GPU = "nvidia.com/gpu"
_POLL = 0.05
_PATIENCE = 30.0


def counts_text(counts: Mapping[str, int]) -> str:
    """Return counts by name as text, such as "default: 3, research: 6"."""
    return ", ".join(f"{name}: {count}" for name, count in sorted(counts.items())) or "none"


class ScenarioError(Exception):
    """Failure of the cluster to behave as the scenario claims."""


class StagePod(msgspec.Struct, frozen=True):
    name: str
    phase: str
    node: str
    reason: str
    message: str
    gpus: int
    started: str
    requests: Mapping[str, str] = {}
    uid: str = ""
    terminating: bool = False

    @property
    def running(self) -> bool:
        return self.phase == "Running"


class NodePlan(msgspec.Struct, frozen=True):
    """Node of a scenario, with amounts in Kubernetes' notation."""

    name: str
    amounts: Mapping[str, str]


class Scenario:
    """Demo scenario; `nodes` exist at the start, and `play` acts and checks, or raises ScenarioError.

    `policy` is the scenario's policy file, "" for the built-in one. With `executes` the commands of its pods run as
    processes on this machine.
    """

    name: ClassVar[str]
    summary: ClassVar[str]
    nodes: ClassVar[tuple[NodePlan, ...]]
    policy: ClassVar[str] = ""
    executes: ClassVar[bool] = False

    async def play(self, stage: ScenarioRun) -> None:
        raise NotImplementedError


class ScenarioRun:
    """Run of a scenario; every shown line has the seconds since its start."""

    def __init__(self, cluster: LocalCluster, scenario: Scenario, show: Callable[[str], None]) -> None:
        self.cluster = cluster
        self.client = cluster.client
        self.namespace = "default"
        self._show = show
        self._began = time.monotonic()
        self._nodes = list(scenario.nodes)

    # Output.

    def title(self, text: str) -> None:
        self._show(f"\n── {text} " + "─" * max(0, 74 - len(text)))

    def say(self, text: str) -> None:
        first, *continuation = text.splitlines()
        self._show(f"{time.monotonic() - self._began:6.1f} s  {first}")
        for line in continuation:
            self._show(f"          {line}")

    async def show_pods(self) -> None:
        """Show the pods as in `kubectl get pods`, with their nodes."""
        pods = await self.pods()
        width = max((len(pod.name) for pod in pods), default=4) + 2
        lines = [f"{'POD':{width}}{'STATUS':11}NODE"]
        lines += [f"{pod.name:{width}}{pod.phase:11}{pod.node or '-'}" for pod in pods]
        self.say("\n".join(lines))

    async def show_gpus(self, name: Callable[[str], str] | None = None) -> None:
        """Show each node's GPUs, one box each, with the name of its pod, changed by `name`."""
        pods = [pod for pod in await self.pods() if pod.node and pod.phase in ("Running", "Pending")]
        lines = []
        for node in self._nodes:
            total = int(node.amounts.get(GPU, "0"))
            holders = [pod.name for pod in pods if pod.node == node.name for _ in range(pod.gpus)]
            labels = sorted(map(name, holders)) if name is not None else holders
            boxes = [f"[{_short(label)}]" for label in labels] + ["[  free  ]"] * (total - len(holders))
            lines.append(f"{node.name}  {' '.join(boxes)}")
        self.say("\n".join(lines))

    async def show_why(self, gang: str) -> WhyAnswer:
        """Show the output of `phalanx why podgroup/NAME`; return the answer."""
        answer = await self.why(gang)
        text = f"$ phalanx why podgroup/{gang}\n{answer.message}"
        if answer.change:
            text += f"\nfix: {answer.change}"
        self.say(text)
        return answer

    async def show_command(self, *arguments: str) -> str:
        """Show and return the output of a phalanx command on the cluster. Raises ScenarioError."""
        options = self.cluster.options
        cluster_options = ["--kubeconfig", str(options.kubeconfig)]
        cluster_options += ["--config", options.policy] if options.policy else []
        child = await asyncio.create_subprocess_exec(
            sys.executable,
            *("-m", "phalanx.cli", *arguments, *cluster_options),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )
        output, _ = await child.communicate()
        if child.returncode:
            raise ScenarioError(f"phalanx {' '.join(arguments)} failed: {output.decode()}")
        text = output.decode().rstrip()
        self.say(f"$ phalanx {' '.join(arguments)}\n{text}")
        return text

    # Actions.

    async def enter(self, namespace: str) -> None:
        """Create a namespace and use it from now on."""
        await self._create(NAMESPACES.path(), {"metadata": {"name": namespace}})
        self.namespace = namespace

    async def create(self, resource: Resource, document: Mapping[str, Any]) -> None:
        body = {"apiVersion": resource.api_version, "kind": resource.kind, **document}
        await self._create(resource.path(self.namespace), body)

    async def create_pods(self, documents: Sequence[Mapping[str, Any]]) -> None:
        for document in documents:
            await self.create(PODS, document)

    async def delete_pods(self, *names: str) -> None:
        """Delete the named pods, or all, and wait until they no longer exist."""
        deleted = set(names) or {pod.name for pod in await self.pods()}
        for name in sorted(deleted):
            await self.client.delete(PODS.path(self.namespace, name), grace_seconds=0)

        async def gone() -> bool:
            return not deleted & {pod.name for pod in await self.pods()}

        await self.until(gone, "the pods are deleted")

    async def change_policy(self, text: str) -> None:
        """Write the policy file of the scenario; the scheduler reloads it. Raises ScenarioError."""
        file = policy_file(self.cluster.options.directory)
        if self.cluster.options.policy != str(file):
            raise ScenarioError("this scenario changes its policy: play it without --policy")
        file.write_text(text, "utf-8")

    async def add_nodes(self, *nodes: NodePlan) -> None:
        """Add nodes to the nodes file; their kubelets register them."""
        self._nodes += nodes
        write_nodes(self.cluster, self._nodes)

    # Observation.

    async def pods(self) -> list[StagePod]:
        listed = await self.client.list_all(PODS.path(self.namespace))
        return sorted((_view(item) for item in listed["items"]), key=lambda pod: pod.name)

    async def why(self, gang: str) -> WhyAnswer:
        policy = read_policy(self.cluster.options.policy)
        snapshot = await read_cluster(self.client, self.cluster.options.scheduler_names, dialect_options(policy))
        answer = WhyReport(snapshot, policy, time.time()).gang(GangKey(self.namespace, gang))
        if answer is None:
            raise ScenarioError(f"unknown gang {self.namespace}/{gang}")
        return answer

    async def until(self, holds: Callable[[], Awaitable[bool]], what: str, patience: float = _PATIENCE) -> None:
        """Wait until a condition holds. Raises ScenarioError."""
        deadline = time.monotonic() + patience
        while not await holds():
            if time.monotonic() > deadline:
                raise ScenarioError(f"waited {patience:.0f} s in vain until {what}")
            await asyncio.sleep(_POLL)

    async def until_running(self, count: int, prefix: str = "") -> list[StagePod]:
        """Wait until `count` pods with the name prefix run; return the running ones."""

        async def enough() -> bool:
            return sum(pod.running and pod.name.startswith(prefix) for pod in await self.pods()) >= count

        await self.until(enough, f"{count} pods {prefix + '* ' if prefix else ''}run")
        return [pod for pod in await self.pods() if pod.running and pod.name.startswith(prefix)]

    async def until_explained(self, count: int, prefix: str = "") -> list[StagePod]:
        """Wait until `count` waiting pods have a reason in their conditions; return the waiting ones."""

        async def explained() -> bool:
            return sum(_waits(pod) and pod.name.startswith(prefix) for pod in await self.pods()) >= count

        await self.until(explained, f"{count} pods have a reason for their wait")
        return [pod for pod in await self.pods() if _waits(pod) and pod.name.startswith(prefix)]

    async def stays(self, seconds: float, holds: Callable[[list[StagePod]], bool], what: str) -> None:
        """Check for some time that a condition holds. Raises ScenarioError."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            if not holds(await self.pods()):
                raise ScenarioError(f"expected that {what}, but it changed")
            await asyncio.sleep(_POLL)

    async def _create(self, path: str, body: Mapping[str, Any]) -> None:
        try:
            await self.client.create(path, body)
        except ApiError as error:
            raise ScenarioError(f"the API server rejected an object of the scenario: {error}") from error


def write_nodes(cluster: LocalCluster, nodes: Sequence[NodePlan]) -> None:
    entries = [{"name": node.name, "allocatable": dict(node.amounts)} for node in nodes]
    cluster.options.nodes_file.write_text(yaml.safe_dump(entries), "utf-8")


def policy_file(directory: Path) -> Path:
    return directory / "policy.yaml"


def write_policy(directory: Path, scenario: Scenario) -> str:
    """Write the scenario's own policy to a file; return its path, "" without a policy."""
    if not scenario.policy:
        return ""
    file = policy_file(directory)
    file.write_text(scenario.policy, "utf-8")
    return str(file)


def pod(
    name: str,
    *,
    requests: Mapping[str, str],
    labels: Mapping[str, str] | None = None,
    annotations: Mapping[str, str] | None = None,
    run_seconds: float | None = None,
) -> dict[str, Any]:
    """Return a pod of one container for our scheduler; with `run_seconds` it succeeds after that time."""
    notes = dict(annotations or {})
    if run_seconds is not None:
        notes["phalanx.dev/run-seconds"] = f"{run_seconds:g}"
    limits = {key: value for key, value in requests.items() if "/" in key}
    return {
        "metadata": {"name": name, "labels": dict(labels or {}), "annotations": notes},
        "spec": {
            "schedulerName": "phalanx",
            "restartPolicy": "Never",
            "containers": [
                {
                    "name": "main",
                    "image": "registry.invalid/main",
                    "resources": {"requests": dict(requests), "limits": limits},
                }
            ],
        },
    }


def _view(item: Mapping[str, Any]) -> StagePod:
    spec, status = item["spec"], item.get("status") or {}
    # A pod that waits for quota must not trigger autoscalers, so its reason is in another condition.
    condition: Mapping[str, Any] = next(
        (
            entry
            for entry in status.get("conditions") or ()
            if entry["type"] in (POD_SCHEDULED, ADMITTED) and entry["status"] == "False"
        ),
        {},
    )
    gpus = sum(
        int(container.get("resources", {}).get("requests", {}).get(GPU, 0)) for container in spec["containers"]
    )
    return StagePod(
        name=item["metadata"]["name"],
        phase=status.get("phase", "Pending"),
        node=spec.get("nodeName", ""),
        reason=condition.get("reason", ""),
        message=condition.get("message", ""),
        gpus=gpus,
        started=status.get("startTime", ""),
        requests=spec["containers"][0].get("resources", {}).get("requests", {}),
        uid=item["metadata"]["uid"],
        terminating="deletionTimestamp" in item["metadata"],
    )


def _waits(view: StagePod) -> bool:
    return not view.node and bool(view.reason)


def _short(name: str) -> str:
    """Return the last eight characters of a name, which distinguish members."""
    return f"{name[-8:]:8}"
