"""Board of elastic quotas for scenarios: one namespace and quota each, their Deployments, and their use."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from phalanx.demo.stage import GPU, NodePlan, ScenarioError, ScenarioRun, StagePod
from phalanx.kube.client import PatchType
from phalanx.kube.paths import Resource
from phalanx.model.resources import CPU, parse_amount
from phalanx.scheduling.refusals.over_quota import QUOTA_EXCEEDED

QUOTAS = Resource("scheduling.x-k8s.io", "v1alpha1", "elasticquotas", "ElasticQuota")
DEPLOYMENTS = Resource("apps", "v1", "deployments", "Deployment")
PRIORITY_CLASSES = Resource("scheduling.k8s.io", "v1", "priorityclasses", "PriorityClass", namespaced=False)


class QuotaLimits(msgspec.Struct, frozen=True):
    """Limits of a quota in whole units of the scenario's resource."""

    least: int
    most: int


class QuotaBoard:
    """Quotas of a scenario by namespace, all for one resource."""

    def __init__(self, stage: ScenarioRun, resource: str) -> None:
        self.stage = stage
        self._resource = resource
        self._quotas: dict[str, QuotaLimits] = {}

    async def quota(self, namespace: str, least: int, most: int) -> None:
        """Create a namespace with its ElasticQuota."""
        await self.stage.enter(namespace)
        amounts = {"min": {self._resource: least}, "max": {self._resource: most}}
        await self.stage.create(QUOTAS, {"metadata": {"name": namespace}, "spec": amounts})
        self._quotas[namespace] = QuotaLimits(least, most)

    async def deploy(
        self, namespace: str, name: str, replicas: int, amount: int = 1, priority_class: str = ""
    ) -> None:
        """Create a Deployment of pods that each request `amount` of the resource."""
        self.stage.namespace = namespace
        await self.stage.create(DEPLOYMENTS, deployment(name, replicas, {self._resource: amount}, priority_class))

    async def scale(self, namespace: str, name: str, replicas: int) -> None:
        patch = {"spec": {"replicas": replicas}}
        await self.stage.client.patch(DEPLOYMENTS.path(namespace, name), patch, PatchType.MERGE)

    async def until_used(self, **expected: int) -> None:
        """Wait until pods and the quotas' status use exactly these amounts, then show the board.

        Raises ScenarioError.

        `expected` has the amount by namespace (`_` stands for `-`).
        """
        wanted = {name.replace("_", "-"): amount for name, amount in expected.items()}
        used_by_pods: dict[str, int] = {}
        used_in_status: dict[str, int] = {}

        async def settled() -> bool:
            for namespace in wanted:
                used_by_pods[namespace] = sum(self._amount(pod) for pod in await self._on_nodes(namespace))
                used_in_status[namespace] = await self._used_in_status(namespace)
            return used_by_pods == wanted and used_in_status == wanted

        try:
            await self.stage.until(settled, f"{_words(wanted)} are used")
        except ScenarioError as error:
            raise ScenarioError(
                f"{error}; pods on nodes use {_words(used_by_pods)}, status.used {_words(used_in_status)}"
            ) from None
        self.show(used_in_status)

    def show(self, used: Mapping[str, int]) -> None:
        unit = self._resource.rpartition("/")[2]
        width = max(map(len, self._quotas)) + 3
        lines = [f"{'QUOTA':{width}}{'MIN':>5}{'MAX':>5}{'USED':>6}   {unit}"]
        for namespace, quota in self._quotas.items():
            amount = used[namespace]
            within = min(amount, quota.least)
            boxes = "█" * within + "▓" * (amount - within) + "░" * (quota.least - within)
            lines.append(f"{namespace:{width}}{quota.least:>5}{quota.most:>5}{amount:>6}   {boxes}".rstrip())
        self.stage.say("\n".join(lines))

    async def waits(self, namespace: str, prefix: str, *texts: str) -> None:
        """Check that one pod waits for its quota, with all `texts` in its message. Raises ScenarioError."""
        self.stage.namespace = namespace
        waiting = await self.stage.until_explained(1, prefix)

        async def explained() -> bool:
            waiting[:] = await self.stage.until_explained(1, prefix)
            waiting_pod = waiting[0]
            return (
                len(waiting) == 1
                and waiting_pod.reason == QUOTA_EXCEEDED
                and all(part in waiting_pod.message for part in texts)
            )

        try:
            await self.stage.until(explained, f"one pod {prefix}* waits with {', '.join(texts)}", patience=10)
        except ScenarioError as error:
            observed = "; ".join(f"{pod.reason}: {pod.message}" for pod in waiting)
            raise ScenarioError(f"{error}; observed {observed}") from None
        self.stage.say(f"pod {namespace}/{waiting[0].name} waits:\n{waiting[0].message}")

    async def running(self, namespace: str) -> set[str]:
        """Return the names of the running pods."""
        return {pod.name for pod in await self._on_nodes(namespace)}

    async def evicted(self, namespace: str, before: set[str], prefix: str, count: int = 1) -> None:
        """Wait until exactly `count` pods, all with the name prefix, were evicted; show why one was.

        Raises ScenarioError.
        """
        gone: set[str] = set()

        async def left() -> bool:
            self.stage.namespace = namespace
            gone.update(before - {pod.name for pod in await self.stage.pods()})
            return len(gone) >= count

        await self.stage.until(left, f"{count} pods of {namespace} have been evicted")
        if len(gone) != count or not all(name.startswith(prefix) for name in gone):
            raise ScenarioError(
                f"expected {count} evicted pods {prefix}* of {namespace}, observed {', '.join(sorted(gone))}"
            )
        await self.why(namespace, min(gone), "was evicted")

    async def why(self, namespace: str, prefix: str, *texts: str) -> None:
        """Show `phalanx why` for a pod, and check that it prints all `texts`. Raises ScenarioError."""
        self.stage.namespace = namespace
        name = next((pod.name for pod in await self.stage.pods() if pod.name.startswith(prefix)), prefix)
        shown = await self.stage.show_command("why", f"pod/{name}", "-n", namespace)
        missing = [part for part in texts if part not in shown]
        if missing:
            raise ScenarioError(f"phalanx why pod/{name} does not print {'; '.join(missing)}")

    async def usage_stays(self, **expected: int) -> None:
        """Check for a second that the use of each namespace does not change. Raises ScenarioError."""
        for name, amount in expected.items():
            namespace = name.replace("_", "-")
            self.stage.namespace = namespace
            await self.stage.stays(
                1.0 / len(expected),
                lambda pods, amount=amount: sum(self._amount(pod) for pod in pods if pod.node) == amount,  # type: ignore[misc]
                f"the pods of {namespace} keep running",
            )

    async def _on_nodes(self, namespace: str) -> list[StagePod]:
        self.stage.namespace = namespace
        return [pod for pod in await self.stage.pods() if pod.node and pod.running]

    async def _used_in_status(self, namespace: str) -> int:
        quota = await self.stage.client.get(QUOTAS.path(namespace, namespace))
        used = (quota.get("status") or {}).get("used") or {}
        return self._whole(used.get(self._resource, "0"))

    def _amount(self, pod: StagePod) -> int:
        return self._whole(pod.requests.get(self._resource, "0"))

    def _whole(self, quantity: object) -> int:
        scale = 1000 if self._resource == CPU else 1
        return parse_amount(self._resource, quantity) // scale


def deployment(name: str, replicas: int, amounts: Mapping[str, object], priority_class: str = "") -> dict[str, Any]:
    """Return the Deployment of KEP 9's examples, for our scheduler."""
    resources = {"limits": dict(amounts), "requests": dict(amounts)}
    spec: dict[str, Any] = {
        "schedulerName": "phalanx",
        "containers": [{"name": name, "image": "nginx", "resources": resources}],
    }
    if priority_class:
        spec["priorityClassName"] = priority_class
    return {
        "metadata": {"name": name, "labels": {"app": name}},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": {"app": name}},
            "template": {"metadata": {"name": name, "labels": {"app": name}}, "spec": spec},
        },
    }


def gpu_nodes(*counts: int) -> tuple[NodePlan, ...]:
    return tuple(
        NodePlan(f"gpu-{place}", {"cpu": "32", "memory": "128Gi", GPU: str(count)})
        for place, count in enumerate(counts)
    )


def _words(amounts: Mapping[str, int]) -> str:
    return ", ".join(f"{name} {amount}" for name, amount in amounts.items())
