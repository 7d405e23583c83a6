"""The life of an object: created, read, replaced, deleted, and refused where it must be."""

from __future__ import annotations

import pytest

from phalanx_local.server import ServerOptions
from tests.phalanx_local.client import CONFIG_MAPS, NODES, PODS, Client, config_map, node, pod
from tests.phalanx_local.conftest import FakeClock, Starter


async def test_a_new_object_gets_its_identity_from_the_server(client: Client, clock: FakeClock) -> None:
    body = config_map("a", key="value")
    body["metadata"] |= {"uid": "mine", "creationTimestamp": "2001-01-01T00:00:00Z", "generation": 7}
    made = await client.create(CONFIG_MAPS, body)
    meta = made["metadata"]
    assert made["kind"] == "ConfigMap"
    assert made["apiVersion"] == "v1"
    assert meta["namespace"] == "default"
    assert meta["uid"] not in ("", "mine")
    assert meta["creationTimestamp"] == "2027-01-15T08:00:00Z"
    assert "generation" not in meta
    assert await client.get(f"{CONFIG_MAPS}/a") == made


async def test_revisions_are_one_counter_over_all_resources(client: Client) -> None:
    first = await client.create(CONFIG_MAPS, config_map("a"))
    second = await client.create(NODES, node("n"))
    assert int(second["metadata"]["resourceVersion"]) == int(first["metadata"]["resourceVersion"]) + 1


async def test_a_generated_name_extends_its_base(client: Client) -> None:
    names = {(await client.create(PODS, pod()))["metadata"]["name"] for _ in range(20)}
    assert len(names) == 20
    assert all(name.startswith("pod-") and len(name) == 9 for name in names)


async def test_an_object_without_a_name_is_refused(client: Client) -> None:
    reply = await client.call("POST", CONFIG_MAPS, {"metadata": {}})
    assert reply.status == 422
    assert reply.reason == "Invalid"
    assert ("metadata.name", "FieldValueRequired") in reply.causes


async def test_an_illegal_name_is_refused_with_its_field(client: Client) -> None:
    reply = await client.call("POST", CONFIG_MAPS, config_map("Not_A_Name"))
    assert reply.status == 422
    assert reply.causes == [("metadata.name", "FieldValueInvalid")]
    assert reply.body["details"]["kind"] == "ConfigMap"
    assert reply.body["message"].startswith('ConfigMap "Not_A_Name" is invalid: metadata.name: Invalid value')


async def test_second_object_of_one_name_is_a_conflict(client: Client) -> None:
    await client.create(CONFIG_MAPS, config_map("a"))
    reply = await client.call("POST", CONFIG_MAPS, config_map("a"))
    assert (reply.status, reply.reason) == (409, "AlreadyExists")
    assert reply.body["message"] == 'configmaps "a" already exists'
    assert reply.body["details"] == {"name": "a", "kind": "configmaps"}


async def test_missing_object_is_not_found(client: Client) -> None:
    reply = await client.call("GET", "/apis/apps/v1/namespaces/default/deployments/x")
    assert (reply.status, reply.reason) == (404, "NotFound")
    assert reply.body["message"] == 'deployments.apps "x" not found'
    assert reply.body["details"] == {"name": "x", "group": "apps", "kind": "deployments"}


@pytest.mark.parametrize("path", ["/api/v1/unicorns", "/apis/apps/v2", "/apis/apps/v1/foos", f"{PODS}/p/foo"])
async def test_a_built_in_group_says_that_it_has_no_such_resource(client: Client, path: str) -> None:
    reply = await client.call("GET", path)
    assert (reply.status, reply.reason) == (404, "NotFound")
    assert reply.body["message"] == "the server could not find the requested resource"


@pytest.mark.parametrize("path", ["/apis/nope/v1/things", "/nowhere", "/apis/nope/v1"])
async def test_an_unknown_path_is_plain_404(client: Client, path: str) -> None:
    reply = await client.call("GET", path)
    assert reply.status == 404
    assert reply.body == "404 page not found\n"


async def test_a_put_replaces_under_its_revision(client: Client) -> None:
    made = await client.create(CONFIG_MAPS, config_map("a", key="1"))
    made["data"] = {"key": "2"}
    put = await client.ok("PUT", f"{CONFIG_MAPS}/a", made)
    assert put["data"] == {"key": "2"}
    assert int(put["metadata"]["resourceVersion"]) > int(made["metadata"]["resourceVersion"])

    reply = await client.call("PUT", f"{CONFIG_MAPS}/a", made)
    assert (reply.status, reply.reason) == (409, "Conflict")
    assert reply.body["message"] == (
        'Operation cannot be fulfilled on configmaps "a": the object has been modified; '
        "please apply your changes to the latest version and try again"
    )


