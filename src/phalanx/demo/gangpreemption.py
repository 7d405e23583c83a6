"""Gang preemption: an important job makes a whole less important one leave, not several pods of different jobs."""

from __future__ import annotations

from phalanx.demo.quota_board import PRIORITY_CLASSES, gpu_nodes
from phalanx.demo.stage import Scenario, ScenarioError, ScenarioRun, StagePod
from phalanx.demo.workloads import finish, job_of, running, submit, uids, until

_NIGHTLY = {"metadata": {"name": "nightly"}, "value": 10}
_URGENT = {"metadata": {"name": "urgent"}, "value": 1000}


class GangPreemption(Scenario):
    name = "gang-preemption"
    summary = "an urgent job of four takes the room of one whole job, not of two pods of each of two"
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
            raise ScenarioError("the jobs were to share both nodes")
        stage.say("both jobs stand on both nodes; priority nightly (10)")

        stage.title("An urgent job of four comes")
        await submit(stage, "now", 4, priority_class="urgent")
        stage.say(
            "submitted job now: 4 pods, priority urgent (1000)\n"
            "two pods of each job would do as well, and then neither could go on"
        )
        loser = await _loser(stage)
        keeper = "night-a" if loser == "night-b" else "night-b"
        victim = next(pod.name for pod in before if job_of(pod.name) == loser)
        await stage.show_command("why", "podgroup/now", "-n", "jobs")
        await stage.show_command("why", f"pod/{victim}", "-n", "jobs")
        after = await until(stage, now=4, **{keeper.replace("-", "_"): 4})
        if uids(after, keeper) != uids(before, keeper):
            raise ScenarioError(f"pods of {keeper} were exchanged")
        stage.say(f"{loser} has left as a whole, and no pod of {keeper} was touched")

        stage.title("Who had to leave waits as one, and comes back as one")
        await stage.until_explained(4, loser)
        shown = await stage.show_command("why", f"podgroup/{loser}", "-n", "jobs")
        if "their priority 10 is not lower" not in shown:
            raise ScenarioError(f"it was to be told why nobody leaves for {loser}")
        await finish(stage, "now")
        stage.say("job now is done")
        await until(stage, night_a=4, night_b=4)

        stage.title("Nobody leaves for a job that would not fit even then")
        await submit(stage, "huge", 9, priority_class="urgent")
        stage.say("submitted job huge: 9 pods, priority urgent; the cluster has 8 GPUs")
        await stage.until_explained(9, "huge")
        await stage.stays(2.0, lambda pods: running(pods) == {"night-a": 4, "night-b": 4}, "nobody is evicted")
        shown = await stage.show_command("why", "podgroup/huge", "-n", "jobs")
        if "evicting all other pods would not help" not in shown:
            raise ScenarioError("it was to be told that evictions do not help")
        stage.say("an eviction is decided as a whole, with the proof that the whole job then fits; or not at all")


async def _loser(stage: ScenarioRun) -> str:
    """The one job whose pods have been told to leave. Raises ScenarioError."""
    leaving: set[str] = set()

    def told(pods: list[StagePod]) -> list[str]:
        return [job_of(pod.name) for pod in pods if pod.terminating]

    async def all_told() -> bool:
        names = told(await stage.pods())
        leaving.update(names)
        return len(names) >= 4

    await stage.until(all_told, "four pods have been told to leave")
    if len(leaving) != 1:
        raise ScenarioError(f"pods of {sorted(leaving)} have been told to leave")
    return leaving.pop()
