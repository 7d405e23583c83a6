"""managedFields through creates, updates and patches."""

from __future__ import annotations

import copy
from typing import Any

from phalanx_local.patches import ListSchema, builtin_lists, lists_from_schema, track_update

NOW, LATER = "2026-01-01T00:00:00Z", "2026-01-02T00:00:00Z"
POD = builtin_lists("", "Pod")
Obj = dict[str, Any]


def track(
    before: Obj | None,
    after: Obj,
    manager: str = "m",
    *,
    subresource: str = "",
    now: str = NOW,
    lists: ListSchema = POD,
    api_version: str = "v1",
) -> Obj:
    inputs = copy.deepcopy((before, after))
    result = track_update(
        before,
        after,
        manager=manager,
        api_version=api_version,
        subresource=subresource,
        now=now,
        lists=lists,
    )
    assert (before, after) == inputs, "inputs must stay as they are"
    return result


def pod(**spec: Any) -> Obj:
    containers = [{"name": "c", "image": "i", "resources": {"requests": {"cpu": "1"}}}]
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "p", "namespace": "n", "uid": "u", "labels": {"app": "x"}},
        "spec": {"containers": containers, **spec},
    }


def entries(obj: Obj) -> list[Obj]:
    return list(obj["metadata"].get("managedFields", ()))


def fields(obj: Obj, manager: str) -> Obj:
    (found,) = [item for item in entries(obj) if item["manager"] == manager]
    return dict(found["fieldsV1"])


def test_a_create_owns_everything_that_the_client_wrote() -> None:
    created = track(None, pod(tolerations=[{"key": "a"}], volumes=[{"name": "v", "emptyDir": {}}]))
    assert entries(created) == [
        {
            "manager": "m",
            "operation": "Update",
            "apiVersion": "v1",
            "time": NOW,
            "fieldsType": "FieldsV1",
            "fieldsV1": {
                "f:metadata": {"f:labels": {".": {}, "f:app": {}}},
                "f:spec": {
                    # The list itself is always there in a pod; volumes are not, so they carry a dot.
                    "f:containers": {
                        'k:{"name":"c"}': {
                            ".": {},
                            "f:name": {},
                            "f:image": {},
                            "f:resources": {".": {}, "f:requests": {".": {}, "f:cpu": {}}},
                        }
                    },
                    "f:tolerations": {},
                    "f:volumes": {".": {}, 'k:{"name":"v"}': {".": {}, "f:name": {}, "f:emptyDir": {}}},
                },
            },
        }
    ]


def test_status_is_not_owned_through_the_main_endpoint() -> None:
    body = pod()
    body["status"] = {"phase": "Pending"}
    assert "f:status" not in fields(track(None, body), "m")


def test_update_owns_only_its_changed_fields() -> None:
    created = track(None, pod(nodeSelector={"a": "1"}), "creator")
    changed = copy.deepcopy(created)
    changed["metadata"]["labels"]["app"] = "y"
    changed["metadata"]["labels"]["new"] = "z"
    result = track(created, changed, "editor", now=LATER)
    assert fields(result, "editor") == {"f:metadata": {"f:labels": {"f:app": {}, "f:new": {}}}}
    assert fields(result, "creator")["f:metadata"] == {"f:labels": {}}
    times = {item["manager"]: item["time"] for item in entries(result)}
    assert times == {"creator": NOW, "editor": LATER}


def test_removed_fields_have_no_owner() -> None:
    created = track(None, pod(nodeSelector={"a": "1"}), "creator")
    changed = copy.deepcopy(created)
    del changed["spec"]["nodeSelector"]
    result = track(created, changed, "editor")
    assert [item["manager"] for item in entries(result)] == ["creator"]
    assert "f:nodeSelector" not in fields(result, "creator")["f:spec"]


def test_a_manager_that_owns_nothing_any_more_disappears() -> None:
    created = track(
        None, {"apiVersion": "v1", "kind": "Pod", "metadata": {"uid": "u", "labels": {"a": "1"}}}, "one"
    )
    changed = copy.deepcopy(created)
    del changed["metadata"]["labels"]
    changed["metadata"]["annotations"] = {"b": "2"}
    assert [item["manager"] for item in entries(track(created, changed, "two"))] == ["two"]


def test_a_manager_keeps_one_entry_per_endpoint_and_version() -> None:
    created = track(None, pod(), "m")
    changed = {**created, "status": {"phase": "Running"}}
    running = track(created, changed, "m", subresource="status")
    again = copy.deepcopy(running)
    again["status"]["message"] = "x"
    result = track(running, again, "m", subresource="status", now=LATER)
    assert [(item.get("subresource", ""), item["time"]) for item in entries(result)] == [
        ("", NOW),
        ("status", LATER),
    ]
    assert entries(result)[1]["fieldsV1"] == {"f:status": {"f:phase": {}, "f:message": {}}}