async def test_a_put_without_a_revision_is_unconditional(client: Client) -> None:
    made = await client.create(CONFIG_MAPS, config_map("a", key="1"))
    put = await client.ok("PUT", f"{CONFIG_MAPS}/a", config_map("a", key="2"))
    assert put["metadata"]["uid"] == made["metadata"]["uid"]
    assert put["metadata"]["creationTimestamp"] == made["metadata"]["creationTimestamp"]


async def test_a_put_of_another_uid_is_a_conflict(client: Client) -> None:
    await client.create(CONFIG_MAPS, config_map("a"))
    body = config_map("a")
    body["metadata"]["uid"] = "another"
    reply = await client.call("PUT", f"{CONFIG_MAPS}/a", body)
    assert (reply.status, reply.reason) == (409, "Conflict")
    assert "UID in precondition: another" in reply.body["message"]


async def test_a_put_that_changes_nothing_is_no_write(client: Client) -> None:
    made = await client.create(CONFIG_MAPS, config_map("a", key="1"))
    assert await client.ok("PUT", f"{CONFIG_MAPS}/a", made) == made


async def test_put_of_a_missing_object_is_not_found_except_for_leases(client: Client) -> None:
    assert (await client.call("PUT", f"{CONFIG_MAPS}/a", config_map("a"))).status == 404
    leases = "/apis/coordination.k8s.io/v1/namespaces/default/leases"
    assert (await client.call("PUT", f"{leases}/l", {"metadata": {"name": "l"}})).status == 201
    reply = await client.call("PUT", f"{leases}/l", {"metadata": {"name": "l"}})
    assert reply.causes == [("metadata.resourceVersion", "FieldValueInvalid")]


async def test_body_and_url_must_name_one_object(client: Client) -> None:
    await client.create(CONFIG_MAPS, config_map("a"))
    reply = await client.call("PUT", f"{CONFIG_MAPS}/a", config_map("b"))
    assert (reply.status, reply.reason) == (400, "BadRequest")
    body = config_map("c")
    body["metadata"]["namespace"] = "kube-system"
    assert (await client.call("POST", CONFIG_MAPS, body)).status == 400
    assert (await client.call("POST", CONFIG_MAPS, pod("c"))).status == 400


async def test_generation_counts_changes_of_the_spec_only(client: Client) -> None:
    path = "/api/v1/namespaces/default/replicationcontrollers"
    template = {"metadata": {"labels": {"a": "b"}}, "spec": pod()["spec"]}
    spec = {"selector": {"a": "b"}, "template": template}
    made = await client.create(path, {"metadata": {"name": "d"}, "spec": spec, "status": {"replicas": 9}})
    assert made["metadata"]["generation"] == 1
    assert made["status"] == {"replicas": 0}

    labelled = await client.merge(f"{path}/d", {"metadata": {"labels": {"x": "y"}}})
    assert labelled["metadata"]["generation"] == 1
    scaled = await client.merge(f"{path}/d", {"spec": {"replicas": 3}, "status": {"replicas": 9}})
    assert scaled["metadata"]["generation"] == 2
    assert scaled["status"] == made["status"]

    told = await client.merge(f"{path}/d/status", {"spec": {"replicas": 7}, "status": {"replicas": 2}})
    assert told["metadata"]["generation"] == 2
    assert told["spec"]["replicas"] == 3
    assert told["status"] == {"replicas": 2}


async def test_deleting_answers_a_status_or_the_object_as_upstream(client: Client) -> None:
    made = await client.create(CONFIG_MAPS, config_map("a"))
    answer = await client.ok("DELETE", f"{CONFIG_MAPS}/a")
    assert answer["kind"] == "Status"
    assert answer["status"] == "Success"
    assert answer["details"] == {"name": "a", "kind": "configmaps", "uid": made["metadata"]["uid"]}
    await client.create(PODS, pod("p"))
    assert (await client.ok("DELETE", f"{PODS}/p"))["kind"] == "Pod"
    assert (await client.call("DELETE", f"{PODS}/p")).status == 404


async def test_deletion_preconditions(client: Client) -> None:
    made = await client.create(CONFIG_MAPS, config_map("a"))
    for condition in ({"uid": "another"}, {"resourceVersion": "1"}):
        reply = await client.call("DELETE", f"{CONFIG_MAPS}/a", {"preconditions": condition})
        assert (reply.status, reply.reason) == (409, "Conflict")
        assert "in the precondition" in reply.body["message"]
    reply = await client.call("DELETE", f"{CONFIG_MAPS}/a", {"propagationPolicy": "Sideways"})
    assert reply.causes == [("propagationPolicy", "FieldValueNotSupported")]
    right = {
        "uid": made["metadata"]["uid"],
        "resourceVersion": made["metadata"]["resourceVersion"],
    }
    await client.ok("DELETE", f"{CONFIG_MAPS}/a", {"preconditions": right})


