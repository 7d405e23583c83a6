"""A job of two stages, as Spark's: the driver starts only with room for the executors that it is going to make."""

from __future__ import annotations

from typing import Any

from phalanx.demo.stage import NodePlan, Scenario, ScenarioError, ScenarioRun, pod

_APP = "spark-app-selector"
_ROLE = "spark-role"
_EXECUTOR = {"cpu": "2", "memory": "2Gi"}


def _driver(app: str) -> dict[str, Any]:
    said = {
        "phalanx.dev/expected-members": "2",
        "phalanx.dev/expected-requests": '{"cpu": "2", "memory": "2Gi"}',
        "phalanx.dev/expected-timeout": "2m",
    }
    labels = {_APP: app, _ROLE: "driver"}
    return pod(f"{app}-driver", requests={"cpu": "1", "memory": "1Gi"}, labels=labels, annotations=said)


def _executor(app: str, number: int, driver_uid: str) -> dict[str, Any]:
    """As Spark makes it: labelled, and owned by its driver."""
    made = pod(f"{app}-exec-{number}", requests=_EXECUTOR, labels={_APP: app, _ROLE: "executor"})
    owner = {"apiVersion": "v1", "kind": "Pod", "name": f"{app}-driver", "uid": driver_uid, "controller": True}
    made["metadata"]["ownerReferences"] = [owner]
    return made


class Spark(Scenario):
    name = "spark"
    summary = "a driver starts with room for its executors, which nobody takes while it makes them"
    nodes = (NodePlan("node-0", {"cpu": "6", "memory": "16Gi"}),)

    async def play(self, stage: ScenarioRun) -> None:
        stage.title("Two drivers, each with two executors to come; room for one application")
        await stage.create_pods([_driver("pi")])
        stage.say("submitted the driver of pi: 1 CPU, and it says that it expects 2 executors with 2 CPUs each")
        await stage.until_running(1, "pi-driver")
        await stage.create_pods([_driver("etl"), pod("batch", requests={"cpu": "3", "memory": "1Gi"})])
        stage.say("submitted the driver of etl, which is small, and a pod of 3 CPUs; 5 CPUs are idle")
        waiting = await stage.until_explained(2)
        await stage.stays(1.5, lambda pods: sum(bool(each.node) for each in pods) == 1, "the room is held")
        await stage.show_pods()
        for each in waiting:
            await stage.show_command("why", f"pod/{each.name}", "-n", stage.namespace)
        stage.title("The driver makes its executors: they start in the room that was held")
        (driver,) = await stage.until_running(1, "pi-driver")
        await stage.create_pods([_executor("pi", number, driver.uid) for number in (1, 2)])
        await stage.until_running(2, "pi-exec")
        await stage.show_pods()
        stage.say("two drivers that hold the room of each other's executors would have waited for ever")
        stage.title("pi is done: now etl starts, with room for its own")
        await stage.delete_pods("pi-driver", "pi-exec-1", "pi-exec-2", "batch")
        stage.say("deleted the pods of pi, and the pod of 3 CPUs")
        await stage.until_running(1, "etl-driver")
        (driver,) = await stage.until_running(1, "etl-driver")
        await stage.create_pods([_executor("etl", number, driver.uid) for number in (1, 2)])
        if len(await stage.until_running(2, "etl-exec")) != 2:
            raise ScenarioError("not both executors of etl run")
        await stage.show_pods()
        stage.say("etl has its driver and both executors, in the room that pi left")
