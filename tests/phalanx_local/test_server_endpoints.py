"""The doors around the objects: discovery, OpenAPI, health, identity, scale, reviews, tables."""

from __future__ import annotations

import base64
import json
import ssl
import stat
from pathlib import Path

import aiohttp
import pytest

from phalanx_local.server import ApiServer, ServerOptions
from tests.phalanx_local.client import NODES, PODS, TABLE, Client, binding, config_map, node, pod
from tests.phalanx_local.conftest import FakeClock, Starter

AGGREGATED = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,application/json"


async def test_version_and_health(client: Client) -> None:
    found = await client.get("/version")
    assert (found["major"], found["minor"]) == ("1", "36")
    assert found["gitVersion"].startswith("v1.36.")
    for path in ("/healthz", "/livez", "/readyz", "/readyz/ping"):
        assert await client.get(path) == "ok"


async def test_classic_discovery(client: Client) -> None:
    assert (await client.get("/api"))["versions"] == ["v1"]
    groups = {group["name"]: group for group in (await client.get("/apis"))["groups"]}
    assert {"apps", "batch", "policy", "events.k8s.io", "resource.k8s.io"} <= set(groups)
    assert [item["version"] for item in groups["scheduling.k8s.io"]["versions"]] == ["v1", "v1alpha2"]
    assert groups["scheduling.k8s.io"]["preferredVersion"]["version"] == "v1"
    assert (await client.get("/apis/apps"))["preferredVersion"]["groupVersion"] == "apps/v1"
    resources = {item["name"]: item for item in (await client.get("/api/v1"))["resources"]}
    assert resources["pods"]["shortNames"] == ["po"]
    assert resources["pods"]["namespaced"] is True
    assert resources["pods/eviction"]["kind"] == "Eviction"
    assert resources["pods/eviction"]["group"] == "policy"
    assert resources["nodes"]["namespaced"] is False
    assert (await client.call("GET", "/apis/nope")).status == 404
    assert (await client.call("GET", "/apis/apps/v2")).status == 404


async def test_aggregated_discovery(client: Client) -> None:
    reply = await client.call("GET", "/apis", headers={"Accept": AGGREGATED})
    assert reply.headers["Content-Type"] == ("application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList")
    groups = {item["metadata"]["name"]: item for item in reply.body["items"]}
    jobs = next(item for item in groups["batch"]["versions"][0]["resources"] if item["resource"] == "jobs")
    assert jobs["scope"] == "Namespaced"
    assert jobs["subresources"][0]["subresource"] == "status"
    core = await client.ok("GET", "/api", headers={"Accept": AGGREGATED})
    assert [item["versions"][0]["version"] for item in core["items"]] == ["v1"]


@pytest.mark.parametrize(("served", "missing"), [("v1beta1", "v1alpha2"), ("none", "v1alpha2")])
async def test_the_native_gang_api_is_a_choice(start: Starter, served: str, missing: str) -> None:
    _, client = await start(ServerOptions(insecure=True, native_groups=served))  # type: ignore[arg-type]
    base = "/apis/scheduling.k8s.io"
    assert (await client.call("GET", f"{base}/{missing}/podgroups")).status == 404
    made = await client.create(PODS, pod("p", schedulingGroup={"podGroupName": "g"}))
    if served == "none":
        # With the gate off the real server drops the field without a word.
        assert "schedulingGroup" not in made["spec"]
        return
    assert made["spec"]["schedulingGroup"] == {"podGroupName": "g"}
    path = f"{base}/{served}/namespaces/default/podgroups"
    body = {"metadata": {"name": "g"}, "spec": {"schedulingPolicy": {"gang": {"minCount": 2}}}}
    group = await client.create(path, body)
    assert group["spec"]["disruptionMode"] == {"single": {}}
    changed = await client.merge(f"{path}/g", {"spec": {"schedulingPolicy": {"gang": {"minCount": 3}}}})
    assert changed["metadata"]["generation"] == 2


