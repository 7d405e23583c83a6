"""Scenario of reclaim: a queue evicts surplus pods first, and reclaims no more than its share."""

from __future__ import annotations

from phalanx.demo.queues import QUEUES
from phalanx.demo.quota_board import gpu_nodes
from phalanx.demo.stage import Scenario, ScenarioError, ScenarioRun
from phalanx.demo.workloads import finish, running, submit, uids, until


class Reclaim(Scenario):
    name = "reclaim"
    summary = "queues 2 : 1 on 12 GPUs: research borrows all, production reclaims its share, and not one GPU more"
    nodes = gpu_nodes(4, 4, 4)

    async def play(self, stage: ScenarioRun) -> None:
        await stage.enter("jobs")
        stage.title("research uses the whole cluster: production is idle")
        for name, weight in (("production", 2), ("research", 1)):
            await stage.create(QUEUES, {"metadata": {"name": name}, "spec": {"weight": weight}})
        stage.say("created queue production (weight 2) and research (weight 1)")
        await submit(stage, "train", 4, queue="research")
        await stage.until_running(4)
        await submit(stage, "sweep", 8, minimum=2, queue="research")
        stage.say("submitted to research: job train needs all of its 4 pods, job sweep 2 of its 8")
        before = await until(stage, train=4, sweep=8)

        stage.title("production requests 6: sweep has 6 surplus pods")
        await submit(stage, "release", 6, queue="production")
        stage.say("submitted job release to production, which needs all of its 6 pods")
        after = await until(stage, train=4, sweep=2, release=6)
        gone = uids(before, "sweep") - uids(after, "sweep")
        name = next(pod.name for pod in before if pod.uid in gone)
        await stage.show_command("why", f"pod/{name}", "-n", "jobs")
        stage.say("6 pods of sweep were evicted; both jobs of research have their minimum and keep running")

        stage.title("production requests its last 2: the smaller job has to stop")
        await submit(stage, "hotfix", 2, queue="production")
        after = await until(stage, train=4, release=6, hotfix=2)
        if uids(after, "train") != uids(before, "train"):
            raise ScenarioError("pods of train were replaced")
        await stage.show_command("queue", "list")
        stage.say("sweep was evicted as a whole and waits; no pod of train was evicted")

        stage.title("production requests more than its deserved share")
        await submit(stage, "extra", 1, queue="production")
        await stage.until_explained(1, "extra")
        now = {"train": 4, "release": 6, "hotfix": 2}
        await stage.stays(2.0, lambda pods: running(pods) == now, "no pod is evicted")
        shown = await stage.show_command("why", "podgroup/extra", "-n", "jobs")
        if "Evictions do not help" not in shown:
            raise ScenarioError("expected the verdict that evictions do not help")
        stage.say("8 of 12 are its share: research uses only its own share now")

        stage.title("Unused shares are borrowed again")
        await finish(stage, "extra")
        await finish(stage, "release")
        stage.say("jobs release and extra are done")
        await until(stage, train=4, hotfix=2, sweep=6)
