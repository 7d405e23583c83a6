"""Scenario of gang preemption: an urgent job evicts one whole less important job, not pods of several jobs."""

from __future__ import annotations

from phalanx.demo.quota_board import PRIORITY_CLASSES, gpu_nodes
from phalanx.demo.stage import Scenario, ScenarioError, ScenarioRun, StagePod
from phalanx.demo.workloads import finish, job_of, running, submit, uids, until

_NIGHTLY = {"metadata": {"name": "nightly"}, "value": 10}
_URGENT = {"metadata": {"name": "urgent"}, "value": 1000}


class GangPreemption(Scenario):
    name = "gang-preemption"
    summary = "an urgent job of four evicts one whole job, not two pods of each of two jobs"
    nodes = gpu_nodes(4, 4)

    async def play(self, stage: ScenarioRun) -> None:
        await stage.enter("jobs")
        for priority_class in (_NIGHTLY, _URGENT):
            await stage.create(PRIORITY_CLASSES, priority_class)
        stage.title("Two nightly jobs of four fill the cluster")
        await submit(stage, "night-a", 4, priority_class="nightly", stops=4)
        await stage.until_running(4)
        await submit(stage, "night-b", 4, priority_class="nightly", stops=4)
        before = await until(stage, night_a=4, night_b=4)
        if any(len({pod.node for pod in before if job_of(pod.name) == job}) != 2 for job in ("night-a", "night-b")):
            raise ScenarioError("expected both jobs on both nodes")
        stage.say("both jobs run on both nodes; priority nightly (10)")

        stage.title("An urgent job of four is submitted")
        await submit(stage, "now", 4, priority_class="urgent")
        stage.say(
            "submitted job now: 4 pods, priority urgent (1000)\n"
            "two pods of each job would free as much, but then neither job could continue"
        )
        loser = await _evicted_job(stage)
        keeper = "night-a" if loser == "night-b" else "night-b"
        victim = next(pod.name for pod in before if job_of(pod.name) == loser)
        await stage.show_command("why", "podgroup/now", "-n", "jobs")
        await stage.show_command("why", f"pod/{victim}", "-n", "jobs")
        after = await until(stage, now=4, **{keeper.replace("-", "_"): 4})
        if uids(after, keeper) != uids(before, keeper):
            raise ScenarioError(f"pods of {keeper} were replaced")
        stage.say(f"{loser} was evicted as a whole, and no pod of {keeper} was evicted")

        stage.title("The evicted job waits as one gang, and starts again as one")
        await stage.until_explained(4, loser)
        shown = await stage.show_command("why", f"podgroup/{loser}", "-n", "jobs")
        if "their priority 10 is not lower" not in shown:
            raise ScenarioError(f"expected the reason why no pod is evicted for {loser}")
        await finish(stage, "now")
        stage.say("job now is done")
        await until(stage, night_a=4, night_b=4)

        stage.title("No pod is evicted for a job that would still not fit")
        await submit(stage, "huge", 9, priority_class="urgent")
        stage.say("submitted job huge: 9 pods, priority urgent; the cluster has 8 GPUs")
        await stage.until_explained(9, "huge")
        await stage.stays(2.0, lambda pods: running(pods) == {"night-a": 4, "night-b": 4}, "no pod is evicted")
        shown = await stage.show_command("why", "podgroup/huge", "-n", "jobs")
        if "evicting all other pods would not help" not in shown:
            raise ScenarioError("expected the verdict that evictions do not help")
        stage.say("evictions are decided as a whole: only if the complete job fits afterwards")


async def _evicted_job(stage: ScenarioRun) -> str:
    """Return the one job with terminating pods. Raises ScenarioError."""
    evicted_jobs: set[str] = set()

    def terminating_jobs(pods: list[StagePod]) -> list[str]:
        return [job_of(pod.name) for pod in pods if pod.terminating]

    async def four_terminate() -> bool:
        jobs = terminating_jobs(await stage.pods())
        evicted_jobs.update(jobs)
        return len(jobs) >= 4

    await stage.until(four_terminate, "four pods are terminating")
    if len(evicted_jobs) != 1:
        raise ScenarioError(f"pods of {', '.join(sorted(evicted_jobs))} are terminating")
    return evicted_jobs.pop()
