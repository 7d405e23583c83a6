"""Statuses are written to the endpoint that the API server serves, also when that changes."""

from __future__ import annotations

from typing import Any, cast

import msgspec

from phalanx.dialects.status import StatusChange
from phalanx.kube.auth.config import ClusterConfig
from phalanx.kube.auth.credentials import ClientIdentity
from phalanx.kube.client import KubeClient
from phalanx.kube.discovery import Discovery, ServedResource
from phalanx.kube.events import EventRecorder
from phalanx.kube.http.transport import HttpRequest, HttpResponse
from phalanx.kube.paths import Resource
from phalanx.model.gang import GroupRef
from phalanx.status.status_endpoint import StatusEndpoint
from tests.cluster_content import Recorded
from tests.execution.podserver import status

QUOTA = Resource("scheduling.x-k8s.io", "v1alpha1", "elasticquotas", "ElasticQuota")
REF = GroupRef(QUOTA.group, QUOTA.version, QUOTA.kind, QUOTA.plural, "team-a", "q", "")


class Api:
    """One object; `apart` tells whether its status is a subresource."""

    def __init__(self, *, apart: bool) -> None:
        self.apart = apart
        self.status: dict[str, Any] = {}
        self.written: list[str] = []

    async def request(self, call: HttpRequest, identity: ClientIdentity) -> HttpResponse:
        path = call.target.partition("?")[0]
        own = path.endswith("/status")
        if own and not self.apart:
            return status(404, "the server could not find the requested resource")
        if call.method == "PATCH":
            self.written.append("subresource" if own else "object")
            if own is self.apart:
                self.status |= msgspec.json.decode(call.body or b"{}")["status"]
        return HttpResponse(200, msgspec.json.encode({"status": self.status}))

    def stream(self, *_: Any) -> Any:
        raise NotImplementedError

    async def close(self) -> None:
        pass


class World:
    def __init__(self, *, apart: bool) -> None:
        self.api = Api(apart=apart)
        client = KubeClient(ClusterConfig("http://objects.invalid"), transports=lambda *_, **__: self.api)
        self.moves: list[str] = []
        self.endpoint = StatusEndpoint(
            client, cast(EventRecorder, Recorded()), outdated=lambda: self.moves.append("asked")
        )
        self.endpoint.moved.append(lambda: self.moves.append("moved"))

    def discovered(self, *, apart: bool) -> None:
        subresources = frozenset({"status"}) if apart else frozenset[str]()
        self.endpoint.learn(Discovery((ServedResource(QUOTA, subresources=subresources),)))
        self.moves.clear()

    async def write(self, used: str) -> None:
        await self.endpoint.write(StatusChange(REF, {"status": {"used": {"cpu": used}}}))


async def test_definition_that_lost_its_subresource_gets_the_status_on_the_object() -> None:
    world = World(apart=False)
    world.discovered(apart=True)
    await world.write("1")
    assert world.api.status == {"used": {"cpu": "1"}}
    assert world.moves == ["moved", "asked"]
    await world.write("2")
    assert world.api.written == ["object", "object"]
    assert world.moves == ["moved", "asked"]


async def test_definition_that_got_a_subresource_gets_the_status_there() -> None:
    """A write to the object itself is accepted, and its status is ignored silently."""
    world = World(apart=True)
    world.discovered(apart=False)
    await world.write("1")
    assert world.api.status == {"used": {"cpu": "1"}}
    assert world.moves == ["moved", "asked"]
    await world.write("2")
    assert world.api.written == ["object", "subresource", "subresource"]
    assert world.moves == ["moved", "asked"]