async def test_1_35_has_workloads_alone_and_another_field_in_pods(start: Starter) -> None:
    _, client = await start(ServerOptions(insecure=True, native_groups="v1alpha1"))
    base = "/apis/scheduling.k8s.io/v1alpha1/namespaces/default"
    assert (await client.call("GET", f"{base}/podgroups")).status == 404
    reference = {"name": "w", "podGroup": "g", "podGroupReplicaKey": "0"}
    made = await client.create(PODS, pod("p", schedulingGroup={"podGroupName": "g"}, workloadRef=reference))
    assert made["spec"]["workloadRef"] == reference
    assert "schedulingGroup" not in made["spec"]
    groups = [{"name": "g", "policy": {"gang": {"minCount": 2}}}]
    body = {"metadata": {"name": "w"}, "spec": {"podGroups": groups}}
    assert (await client.create(f"{base}/workloads", body))["spec"]["podGroups"] == groups
    reply = await client.call(
        "PUT", f"{base}/workloads/w", {**body, "spec": {"podGroups": [*groups, {"name": "h"}]}}
    )
    assert reply.status == 422


async def test_1_37_with_every_gate_has_groups_of_groups_and_two_versions_of_the_rest(start: Starter) -> None:
    _, client = await start(ServerOptions(insecure=True, native_groups="v1alpha3"))
    beta, alpha = (f"/apis/scheduling.k8s.io/{name}/namespaces/default" for name in ("v1beta1", "v1alpha3"))
    leaf = {"name": "leaf", "schedulingPolicy": {"gang": {"minCount": 2}}}
    top = {"name": "top", "schedulingPolicy": {"gang": {"minGroupCount": 1}}, "podGroupTemplates": [leaf]}
    workload = {"metadata": {"name": "w"}, "spec": {"compositePodGroupTemplates": [top]}}
    await client.create(f"{beta}/workloads", workload)
    assert (await client.get(f"{alpha}/workloads/w"))["apiVersion"] == "scheduling.k8s.io/v1alpha3"
    link = {"workloadName": "w", "templateName": "top"}
    spec = {"workloadRef": link, "schedulingPolicy": {"gang": {"minGroupCount": 1}}}
    made = await client.create(f"{alpha}/compositepodgroups", {"metadata": {"name": "c"}, "spec": spec})
    assert made["spec"]["disruptionMode"] == {"single": {}}
    assert (await client.call("GET", f"{beta}/compositepodgroups")).status == 404
    wrong = {"metadata": {"name": "d"}, "spec": {**spec, "workloadRef": {**link, "templateName": "leaf"}}}
    reply = await client.call("POST", f"{alpha}/compositepodgroups", wrong)
    assert (reply.status, "CompositePodGroupTemplate" in reply.body["message"]) == (403, True)
    changed = {**made, "spec": {**made["spec"], "schedulingPolicy": {"gang": {"minGroupCount": 2}}}}
    assert (await client.call("PUT", f"{alpha}/compositepodgroups/c", changed)).status == 422
    child = {
        "workloadRef": {"workloadName": "w", "templateName": "leaf"},
        "parentCompositePodGroupName": "c",
        "schedulingPolicy": {"gang": {"minCount": 2}},
    }
    group = await client.create(f"{beta}/podgroups", {"metadata": {"name": "g"}, "spec": child})
    assert group["spec"]["parentCompositePodGroupName"] == "c"
    assert (await client.get(f"{alpha}/podgroups/g"))["metadata"]["uid"] == group["metadata"]["uid"]


