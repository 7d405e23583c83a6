"""Storage on the embedded server: claims are bound, volumes in use are protected, and sets retain their claims."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tests.phalanx_local.client import NODES, PODS, TABLE, Client, Json, binding, node, pod

CLAIMS = "/api/v1/namespaces/default/persistentvolumeclaims"
VOLUMES = "/api/v1/persistentvolumes"
CLASSES = "/apis/storage.k8s.io/v1/storageclasses"
SETS = "/apis/apps/v1/namespaces/default/statefulsets"
SELECTED = "volume.kubernetes.io/selected-node"


def claim(name: str, storage_class: str = "", size: str = "1Gi", **spec: Any) -> Json:
    body = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": size}}, **spec}
    if storage_class:
        body["storageClassName"] = storage_class
    return {"metadata": {"name": name}, "spec": body}


def volume(name: str, storage_class: str = "", size: str = "1Gi", **spec: Any) -> Json:
    body = {"accessModes": ["ReadWriteOnce"], "capacity": {"storage": size}, "hostPath": {"path": "/tmp"}, **spec}
    if storage_class:
        body["storageClassName"] = storage_class
    return {"metadata": {"name": name}, "spec": body}


def storage_class(name: str, mode: str = "WaitForFirstConsumer", **fields: Any) -> Json:
    return {
        "metadata": {"name": name},
        "provisioner": "phalanx.dev/fake",
        "volumeBindingMode": mode,
        **fields,
    }


async def appears(client: Client, path: str) -> Json:
    async with asyncio.timeout(60):
        while (reply := await client.call("GET", path)).status == 404:  # noqa: ASYNC110 - the state is the server's
            await asyncio.sleep(0.005)
    found: Json = reply.body
    return found


async def bound(client: Client, name: str) -> str:
    """The volume of a claim once it has one."""
    await appears(client, f"{CLAIMS}/{name}")
    await client.until(f"{CLAIMS}/{name}", "status", "phase", equals="Bound")
    found = await client.get(f"{CLAIMS}/{name}")
    assert "pv.kubernetes.io/bind-completed" in found["metadata"]["annotations"]
    volume_name: str = found["spec"]["volumeName"]
    held = await client.get(f"{VOLUMES}/{volume_name}")
    assert held["status"]["phase"] == "Bound"
    assert held["spec"]["claimRef"]["uid"] == found["metadata"]["uid"]
    return volume_name


async def test_a_claim_gets_the_smallest_volume_that_does(client: Client) -> None:
    for name, size in (("huge", "9Gi"), ("right", "2Gi"), ("small", "500Mi")):
        await client.create(VOLUMES, volume(name, size=size))
        await client.until(f"{VOLUMES}/{name}", "status", "phase", equals="Available")
    await client.create(CLAIMS, claim("data"))
    assert await bound(client, "data") == "right"


async def test_volumes_are_printed_as_people_know_them(client: Client) -> None:
    body = storage_class("fast", "Immediate")
    body["metadata"]["annotations"] = {"storageclass.kubernetes.io/is-default-class": "true"}
    await client.create(CLASSES, body)
    await client.create(CLAIMS, claim("data"))
    made = await bound(client, "data")
    rows = (await client.ok("GET", VOLUMES, headers={"Accept": TABLE}))["rows"]
    assert rows[0]["cells"][:7] == [made, "1Gi", "RWO", "Delete", "Bound", "default/data", "fast"]
    rows = (await client.ok("GET", CLASSES, headers={"Accept": TABLE}))["rows"]
    assert rows[0]["cells"][:5] == ["fast (default)", "phalanx.dev/fake", "Delete", "Immediate", "false"]


async def test_a_claim_that_came_first_is_served_when_a_volume_comes(client: Client) -> None:
    await client.create(CLAIMS, claim("data", accessModes=["ReadWriteMany"]))
    await client.create(VOLUMES, volume("other"))
    await client.create(VOLUMES, volume("shared", accessModes=["ReadWriteMany", "ReadWriteOnce"]))
    assert await bound(client, "data") == "shared"


async def test_an_immediate_claim_has_its_volume_made(client: Client) -> None:
    await client.create(CLASSES, storage_class("fast", "Immediate"))
    await client.create(CLAIMS, claim("data", "fast", "3Gi"))
    made = await client.get(f"{VOLUMES}/{await bound(client, 'data')}")
    assert made["spec"]["capacity"] == {"storage": "3Gi"}
    assert made["spec"]["persistentVolumeReclaimPolicy"] == "Delete"


async def test_a_delayed_claim_waits_for_its_node(client: Client) -> None:
    parameters = {"topologyKey": "zone"}
    await client.create(CLASSES, storage_class("late", parameters=parameters))
    zoned = node("n1")
    zoned["metadata"]["labels"] = {"zone": "a"}
    await client.create(NODES, zoned)
    await client.create(CLAIMS, claim("data", "late"))
    await client.create(CLASSES, storage_class("fast", "Immediate"))
    await client.create(CLAIMS, claim("other", "fast"))
    await bound(client, "other")
    assert (await client.get(f"{CLAIMS}/data"))["status"]["phase"] == "Pending"
    await client.merge(f"{CLAIMS}/data", {"metadata": {"annotations": {SELECTED: "n1"}}})
    made = await client.get(f"{VOLUMES}/{await bound(client, 'data')}")
    terms = made["spec"]["nodeAffinity"]["required"]["nodeSelectorTerms"]
    assert terms == [{"matchExpressions": [{"key": "zone", "operator": "In", "values": ["a"]}]}]


async def test_a_node_that_the_class_cannot_serve_is_sent_back(client: Client) -> None:
    await client.create(CLASSES, storage_class("late", parameters={"topologyKey": "zone"}))
    await client.create(NODES, node("n1"))
    body = claim("data", "late")
    body["metadata"]["annotations"] = {SELECTED: "n1"}
    await client.create(CLAIMS, body)
    await client.until(f"{CLAIMS}/data", "metadata", "annotations", SELECTED, equals=None)


async def test_a_volume_that_a_scheduler_has_reserved_is_bound(client: Client) -> None:
    await client.create(CLASSES, storage_class("late"))
    await client.create(VOLUMES, volume("chosen", "late"))
    made = await client.create(CLAIMS, claim("data", "late"))
    reference = {"kind": "PersistentVolumeClaim", "apiVersion": "v1", "namespace": "default", "name": "data"}
    uid = made["metadata"]["uid"]
    await client.merge(f"{VOLUMES}/chosen", {"spec": {"claimRef": {**reference, "uid": uid}}})
    assert await bound(client, "data") == "chosen"


async def test_provisioned_volume_is_deleted_with_its_claim_and_a_retained_one_is_not(client: Client) -> None:
    await client.create(CLASSES, storage_class("fast", "Immediate"))
    await client.create(CLAIMS, claim("made", "fast"))
    made = await bound(client, "made")
    await client.ok("DELETE", f"{CLAIMS}/made")
    await client.gone(f"{VOLUMES}/{made}")
    await client.create(VOLUMES, volume("kept", "manual"))
    await client.create(CLAIMS, claim("data", "manual"))
    await bound(client, "data")
    await client.ok("DELETE", f"{CLAIMS}/data")
    await client.until(f"{VOLUMES}/kept", "status", "phase", equals="Released")


async def test_a_claim_in_use_outlives_its_deletion(client: Client) -> None:
    await client.create(CLASSES, storage_class("fast", "Immediate"))
    await client.create(NODES, node("n1"))
    await client.create(CLAIMS, claim("data", "fast"))
    await bound(client, "data")
    body = pod("user")
    body["spec"]["volumes"] = [{"name": "d", "persistentVolumeClaim": {"claimName": "data"}}]
    await client.create(PODS, body)
    await client.create(f"{PODS}/user/binding", binding("user", "n1"))
    dying = await client.ok("DELETE", f"{CLAIMS}/data")
    assert dying["metadata"]["finalizers"] == ["kubernetes.io/pvc-protection"]
    assert (await client.call("GET", f"{CLAIMS}/data")).status == 200
    await client.ok("DELETE", f"{PODS}/user", {"gracePeriodSeconds": 0})
    await client.gone(f"{CLAIMS}/data")


async def test_a_pod_gets_the_claims_that_are_made_for_it_and_takes_them_along(client: Client) -> None:
    await client.create(CLASSES, storage_class("fast", "Immediate"))
    body = pod("solo")
    template = {"metadata": {"labels": {"a": "b"}}, "spec": claim("", "fast")["spec"]}
    body["spec"]["volumes"] = [{"name": "scratch", "ephemeral": {"volumeClaimTemplate": template}}]
    made = await client.create(PODS, body)
    await bound(client, "solo-scratch")
    found = await client.get(f"{CLAIMS}/solo-scratch")
    assert found["metadata"]["labels"] == {"a": "b"}
    assert found["metadata"]["ownerReferences"][0]["uid"] == made["metadata"]["uid"]
    assert found["metadata"]["ownerReferences"][0]["controller"] is True
    await client.ok("DELETE", f"{PODS}/solo", {"gracePeriodSeconds": 0})
    await client.gone(f"{CLAIMS}/solo-scratch")


async def test_pod_gets_its_ephemeral_claim_once_another_claim_of_that_name_is_deleted(client: Client) -> None:
    await client.create(CLASSES, storage_class("fast", "Immediate"))
    foreign = await client.create(CLAIMS, claim("solo-scratch", "fast"))
    await bound(client, "solo-scratch")
    body = pod("solo")
    template = {"spec": claim("", "fast")["spec"]}
    body["spec"]["volumes"] = [{"name": "scratch", "ephemeral": {"volumeClaimTemplate": template}}]
    made = await client.create(PODS, body)
    await client.create(PODS, pod("later"))
    kept = await client.get(f"{CLAIMS}/solo-scratch")
    assert kept["metadata"]["uid"] == foreign["metadata"]["uid"]
    await client.ok("DELETE", f"{CLAIMS}/solo-scratch")
    await client.gone_or_other(f"{CLAIMS}/solo-scratch", foreign["metadata"]["uid"])
    renewed = await appears(client, f"{CLAIMS}/solo-scratch")
    assert renewed["metadata"]["ownerReferences"][0]["uid"] == made["metadata"]["uid"]


def zoned_volume(*keys: str) -> Json:
    terms = [{"matchExpressions": [{"key": key, "operator": "In", "values": ["a"]} for key in keys]}]
    return volume("disk", nodeAffinity={"required": {"nodeSelectorTerms": terms}})


async def test_node_affinity_of_a_volume_changes_from_beta_labels_to_stable_labels_only(client: Client) -> None:
    beta, stable = "failure-domain.beta.kubernetes.io/", "topology.kubernetes.io/"
    await client.create(VOLUMES, zoned_volume(f"{beta}zone", f"{beta}region"))
    await client.merge(f"{VOLUMES}/disk", zoned_volume(f"{stable}zone", f"{beta}region"))
    await client.merge(f"{VOLUMES}/disk", zoned_volume(f"{stable}zone", f"{stable}region"))
    for keys in ((f"{beta}zone", f"{stable}region"), (f"{stable}zone",), (f"{stable}region", f"{stable}zone")):
        merge = "application/merge-patch+json"
        reply = await client.call("PATCH", f"{VOLUMES}/disk", zoned_volume(*keys), content_type=merge)
        assert (reply.status, "except for updating from beta label to GA" in str(reply.body)) == (422, True)


async def test_a_set_gives_each_pod_a_claim_that_stays(client: Client) -> None:
    await client.create(CLASSES, storage_class("fast", "Immediate"))
    template = {"metadata": {"labels": {"app": "db"}}, "spec": pod("")["spec"]}
    await client.create(
        SETS,
        {
            "metadata": {"name": "db"},
            "spec": {
                "replicas": 2,
                "serviceName": "db",
                "podManagementPolicy": "Parallel",
                "selector": {"matchLabels": {"app": "db"}},
                "template": template,
                "volumeClaimTemplates": [{"metadata": {"name": "data"}, "spec": claim("", "fast")["spec"]}],
            },
        },
    )
    await bound(client, "data-db-0")
    await bound(client, "data-db-1")
    first = await appears(client, f"{PODS}/db-0")
    assert first["spec"]["volumes"][0]["persistentVolumeClaim"] == {"claimName": "data-db-0"}
    assert first["metadata"]["labels"]["apps.kubernetes.io/pod-index"] == "0"
    await client.merge(f"{SETS}/db", {"spec": {"replicas": 1}})
    await client.gone(f"{PODS}/db-1")
    assert (await client.get(f"{CLAIMS}/data-db-1"))["status"]["phase"] == "Bound"


async def test_ordered_set_continues_when_the_last_pod_is_ready(client: Client) -> None:
    template = {"metadata": {"labels": {"app": "db"}}, "spec": pod("")["spec"]}
    spec = {"replicas": 2, "selector": {"matchLabels": {"app": "db"}}, "template": template}
    await client.create(SETS, {"metadata": {"name": "db"}, "spec": spec})
    await appears(client, f"{PODS}/db-0")
    assert await client.names(PODS) == ["db-0"]
    ready = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}
    await client.merge(f"{PODS}/db-0/status", {"status": ready})
    await appears(client, f"{PODS}/db-1")


async def test_the_default_class_is_filled_in(client: Client) -> None:
    await client.create(CLAIMS, claim("before"))
    assert "storageClassName" not in (await client.get(f"{CLAIMS}/before"))["spec"]
    body = storage_class("usual")
    body["metadata"]["annotations"] = {"storageclass.kubernetes.io/is-default-class": "true"}
    await client.create(CLASSES, body)
    made = await client.create(CLAIMS, claim("after"))
    assert made["spec"]["storageClassName"] == "usual"
    none = await client.create(CLAIMS, claim("none", storageClassName=""))
    assert none["spec"]["storageClassName"] == ""


@pytest.mark.parametrize(
    ("path", "body", "words"),
    [
        (
            CLAIMS,
            claim("c", accessModes=[]),
            "spec.accessModes: Required value: at least 1 access mode is required",
        ),
        (CLAIMS, claim("c", resources={}), "spec.resources[storage]: Required value"),
        (CLAIMS, claim("c", size="0"), 'spec.resources[storage]: Invalid value: "0": must be greater than zero'),
        (
            CLAIMS,
            claim("c", accessModes=["ReadWriteOncePod", "ReadWriteOnce"]),
            "spec.accessModes: Forbidden: may not use ReadWriteOncePod with other access modes",
        ),
        (VOLUMES, volume("v", hostPath=None), "spec: Required value: must specify a volume type"),
        (VOLUMES, volume("v", nfs={"server": "s", "path": "/"}), "may not specify more than 1 volume type"),
        (CLASSES, storage_class("s", "Someday"), 'volumeBindingMode: Unsupported value: "Someday"'),
        (CLASSES, storage_class("s", provisioner=""), "provisioner: Required value"),
    ],
)
async def test_invalid_storage_objects_are_refused(client: Client, path: str, body: Json, words: str) -> None:
    answer = await client.call("POST", path, body)
    assert answer.status == 422
    assert words in answer.body["message"]


async def test_a_claim_stays_as_it_is_but_may_grow_once_bound(client: Client) -> None:
    await client.create(CLASSES, storage_class("fast", "Immediate"))
    await client.create(CLAIMS, claim("waits", "other"))
    grown = {"spec": {"resources": {"requests": {"storage": "2Gi"}}}}
    refused = await client.call("PATCH", f"{CLAIMS}/waits", grown, content_type="application/merge-patch+json")
    assert refused.status == 422
    assert "spec is immutable after creation except resources.requests" in refused.body["message"]
    await client.create(CLAIMS, claim("data", "fast"))
    await bound(client, "data")
    await client.merge(f"{CLAIMS}/data", grown)
