"""resource.k8s.io on the embedded server: refusals, tables, and cleanup."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from phalanx_local.server import ServerOptions
from tests.phalanx_local.client import PODS, TABLE, Client, Json, pod
from tests.phalanx_local.conftest import Starter

API = "/apis/resource.k8s.io/v1"
CLAIMS = f"{API}/namespaces/default/resourceclaims"
TEMPLATES = f"{API}/namespaces/default/resourceclaimtemplates"
SLICES = f"{API}/resourceslices"
EXACTLY: Json = {"deviceClassName": "gpu"}
RESULT: Json = {"request": "g", "driver": "d.example.com", "pool": "p", "device": "a"}


def claim(name: str = "c", **devices: Any) -> Json:
    devices.setdefault("requests", [{"name": "g", "exactly": EXACTLY}])
    return {"metadata": {"name": name}, "spec": {"devices": devices}}


def piece(**spec: Any) -> Json:
    fields = {
        "driver": "d.example.com",
        "nodeName": "n",
        "pool": {"name": "p", "generation": 1, "resourceSliceCount": 1},
        "devices": [{"name": "a"}],
        **spec,
    }
    return {"metadata": {"name": "s"}, "spec": {key: value for key, value in fields.items() if value is not None}}


def asked(**exactly: Any) -> list[Json]:
    return [{"name": "g", "exactly": {**EXACTLY, **exactly}}]


@pytest.fixture
async def client(start: Starter) -> Client:
    _, connected = await start(ServerOptions(insecure=True, controllers=frozenset()))
    return connected


@pytest.mark.parametrize(
    ("document", "complaint"),
    [
        (claim(requests=[{"name": "g"}]), "exactly one of `exactly` or `firstAvailable` is required"),
        (claim(requests=[*asked(), *asked()]), 'spec.devices.requests[1]: Duplicate value: "g"'),
        (claim(requests=asked(deviceClassName="")), "requests[0].exactly.deviceClassName: Required value"),
        (
            claim(requests=asked(allocationMode="All", count=1)),
            "must not be specified when allocationMode is 'All'",
        ),
        (claim(requests=asked(allocationMode="Some")), 'Unsupported value: "Some": supported values: "All"'),
        (claim(requests=asked(selectors=[{}])), "exactly.selectors[0].cel: Required value"),
        (
            claim(requests=asked(tolerations=[{"operator": "Like"}])),
            'tolerations[0].operator: Unsupported value: "Like"',
        ),
        (claim(constraints=[{"requests": ["x"], "matchAttribute": "a/b"}]), "must be the name of a request"),
        (claim(constraints=[{"matchAttribute": "ab"}]), "must be a domain and a name separated by a slash"),
        (claim(config=[{}]), "spec.devices.config[0].opaque: Required value"),
        (claim(requests=asked(adminAccess=True)), "admin access to devices requires the"),
    ],
)
async def test_a_claim_that_makes_no_sense_is_refused(client: Client, document: Json, complaint: str) -> None:
    reply = await client.call("POST", CLAIMS, document)
    assert reply.status == 422
    assert complaint in reply.body["message"]


@pytest.mark.parametrize(
    ("document", "complaint"),
    [
        (piece(nodeName=None), "exactly one of `nodeName`, `nodeSelector`, `allNodes`, `perDeviceNodeSelection`"),
        (piece(allNodes=True), "but multiple fields are set"),
        (piece(pool={"name": "p", "generation": 1, "resourceSliceCount": 0}), "must be greater than zero"),
        (piece(devices=[{"name": "a"}, {"name": "a"}]), 'spec.devices[1]: Duplicate value: "a"'),
        (piece(devices=[{"name": "a", "attributes": {"x": {}}}]), "exactly one value must be specified"),
        (piece(devices=[{"name": "a", "nodeName": "n"}]), "can only be set if `perDeviceNodeSelection`"),
        (piece(nodeName=None, perDeviceNodeSelection=True), "spec.devices[0]: Required value"),
        (piece(sharedCounters=[{"name": "c", "counters": {}}]), "only one of `sharedCounters` or `devices`"),
    ],
)
async def test_a_slice_that_makes_no_sense_is_refused(client: Client, document: Json, complaint: str) -> None:
    reply = await client.call("POST", SLICES, document)
    assert reply.status == 422
    assert complaint in reply.body["message"]


async def test_a_request_asks_for_one_device_if_it_does_not_say(client: Client) -> None:
    made = await client.create(CLAIMS, claim())
    (request,) = made["spec"]["devices"]["requests"]
    assert request["exactly"] == {**EXACTLY, "allocationMode": "ExactCount", "count": 1}


async def test_requests_of_a_claim_are_immutable(client: Client) -> None:
    await client.create(CLAIMS, claim())
    change = {"spec": {"devices": {"requests": asked(count=2)}}}
    reply = await client.call("PATCH", f"{CLAIMS}/c", change, content_type="application/merge-patch+json")
    assert "field is immutable" in reply.body["message"]


async def test_a_status_agrees_with_its_claim(client: Client) -> None:
    await client.create(CLAIMS, claim())

    async def complaint(status: Json) -> str:
        reply = await client.call(
            "PATCH", f"{CLAIMS}/c/status", {"status": status}, content_type="application/merge-patch+json"
        )
        return "" if reply.status == 200 else str(reply.body["message"])

    pod_reference = {"resource": "pods", "name": "p", "uid": "u"}
    assert "status.reservedFor: Forbidden" in await complaint({"reservedFor": [pod_reference]})
    other = {"devices": {"results": [{**RESULT, "request": "x"}]}}
    assert "must be the name of a request" in await complaint({"allocation": other})
    given = {"devices": {"results": [RESULT]}}
    assert await complaint({"allocation": given, "reservedFor": [pod_reference]}) == ""
    assert "field is immutable" in await complaint({"allocation": {"devices": {"results": []}}})
    assert await complaint({"allocation": None, "reservedFor": None}) == ""


async def test_claims_and_slices_are_printed_as_kubectl_users_know_them(client: Client) -> None:
    await client.create(CLAIMS, claim())
    await client.create(SLICES, piece())

    async def row(path: str) -> list[Any]:
        table = await client.ok("GET", path, headers={"Accept": TABLE})
        names = [column["name"] for column in table["columnDefinitions"]]
        return [dict(zip(names, entry["cells"], strict=True)) for entry in table["rows"]]

    (shown,) = await row(CLAIMS)
    assert (shown["Name"], shown["State"]) == ("c", "pending")
    given = {"allocation": {"devices": {"results": [RESULT]}}}
    given["reservedFor"] = [{"resource": "pods", "name": "p", "uid": "u"}]  # type: ignore[assignment]
    await client.merge(f"{CLAIMS}/c/status", {"status": given})
    (shown,) = await row(CLAIMS)
    assert shown["State"] == "allocated,reserved"
    (shown,) = await row(SLICES)
    assert (shown["Node"], shown["Driver"], shown["Pool"]) == ("n", "d.example.com", "p")


async def test_drivers_find_their_slices_by_field(client: Client) -> None:
    await client.create(SLICES, piece())
    other = piece(nodeName="m")
    other["metadata"]["name"] = "t"
    await client.create(SLICES, other)
    found = await client.get(f"{SLICES}?fieldSelector=spec.nodeName=m,spec.driver=d.example.com")
    assert [item["metadata"]["name"] for item in found["items"]] == ["t"]


async def test_a_claim_with_a_long_name_is_named_after_both(start: Starter) -> None:
    """Pod and claim are shortened in proportion, so both stay recognisable."""
    _, client = await start(ServerOptions(insecure=True, controllers=frozenset({"resourceclaims"})))
    await client.create(TEMPLATES, {"metadata": {"name": "t"}, "spec": {"spec": claim()["spec"]}})
    body = pod("p" * 60)
    body["spec"]["resourceClaims"] = [{"name": "g" * 20, "resourceClaimTemplateName": "t"}]
    await client.create(PODS, body)
    async with asyncio.timeout(60):
        while not (found := await client.names(CLAIMS)):  # noqa: ASYNC110 - the state is the server's
            await asyncio.sleep(0.005)
    assert found[0].startswith("p" * 41 + "-" + "g" * 13)
    assert len(found[0]) <= 63


async def test_claim_keeps_its_devices_while_a_consumer_of_an_unknown_kind_is_named(start: Starter) -> None:
    _, client = await start(ServerOptions(insecure=True, controllers=frozenset({"resourceclaims"})))
    ended = {"resource": "pods", "name": "ended", "uid": "u"}
    job = {"apiGroup": "batch", "resource": "jobs", "name": "j", "uid": "v"}
    for name, consumers in (("kept", [ended, job]), ("freed", [ended])):
        await client.create(CLAIMS, claim(name))
        allocated = {"allocation": {"devices": {"results": [RESULT]}}, "reservedFor": consumers}
        await client.merge(f"{CLAIMS}/{name}/status", {"status": allocated})
    await client.until(f"{CLAIMS}/freed", "status", "allocation", equals=None)
    assert (await client.get(f"{CLAIMS}/kept"))["status"]["reservedFor"] == [ended, job]