async def test_without_that_gate_the_name_of_a_parent_is_dropped(start: Starter) -> None:
    _, client = await start(ServerOptions(insecure=True, native_groups="v1beta1"))
    spec = {
        "workloadRef": {"workloadName": "w", "templateName": "t"},
        "parentCompositePodGroupName": "c",
        "schedulingPolicy": {"basic": {}},
    }
    path = "/apis/scheduling.k8s.io/v1beta1/namespaces/default"
    template = {"name": "t", "schedulingPolicy": {"basic": {}}}
    await client.create(f"{path}/workloads", {"metadata": {"name": "w"}, "spec": {"podGroupTemplates": [template]}})
    made = await client.create(f"{path}/podgroups", {"metadata": {"name": "g"}, "spec": spec})
    assert "parentCompositePodGroupName" not in made["spec"]


async def test_openapi_describes_the_kinds_that_kubectl_requests(client: Client) -> None:
    index = await client.get("/openapi/v3")
    url = index["paths"]["apis/apps/v1"]["serverRelativeURL"]
    document = await client.get(url)
    patch = document["paths"]["/apis/apps/v1/namespaces/{namespace}/deployments/{name}"]["patch"]
    assert patch["x-kubernetes-group-version-kind"]["kind"] == "Deployment"
    assert "fieldValidation" in [item["name"] for item in patch["parameters"]]
    schemas = document["components"]["schemas"]
    assert all(name.removeprefix("#/components/schemas/") in schemas for name in _references(document))
    assert (await client.call("GET", "/openapi/v3/apis/nope/v1")).status == 404


async def test_openapi_v2_defines_the_same_kinds(client: Client) -> None:
    document = await client.get("/openapi/v2")
    definitions = document["definitions"]
    assert definitions["apps.v1.Deployment"]["x-kubernetes-group-version-kind"][0]["kind"] == "Deployment"
    assert all(name.removeprefix("#/definitions/") in definitions for name in _references(document))


def _references(value: object) -> set[str]:
    if isinstance(value, dict):
        found = {value["$ref"]} if isinstance(value.get("$ref"), str) else set()
        return found.union(*(_references(item) for item in value.values()))
    if isinstance(value, list):
        return set().union(*(_references(item) for item in value))
    return set()


async def test_unsupported_media_type_is_not_acceptable(client: Client) -> None:
    reply = await client.call("GET", PODS, headers={"Accept": "application/vnd.kubernetes.protobuf"})
    assert (reply.status, reply.reason) == (406, "NotAcceptable")
    both = "application/vnd.kubernetes.protobuf,application/json"
    assert (await client.call("GET", PODS, headers={"Accept": both})).status == 200


async def test_tokens_and_client_certificates_identify(start: Starter, tmp_path: Path) -> None:
    server, _ = await start(ServerOptions(token="secret"))
    assert server.authority is not None
    context = ssl.create_default_context(cadata=server.authority.certificate.decode())
    connector = aiohttp.TCPConnector(ssl=context)
    async with aiohttp.ClientSession(connector=connector) as session:
        client = Client(session, server.url)
        for headers in ({}, {"Authorization": "Bearer wrong"}, {"Authorization": "Basic c2VjcmV0"}):
            reply = await client.call("GET", PODS, headers=headers)
            assert (reply.status, reply.reason) == (401, "Unauthorized")
        assert (await client.call("GET", "/healthz")).status == 200
        assert (await client.call("GET", "/version")).status == 200
        assert (await client.call("GET", "/apis")).status == 401
        admin = {"Authorization": "Bearer secret"}
        assert (await client.call("GET", PODS, headers=admin)).status == 200

        accounts = "/api/v1/namespaces/default/serviceaccounts"
        issued = await client.ok(
            "POST", f"{accounts}/default/token", {"spec": {"expirationSeconds": 600}}, headers=admin
        )
        robot = {"Authorization": f"Bearer {issued['status']['token']}"}
        who = await client.ok("POST", "/apis/authentication.k8s.io/v1/selfsubjectreviews", {}, headers=robot)
        assert who["status"]["userInfo"]["username"] == "system:serviceaccount:default:default"

    pair = server.authority.client_pair("jane", ("team",))
    (tmp_path / "jane.pem").write_bytes(pair.certificate + pair.key)
    context.load_cert_chain(tmp_path / "jane.pem")
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=context)) as session:
        client = Client(session, server.url)
        who = await client.ok("POST", "/apis/authentication.k8s.io/v1/selfsubjectreviews", {})
        assert who["status"]["userInfo"]["username"] == "jane"
        assert "team" in who["status"]["userInfo"]["groups"]