def test_an_update_without_a_change_returns_the_record_as_it_was() -> None:
    created = track(None, pod(), "creator")
    assert track(created, copy.deepcopy(created), "editor", now=LATER) == created


def test_a_client_that_sends_no_managers_loses_none() -> None:
    created = track(None, pod(), "creator")
    sent = copy.deepcopy(created)
    del sent["metadata"]["managedFields"]
    sent["metadata"]["labels"]["app"] = "y"
    assert {item["manager"] for item in entries(track(created, sent, "editor"))} == {"creator", "editor"}


def test_a_client_may_clear_the_managers() -> None:
    created = track(None, pod(), "creator")
    ways: list[list[Obj]] = [[{}], []]
    for cleared in ways:
        sent = copy.deepcopy(created)
        sent["metadata"]["managedFields"] = cleared
        assert "managedFields" not in track(created, sent, "editor")["metadata"]


def test_managers_cannot_be_forged_through_a_subresource() -> None:
    created = track(None, pod(), "creator")
    sent = copy.deepcopy(created)
    sent["metadata"]["managedFields"] = []
    sent["status"] = {"phase": "Running"}
    result = track(created, sent, "kubelet", subresource="status")
    assert {item["manager"] for item in entries(result)} == {"creator", "kubelet"}


def test_unreadable_managers_from_a_client_are_ignored() -> None:
    created = track(None, pod(), "creator")
    sent = copy.deepcopy(created)
    sent["metadata"]["managedFields"] = [{"manager": "x", "operation": "Frob"}]
    assert entries(track(created, sent, "editor")) == entries(created)


def test_an_object_without_managers_stays_untracked_on_update() -> None:
    live = pod()
    changed = copy.deepcopy(live)
    changed["metadata"]["labels"]["app"] = "y"
    assert "managedFields" not in track(live, changed)["metadata"]


def test_at_most_ten_updaters_are_recorded_separately() -> None:
    live = track(None, pod(), "m00")
    for number in range(1, 15):
        changed = copy.deepcopy(live)
        changed["metadata"]["labels"][f"l{number}"] = "x"
        live = track(live, changed, f"m{number:02}", now=f"2026-01-01T00:00:{number:02}Z")
    names = [item["manager"] for item in entries(live)]
    assert len(names) == 10
    assert names[0] == "ancient-changes"
    assert names[-1] == "m14"
    # Nothing that was owned is lost by merging.
    labels = set()
    for item in entries(live):
        labels |= set(item["fieldsV1"].get("f:metadata", {}).get("f:labels", {}))
    assert {f"f:l{number}" for number in range(1, 15)} <= labels


def test_conditions_are_owned_one_by_one() -> None:
    live = track(None, pod(), "creator")
    first = {**live, "status": {"conditions": [{"type": "Ready", "status": "True"}]}}
    live = track(live, first, "kubelet", subresource="status")
    both = copy.deepcopy(live)
    both["status"]["conditions"].append({"type": "PodScheduled", "status": "False"})
    live = track(live, both, "phalanx", subresource="status")
    assert fields(live, "phalanx") == {
        "f:status": {"f:conditions": {'k:{"type":"PodScheduled"}': {".": {}, "f:type": {}, "f:status": {}}}}
    }


def test_custom_resources_own_their_spec_as_a_field_too() -> None:
    lists = lists_from_schema(
        {
            "type": "object",
            "properties": {
                "spec": {"type": "object", "properties": {"minMember": {"type": "integer"}}},
                "status": {"type": "object", "properties": {"phase": {"type": "string"}}},
            },
        },
        has_status=True,
    )
    body = {
        "apiVersion": "x/v1",
        "kind": "G",
        "metadata": {"name": "g"},
        "spec": {"minMember": 1},
        "status": {"phase": "x"},
    }
    created = track(None, body, lists=lists, api_version="x/v1")
    assert fields(created, "m") == {"f:spec": {".": {}, "f:minMember": {}}}
    running = {**created, "metadata": {**created["metadata"], "uid": "u"}}
    changed = {**running, "spec": {"minMember": 2}, "status": {"phase": "y"}}
    result = track(running, changed, "controller", subresource="status", lists=lists, api_version="x/v1")
    assert fields(result, "controller") == {"f:status": {"f:phase": {}}}


def test_items_without_a_key_end_the_record_not_the_write() -> None:
    body = pod()
    body["spec"]["containers"] = [{"image": "i"}]
    assert "managedFields" not in track(None, body)["metadata"]
