"""Scenario of queues that share a cluster by weight and borrow unused shares."""

from __future__ import annotations

from collections.abc import Mapping

from phalanx.demo.quota_board import gpu_nodes
from phalanx.demo.stage import GPU, NodePlan, Scenario, ScenarioError, ScenarioRun, StagePod, counts_text, pod
from phalanx.kube.paths import Resource

QUEUES = Resource("scheduling.volcano.sh", "v1beta1", "queues", "Queue", namespaced=False)
QUEUE_NAME = "scheduling.volcano.sh/queue-name"


class Queues(Scenario):
    name = "queues"
    summary = "two queues share 12 GPUs 2 : 1 and borrow the share of a third queue until it has pending jobs"
    # The GPUs are added after all jobs are submitted, so that no job has a head start.
    nodes = (NodePlan("cpu-0", {"cpu": "8", "memory": "32Gi"}),)
    # The policy has no evicting actions: borrowed shares are returned as jobs end.
    policy = """\
actions: "enqueue, allocate, backfill"
tiers:
- plugins:
  - name: priority
  - name: gang
- plugins:
  - name: drf
  - name: predicates
  - name: proportion
  - name: nodeorder
"""

    async def play(self, stage: ScenarioRun) -> None:
        await stage.enter("jobs")
        stage.title("Each queue requests more than its share")
        for name, weight in (("production", 2), ("research", 1)):
            await stage.create(QUEUES, {"metadata": {"name": name}, "spec": {"weight": weight}})
        stage.say(
            "created queue production (weight 2) and research (weight 1); default (weight 1) exists and is idle"
        )
        await stage.create_pods([_job("research", number) for number in range(12)])
        await stage.create_pods([_job("production", number) for number in range(12)])
        stage.say(
            "submitted 12 jobs with a GPU each to research, then 12 to production: the cluster has no GPU yet"
        )
        await stage.add_nodes(*gpu_nodes(12))
        stage.say("added node gpu-0 with 12 GPUs")
        await _until(stage, {"production": 8, "research": 4})
        stage.say("8 and 4 run, 2 : 1 by weight; research was first, which does not matter")
        stage.title("The share of the idle queue is borrowed")
        await stage.show_command("queue", "tree")
        stage.say("with three active queues it would be 6 : 3 : 3, so both borrow from default")
        stage.title("default requests its share, and jobs end")
        await stage.create_pods([_job("default", number) for number in range(4)])
        await stage.until_explained(1, "default")
        await stage.stays(
            1.0, lambda pods: _running(pods) == {"production": 8, "research": 4}, "no job is evicted for default"
        )
        stage.say(
            "submitted 4 jobs to default: they wait, no running job is evicted for them\n"
            "(this policy does not name the action reclaim; see phalanx demo reclaim)"
        )
        done = [entry.name for entry in await stage.pods() if entry.running]
        ended = sorted(name for name in done if name.startswith("production"))[:2]
        ended += sorted(name for name in done if name.startswith("research"))[:1]
        await stage.delete_pods(*ended)
        stage.say("2 jobs of production and 1 of research have ended; further jobs of both are pending")
        await _until(stage, {"default": 3, "production": 6, "research": 3})
        await stage.show_command("queue", "list")
        stage.say("default has the GPUs that became free: 6 : 3 : 3")


async def _until(stage: ScenarioRun, wanted: Mapping[str, int]) -> None:
    """Wait until exactly these numbers of pods run per queue, and check for a second that this is stable."""
    seen: dict[str, int] = {}

    async def settled() -> bool:
        seen.clear()
        seen.update(_running(await stage.pods()))
        return seen == wanted

    try:
        await stage.until(settled, f"{counts_text(wanted)} run", patience=10)
    except ScenarioError as error:
        raise ScenarioError(f"{error}; observed {counts_text(seen)}") from None
    await stage.stays(1.0, lambda pods: _running(pods) == wanted, f"{counts_text(wanted)} keep running")


def _running(pods: list[StagePod]) -> dict[str, int]:
    """Return the number of running pods by queue."""
    counts: dict[str, int] = {}
    for entry in pods:
        if entry.running:
            queue = entry.name.rpartition("-")[0]
            counts[queue] = counts.get(queue, 0) + 1
    return counts


def _job(queue: str, number: int) -> dict[str, object]:
    return pod(f"{queue}-{number}", requests={"cpu": "1", GPU: "1"}, annotations={QUEUE_NAME: queue})
