"""PATCH over HTTP: the four types, their preconditions, and the kinds that accept each."""

from __future__ import annotations

from typing import Any

from tests.phalanx_local.client import CONFIG_MAPS, PODS, Client, Json, Reply, config_map, pod
from tests.phalanx_local.conftest import FakeClock

JSON_PATCH = "application/json-patch+json"
MERGE = "application/merge-patch+json"
STRATEGIC = "application/strategic-merge-patch+json"
APPLY = "application/apply-patch+yaml"


async def patch(client: Client, path: str, body: Any, kind: str, **query: Any) -> Reply:
    return await client.call("PATCH", path, body, content_type=kind, **query)


async def test_a_json_patch_is_a_list_of_operations(client: Client) -> None:
    await client.create(CONFIG_MAPS, config_map("a", one="1"))
    operations = [
        {"op": "test", "path": "/data/one", "value": "1"},
        {"op": "add", "path": "/data/two", "value": "2"},
        {"op": "remove", "path": "/data/one"},
    ]
    reply = await patch(client, f"{CONFIG_MAPS}/a", operations, JSON_PATCH)
    assert reply.body["data"] == {"two": "2"}


async def test_json_patch_with_a_failed_test_is_unprocessable(client: Client) -> None:
    await client.create(CONFIG_MAPS, config_map("a", one="1"))
    operations = [{"op": "test", "path": "/data/one", "value": "2"}]
    reply = await patch(client, f"{CONFIG_MAPS}/a", operations, JSON_PATCH)
    assert (reply.status, reply.reason) == (422, "Invalid")
    assert reply.body["message"] == "the server rejected our request due to an error in our request"
    assert (await patch(client, f"{CONFIG_MAPS}/a", {}, JSON_PATCH)).status == 400


async def test_a_patch_to_something_undecodable_blames_the_patch(client: Client) -> None:
    await client.create(CONFIG_MAPS, config_map("a"))
    for change in ({"data": [1]}, {"kind": "Pod"}):
        reply = await patch(client, f"{CONFIG_MAPS}/a", change, MERGE)
        assert (reply.status, reply.causes) == (422, [("patch", "FieldValueInvalid")])


async def test_a_merge_patch_replaces_lists_and_null_removes(client: Client) -> None:
    await client.create(PODS, pod("p", labels={"a": "1", "b": "2"}))
    reply = await patch(client, f"{PODS}/p", {"metadata": {"labels": {"a": None, "c": "3"}}}, MERGE)
    assert reply.body["metadata"]["labels"] == {"b": "2", "c": "3"}


async def test_a_strategic_patch_merges_conditions_by_type(client: Client) -> None:
    await client.create(PODS, pod("p"))
    for name in ("PodScheduled", "Ready"):
        condition = {"type": name, "status": "False", "reason": "Why"}
        reply = await patch(client, f"{PODS}/p/status", {"status": {"conditions": [condition]}}, STRATEGIC)
        assert reply.status == 200
    found = await client.get(f"{PODS}/p")
    assert sorted(item["type"] for item in found["status"]["conditions"]) == ["PodScheduled", "Ready"]


async def test_a_patch_without_a_revision_never_conflicts_and_with_one_must_match(client: Client) -> None:
    made = await client.create(CONFIG_MAPS, config_map("a"))
    await client.merge(f"{CONFIG_MAPS}/a", {"data": {"x": "1"}})
    stale = {"metadata": {"resourceVersion": made["metadata"]["resourceVersion"]}, "data": {"x": "2"}}
    reply = await patch(client, f"{CONFIG_MAPS}/a", stale, MERGE)
    assert (reply.status, reply.reason) == (409, "Conflict")
    assert (await patch(client, f"{CONFIG_MAPS}/a", {"data": {"x": "3"}}, MERGE)).status == 200


async def test_a_patch_of_another_uid_is_invalid(client: Client) -> None:
    """A real server finds the uid immutable here, where a PUT and a Binding find a conflict."""
    made = await client.create(PODS, pod("p"))
    reply = await patch(client, f"{PODS}/p/status", {"metadata": {"uid": "another"}}, STRATEGIC)
    assert (reply.status, reply.reason) == (422, "Invalid")
    assert set(reply.causes) == {("metadata.uid", "FieldValueInvalid")}
    right = {"metadata": {"uid": made["metadata"]["uid"]}, "status": {"phase": "Running"}}
    assert (await patch(client, f"{PODS}/p/status", right, STRATEGIC)).status == 200


async def test_a_status_patch_reaches_only_the_status(client: Client) -> None:
    await client.create(PODS, pod("p"))
    change = {"spec": {"containers": []}, "status": {"phase": "Running"}}
    reply = await patch(client, f"{PODS}/p/status", change, MERGE)
    assert reply.status == 200
    assert len(reply.body["spec"]["containers"]) == 1
    assert reply.body["status"]["phase"] == "Running"
    assert reply.body["status"]["qosClass"] == "BestEffort"
    reply = await patch(client, f"{PODS}/p", {"status": {"phase": "Failed"}}, MERGE)
    assert reply.body["status"]["phase"] == "Running"


async def test_a_patch_cannot_rename(client: Client) -> None:
    await client.create(CONFIG_MAPS, config_map("a"))
    assert (await patch(client, f"{CONFIG_MAPS}/a", {"metadata": {"name": "b"}}, MERGE)).status == 400


