"""Scenario of a two-stage job as Spark's: the driver starts only with resources for its later executors."""

from __future__ import annotations

from typing import Any

from phalanx.demo.stage import NodePlan, Scenario, ScenarioError, ScenarioRun, pod

_APP = "spark-app-selector"
_ROLE = "spark-role"
_EXECUTOR = {"cpu": "2", "memory": "2Gi"}


def _driver(app: str) -> dict[str, Any]:
    annotations = {
        "phalanx.dev/expected-members": "2",
        "phalanx.dev/expected-requests": '{"cpu": "2", "memory": "2Gi"}',
        "phalanx.dev/expected-timeout": "2m",
    }
    labels = {_APP: app, _ROLE: "driver"}
    return pod(f"{app}-driver", requests={"cpu": "1", "memory": "1Gi"}, labels=labels, annotations=annotations)


def _executor(app: str, number: int, driver_uid: str) -> dict[str, Any]:
    """Return an executor as Spark creates it: labelled, and owned by its driver."""
    executor = pod(f"{app}-exec-{number}", requests=_EXECUTOR, labels={_APP: app, _ROLE: "executor"})
    owner = {"apiVersion": "v1", "kind": "Pod", "name": f"{app}-driver", "uid": driver_uid, "controller": True}
    executor["metadata"]["ownerReferences"] = [owner]
    return executor


class Spark(Scenario):
    name = "spark"
    summary = "a driver starts with resources for its executors, which no other pod gets before they exist"
    nodes = (NodePlan("node-0", {"cpu": "6", "memory": "16Gi"}),)

    async def play(self, stage: ScenarioRun) -> None:
        stage.title("Two drivers, each with two later executors; resources for one application")
        await stage.create_pods([_driver("pi")])
        stage.say("submitted the driver of pi: 1 CPU, and it expects 2 executors with 2 CPUs each")
        await stage.until_running(1, "pi-driver")
        await stage.create_pods([_driver("etl"), pod("batch", requests={"cpu": "3", "memory": "1Gi"})])
        stage.say("submitted the driver of etl, which is small, and a pod of 3 CPUs; 5 CPUs are idle")
        waiting = await stage.until_explained(2)
        await stage.stays(
            1.5, lambda pods: sum(bool(stage_pod.node) for stage_pod in pods) == 1, "the resources are reserved"
        )
        await stage.show_pods()
        for stage_pod in waiting:
            await stage.show_command("why", f"pod/{stage_pod.name}", "-n", stage.namespace)
        stage.title("The driver creates its executors: they start on the reserved resources")
        (driver,) = await stage.until_running(1, "pi-driver")
        await stage.create_pods([_executor("pi", number, driver.uid) for number in (1, 2)])
        await stage.until_running(2, "pi-exec")
        await stage.show_pods()
        stage.say("two drivers that use the resources of each other's executors would wait forever")
        stage.title("pi is done: now etl starts, with resources for its executors")
        await stage.delete_pods("pi-driver", "pi-exec-1", "pi-exec-2", "batch")
        stage.say("deleted the pods of pi, and the pod of 3 CPUs")
        await stage.until_running(1, "etl-driver")
        (driver,) = await stage.until_running(1, "etl-driver")
        await stage.create_pods([_executor("etl", number, driver.uid) for number in (1, 2)])
        if len(await stage.until_running(2, "etl-exec")) != 2:
            raise ScenarioError("not both executors of etl run")
        await stage.show_pods()
        stage.say("etl has its driver and both executors, on the resources that pi has freed")
