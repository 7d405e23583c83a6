"""Server-side apply: field ownership, conflicts, removal, lists."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from phalanx_local.patches import (
    ApplyConflict,
    ListSchema,
    PatchError,
    builtin_lists,
    lists_from_schema,
    server_side_apply,
    track_update,
)

NOW, LATER = "2026-01-01T00:00:00Z", "2026-01-02T00:00:00Z"
DEPLOYMENT = builtin_lists("apps", "Deployment")
CONFIG_MAP = builtin_lists("", "ConfigMap")
Obj = dict[str, Any]


def apply(
    live: Obj | None,
    config: Obj,
    manager: str = "me",
    *,
    force: bool = False,
    lists: ListSchema = DEPLOYMENT,
    now: str = NOW,
    subresource: str = "",
) -> Obj:
    before = copy.deepcopy((live, config))
    result = server_side_apply(
        live,
        config,
        manager=manager,
        force=force,
        api_version=config["apiVersion"],
        subresource=subresource,
        now=now,
        lists=lists,
    )
    assert (live, config) == before, "inputs must stay as they are"
    return result


def update(before: Obj | None, after: Obj, manager: str = "editor", *, lists: ListSchema = DEPLOYMENT) -> Obj:
    return track_update(
        before,
        after,
        manager=manager,
        api_version=after["apiVersion"],
        subresource="",
        now=NOW,
        lists=lists,
    )


def deployment(**spec: Any) -> Obj:
    return {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "d"}, "spec": spec}


def config_map(**data: str) -> Obj:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c"}, "data": data}


def entry(obj: Obj, manager: str) -> Obj:
    found = [item for item in obj["metadata"].get("managedFields", ()) if item["manager"] == manager]
    assert len(found) == 1, f"{manager}: {found}"
    return dict(found[0])


def owned(obj: Obj, manager: str) -> Obj:
    return dict(entry(obj, manager)["fieldsV1"])


def test_apply_creates_the_object_and_records_owned_fields() -> None:
    config = deployment(
        replicas=2,
        template={"spec": {"containers": [{"name": "a", "image": "i", "ports": [{"containerPort": 80}]}]}},
    )
    config["metadata"]["labels"] = {"app": "x"}
    result = apply(None, config)
    assert {key: value for key, value in result.items() if key != "metadata"} == {
        key: value for key, value in config.items() if key != "metadata"
    }
    assert entry(result, "me") == {
        "manager": "me",
        "operation": "Apply",
        "apiVersion": "apps/v1",
        "time": NOW,
        "fieldsType": "FieldsV1",
        "fieldsV1": {
            "f:metadata": {"f:labels": {"f:app": {}}},
            "f:spec": {
                "f:replicas": {},
                "f:template": {
                    "f:spec": {
                        "f:containers": {
                            'k:{"name":"a"}': {
                                ".": {},
                                "f:name": {},
                                "f:image": {},
                                "f:ports": {
                                    'k:{"containerPort":80,"protocol":"TCP"}': {".": {}, "f:containerPort": {}}
                                },
                            }
                        }
                    }
                },
            },
        },
    }


def test_names_and_other_metadata_of_the_server_are_never_owned() -> None:
    config = config_map(a="1")
    config["metadata"].update({"namespace": "n", "uid": "u", "resourceVersion": "1", "generation": 1})
    assert owned(apply(None, config, lists=CONFIG_MAP), "me") == {"f:data": {"f:a": {}}}


def test_repeated_apply_changes_nothing_not_even_the_time() -> None:
    config = deployment(replicas=2)
    once = apply(None, config)
    assert apply(once, config, now=LATER) == once


def test_applying_something_else_moves_the_time() -> None:
    once = apply(None, deployment(replicas=2))
    assert entry(apply(once, deployment(replicas=3), now=LATER), "me")["time"] == LATER


def test_omitted_field_without_another_owner_is_removed() -> None:
    once = apply(None, config_map(a="1", b="2"), lists=CONFIG_MAP)
    assert apply(once, config_map(a="1"), lists=CONFIG_MAP)["data"] == {"a": "1"}


def test_the_last_entry_takes_the_map_along() -> None:
    once = apply(None, config_map(a="1"), lists=CONFIG_MAP)
    config = config_map()
    del config["data"]
    result = apply(once, config, lists=CONFIG_MAP)
    assert "data" not in result
    assert "managedFields" not in result["metadata"]


def test_a_field_left_out_stays_when_another_applier_owns_it() -> None:
    live = apply(None, config_map(a="1", b="2"), "one", lists=CONFIG_MAP)
    live = apply(live, config_map(b="2"), "two", lists=CONFIG_MAP)
    result = apply(live, config_map(a="1"), "one", lists=CONFIG_MAP)
    assert result["data"] == {"a": "1", "b": "2"}
    assert owned(result, "one") == {"f:data": {"f:a": {}}}
    assert owned(result, "two") == {"f:data": {"f:b": {}}}


def test_a_field_left_out_stays_when_an_updater_owns_it() -> None:
    live = apply(None, config_map(a="1", b="2"), "one", lists=CONFIG_MAP)
    edited = copy.deepcopy(live)
    edited["data"]["b"] = "3"
    live = update(live, edited, lists=CONFIG_MAP)
    assert owned(live, "one") == {"f:data": {"f:a": {}}}
    assert apply(live, config_map(a="1"), "one", lists=CONFIG_MAP)["data"] == {"a": "1", "b": "3"}


def test_fields_never_applied_are_not_changed() -> None:
    live = update(None, deployment(replicas=1, paused=True), "creator")
    result = apply(live, deployment(replicas=1), "me")
    assert result["spec"] == {"replicas": 1, "paused": True}


def test_change_of_a_field_of_another_applier_is_a_conflict() -> None:
    live = apply(None, config_map(a="1"), "one", lists=CONFIG_MAP)
    with pytest.raises(ApplyConflict) as caught:
        apply(live, config_map(a="2"), "two", lists=CONFIG_MAP)
    assert caught.value.conflicts == [("one", ".data.a")]
    assert caught.value.message == 'Apply failed with 1 conflict: conflict with "one": .data.a'
    assert caught.value.causes == [(".data.a", 'conflict with "one"')]


def test_conflicts_name_every_manager_and_path_and_how_updaters_wrote() -> None:
    live = update(
        None, deployment(replicas=1, template={"spec": {"containers": [{"name": "a", "image": "i"}]}}), "ed"
    )
    live = apply(live, deployment(paused=True), "one")
    config = deployment(paused=False, replicas=2, template={"spec": {"containers": [{"name": "a", "image": "j"}]}})
    with pytest.raises(ApplyConflict) as caught:
        apply(live, config, "two")
    assert caught.value.conflicts == [
        ("ed", ".spec.replicas"),
        ("ed", '.spec.template.spec.containers[name="a"].image'),
        ("one", ".spec.paused"),
    ]
    assert caught.value.message == (
        'Apply failed with 3 conflicts: conflicts with "ed" using apps/v1:\n'
        "- .spec.replicas\n"
        '- .spec.template.spec.containers[name="a"].image\n'
        'conflicts with "one":\n'
        "- .spec.paused"
    )


def test_force_takes_the_field_over() -> None:
    live = apply(None, config_map(a="1", b="1"), "one", lists=CONFIG_MAP)
    result = apply(live, config_map(a="2"), "two", force=True, lists=CONFIG_MAP)
    assert result["data"] == {"a": "2", "b": "1"}
    assert owned(result, "one") == {"f:data": {"f:b": {}}}
    assert owned(result, "two") == {"f:data": {"f:a": {}}}


def test_equal_values_are_owned_together() -> None:
    live = apply(None, config_map(a="1"), "one", lists=CONFIG_MAP)
    live = apply(live, config_map(a="1"), "two", lists=CONFIG_MAP)
    assert owned(live, "one") == owned(live, "two") == {"f:data": {"f:a": {}}}
    # Neither may change it alone.
    with pytest.raises(ApplyConflict):
        apply(live, config_map(a="2"), "one", lists=CONFIG_MAP)


def test_an_apply_that_only_adds_an_owner_carries_no_time() -> None:
    live = apply(None, config_map(a="1"), "one", lists=CONFIG_MAP)
    live = apply(live, config_map(a="1"), "two", lists=CONFIG_MAP, now=LATER)
    assert "time" not in entry(live, "two")
    assert entry(live, "one")["time"] == NOW


def test_items_of_map_lists_are_owned_one_by_one() -> None:
    def with_env(*names: str) -> Obj:
        env = [{"name": name, "value": "1"} for name in names]
        return deployment(template={"spec": {"containers": [{"name": "c", "env": env}]}})

    live = apply(None, with_env("A", "B"), "one")
    live = apply(live, with_env("C"), "two")
    live = apply(live, with_env("B"), "one")
    env = live["spec"]["template"]["spec"]["containers"][0]["env"]
    assert sorted(item["name"] for item in env) == ["B", "C"]


def test_item_of_two_owners_is_removed_when_the_second_releases_it() -> None:
    def ports(*numbers: int) -> Obj:
        listed = [{"containerPort": number, "protocol": "TCP"} for number in numbers]
        container = {"name": "c", "ports": listed} if listed else {"name": "c"}
        return deployment(template={"spec": {"containers": [container]}})

    live = apply(None, ports(80), "one")
    live = apply(live, ports(80), "two")
    live = apply(live, ports(), "one")
    assert live["spec"]["template"]["spec"]["containers"][0]["ports"] == [{"containerPort": 80, "protocol": "TCP"}]
    live = apply(live, ports(), "two")
    assert "ports" not in live["spec"]["template"]["spec"]["containers"][0]


def test_defaulted_fields_of_a_removed_item_are_removed() -> None:
    def containers(*names: str) -> Obj:
        return deployment(template={"spec": {"containers": [{"name": name, "image": "i"} for name in names]}})

    live = apply(None, containers("a", "b"))
    for container in live["spec"]["template"]["spec"]["containers"]:
        container["imagePullPolicy"] = "Always"  # as defaulting does, without an owner
    result = apply(live, containers("a"))
    assert [item["name"] for item in result["spec"]["template"]["spec"]["containers"]] == ["a"]


def test_the_applied_order_wins_and_foreign_items_keep_their_place() -> None:
    def containers(*names: str) -> Obj:
        return deployment(template={"spec": {"containers": [{"name": name} for name in names]}})

    def names(obj: Obj) -> list[str]:
        return [item["name"] for item in obj["spec"]["template"]["spec"]["containers"]]

    live = update(None, containers("a", "x", "b"))
    assert names(apply(live, containers("b", "a"))) == ["x", "b", "a"]
    assert names(apply(live, containers("a", "b"))) == ["a", "x", "b"]
    assert names(apply(live, containers("a", "new", "b"))) == ["a", "x", "new", "b"]


def test_atomic_lists_and_maps_are_owned_and_replaced_as_a_whole() -> None:
    lists = builtin_lists("", "Pod")

    def pod(**spec: Any) -> Obj:
        return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "spec": spec}

    live = apply(None, pod(tolerations=[{"key": "a"}], nodeSelector={"a": "1"}), "one", lists=lists)
    assert owned(live, "one") == {"f:spec": {"f:tolerations": {}, "f:nodeSelector": {}}}
    with pytest.raises(ApplyConflict) as caught:
        apply(live, pod(tolerations=[{"key": "b"}], nodeSelector={"b": "1"}), "two", lists=lists)
    assert [path for _, path in caught.value.conflicts] == [".spec.tolerations", ".spec.nodeSelector"]
    forced = apply(live, pod(tolerations=[{"key": "b"}]), "two", force=True, lists=lists)
    assert forced["spec"]["tolerations"] == [{"key": "b"}]


def test_finalizers_are_a_set() -> None:
    def with_finalizers(*names: str) -> Obj:
        obj = config_map()
        del obj["data"]
        obj["metadata"]["finalizers"] = list(names)
        return obj

    live = apply(None, with_finalizers("a/x"), "one", lists=CONFIG_MAP)
    live = apply(live, with_finalizers("b/x"), "two", lists=CONFIG_MAP)
    assert live["metadata"]["finalizers"] == ["a/x", "b/x"]
    assert owned(live, "two") == {"f:metadata": {"f:finalizers": {'v:"b/x"': {}}}}


def test_the_first_apply_leaves_untracked_fields_to_a_manager_of_their_own() -> None:
    live = config_map(a="1", b="2")
    live["metadata"]["uid"] = "u"
    with pytest.raises(ApplyConflict) as caught:
        apply(live, config_map(a="9"), lists=CONFIG_MAP)
    assert caught.value.conflicts == [("before-first-apply", ".data.a")]
    result = apply(live, config_map(a="1"), lists=CONFIG_MAP)
    assert owned(result, "before-first-apply") == {"f:data": {".": {}, "f:a": {}, "f:b": {}}}
    assert owned(result, "me") == {"f:data": {"f:a": {}}}


def test_kubectl_adopts_the_fields_of_its_client_side_apply() -> None:
    live = config_map(a="1")
    live["metadata"]["annotations"] = {
        "kubectl.kubernetes.io/last-applied-configuration": (
            '{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"c"},"data":{"a":"1"}}'
        )
    }
    live = update(None, live, "kubectl-client-side-apply", lists=CONFIG_MAP)
    result = apply(live, config_map(a="2"), "kubectl", lists=CONFIG_MAP)
    assert result["data"] == {"a": "2"}
    last = result["metadata"]["annotations"]["kubectl.kubernetes.io/last-applied-configuration"]
    assert '"a":"2"' in last
    with pytest.raises(ApplyConflict):
        apply(live, config_map(a="2"), "somebody", lists=CONFIG_MAP)


def test_the_status_endpoint_owns_status_only_and_the_main_one_never_does() -> None:
    lists = builtin_lists("apps", "Deployment")
    config = deployment(replicas=1)
    config["status"] = {"replicas": 1}
    main = apply(None, config, "one", lists=lists)
    assert owned(main, "one") == {"f:spec": {"f:replicas": {}}}
    status = apply(main, config, "two", subresource="status", lists=lists)
    assert owned(status, "two") == {"f:status": {"f:replicas": {}}}
    assert entry(status, "two")["subresource"] == "status"


def test_manager_of_one_name_that_applies_to_status_is_another_manager() -> None:
    config = deployment(replicas=1)
    live = apply(None, config)
    config["status"] = {"replicas": 1}
    both = apply(live, config, subresource="status")
    assert [item.get("subresource", "") for item in both["metadata"]["managedFields"]] == ["", "status"]


CUSTOM = {
    "type": "object",
    "properties": {
        "spec": {
            "type": "object",
            "properties": {
                "roles": {
                    "type": "array",
                    "x-kubernetes-list-type": "map",
                    "x-kubernetes-list-map-keys": ["name", "zone"],
                    "items": {
                        "type": "object",
                        "properties": {
                            "name": {"type": "string"},
                            "zone": {"type": "string", "default": "z0"},
                            "min": {"type": "integer"},
                        },
                    },
                },
                "tags": {"type": "array", "x-kubernetes-list-type": "set", "items": {"type": "string"}},
                "free": {"type": "array", "items": {"type": "string"}},
                "whole": {
                    "type": "object",
                    "x-kubernetes-map-type": "atomic",
                    "additionalProperties": {"type": "string"},
                },
                "any": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
            },
        }
    },
}


def gang(**spec: Any) -> Obj:
    return {"apiVersion": "example.com/v1", "kind": "Gang", "metadata": {"name": "g"}, "spec": spec}


def test_custom_resources_follow_the_list_types_of_their_schema() -> None:
    lists = lists_from_schema(CUSTOM)
    config = gang(
        roles=[{"name": "ps", "min": 1}],
        tags=["a"],
        free=["x"],
        whole={"a": "1"},
        any={"deep": {"er": [1, 2]}},
    )
    assert owned(apply(None, config, lists=lists), "me") == {
        "f:spec": {
            "f:roles": {'k:{"name":"ps","zone":"z0"}': {".": {}, "f:name": {}, "f:min": {}}},
            "f:tags": {'v:"a"': {}},
            "f:free": {},
            "f:whole": {},
            "f:any": {"f:deep": {".": {}, "f:er": {}}},
        }
    }


def test_custom_sets_merge_and_custom_lists_without_a_type_are_replaced() -> None:
    lists = lists_from_schema(CUSTOM)
    live = apply(None, gang(tags=["a"], free=["x"]), "one", lists=lists)
    live = apply(live, gang(tags=["b"]), "two", lists=lists)
    assert live["spec"] == {"tags": ["a", "b"], "free": ["x"]}
    with pytest.raises(ApplyConflict):
        apply(live, gang(free=["y"]), "two", lists=lists)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"metadata": {"name": "g", "managedFields": []}}, "metadata.managedFields must be nil"),
        ({"apiVersion": "example.com/v2"}, "Incorrect version specified in apply patch"),
        ({"spec": {"tags": ["a", "a"]}}, 'duplicate entries for key [="a"]'),
        ({"spec": {"roles": [{"name": "a"}, {"name": "a"}]}}, 'duplicate entries for key [name="a",zone="z0"]'),
        ({"spec": {"tags": [{"a": 1}]}}, "a set may hold strings, numbers and booleans only"),
        ({"spec": {"roles": ["a"]}}, "may not have non-map elements"),
    ],
)
def test_a_configuration_that_cannot_be_merged_is_refused(change: Obj, words: str) -> None:
    with pytest.raises(PatchError) as caught:
        server_side_apply(
            None,
            {**gang(), **change},
            manager="me",
            force=False,
            api_version="example.com/v1",
            subresource="",
            now=NOW,
            lists=lists_from_schema(CUSTOM),
        )
    assert words in caught.value.message


def test_items_that_omit_all_keys_cannot_be_applied() -> None:
    lists = builtin_lists("", "Pod")
    config = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "p"},
        "spec": {"containers": [{"image": "i"}]},
    }
    with pytest.raises(PatchError, match="omits all key fields"):
        apply(None, config, lists=lists)