async def test_finalizers_hold_an_object_until_the_last_is_removed(client: Client) -> None:
    body = config_map("a")
    body["metadata"]["finalizers"] = ["example.com/hold"]
    await client.create(CONFIG_MAPS, body)
    dying = await client.ok("DELETE", f"{CONFIG_MAPS}/a")
    assert dying["metadata"]["deletionTimestamp"] == "2027-01-15T08:00:00Z"
    again = await client.ok("DELETE", f"{CONFIG_MAPS}/a")
    assert again["metadata"]["resourceVersion"] == dying["metadata"]["resourceVersion"]

    more = {"metadata": {"finalizers": ["example.com/hold", "example.com/late"]}}
    reply = await client.call("PATCH", f"{CONFIG_MAPS}/a", more, content_type="application/merge-patch+json")
    assert ("metadata.finalizers", "FieldValueForbidden") in reply.causes
    await client.merge(f"{CONFIG_MAPS}/a", {"metadata": {"finalizers": None}})
    assert (await client.call("GET", f"{CONFIG_MAPS}/a")).status == 404


async def test_a_collection_is_deleted_by_selector(client: Client) -> None:
    for name, color in (("a", "red"), ("b", "red"), ("c", "blue")):
        body = config_map(name)
        body["metadata"]["labels"] = {"color": color}
        await client.create(CONFIG_MAPS, body)
    answer = await client.ok("DELETE", CONFIG_MAPS, labelSelector="color=red")
    assert answer["kind"] == "ConfigMapList"
    assert [item["metadata"]["name"] for item in answer["items"]] == ["a", "b"]
    assert await client.names(CONFIG_MAPS) == ["c"]


async def test_objects_live_in_namespaces_that_exist(client: Client) -> None:
    reply = await client.call("POST", "/api/v1/namespaces/nowhere/configmaps", config_map("a"))
    assert (reply.status, reply.reason) == (404, "NotFound")
    assert reply.body["message"] == 'namespaces "nowhere" not found'


async def test_a_dry_run_answers_as_if_and_stores_nothing(client: Client) -> None:
    made = await client.create(CONFIG_MAPS, config_map("a"), dryRun="All")
    assert made["metadata"]["uid"]
    assert (await client.call("GET", f"{CONFIG_MAPS}/a")).status == 404
    await client.create(CONFIG_MAPS, config_map("a", key="1"))
    assert (await client.merge(f"{CONFIG_MAPS}/a", {"data": {"key": "2"}}, dryRun="All"))["data"] == {"key": "2"}
    await client.ok("DELETE", f"{CONFIG_MAPS}/a", dryRun="All")
    await client.ok("DELETE", f"{CONFIG_MAPS}/a", {"dryRun": ["All"]})
    await client.ok("DELETE", CONFIG_MAPS, {"dryRun": ["All"]})
    assert (await client.get(f"{CONFIG_MAPS}/a"))["data"] == {"key": "1"}
    refused = await client.call("POST", CONFIG_MAPS, config_map("b"), dryRun="Some")
    assert refused.causes == [("dryRun", "FieldValueNotSupported")]
    assert refused.body["details"]["kind"] == "CreateOptions"


async def test_unknown_fields_are_refused_warned_of_or_ignored(client: Client) -> None:
    body = pod("p", colour="red")
    reply = await client.call("POST", PODS, body, fieldValidation="Strict")
    assert (reply.status, reply.reason) == (400, "BadRequest")
    assert 'strict decoding error: unknown field "spec.colour"' in reply.body["message"]
    reply = await client.call("POST", PODS, body, dryRun="All")
    assert reply.status == 201
    assert reply.warnings == ['299 - "unknown field \\"spec.colour\\""']
    reply = await client.call("POST", PODS, body, fieldValidation="Ignore")
    assert reply.status == 201
    assert reply.warnings == []
    assert "colour" not in reply.body["spec"]


async def test_patches_bring_no_unknown_fields_either(client: Client) -> None:
    await client.create(PODS, pod("p"))
    change = {"spec": {"containers": [{"name": "main", "flavour": "sour"}]}}
    strategic = "application/strategic-merge-patch+json"
    reply = await client.call("PATCH", f"{PODS}/p", change, content_type=strategic, fieldValidation="Strict")
    assert reply.causes == [("patch", "FieldValueInvalid")]
    assert 'unknown field "spec.containers[0].flavour"' in reply.body["message"]
    reply = await client.call("PATCH", f"{PODS}/p", change, content_type=strategic)
    assert "flavour" not in reply.body["spec"]["containers"][0]
    assert len(reply.warnings) == 1


