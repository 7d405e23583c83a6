"""Scenario of fair sharing: two namespaces in one queue, ten pods beside a thousand."""

from __future__ import annotations

import asyncio

from phalanx.demo.stage import NodePlan, Scenario, ScenarioError, ScenarioRun, pod
from phalanx.kube.core_resources import PODS

_SLOTS = 20
_CREATORS = 16


class FairShare(Scenario):
    name = "fair-share"
    summary = "10 pods of one namespace beside 1,000 of another in the same queue: both get the same share"
    # The CPUs are added after all pods are submitted, so that no pod has a head start.
    nodes = (NodePlan("small-0", {"cpu": "100m", "memory": "1Gi"}),)
    policy = """\
actions: "enqueue, allocate, backfill"
tiers:
- plugins:
  - name: priority
  - name: gang
- plugins:
  - name: fairshare
  - name: predicates
  - name: proportion
  - name: nodeorder
"""

    async def play(self, stage: ScenarioRun) -> None:
        stage.title("A thousand pods are queued, ten follow")
        await _submit(stage, "team-many", 1000)
        stage.say("submitted 1,000 pods with a CPU each in namespace team-many")
        await _submit(stage, "team-few", 10)
        stage.say(
            "submitted 10 in namespace team-few; both use queue default, and the cluster has no free CPU yet\n"
            "the policy names the plugin fairshare"
        )
        await stage.add_nodes(NodePlan("cpu-0", {"cpu": str(_SLOTS), "memory": "64Gi"}))
        stage.say(f"added node cpu-0 with {_SLOTS} CPUs")
        await _until(stage, many=10, few=10)
        stage.say("10 of each run: the order follows the use of each namespace, not its number of queued pods")
        await stage.show_command("queue", "describe", "default")
        stage.title("The share of a namespace without pending pods goes to the other")
        stage.namespace = "team-few"
        await stage.delete_pods()
        stage.say("the pods of team-few have ended")
        await _until(stage, many=_SLOTS, few=0)
        stage.title("team-few submits again while team-many uses all CPUs")
        await _submit(stage, "team-few", 4, first=10)
        stage.namespace = "team-many"
        ended = sorted(await _running(stage, "team-many"))[:4]
        await stage.delete_pods(*ended)
        stage.say("submitted 4 more in team-few; 4 pods of team-many have ended, 976 are queued")
        await _until(stage, many=_SLOTS - 4, few=4)
        stage.say("the 4 pods of team-few start before the 976")


async def _submit(stage: ScenarioRun, namespace: str, count: int, first: int = 0) -> None:
    """Create pods of one CPU each, and the namespace before the first of them."""
    if first == 0:
        await stage.enter(namespace)
    stage.namespace = namespace
    numbers = iter(range(first, first + count))

    async def create() -> None:
        for number in numbers:
            await stage.create_pods([pod(f"p-{number:04}", requests={"cpu": "1"})])

    await asyncio.gather(*[create() for _ in range(_CREATORS)])


async def _until(stage: ScenarioRun, many: int, few: int) -> None:
    """Wait until exactly these numbers of pods run, and check for a second that this is stable."""
    wanted, seen = (many, few), (0, 0)

    async def settled() -> bool:
        nonlocal seen
        seen = (len(await _running(stage, "team-many")), len(await _running(stage, "team-few")))
        return seen == wanted

    try:
        await stage.until(settled, f"{many} and {few} pods run", patience=15)
    except ScenarioError as error:
        raise ScenarioError(f"{error}; observed {seen[0]} and {seen[1]}") from None
    await asyncio.sleep(1.0)
    if not await settled():
        raise ScenarioError(f"expected {many} and {few} pods to keep running, observed {seen[0]} and {seen[1]}")


async def _running(stage: ScenarioRun, namespace: str) -> list[str]:
    params = {"fieldSelector": "status.phase=Running"}
    listed = await stage.client.list_all(PODS.path(namespace), params)
    return [item["metadata"]["name"] for item in listed["items"]]
