"""Groups whose admission is withdrawn because no node came: their pods go, and their jobs wait again."""

from __future__ import annotations

from tests.controllers.api import Json
from tests.controllers.jobs import GROUPS as JOB_GROUPS
from tests.controllers.jobs import PODS, JobWorld
from tests.controllers.test_suspended_jobs import GROUPS, SuspendedWorld

WITHDRAWN = {
    "phase": "Pending",
    "conditions": [{"type": "phalanx.dev/AdmissionWithdrawn", "status": "True", "reason": "NoNodes"}],
}


def readmitted(group: Json) -> None:
    group["status"] = {
        "phase": "Inqueue",
        "conditions": [{"type": "phalanx.dev/AdmissionWithdrawn", "status": "False", "reason": "Admitted"}],
    }


class TestVolcanoJob:
    async def world(self) -> JobWorld:
        world = JobWorld(runs=False)
        world.submit(tasks={"w": 3}, policies=[{"event": "PodEvicted", "action": "RestartJob"}])
        await world.settle()
        assert len(world.pods()) == 3
        return world

    def change(self, world: JobWorld, status: Json) -> None:
        name = world.api.all(JOB_GROUPS)[0]["metadata"]["name"]
        world.api.update(JOB_GROUPS, name, lambda group: group.update(status=status))

    async def test_job_deletes_its_pods_without_a_restart_and_creates_them_at_the_next_admission(self) -> None:
        world = await self.world()
        self.change(world, WITHDRAWN)
        await world.settle()
        assert world.pods() == {}
        assert world.seen == ["Pending"]
        assert world.status().get("retryCount", 0) == 0
        name = world.api.all(JOB_GROUPS)[0]["metadata"]["name"]
        world.api.update(JOB_GROUPS, name, readmitted)
        await world.settle()
        assert len(world.pods()) == 3

    async def test_pod_with_a_node_stays(self) -> None:
        world = await self.world()
        world.api.update(PODS, "j-w-0", lambda pod: pod["spec"].update(nodeName="n"))
        self.change(world, WITHDRAWN)
        await world.settle()
        assert "j-w-0" in world.pods()

    async def test_pending_group_without_the_condition_keeps_its_pods(self) -> None:
        world = await self.world()
        self.change(world, {"phase": "Pending"})
        await world.settle()
        assert len(world.pods()) == 3


async def test_suspended_job_is_suspended_again_and_waits_in_a_new_group() -> None:
    world = SuspendedWorld()
    world.job()
    await world.settle()
    world.make_pods(node="")
    world.admits = False
    world.api.update(GROUPS, world.groups()[0], lambda group: group.update(status=WITHDRAWN))
    await world.settle()
    assert world.suspended()
    assert world.groups() == ["job-j-01234567-2"]
    assert ("j", "Requeued", "no node came for its gang: it is requeued in queue research") in world.api.events
