"""PodGroups for gangs declared by pods only: a temporary obstacle delays one and never loses it."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from phalanx.cluster.state import ClusterState
from phalanx.daemon.controllers import generated_pod_groups
from phalanx.daemon.controllers.generated_pod_groups import GeneratedPodGroups
from phalanx.dialects.core import decode_namespace, decode_pod
from phalanx.dialects.gangs.generated_pod_groups import GROUPS
from phalanx.dialects.intake import Intake
from phalanx.dialects.kinds import ServedKind
from phalanx.execution.writes import WritePool
from phalanx.kube.errors import ApiError
from phalanx.model.gang import GangKey

KIND, OTHER = (ServedKind(group, "v1alpha1", "podgroups", "PodGroup") for group in GROUPS[:2])


class Api:
    """A server that records created objects and refuses the next `count` of them."""

    def __init__(self) -> None:
        self.created: list[str] = []
        self.refusals: list[int] = []
        self.errors: list[ApiError] = []

    async def create(self, path: str, obj: Any) -> None:
        if self.errors:
            raise self.errors.pop()
        if self.refusals:
            raise ApiError(self.refusals.pop(), "Refused", "not now")
        assert f"/{KIND.group}/" in path
        self.created.append(obj["metadata"]["name"])


class Place:
    """A gang of one pod, and the generator of its PodGroup."""

    def __init__(self) -> None:
        self.api = Api()
        self.kinds = {KIND: True, OTHER: True}
        intake, state = Intake(["phalanx"]), ClusterState()
        labels = {"pod-group/name": "g", "pod-group/min-available": "1"}
        body = {
            "metadata": {"namespace": "ns", "name": "a", "uid": "a", "resourceVersion": "1", "labels": labels},
            "spec": {"schedulerName": "phalanx", "containers": [{"name": "main", "image": "example/main"}]},
        }
        pod = decode_pod(json.dumps(body).encode())
        for event in intake.pod(pod):
            state.apply(event)
        self.groups = GeneratedPodGroups(
            self.api,  # type: ignore[arg-type]
            WritePool(),
            state,
            intake,
            lambda: self.kinds,
            lambda: True,
        )
        self.intake = intake
        self.groups.pod_seen(pod)

    async def made(self) -> None:
        async with asyncio.timeout(60):
            while not self.api.created:  # noqa: ASYNC110 - nobody tells
                await asyncio.sleep(0.01)


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(generated_pod_groups, "_GATHER", 0.01)
    monkeypatch.setattr(generated_pod_groups, "_FIRST_PAUSE", 0.05)


async def test_watch_that_restarts_between_two_checks_loses_no_group() -> None:
    """Between two checks the cache of PodGroups was incomplete, just as one was due."""
    place = Place()
    place.groups.check()
    place.kinds[KIND] = False
    place.groups.touch(GangKey("ns", "g"))
    await asyncio.sleep(0.05)
    assert not place.api.created, "it is not made in another kind meanwhile"
    place.kinds[KIND] = True
    place.groups.check()
    await place.made()


@pytest.mark.parametrize("code", [409, 404, 429, 500])
async def test_a_refusal_that_passes(code: int) -> None:
    """A conflict with an object that never appears in the cache is such a refusal."""
    place = Place()
    place.api.refusals = [code]
    place.groups.check()
    await place.made()


async def test_gang_in_a_namespace_that_is_being_deleted_gets_no_group(caplog: pytest.LogCaptureFixture) -> None:
    place = Place()
    metadata = {"name": "ns", "uid": "u", "deletionTimestamp": "2026-01-01T00:00:00Z"}
    place.intake.namespace(decode_namespace(json.dumps({"metadata": metadata}).encode()))
    place.groups.check()
    await asyncio.sleep(0.1)
    assert place.api.created == []
    assert not caplog.records


async def test_refusal_in_a_namespace_that_is_being_deleted_is_no_warning(caplog: pytest.LogCaptureFixture) -> None:
    place = Place()
    place.api.errors = [
        ApiError(403, "Forbidden", "no", details={"causes": [{"reason": "NamespaceTerminating"}]}),
    ]
    place.groups.check()
    async with asyncio.timeout(60):
        while place.api.errors:  # noqa: ASYNC110 - the writer reports nothing
            await asyncio.sleep(0.01)
    await asyncio.sleep(0.05)
    assert place.api.created == []
    assert not caplog.records