async def test_the_kubeconfig_is_complete_and_private(start: Starter, tmp_path: Path) -> None:
    server, _ = await start(ServerOptions())
    path = tmp_path / "deep" / "kubeconfig"
    server.write_kubeconfig(path)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    config = json.loads(path.read_text())
    cluster = config["clusters"][0]["cluster"]
    assert cluster["server"] == server.url
    assert b"BEGIN CERTIFICATE" in base64.b64decode(cluster["certificate-authority-data"])
    assert config["users"][0]["user"] == {"token": server.token}


async def test_the_administrator_may_do_everything(client: Client) -> None:
    path = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
    asked = {"spec": {"resourceAttributes": {"verb": "create", "resource": "pods"}}}
    assert (await client.create(path, asked))["status"]["allowed"] is True


async def test_scale_is_a_view_of_replicas(client: Client) -> None:
    path = "/api/v1/namespaces/default/replicationcontrollers"
    template = {"metadata": {"labels": {"a": "b"}}, "spec": pod()["spec"]}
    spec = {"replicas": 2, "selector": {"a": "b"}, "template": template}
    await client.create(path, {"metadata": {"name": "d"}, "spec": spec})
    scale = await client.get(f"{path}/d/scale")
    assert (scale["kind"], scale["spec"], scale["status"]) == (
        "Scale",
        {"replicas": 2},
        {"replicas": 0, "selector": "a=b"},
    )
    scale["spec"]["replicas"] = 5
    assert (await client.ok("PUT", f"{path}/d/scale", scale))["spec"]["replicas"] == 5
    assert (await client.call("PUT", f"{path}/d/scale", scale)).status == 409
    assert (await client.merge(f"{path}/d/scale", {"spec": {"replicas": 1}}))["spec"]["replicas"] == 1
    assert (await client.get(f"{path}/d"))["metadata"]["generation"] == 3
    bad = {"metadata": {"name": "d"}, "spec": {"replicas": -1}}
    assert (await client.call("PUT", f"{path}/d/scale", bad)).status == 422


async def test_events_have_two_faces(client: Client) -> None:
    new, old = "/apis/events.k8s.io/v1/namespaces/default/events", "/api/v1/namespaces/default/events"
    regarding = {"kind": "Pod", "namespace": "default", "name": "p", "uid": "u"}
    body = {
        "metadata": {"name": "p.1"},
        "eventTime": "2027-01-15T08:00:00.000000Z",
        "reportingController": "phalanx",
        "reportingInstance": "phalanx-1",
        "action": "Binding",
        "reason": "Scheduled",
        "type": "Normal",
        "note": "Successfully assigned",
        "regarding": regarding,
    }
    made = await client.create(new, body)
    assert made["note"] == "Successfully assigned"
    seen = await client.get(f"{old}/p.1")
    assert seen["message"] == "Successfully assigned"
    assert seen["involvedObject"] == regarding
    assert seen["reportingComponent"] == "phalanx"
    assert await client.names(old, fieldSelector="involvedObject.name=p,reason=Scheduled") == ["p.1"]
    assert await client.names(new, fieldSelector="regarding.uid=u,reportingController=phalanx") == ["p.1"]
    async with client.watch(new) as stream:
        event = await stream.next()
        assert event is not None
        assert event["object"]["apiVersion"] == "events.k8s.io/v1"
        assert event["object"]["regarding"] == regarding
        series = {"count": 2, "lastObservedTime": "2027-01-15T08:01:00.000000Z"}
        await client.merge(f"{new}/p.1", {"series": series})
        event = await stream.next()
        assert event is not None
        assert event["object"]["series"] == series
    reply = await client.call("POST", new, {**body, "metadata": {"name": "p.2"}, "action": ""})
    assert reply.causes == [("action", "FieldValueRequired")]