async def test_some_namespaces_cannot_be_deleted(client: Client) -> None:
    reply = await client.call("DELETE", "/api/v1/namespaces/kube-system")
    assert (reply.status, reply.reason) == (403, "Forbidden")


async def test_a_collection_over_all_namespaces_is_not_deleted_at_once(client: Client) -> None:
    assert (await client.call("DELETE", "/api/v1/pods")).status == 405


async def test_a_field_of_the_wrong_type_cannot_be_decoded(client: Client) -> None:
    reply = await client.call("POST", PODS, pod("p", priority="high"))
    assert (reply.status, reply.reason) == (400, "BadRequest")
    assert "cannot be handled as a Pod" in reply.body["message"]
    bad = pod("p", containers=[{"name": "a", "image": "b", "resources": {"requests": {"cpu": "lots"}}}])
    assert (await client.call("POST", PODS, bad)).status == 400


async def test_bodies_that_are_no_objects(client: Client) -> None:
    assert (await client.call("POST", PODS, b"{")).status == 400
    assert (await client.call("POST", PODS, [])).status == 400
    reply = await client.call("POST", PODS, b"x", content_type="text/plain")
    assert (reply.status, reply.reason) == (415, "UnsupportedMediaType")
    yaml = b"metadata:\n  name: from-yaml\ndata: {a: b}\n"
    assert (await client.call("POST", CONFIG_MAPS, yaml, content_type="application/yaml")).status == 201


async def test_methods_that_a_resource_does_not_have(client: Client) -> None:
    bindings = "/api/v1/namespaces/default/bindings"
    for method, path in (("PUT", PODS), ("POST", f"{PODS}/p"), ("GET", bindings)):
        reply = await client.call(method, path, {} if method != "GET" else None)
        assert (reply.status, reply.reason) == (405, "MethodNotAllowed"), (method, path)


async def test_a_large_body_is_refused(start: Starter) -> None:
    _, client = await start(ServerOptions(insecure=True, max_body=1000))
    reply = await client.call("POST", CONFIG_MAPS, b" " * 1001)
    assert (reply.status, reply.reason) == (413, "RequestEntityTooLarge")


async def test_null_in_a_built_in_kind_reads_as_absent(client: Client) -> None:
    body = pod("p")
    body["metadata"]["creationTimestamp"] = None
    body["spec"]["nodeSelector"] = None
    made = await client.create(PODS, body)
    assert made["metadata"]["creationTimestamp"]
    assert "nodeSelector" not in made["spec"]


async def test_secrets_take_plain_text(client: Client) -> None:
    made = await client.create(
        "/api/v1/namespaces/default/secrets", {"metadata": {"name": "s"}, "stringData": {"key": "value"}}
    )
    assert made["data"] == {"key": "dmFsdWU="}
    assert made["type"] == "Opaque"
    assert "stringData" not in made


async def test_objects_around_the_scheduler_get_the_defaults_that_it_reads(client: Client) -> None:
    spec = {"capacity": {"storage": "1024Mi"}, "accessModes": ["ReadWriteOnce"], "hostPath": {"path": "/v"}}
    volume = {"metadata": {"name": "v"}, "spec": spec}
    made = await client.create("/api/v1/persistentvolumes", volume)
    assert made["spec"]["persistentVolumeReclaimPolicy"] == "Retain"
    assert made["spec"]["capacity"] == {"storage": "1Gi"}
    classes = "/apis/storage.k8s.io/v1/storageclasses"
    made = await client.create(classes, {"metadata": {"name": "c"}, "provisioner": "example.com/p"})
    assert made["volumeBindingMode"] == "Immediate"
    drivers = "/apis/storage.k8s.io/v1/csidrivers"
    made = await client.create(drivers, {"metadata": {"name": "example.com"}, "spec": {}})
    assert (made["spec"]["attachRequired"], made["spec"]["storageCapacity"]) == (True, False)
    claims = "/apis/resource.k8s.io/v1/namespaces/default/resourceclaims"
    requests = [{"name": "gpu", "exactly": {"deviceClassName": "gpu.example.com"}}]
    made = await client.create(claims, {"metadata": {"name": "c"}, "spec": {"devices": {"requests": requests}}})
    exactly = made["spec"]["devices"]["requests"][0]["exactly"]
    assert (exactly["allocationMode"], exactly["count"]) == ("ExactCount", 1)


async def test_empty_metadata_is_absent_metadata(client: Client) -> None:
    body = config_map("a")
    body["metadata"] |= {"labels": {}, "annotations": {}, "ownerReferences": [], "finalizers": []}
    made = await client.create(CONFIG_MAPS, body)
    assert not made["metadata"].keys() & {"labels", "annotations", "ownerReferences", "finalizers"}
