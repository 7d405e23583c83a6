"""A job controller over a server in memory, with a cluster that admits groups and runs pods."""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Callable
from typing import Any

from phalanx.controllers.jobs.job_controller import VolcanoJobController
from phalanx.kube.errors import ApiError
from tests.controllers.api import Json, Killed, MemoryApi, context

JOBS, GROUPS, PODS = "batch.volcano.sh/v1alpha1/jobs", "scheduling.volcano.sh/v1beta1/podgroups", "v1/pods"
COMMANDS = "bus.volcano.sh/v1alpha1/commands"
_ROUNDS = 200


class JobWorld:
    """A world of jobs.

    `settle` runs all actors until nothing changes. A controller that dies is replaced by a new one.
    """

    def __init__(self, *, runs: bool = True, ssh: bool = True) -> None:
        self.api = MemoryApi()
        self.ssh = ssh
        self.runs = runs
        self.admits = True
        self.deaths = 0
        self.again = False
        self.seen: list[str] = []
        self._start()

    def _start(self) -> None:
        self.controller = VolcanoJobController(context(self.api, ssh=self.ssh))
        self.api.list_into(self.controller)

    # -- actions of users and the cluster -------------------------------------------------------------------

    def submit(self, name: str = "j", *, tasks: dict[str, int] | None = None, **spec: Any) -> None:
        given = spec.pop("task_specs", None) or [
            {"name": task, "replicas": count, "template": {"spec": {"containers": [{"name": "c", "image": "i"}]}}}
            for task, count in (tasks or {"w": 2}).items()
        ]
        self.api.apply(JOBS, {"metadata": {"name": name}, "spec": {"tasks": given, **spec}})

    def command(self, action: str, name: str = "j", *, as_name: str = "c1") -> None:
        target = {"apiVersion": "batch.volcano.sh/v1alpha1", "kind": "Job", "name": name, "controller": True}
        self.api.apply(COMMANDS, {"metadata": {"name": as_name}, "action": action, "target": target})

    def pod_phase(self, name: str, phase: str, *, code: int | None = None) -> None:
        def change(pod: Json) -> None:
            pod["status"]["phase"] = phase
            if code is not None:
                pod["status"]["containerStatuses"] = [{"state": {"terminated": {"exitCode": code}}}]

        self.api.update(PODS, name, change)

    def evict(self, name: str) -> None:
        """Delete a pod, as an eviction does, and let it end."""
        self.api.erase(PODS, name)

    def _cluster(self) -> None:
        """Groups are admitted, pods run, and those that are to go are gone."""
        for group in self.api.all(GROUPS):
            if self.admits and not group.get("status"):
                self.api.update(
                    GROUPS, group["metadata"]["name"], lambda it: it.update(status={"phase": "Inqueue"})
                )
        for pod in self.api.all(PODS):
            name = pod["metadata"]["name"]
            if "deletionTimestamp" in pod["metadata"]:
                self.api.erase(PODS, name)
            elif self.runs and pod["status"]["phase"] == "Pending":
                self.api.update(PODS, name, _run)

    # -- the controller ------------------------------------------------------------------------------------

    def restart(self) -> None:
        """Replace the controller with a new process."""
        self._start()

    async def settle(self) -> None:
        """Raises AssertionError where it never comes to rest."""
        for _ in range(_ROUNDS):
            before = self.deaths, len(self.api.writes), copy.deepcopy(self.api.objects)
            await self._work()
            self._cluster()
            if before == (self.deaths, len(self.api.writes), self.api.objects) and not self.again:
                return
        raise AssertionError(f"never at rest: {self.api.writes[-8:]}")

    async def rounds(self, number: int) -> None:
        """Let everybody work, where a refused write is repeated without an end."""
        for _ in range(number):
            await self._work()
            self._cluster()

    async def _work(self) -> None:
        self.again = False
        try:
            while self.api.deliver(self.controller):
                pass
            keys = [(body["metadata"]["namespace"], body["metadata"]["name"]) for body in self.api.all(JOBS)]
            keys += [("default", body["target"]["name"]) for body in self.api.all(COMMANDS)]
            for key in dict.fromkeys(keys):
                with contextlib.suppress(ApiError):  # the queue would bring it again
                    self.again |= await self.controller.reconcile(key) == 0.0
                if (phase := self.phase(key[1])) and (not self.seen or self.seen[-1] != phase):
                    self.seen.append(phase)
        except Killed:
            self.deaths += 1
            self.api.dies_at = None
            self._start()

    # -- results
    # -----------------------------------------------------------------------------------------------

    def status(self, name: str = "j") -> Json:
        found: Json = self.api.objects.get((JOBS, "default", name), {}).get("status", {})
        return found

    def phase(self, name: str = "j") -> str:
        return str(self.status(name).get("state", {}).get("phase", ""))

    def pods(self) -> dict[str, str]:
        return {pod["metadata"]["name"]: pod["status"]["phase"] for pod in self.api.all(PODS)}


def _run(pod: Json) -> None:
    pod["spec"]["nodeName"] = "n"
    pod["status"] = {"phase": "Running", "containerStatuses": [{"ready": True}]}


Script = Callable[[JobWorld], None]
