"""Custom resources: defined, served at once, defaulted, pruned, validated, printed, and taken away again."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import pytest

from phalanx_local.server import ApiServer
from tests.phalanx_local.client import TABLE, Client, Json
from tests.phalanx_local.conftest import FakeClock

DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
GANGS = "/apis/example.com/v1/namespaces/default/gangs"
STRATEGIC = "application/strategic-merge-patch+json"
MERGE = "application/merge-patch+json"
APPLY = "application/apply-patch+yaml"

SPEC: Json = {
    "type": "object",
    "required": ["minMember"],
    "properties": {
        "minMember": {"type": "integer", "minimum": 1},
        "mode": {"type": "string", "enum": ["Strict", "Loose"], "default": "Strict"},
        "queue": {
            "type": "string",
            "x-kubernetes-validations": [{"rule": "self == oldSelf", "message": "queue is immutable"}],
        },
        "members": {
            "type": "array",
            "x-kubernetes-list-type": "map",
            "x-kubernetes-list-map-keys": ["name"],
            "items": {
                "type": "object",
                "required": ["name"],
                "properties": {"name": {"type": "string"}, "count": {"type": "integer"}},
            },
        },
    },
    "x-kubernetes-validations": [{"rule": "self.minMember <= 100", "message": "minMember must be at most 100"}],
}
STATUS: Json = {
    "type": "object",
    "properties": {
        "phase": {"type": "string"},
        "running": {"type": "integer"},
        "conditions": {
            "type": "array",
            "items": {
                "type": "object",
                "properties": {"type": {"type": "string"}, "status": {"type": "string"}},
            },
        },
    },
}


def definition(**changes: Any) -> Json:
    version = {
        "name": "v1",
        "served": True,
        "storage": True,
        "schema": {"openAPIV3Schema": {"type": "object", "properties": {"spec": SPEC, "status": STATUS}}},
        "subresources": {
            "status": {},
            "scale": {"specReplicasPath": ".spec.minMember", "statusReplicasPath": ".status.running"},
        },
        "additionalPrinterColumns": [
            {"name": "Min", "type": "integer", "jsonPath": ".spec.minMember"},
            {"name": "Phase", "type": "string", "jsonPath": ".status.phase"},
            {
                "name": "Ready",
                "type": "string",
                "jsonPath": '.status.conditions[?(@.type=="Ready")].status',
                "priority": 1,
            },
            {"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"},
        ],
        "selectableFields": [{"jsonPath": ".spec.mode"}],
    }
    spec = {
        "group": "example.com",
        "scope": "Namespaced",
        "names": {"plural": "gangs", "kind": "Gang", "shortNames": ["gg"], "categories": ["all"]},
        "versions": [version],
        **changes,
    }
    return deepcopy({"metadata": {"name": "gangs.example.com"}, "spec": spec})


def gang(name: str, **spec: Any) -> Json:
    return {
        "apiVersion": "example.com/v1",
        "kind": "Gang",
        "metadata": {"name": name},
        "spec": {"minMember": 2, **spec},
    }


async def define(client: Client) -> None:
    await client.create(DEFINITIONS, definition())


async def test_a_definition_is_established_and_served_at_once(client: Client) -> None:
    assert (await client.call("GET", GANGS)).status == 404
    made = await client.create(DEFINITIONS, definition())
    true = {item["type"] for item in made["status"]["conditions"] if item["status"] == "True"}
    assert true == {"NamesAccepted", "Established"}
    assert made["status"]["storedVersions"] == ["v1"]
    assert made["spec"]["names"]["singular"] == "gang"
    assert made["spec"]["names"]["listKind"] == "GangList"
    found = await client.get(GANGS)
    assert found["metadata"]["continue"] == ""
    assert (found["kind"], found["apiVersion"], found["items"]) == ("GangList", "example.com/v1", [])
    resources = (await client.get("/apis/example.com/v1"))["resources"]
    assert [item["name"] for item in resources] == ["gangs", "gangs/scale", "gangs/status"]
    assert resources[0]["shortNames"] == ["gg"]
    assert "example.com" in [group["name"] for group in (await client.get("/apis"))["groups"]]


async def test_items_of_custom_resources_carry_their_kind(client: Client) -> None:
    await define(client)
    await client.create(GANGS, gang("a"))
    item = (await client.get(GANGS))["items"][0]
    assert (item["kind"], item["apiVersion"]) == ("Gang", "example.com/v1")


async def test_objects_are_defaulted_and_pruned(client: Client) -> None:
    await define(client)
    reply = await client.call("POST", GANGS, gang("a", colour="red"))
    assert reply.body["spec"] == {"minMember": 2, "mode": "Strict"}
    assert reply.warnings == ['299 - "unknown field \\"spec.colour\\""']
    strict = await client.call("POST", GANGS, gang("b", colour="red"), fieldValidation="Strict")
    assert (strict.status, strict.reason) == (400, "BadRequest")


@pytest.mark.parametrize(
    ("spec", "field"),
    [
        ({"minMember": 0}, "spec.minMember"),
        ({"minMember": "two"}, "spec.minMember"),
        ({"minMember": 101}, "spec"),
        ({"mode": "Odd"}, "spec.mode"),
        ({"members": [{"name": "a"}, {"name": "a"}]}, "spec.members[1]"),
    ],
)
async def test_objects_are_validated(client: Client, spec: Json, field: str) -> None:
    await define(client)
    reply = await client.call("POST", GANGS, gang("a", **spec))
    assert (reply.status, reply.reason) == (422, "Invalid")
    assert field in [cause for cause, _ in reply.causes]
    assert reply.body["message"].startswith('Gang.example.com "a" is invalid: ')


async def test_transition_rules_see_the_old_object(client: Client) -> None:
    await define(client)
    await client.create(GANGS, gang("a", queue="blue"))
    reply = await client.call("PATCH", f"{GANGS}/a", {"spec": {"queue": "red"}}, content_type=MERGE)
    assert reply.status == 422
    assert "queue is immutable" in reply.body["message"]


async def test_kind_and_version_must_be_stated(client: Client) -> None:
    await define(client)
    body = gang("a")
    del body["kind"]
    assert (await client.call("POST", GANGS, body)).status == 400
    assert (await client.call("POST", GANGS, {**gang("a"), "apiVersion": "example.com/v2"})).status == 400


async def test_status_and_spec_have_different_endpoints(client: Client) -> None:
    await define(client)
    made = await client.create(GANGS, {**gang("a"), "status": {"phase": "Running"}})
    assert "status" not in made
    assert made["metadata"]["generation"] == 1
    change = {
        "metadata": {"labels": {"a": "b"}},
        "spec": {"minMember": 9},
        "status": {"phase": "Running", "running": 2},
    }
    told = await client.merge(f"{GANGS}/a/status", change)
    assert told["spec"]["minMember"] == 2
    assert told["status"] == {"phase": "Running", "running": 2}
    assert "labels" not in told["metadata"]
    assert told["metadata"]["generation"] == 1
    changed = await client.merge(f"{GANGS}/a", change)
    assert changed["spec"]["minMember"] == 9
    assert changed["metadata"]["generation"] == 2


async def test_the_status_subresource_of_a_custom_resource_does_not_look_at_metadata(client: Client) -> None:
    """Not even at the uid: there is no such precondition on it, on a real server either."""
    await define(client)
    await client.create(GANGS, gang("a"))
    change = {"metadata": {"uid": "another"}, "status": {"phase": "Running"}}
    assert (await client.merge(f"{GANGS}/a/status", change))["status"]["phase"] == "Running"
    reply = await client.call("PATCH", f"{GANGS}/a", change, content_type=MERGE)
    assert reply.status == 422
    stale = {"metadata": {"resourceVersion": "1"}, "status": {"phase": "Failed"}}
    reply = await client.call("PATCH", f"{GANGS}/a/status", stale, content_type=MERGE)
    assert reply.status == 409


async def test_an_update_must_state_its_revision(client: Client) -> None:
    await define(client)
    made = await client.create(GANGS, gang("a"))
    reply = await client.call("PUT", f"{GANGS}/a", gang("a", minMember=3))
    assert reply.causes == [("metadata.resourceVersion", "FieldValueInvalid")]
    made["spec"]["minMember"] = 3
    assert (await client.ok("PUT", f"{GANGS}/a", made))["spec"]["minMember"] == 3


async def test_strategic_merge_is_not_for_custom_resources(client: Client) -> None:
    await define(client)
    await client.create(GANGS, gang("a"))
    reply = await client.call("PATCH", f"{GANGS}/a", {"spec": {}}, content_type=STRATEGIC)
    assert (reply.status, reply.reason) == (415, "UnsupportedMediaType")
    assert STRATEGIC not in reply.body["message"]


async def test_apply_merges_map_lists_by_their_keys(client: Client) -> None:
    await define(client)
    apply = "application/apply-patch+yaml"
    for manager, member in (("one", "ps"), ("two", "worker")):
        body = gang("a", members=[{"name": member, "count": 1}])
        await client.ok("PATCH", f"{GANGS}/a", body, content_type=apply, fieldManager=manager)
    found = await client.get(f"{GANGS}/a")
    assert [item["name"] for item in found["spec"]["members"]] == ["ps", "worker"]


async def test_columns_follow_the_definition(client: Client, clock: FakeClock) -> None:
    await define(client)
    await client.create(GANGS, gang("a"))
    conditions = [{"type": "Other", "status": "False"}, {"type": "Ready", "status": "True"}]
    await client.merge(f"{GANGS}/a/status", {"status": {"conditions": conditions}})
    clock.seconds += 60
    table = await client.ok("GET", GANGS, headers={"Accept": TABLE})
    assert [(item["name"], item["priority"]) for item in table["columnDefinitions"]] == [
        ("Name", 0),
        ("Min", 0),
        ("Phase", 0),
        ("Ready", 1),
        ("Age", 0),
    ]
    assert table["rows"][0]["cells"] == ["a", 2, None, "True", "60s"]


async def test_scale_of_a_custom_resource(client: Client) -> None:
    await define(client)
    await client.create(GANGS, gang("a"))
    scaled = await client.merge(f"{GANGS}/a/scale", {"spec": {"replicas": 7}})
    assert scaled["spec"]["replicas"] == 7
    assert (await client.get(f"{GANGS}/a"))["spec"]["minMember"] == 7


async def test_selectable_fields(client: Client) -> None:
    await define(client)
    await client.create(GANGS, gang("a"))
    await client.create(GANGS, gang("b", mode="Loose"))
    assert await client.names(GANGS, fieldSelector="spec.mode=Loose") == ["b"]
    assert (await client.call("GET", GANGS, fieldSelector="spec.queue=x")).status == 400


async def test_a_definition_takes_its_objects_with_it(client: Client) -> None:
    await define(client)
    held = gang("a")
    held["metadata"]["finalizers"] = ["example.com/hold"]
    await client.create(GANGS, held)
    await client.ok("DELETE", f"{DEFINITIONS}/gangs.example.com")
    await client.until(f"{GANGS}/a", "metadata", "deletionTimestamp", equals="2027-01-15T08:00:00Z")
    await client.merge(f"{GANGS}/a", {"metadata": {"finalizers": None}})
    await client.gone(f"{DEFINITIONS}/gangs.example.com")
    assert (await client.call("GET", GANGS)).status == 404
    assert "example.com" not in [group["name"] for group in (await client.get("/apis"))["groups"]]
    await define(client)
    assert await client.names(GANGS) == []


async def test_a_changed_definition_holds_at_once_and_ends_its_watches(client: Client) -> None:
    await define(client)
    await client.create(GANGS, gang("a"))
    async with client.watch(GANGS) as stream:
        assert (await stream.event())[0] == "ADDED"
        await client.ok(
            "PATCH",
            f"{DEFINITIONS}/gangs.example.com",
            [{"op": "add", "path": _SPEC_PATH + "/properties/note", "value": {"type": "string"}}],
            content_type="application/json-patch+json",
        )
        assert await stream.rest() == []
    assert (await client.merge(f"{GANGS}/a", {"spec": {"note": "x"}}))["spec"]["note"] == "x"


async def set_subresources(client: Client, subresources: Json) -> None:
    change = [{"op": "add", "path": "/spec/versions/0/subresources", "value": subresources}]
    path = f"{DEFINITIONS}/gangs.example.com"
    await client.ok("PATCH", path, change, content_type="application/json-patch+json")


async def test_a_kind_without_a_status_subresource_keeps_its_status_as_any_field(client: Client) -> None:
    body = definition()
    body["spec"]["versions"][0]["subresources"] = {}
    await client.create(DEFINITIONS, body)
    made = await client.create(GANGS, {**gang("a"), "status": {"phase": "Pending"}})
    assert made["status"]["phase"] == "Pending"
    assert [item["name"] for item in (await client.get("/apis/example.com/v1"))["resources"]] == ["gangs"]
    for method, change in (("GET", None), ("PATCH", {"status": {"phase": "Running"}}), ("PUT", made)):
        reply = await client.call(method, f"{GANGS}/a/status", change, content_type=MERGE)
        # The very words for an object that is gone.
        assert (reply.status, reply.body["message"]) == (404, 'gangs.example.com "a" not found')
    changed = await client.merge(f"{GANGS}/a", {"status": {"phase": "Running"}})
    assert (changed["status"]["phase"], changed["metadata"]["generation"]) == ("Running", 2)


async def test_status_subresource_follows_the_definition(client: Client) -> None:
    body = definition()
    body["spec"]["versions"][0]["subresources"] = {}
    await client.create(DEFINITIONS, body)
    await client.create(GANGS, {**gang("a"), "status": {"phase": "Pending"}})
    await set_subresources(client, {"status": {}})
    resources = (await client.get("/apis/example.com/v1"))["resources"]
    assert [item["name"] for item in resources] == ["gangs", "gangs/status"]
    assert (await client.merge(f"{GANGS}/a", {"status": {"phase": "Failed"}}))["status"]["phase"] == "Pending"
    assert (await client.merge(f"{GANGS}/a/status", {"status": {"phase": "Failed"}}))["status"]["phase"] == "Failed"
    await set_subresources(client, {})
    assert (await client.call("GET", f"{GANGS}/a/status")).status == 404
    assert (await client.merge(f"{GANGS}/a", {"status": {"phase": "Running"}}))["status"]["phase"] == "Running"


async def test_objects_that_are_older_than_a_default_have_it(client: Client) -> None:
    await define(client)
    made = await client.create(GANGS, gang("a"))
    field = {"type": "string", "default": "blue"}
    change = [{"op": "add", "path": _SPEC_PATH + "/properties/colour", "value": field}]
    path = f"{DEFINITIONS}/gangs.example.com"
    await client.ok("PATCH", path, change, content_type="application/json-patch+json")
    seen = await client.get(f"{GANGS}/a")
    assert seen["spec"]["colour"] == "blue"
    assert seen["metadata"] == made["metadata"]  # never written


async def test_only_fields_of_the_stored_version_are_stored(client: Client) -> None:
    body = definition()
    older = deepcopy(body["spec"]["versions"][0])
    older |= {"name": "v1beta1", "storage": False, "subresources": {}}
    older["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]["legacy"] = {"type": "string"}
    body["spec"]["versions"].append(older)
    await client.create(DEFINITIONS, body)
    path = GANGS.replace("v1", "v1beta1")
    made = await client.create(path, {**gang("a", legacy="x"), "apiVersion": "example.com/v1beta1"})
    assert "legacy" not in made["spec"]
    # Subresources are per version: in this one the status is an ordinary field, and counts.
    changed = await client.merge(f"{path}/a", {"status": {"phase": "Running"}})
    assert (changed["status"]["phase"], changed["metadata"]["generation"]) == ("Running", 2)
    assert (await client.call("GET", f"{path}/a/status")).status == 404


async def test_a_version_in_which_objects_are_stored_must_stay(client: Client) -> None:
    await define(client)
    body = definition()
    body["spec"]["versions"][0]["name"] = "v2"
    change = [{"op": "replace", "path": "/spec/versions", "value": body["spec"]["versions"]}]
    path = f"{DEFINITIONS}/gangs.example.com"
    reply = await client.call("PATCH", path, change, content_type="application/json-patch+json")
    assert (reply.status, reply.causes) == (422, [("status.storedVersions[0]", "FieldValueInvalid")])


async def test_object_created_by_apply_needs_a_name(client: Client) -> None:
    await define(client)
    body = gang("a")
    del body["metadata"]
    reply = await client.call("PATCH", f"{GANGS}/a", body, content_type=APPLY, fieldManager="x")
    assert (reply.status, reply.body["message"]) == (
        400,
        "the name of the object (a based on URL) was undeterminable: name must be provided",
    )


_SPEC_PATH = "/spec/versions/0/schema/openAPIV3Schema/properties/spec"


async def test_two_versions_are_two_views_of_one_object(client: Client) -> None:
    body = definition()
    newer = deepcopy(body["spec"]["versions"][0])
    newer |= {"name": "v2", "storage": False}
    older = {**body["spec"]["versions"][0], "deprecated": True}
    body["spec"]["versions"] = [older, newer]
    await client.create(DEFINITIONS, body)
    reply = await client.call("POST", GANGS, gang("a"))
    assert reply.warnings == ['299 - "example.com/v1 Gang is deprecated; use example.com/v2 Gang"']
    seen = await client.get("/apis/example.com/v2/namespaces/default/gangs/a")
    assert seen["apiVersion"] == "example.com/v2"
    assert seen["metadata"] == reply.body["metadata"]
    group = await client.get("/apis/example.com")
    assert [item["version"] for item in group["versions"]] == ["v2", "v1"]


OPEN = {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": {"type": "object"}}}


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"scope": "Everywhere"}, "spec.scope"),
        ({"versions": []}, "spec.versions"),
        ({"group": "other.example.com"}, "metadata.name"),
        ({"conversion": {"strategy": "Webhook"}}, "spec.conversion.strategy"),
        ({"conversion": {"strategy": "Guess"}}, "spec.conversion.strategy"),
        ({"preserveUnknownFields": True}, "spec.preserveUnknownFields"),
        ({"versions": [{**OPEN, "name": "V_1"}]}, "spec.versions[0].name"),
        (
            {"versions": [{**OPEN, "subresources": {"scale": {"specReplicasPath": ".size"}}}]},
            "spec.versions[0].subresources.scale.specReplicasPath",
        ),
        (
            {"versions": [{"name": "v1", "served": True, "storage": True}]},
            "spec.versions[0].schema.openAPIV3Schema",
        ),
        (
            {
                "versions": [
                    {
                        "name": "v1",
                        "served": True,
                        "storage": True,
                        "schema": {"openAPIV3Schema": {"type": "string"}},
                    }
                ]
            },
            "spec.versions[0].schema.openAPIV3Schema.type",
        ),
    ],
)
async def test_definitions_that_are_refused(client: Client, changes: Json, field: str) -> None:
    reply = await client.call("POST", DEFINITIONS, definition(**changes))
    assert reply.status == 422, reply.body
    assert field in [cause for cause, _ in reply.causes]


async def test_names_already_taken_are_not_accepted(client: Client, server: ApiServer) -> None:
    await define(client)
    names = {"plural": "crews", "kind": "Crew", "shortNames": ["gg"]}
    body = definition(names=names)
    body["metadata"]["name"] = "crews.example.com"
    made = await client.create(DEFINITIONS, body)
    states = {item["type"]: item["status"] for item in made["status"]["conditions"]}
    assert states == {"NamesAccepted": "False", "Established": "False"}
    assert server.registry.find("example.com", "crews") is None
