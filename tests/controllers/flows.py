"""The controllers of JobFlows and JobTemplates over a server in memory, with jobs that only these tests move."""

from __future__ import annotations

import contextlib
import copy
from typing import Any

from phalanx.controllers.flows.flow_controller import JobFlowController
from phalanx.controllers.flows.template_controller import JobTemplateController
from phalanx.jobs.flow import ProbeQuestion
from phalanx.kube.errors import ApiError
from tests.controllers.api import Json, Killed, MemoryApi, context
from tests.controllers.jobs import JOBS

FLOWS, TEMPLATES = "flow.volcano.sh/v1alpha1/jobflows", "flow.volcano.sh/v1alpha1/jobtemplates"


def step(name: str, *targets: str, **more: Any) -> Json:
    probe = more.pop("probe", None)
    depends = {"targets": list(targets)} | ({"probe": probe} if probe else {})
    return {"name": name, **({"dependsOn": depends} if targets else {}), **more}


class FlowWorld:
    def __init__(self) -> None:
        self.api = MemoryApi()
        self.deaths = 0
        self.wake: float | None = None
        self.open: set[tuple[str, int, str | None]] = set()
        self.asked: list[ProbeQuestion] = []
        self.restart()

    def restart(self) -> None:
        self.flows = JobFlowController(context(self.api), self._holds)
        self.templates = JobTemplateController(context(self.api))
        self.api.list_into(self.flows)
        self.api.list_into(self.templates)

    async def _holds(self, namespace: str, question: ProbeQuestion) -> bool:
        self.asked.append(question)
        return (question.task, question.port, question.path) in self.open

    def template(self, *names: str, **spec: Any) -> None:
        for name in names:
            tasks = [
                {"name": "w", "replicas": 2, "template": {"spec": {"containers": [{"name": "c", "image": "i"}]}}}
            ]
            self.api.apply(TEMPLATES, {"metadata": {"name": name}, "spec": {"tasks": tasks, **spec}})

    def submit(self, *steps: Json, name: str = "f", **spec: Any) -> None:
        self.api.apply(FLOWS, {"metadata": {"name": name}, "spec": {"flows": list(steps), **spec}})

    def phase_of_job(self, name: str, phase: str, **counts: int) -> None:
        status: Json = {"state": {"phase": phase}, "runningDuration": "1m30s", "retryCount": 1}
        if counts:
            status["taskStatusCount"] = {"w": {"phase": counts}}
        self.api.update(JOBS, name, lambda body: body.update(status=status))

    async def settle(self) -> None:
        """Raises AssertionError where it never comes to rest."""
        for _ in range(50):
            before = self.deaths, copy.deepcopy(self.api.objects)
            try:
                self._deliver()
                for body in self.api.all(FLOWS):
                    with contextlib.suppress(ApiError):  # the queue would bring it again
                        self.wake = await self.flows.reconcile(("default", body["metadata"]["name"]))
                for body in self.api.all(TEMPLATES):
                    with contextlib.suppress(ApiError):
                        await self.templates.reconcile(("default", body["metadata"]["name"]))
            except Killed:
                self.deaths += 1
                self.api.dies_at = None
                self.restart()
            if before == (self.deaths, self.api.objects):
                return
        raise AssertionError(f"never at rest: {self.api.writes[-8:]}")

    def _deliver(self) -> None:
        controllers = _Both(self.flows, self.templates)
        while self.api.deliver(controllers):  # type: ignore[arg-type]
            pass

    def jobs(self) -> list[str]:
        return [job["metadata"]["name"] for job in self.api.all(JOBS)]

    def status(self, name: str = "f") -> Json:
        found: Json = self.api.get_object(FLOWS, name).get("status", {})
        return found

    def phase(self) -> str:
        return str(self.status().get("state", {}).get("phase", ""))

    def reasons(self) -> list[str]:
        return [reason for _, reason, _ in self.api.events]


class _Both:
    def __init__(self, flows: JobFlowController, templates: JobTemplateController) -> None:
        self.watches = (*flows.watches, *templates.watches)