async def test_tables_equal_the_output_of_kubectl(client: Client, clock: FakeClock) -> None:
    await client.create(NODES, node("n"))
    await client.create(PODS, pod("p"))
    await client.ok("POST", f"{PODS}/p/binding", binding("p", "n"))
    clock.seconds += 190
    reply = await client.call("GET", PODS, headers={"Accept": TABLE})
    assert reply.headers["Content-Type"] == "application/json"
    table = reply.body
    assert (table["kind"], table["apiVersion"]) == ("Table", "meta.k8s.io/v1")
    columns = [item["name"] for item in table["columnDefinitions"]]
    assert columns[:5] == ["Name", "Ready", "Status", "Restarts", "Age"]
    assert [item["priority"] for item in table["columnDefinitions"]] == [0] * 5 + [1] * 4
    row = table["rows"][0]
    assert row["cells"] == ["p", "0/1", "Pending", "0", "3m10s", "<none>", "n", "<none>", "<none>"]
    assert row["object"]["kind"] == "PartialObjectMetadata"
    assert row["object"]["metadata"]["name"] == "p"
    for include, kind in (("Object", "Pod"), ("None", None)):
        found = await client.ok("GET", PODS, headers={"Accept": TABLE}, includeObject=include)
        assert (found["rows"][0]["object"] or {}).get("kind") == kind
    one = await client.ok("GET", f"{NODES}/n", headers={"Accept": TABLE})
    assert one["rows"][0]["cells"][:4] == ["n", "Ready", "<none>", "3m10s"]


async def test_tables_are_watched_row_by_row(client: Client) -> None:
    async with client.watch(PODS, headers={"Accept": TABLE}) as stream:
        await client.create(PODS, pod("a"))
        await client.create(PODS, pod("b"))
        first, second = await stream.next(), await stream.next()
        assert first is not None
        assert second is not None
        assert first["object"]["kind"] == "Table"
        assert first["object"]["columnDefinitions"][0]["name"] == "Name"
        assert second["object"]["columnDefinitions"] is None
        assert second["object"]["rows"][0]["cells"][0] == "b"


async def test_metadata_alone_can_be_asked_for(client: Client) -> None:
    await client.create("/api/v1/namespaces/default/configmaps", config_map("a", k="v"))
    accept = {"Accept": "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"}
    found = await client.ok("GET", "/api/v1/configmaps", headers=accept)
    assert found["kind"] == "PartialObjectMetadataList"
    assert found["items"][0]["metadata"]["name"] == "a"
    assert "data" not in found["items"][0]


async def test_the_audit_log_has_a_line_per_request(start: Starter, tmp_path: Path) -> None:
    path = tmp_path / "audit.log"
    _, client = await start(ServerOptions(insecure=True, audit_log=path))
    await client.create(PODS, pod("p"))
    await client.call("GET", f"{PODS}/none")
    entries = [json.loads(line) for line in path.read_text().splitlines()]
    assert [(item["method"], item["uri"], item["code"]) for item in entries] == [
        ("POST", PODS, 201),
        ("GET", f"{PODS}/none", 404),
    ]
    assert entries[0]["user"] == "kubernetes-admin"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


async def test_a_port_in_use_is_an_error(start: Starter) -> None:
    first, _ = await start(ServerOptions(insecure=True))
    port = int(first.url.rpartition(":")[2])
    second = ApiServer(ServerOptions(insecure=True, port=port))
    with pytest.raises(OSError, match="address already in use"):
        await second.start()
