"""A CronJob controller over a server in memory, with a clock that only these tests move."""

from __future__ import annotations

import contextlib
import copy
from typing import Any

from phalanx.controllers.cron_jobs import CronJobController
from phalanx.dialects.times import format_time
from phalanx.kube.errors import ApiError
from tests.controllers.api import Json, Killed, MemoryApi, context
from tests.controllers.jobs import JOBS

CRON_JOBS = "batch.volcano.sh/v1alpha1/cronjobs"
# A full hour.
BEGIN = 1_767_225_600


class CronWorld:
    def __init__(self) -> None:
        self.api = MemoryApi()
        self.api.now = BEGIN
        self.deaths = 0
        self.wake: float | None = None
        self._start()

    def _start(self) -> None:
        self.controller = CronJobController(context(self.api))
        self.api.list_into(self.controller)

    def restart(self) -> None:
        self._start()

    def submit(self, schedule: str = "*/5 * * * *", *, name: str = "c", **spec: Any) -> None:
        template = {"metadata": {"labels": {"a": "b"}}, "spec": {"tasks": [{"name": "w", "replicas": 1}]}}
        body = {"metadata": {"name": name}, "spec": {"schedule": schedule, "jobTemplate": template, **spec}}
        self.api.apply(CRON_JOBS, body)

    def edit(self, **spec: Any) -> None:
        self.api.update(CRON_JOBS, "c", lambda body: body["spec"].update(spec))

    def end(self, name: str, phase: str = "Completed") -> None:
        state = {"phase": phase, "lastTransitionTime": format_time(self.api.now)}
        self.api.update(JOBS, name, lambda body: body.update(status={"state": state}))

    async def at(self, minute: int, second: int = 0) -> None:
        """Run the controller at a number of minutes after the start."""
        self.api.now = BEGIN + 60 * minute + second
        await self.settle()

    async def settle(self) -> None:
        """Raises AssertionError where it never comes to rest."""
        for _ in range(50):
            before = self.deaths, copy.deepcopy(self.api.objects)
            try:
                while self.api.deliver(self.controller):
                    pass
                for body in self.api.all(CRON_JOBS):
                    with contextlib.suppress(ApiError):  # the queue would bring it again
                        key = (body["metadata"]["namespace"], body["metadata"]["name"])
                        self.wake = await self.controller.reconcile(key)
            except Killed:
                self.deaths += 1
                self.api.dies_at = None
                self._start()
            if before == (self.deaths, self.api.objects):
                return
        raise AssertionError(f"never at rest: {self.api.writes[-8:]}")

    def jobs(self) -> list[int]:
        """The runs that have a job, in minutes after the beginning."""
        names = [job["metadata"]["name"] for job in self.api.all(JOBS)]
        return sorted(int(name.rpartition("-")[2]) - BEGIN // 60 for name in names)

    def status(self) -> Json:
        found: Json = self.api.get_object(CRON_JOBS, "c").get("status", {})
        return found

    def active(self) -> list[int]:
        names = [job["name"] for job in self.status().get("active", ())]
        return sorted(int(name.rpartition("-")[2]) - BEGIN // 60 for name in names)

    def reasons(self) -> list[str]:
        return [reason for _, reason, _ in self.api.events]


def run(minute: int) -> str:
    """The name of its job."""
    return f"c-{BEGIN // 60 + minute}"
