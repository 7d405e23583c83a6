"""Strategic merge patches over the built-in kinds."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from phalanx_local.patches import PatchError, strategic_merge_patch


def pod(**spec: Any) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a"}, "spec": spec}


def patched(doc: dict[str, Any], patch: dict[str, Any], kind: str = "Pod") -> dict[str, Any]:
    before = copy.deepcopy((doc, patch))
    result = strategic_merge_patch(doc, patch, kind)
    assert (doc, patch) == before
    return result


def test_containers_merge_by_name() -> None:
    doc = pod(containers=[{"name": "a", "image": "1"}, {"name": "b", "image": "1"}])
    result = patched(doc, {"spec": {"containers": [{"name": "b", "image": "2"}, {"name": "c", "image": "3"}]}})
    assert result["spec"]["containers"] == [
        {"name": "a", "image": "1"},
        {"name": "b", "image": "2"},
        {"name": "c", "image": "3"},
    ]


@pytest.mark.parametrize(
    ("kind", "path", "key", "one", "two"),
    [
        ("Pod", ("status", "conditions"), "type", "Ready", "PodScheduled"),
        ("Pod", ("status", "podIPs"), "ip", "10.0.0.1", "10.0.0.2"),
        ("Pod", ("status", "hostIPs"), "ip", "10.0.0.1", "10.0.0.2"),
        ("Pod", ("spec", "initContainers"), "name", "a", "b"),
        ("Pod", ("spec", "ephemeralContainers"), "name", "a", "b"),
        ("Pod", ("spec", "volumes"), "name", "a", "b"),
        ("Pod", ("spec", "imagePullSecrets"), "name", "a", "b"),
        ("Pod", ("spec", "hostAliases"), "ip", "10.0.0.1", "10.0.0.2"),
        ("Pod", ("spec", "topologySpreadConstraints"), "topologyKey", "zone", "host"),
        ("Pod", ("spec", "resourceClaims"), "name", "a", "b"),
        ("Pod", ("spec", "schedulingGates"), "name", "a", "b"),
        ("Pod", ("metadata", "ownerReferences"), "uid", "u1", "u2"),
        ("Node", ("status", "conditions"), "type", "Ready", "DiskPressure"),
        ("Node", ("status", "addresses"), "type", "InternalIP", "Hostname"),
        ("Service", ("spec", "ports"), "port", 80, 443),
        ("ServiceAccount", ("secrets",), "name", "a", "b"),
        ("Deployment", ("status", "conditions"), "type", "Available", "Progressing"),
    ],
)
def test_lists_merge_by_the_key_of_their_field(
    kind: str, path: tuple[str, ...], key: str, one: Any, two: Any
) -> None:
    def at(value: Any) -> dict[str, Any]:
        for name in reversed(path):
            value = {name: value}
        return dict(value)

    doc = at([{key: one, "x": "old"}, {key: two, "x": "old"}])
    doc["apiVersion"] = {"Deployment": "apps/v1"}.get(kind, "v1")
    result: Any = patched(doc, at([{key: two, "x": "new"}]), kind)
    for name in path:
        result = result[name]
    assert result == [{key: one, "x": "old"}, {key: two, "x": "new"}]


def test_container_fields_merge_by_their_own_keys() -> None:
    container = {
        "name": "c",
        "env": [{"name": "A", "value": "1"}],
        "ports": [{"containerPort": 80, "name": "http"}],
        "volumeMounts": [{"mountPath": "/a", "name": "v"}],
        "args": ["x", "y"],
    }
    change = {
        "name": "c",
        "env": [{"name": "B", "value": "2"}],
        "ports": [{"containerPort": 80, "protocol": "TCP"}],
        "volumeMounts": [{"mountPath": "/b", "name": "w"}],
        "args": ["z"],
    }
    merged = patched(pod(containers=[container]), {"spec": {"containers": [change]}})["spec"]["containers"][0]
    assert sorted(item["name"] for item in merged["env"]) == ["A", "B"]
    assert merged["ports"] == [{"containerPort": 80, "name": "http", "protocol": "TCP"}]
    assert sorted(item["mountPath"] for item in merged["volumeMounts"]) == ["/a", "/b"]
    assert merged["args"] == ["z"]


def test_tolerations_are_replaced_as_a_whole_and_so_are_node_taints() -> None:
    doc = pod(tolerations=[{"key": "a"}, {"key": "b"}])
    assert patched(doc, {"spec": {"tolerations": [{"key": "c"}]}})["spec"]["tolerations"] == [{"key": "c"}]
    node = {"apiVersion": "v1", "kind": "Node", "spec": {"taints": [{"key": "a"}, {"key": "b"}]}}
    # Taints have no merge key in the API's types.
    assert patched(node, {"spec": {"taints": [{"key": "c"}]}}, "Node")["spec"]["taints"] == [{"key": "c"}]


def test_finalizers_merge_as_a_set_and_can_be_taken_out_one_by_one() -> None:
    doc = {"apiVersion": "v1", "kind": "Pod", "metadata": {"finalizers": ["a/x", "b/x"]}}
    added = patched(doc, {"metadata": {"finalizers": ["c/x", "a/x"]}})
    assert sorted(added["metadata"]["finalizers"]) == ["a/x", "b/x", "c/x"]
    fewer = patched(doc, {"metadata": {"$deleteFromPrimitiveList/finalizers": ["a/x"]}})
    assert fewer["metadata"]["finalizers"] == ["b/x"]


def test_null_deletes_and_nulls_in_new_values_are_dropped() -> None:
    doc = pod(nodeName="n", containers=[])
    result = patched(doc, {"spec": {"nodeName": None, "affinity": {"nodeAffinity": None, "podAffinity": {}}}})
    assert result["spec"] == {"containers": [], "affinity": {"podAffinity": {}}}


def test_an_item_is_deleted_by_directive() -> None:
    doc = pod(containers=[{"name": "a"}, {"name": "b"}])
    result = patched(doc, {"spec": {"containers": [{"name": "a", "$patch": "delete"}]}})
    assert result["spec"]["containers"] == [{"name": "b"}]


def test_a_list_is_replaced_by_directive() -> None:
    doc = pod(containers=[{"name": "a"}, {"name": "b"}])
    change = {"spec": {"containers": [{"$patch": "replace"}, {"name": "d"}, {"name": "a"}]}}
    assert patched(doc, change)["spec"]["containers"] == [{"name": "d"}, {"name": "a"}]


def test_a_map_is_replaced_or_deleted_by_directive() -> None:
    doc = pod(nodeSelector={"a": "1"}, affinity={"nodeAffinity": {"x": 1}})
    result = patched(
        doc, {"spec": {"nodeSelector": {"$patch": "replace", "b": "2"}, "affinity": {"$patch": "delete"}}}
    )
    assert result["spec"] == {"nodeSelector": {"b": "2"}, "affinity": {}}


def test_retain_keys_clears_the_other_members_of_a_union() -> None:
    doc = {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "spec": {"strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1}}},
    }
    change = {"spec": {"strategy": {"$retainKeys": ["type"], "type": "Recreate"}}}
    assert patched(doc, change, "Deployment")["spec"]["strategy"] == {"type": "Recreate"}


def test_set_element_order_sorts_named_items_and_preserves_the_place_of_unnamed_ones() -> None:
    doc = pod(containers=[{"name": name} for name in ("a", "sidecar", "b", "c")])
    change = {
        "spec": {
            "$setElementOrder/containers": [{"name": "c"}, {"name": "b"}, {"name": "new"}],
            "containers": [{"name": "new", "image": "i"}],
        }
    }
    names = [item["name"] for item in patched(doc, change)["spec"]["containers"]]
    assert names == ["a", "sidecar", "c", "b", "new"]


def test_a_new_item_takes_the_place_that_a_deleted_one_leaves() -> None:
    doc = pod(containers=[{"name": "a"}, {"name": "b"}, {"name": "foreign"}])
    change = {
        "spec": {
            "$setElementOrder/containers": [{"name": "b"}, {"name": "new"}],
            "containers": [{"name": "new", "image": "i"}, {"name": "a", "$patch": "delete"}],
        }
    }
    names = [item["name"] for item in patched(doc, change)["spec"]["containers"]]
    assert names == ["b", "foreign", "new"]


def test_set_element_order_alone_reorders() -> None:
    doc = pod(containers=[{"name": "a"}, {"name": "b"}])
    change = {"spec": {"$setElementOrder/containers": [{"name": "b"}, {"name": "a"}]}}
    assert [item["name"] for item in patched(doc, change)["spec"]["containers"]] == ["b", "a"]


def test_directives_never_reach_the_object() -> None:
    change = {
        "spec": {
            "strategy": {"$retainKeys": ["type"], "type": "Recreate"},
            "template": {"spec": {"containers": [{"name": "a", "$setElementOrder/env": [{"name": "E"}]}]}},
        }
    }
    result = patched({"apiVersion": "apps/v1", "kind": "Deployment", "spec": {}}, change, "Deployment")
    assert "$" not in str(result)


def test_the_condition_update_of_a_scheduler_touches_only_its_condition() -> None:
    doc = {
        "apiVersion": "v1",
        "kind": "Pod",
        "status": {
            "phase": "Pending",
            "conditions": [{"type": "Ready", "status": "False"}, {"type": "PodScheduled", "status": "True"}],
        },
    }
    change = {
        "status": {
            "$setElementOrder/conditions": [{"type": "PodScheduled"}],
            "conditions": [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}],
        }
    }
    assert patched(doc, change)["status"] == {
        "phase": "Pending",
        "conditions": [
            {"type": "Ready", "status": "False"},
            {"type": "PodScheduled", "status": "False", "reason": "Unschedulable"},
        ],
    }


@pytest.mark.parametrize(
    ("patch", "code", "words"),
    [
        ({"$patch": "frob"}, 500, "unknown patch type: frob in map"),
        ({"$patch": "merge"}, 500, "unknown patch type: merge in map"),
        ({"spec": {"containers": [{"image": "x"}]}}, 500, "does not contain declared merge key: name"),
        ({"spec": {"containers": [{"name": "a", "$patch": "frob"}]}}, 500, "unknown patch type"),
        ({"spec": {"containers": ["a"]}}, 500, "list element types are not identical"),
        ({"spec": {"containers": [["a"]]}}, 422, "lists of lists are not supported"),
        ({"spec": {"$retainKeys": "x"}}, 400, "invalid patch format of retainKeys"),
        ({"spec": {"$retainKeys": ["a"], "b": 1}}, 400, "invalid patch format of retainKeys"),
        ({"spec": {"$setElementOrder/containers": 1}}, 400, "invalid patch format of setElementOrder list"),
        (
            {
                "spec": {
                    "$setElementOrder/containers": [{"name": "b"}],
                    "containers": [{"name": "a", "image": "i"}],
                }
            },
            500,
            "doesn't match $setElementOrder list",
        ),
    ],
)
def test_a_bad_patch_is_refused(patch: dict[str, Any], code: int, words: str) -> None:
    with pytest.raises(PatchError) as caught:
        strategic_merge_patch(pod(containers=[{"name": "a"}]), patch, "Pod")
    assert caught.value.code == code
    assert words in caught.value.message


def test_a_kind_without_a_table_merges_maps_and_replaces_lists() -> None:
    doc = {"apiVersion": "example.com/v1", "kind": "Odd", "spec": {"l": [1], "m": {"a": 1}}}
    assert patched(doc, {"spec": {"l": [2], "m": {"b": 2}}}, "Odd")["spec"] == {"l": [2], "m": {"a": 1, "b": 2}}