async def test_unknown_patch_types_are_unsupported(client: Client) -> None:
    await client.create(CONFIG_MAPS, config_map("a"))
    reply = await patch(client, f"{CONFIG_MAPS}/a", {}, "application/json")
    assert (reply.status, reply.reason) == (415, "UnsupportedMediaType")
    assert reply.body["message"] == "415: Unsupported Media Type"


async def test_a_malformed_patch_is_a_bad_request(client: Client) -> None:
    await client.create(CONFIG_MAPS, config_map("a"))
    assert (await patch(client, f"{CONFIG_MAPS}/a", b"{", MERGE)).status == 400
    assert (await patch(client, f"{CONFIG_MAPS}/a", [1], MERGE)).status == 400
    assert (await patch(client, f"{CONFIG_MAPS}/none", {}, MERGE)).status == 404


def applied(name: str, **data: str) -> Json:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": data}


async def test_apply_creates_and_then_owns_its_fields(client: Client) -> None:
    path = f"{CONFIG_MAPS}/a"
    reply = await patch(client, path, applied("a", x="1", y="1"), APPLY, fieldManager="me")
    assert reply.status == 201
    entry = reply.body["metadata"]["managedFields"][0]
    assert (entry["manager"], entry["operation"]) == ("me", "Apply")
    reply = await patch(client, path, applied("a", x="1"), APPLY, fieldManager="me")
    assert reply.status == 200
    assert reply.body["data"] == {"x": "1"}


async def test_apply_against_another_manager_conflicts_unless_forced(client: Client) -> None:
    path = f"{CONFIG_MAPS}/a"
    await patch(client, path, applied("a", x="1"), APPLY, fieldManager="me")
    reply = await patch(client, path, applied("a", x="2"), APPLY, fieldManager="you")
    assert (reply.status, reply.reason) == (409, "Conflict")
    assert reply.causes == [(".data.x", "FieldManagerConflict")]
    assert reply.body["message"] == 'Apply failed with 1 conflict: conflict with "me": .data.x'
    reply = await patch(client, path, applied("a", x="2"), APPLY, fieldManager="you", force="true")
    assert reply.body["data"] == {"x": "2"}


async def test_an_update_after_apply_takes_ownership(client: Client) -> None:
    path = f"{CONFIG_MAPS}/a"
    await patch(client, path, applied("a", x="1"), APPLY, fieldManager="me")
    await client.merge(path, {"data": {"x": "2"}}, fieldManager="editor")
    reply = await patch(client, path, applied("a", x="1"), APPLY, fieldManager="me")
    assert reply.status == 409
    assert 'conflict with "editor"' in reply.body["message"]


async def test_repeated_apply_is_no_write(client: Client) -> None:
    path = f"{CONFIG_MAPS}/a"
    first = await patch(client, path, applied("a", x="1"), APPLY, fieldManager="me")
    again = await patch(client, path, applied("a", x="1"), APPLY, fieldManager="me")
    assert again.body["metadata"]["resourceVersion"] == first.body["metadata"]["resourceVersion"]


async def test_repeated_apply_of_an_atomic_field_with_defaults_is_no_write(
    client: Client, clock: FakeClock
) -> None:
    rule = {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"]}
    spec = {"matchConstraints": {"resourceRules": [rule]}, "validations": [{"expression": "true"}]}
    group, kind = "admissionregistration.k8s.io/v1", "ValidatingAdmissionPolicy"
    body = {"apiVersion": group, "kind": kind, "metadata": {"name": "p"}, "spec": spec}
    path = f"/apis/{group}/validatingadmissionpolicies/p"
    made = await client.ok("PATCH", path, body, content_type=APPLY, fieldManager="a")
    clock.seconds += 10
    again = await client.ok("PATCH", path, body, content_type=APPLY, fieldManager="a")
    assert again["metadata"] == made["metadata"]


async def test_apply_takes_yaml_and_needs_a_manager(client: Client) -> None:
    yaml = b"apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: a\ndata:\n  x: '1'\n"
    reply = await patch(client, f"{CONFIG_MAPS}/a", yaml, APPLY)
    assert reply.causes == [("fieldManager", "FieldValueRequired")]
    reply = await patch(client, f"{CONFIG_MAPS}/a", yaml, APPLY, fieldManager="me")
    assert reply.status == 201
    assert (await patch(client, f"{CONFIG_MAPS}/a", b"a: [", APPLY, fieldManager="me")).status == 400


async def test_schedulers_and_kubelets_write_without_managed_fields(client: Client) -> None:
    await client.create(PODS, pod("p"))
    reply = await patch(client, f"{PODS}/p/status", {"status": {"phase": "Running"}}, MERGE)
    assert "managedFields" not in reply.body["metadata"]


async def test_kubectl_writes_are_tracked(client: Client) -> None:
    made = await client.create(CONFIG_MAPS, config_map("a", x="1"), fieldManager="kubectl-create")
    entry = made["metadata"]["managedFields"][0]
    assert (entry["manager"], entry["operation"]) == ("kubectl-create", "Update")
    assert entry["fieldsV1"]["f:data"] == {".": {}, "f:x": {}}
