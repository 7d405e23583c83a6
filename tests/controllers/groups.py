"""Restarts of groups over a server in memory, with an owner that makes pods again and a cluster that runs them."""

from __future__ import annotations

import contextlib
import copy
from typing import Any

import msgspec

from phalanx.controllers.groups.restart_controller import GroupRestartController
from phalanx.jobs.group_restarts import RESTART_STATUS, RestartStatus
from phalanx.kube.errors import ApiError
from tests.controllers.api import Json, Killed, MemoryApi, context

PODS = "v1/pods"
GROUPS = "scheduling.x-k8s.io/v1alpha1/podgroups"
VOLCANO_GROUPS = "scheduling.volcano.sh/v1beta1/podgroups"
_ROUNDS = 200
_PLURALS = {"Job": "jobs", "StatefulSet": "statefulsets", "JobSet": "jobsets", "AppWrapper": "appwrappers"}


class GroupWorld:
    """A PodGroup `g` of `size` pods `p-<index>`. Time passes by itself only in `pass_time`."""

    def __init__(
        self,
        size: int = 3,
        *,
        minimum: int = 0,
        owner: Json | None = None,
        collection: str = GROUPS,
        **annotations: str,
    ) -> None:
        self.api = MemoryApi()
        self.collection = collection
        self.deaths = 0
        self.size = size
        self.recreates = True
        self.starts = True
        self.owner = owner
        self.made = 0
        notes = {"phalanx.dev/restart-policy": "WhenBelowMinimum"}
        notes |= {f"phalanx.dev/{key.replace('_', '-')}": value for key, value in annotations.items()}
        self.api.apply(
            collection, {"metadata": {"name": "g", "annotations": notes}, "spec": {"minMember": minimum or size}}
        )
        self._start()

    def _start(self) -> None:
        self.controller = GroupRestartController(context(self.api))
        self.api.list_into(self.controller)

    # -- actions of users and the cluster -------------------------------------------------------------------

    def fail(self, name: str, code: int = 1) -> None:
        """The pod fails, and its owner removes it."""

        def change(pod: Json) -> None:
            pod["status"] = {
                "phase": "Failed",
                "containerStatuses": [{"state": {"terminated": {"exitCode": code}}}],
            }

        self.api.update(PODS, name, change)

    def succeed(self, name: str) -> None:
        self.api.update(PODS, name, lambda pod: pod.update(status={"phase": "Succeeded"}))

    def lose(self, name: str) -> None:
        self.api.erase(PODS, name)

    def _cluster(self) -> None:
        for pod in self.api.all(PODS):
            name = pod["metadata"]["name"]
            if "deletionTimestamp" in pod["metadata"]:
                self.api.erase(PODS, name)
            elif self.starts and pod["status"]["phase"] == "Pending":
                self.api.update(PODS, name, _run)
        present = {pod["metadata"]["name"] for pod in self.api.all(PODS)}
        for index in range(self.size) if self.recreates else ():
            if f"p-{index}" not in present:
                self._make(f"p-{index}")

    def _make(self, name: str) -> None:
        self.made += 1
        metadata: Json = {"name": name, "labels": {"scheduling.x-k8s.io/pod-group": "g"}}
        if self.collection == VOLCANO_GROUPS:
            metadata = {"name": name, "annotations": {"scheduling.k8s.io/group-name": "g"}}
        if self.owner is not None:
            metadata["ownerReferences"] = [self.owner]
        self.api.apply(PODS, {"metadata": metadata, "spec": {}, "status": {"phase": "Pending"}})

    # -- the controller ------------------------------------------------------------------------------------

    def restart(self) -> None:
        """Replace the controller with a new process."""
        self._start()

    def observe(self) -> None:
        """Deliver all changes to the controller before it reconciles."""
        while self.api.deliver(self.controller):
            pass

    async def settle(self) -> None:
        for _ in range(_ROUNDS):
            before = self.deaths, len(self.api.writes), copy.deepcopy(self.api.objects)
            await self._work()
            self._cluster()
            if before == (self.deaths, len(self.api.writes), self.api.objects):
                return
        raise AssertionError(f"never at rest: {self.api.writes[-8:]}")

    async def pass_time(self, seconds: int) -> None:
        self.api.now += seconds
        await self.settle()

    async def _work(self) -> None:
        try:
            while self.api.deliver(self.controller):
                pass
            for resource, store in self.controller.groups.items():
                for key in [entry[0] for entry in store.items()]:
                    with contextlib.suppress(ApiError):
                        await self.controller.reconcile((resource, key))
        except Killed:
            self.deaths += 1
            self.api.dies_at = None
            self._start()

    # -- results
    # -----------------------------------------------------------------------------------------------

    @property
    def status(self) -> RestartStatus:
        note = self.api.get_object(self.collection, "g")["metadata"]["annotations"][RESTART_STATUS]
        return msgspec.json.decode(note, type=RestartStatus)

    def uids(self) -> dict[str, str]:
        return {pod["metadata"]["name"]: pod["metadata"]["uid"] for pod in self.api.all(PODS)}

    def phases(self) -> dict[str, str]:
        return {pod["metadata"]["name"]: pod["status"]["phase"] for pod in self.api.all(PODS)}


def owned_by(api_version: str, kind: str, name: str = "o") -> Json:
    return {"apiVersion": api_version, "kind": kind, "name": name, "uid": f"uid-{name}", "controller": True}


def put_owner(world: GroupWorld, reference: Json, above: Json | None = None, **spec: Any) -> None:
    """The object that a reference means."""
    metadata: Json = {"name": reference["name"], "uid": reference["uid"]}
    if above is not None:
        metadata["ownerReferences"] = [above]
    collection = f"{reference['apiVersion']}/{_PLURALS[reference['kind']]}"
    world.api.apply(collection, {"metadata": metadata, "spec": spec})


def _run(pod: Json) -> None:
    pod["status"] = {"phase": "Running"}
