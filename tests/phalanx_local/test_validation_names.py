"""Names, labels, annotations, owners and finalizers."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from phalanx_local.validation import validate

Obj = dict[str, Any]


def config_map(**meta: Any) -> Obj:
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "c", "namespace": "n", **meta},
    }


def complaints(obj: Obj, old: Obj | None = None, kind: str = "ConfigMap", group: str = "") -> list[str]:
    return [str(error) for error in validate(group, kind, obj, old)]


def test_a_plain_object_is_fine() -> None:
    assert complaints(config_map(labels={"a.b/c-d_e": "v-1", "x": ""}, annotations={"A/b": "any thing\n"})) == []


@pytest.mark.parametrize("name", ["A", "a_b", "-a", "a-", "a..b", "ä", "a" * 254, "a b", "a/b"])
def test_names_are_dns_subdomains(name: str) -> None:
    (text, *_) = complaints(config_map(name=name))
    assert text.startswith("metadata.name: Invalid value: ")


@pytest.mark.parametrize("name", ["a", "a.b-c.d", "1", "a" * 253])
def test_subdomains_are_names(name: str) -> None:
    assert complaints(config_map(name=name)) == []


def test_messages_about_invalid_names_equal_those_of_the_server() -> None:
    assert complaints(config_map(name="A")) == [
        'metadata.name: Invalid value: "A": a lowercase RFC 1123 subdomain must consist of lower case alphanumeric '
        "characters, '-' or '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex "
        "used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')"
    ]


@pytest.mark.parametrize(
    ("group", "kind", "name", "good"),
    [
        ("", "Namespace", "a.b", False),
        ("", "Namespace", "a-b", True),
        ("", "Service", "1a", False),
        ("", "Service", "a1", True),
        ("", "Node", "node.example.com", True),
        ("rbac.authorization.k8s.io", "ClusterRole", "system:node", True),
        ("rbac.authorization.k8s.io", "ClusterRole", "a/b", False),
    ],
)
def test_some_kinds_have_their_own_rule_for_names(group: str, kind: str, name: str, good: bool) -> None:
    obj: Obj = {"metadata": {"name": name}}
    if kind == "Service":
        obj = {"metadata": {"name": name, "namespace": "n"}, "spec": {"ports": [{"port": 80}]}}
    found = [text for text in complaints(obj, kind=kind, group=group) if text.startswith("metadata.name")]
    assert (not found) == good


def test_a_name_or_a_prefix_is_needed() -> None:
    obj = config_map()
    del obj["metadata"]["name"]
    assert complaints(obj) == ["metadata.name: Required value: name or generateName is required"]
    obj["metadata"]["generateName"] = "job-"
    assert complaints(obj) == []
    obj["metadata"]["generateName"] = "Job-"
    assert complaints(obj)[0].startswith('metadata.generateName: Invalid value: "Job-"')


def test_namespaces_are_needed_or_not_allowed_by_kind() -> None:
    obj = config_map()
    del obj["metadata"]["namespace"]
    assert complaints(obj) == ["metadata.namespace: Required value"]
    node = {"metadata": {"name": "n", "namespace": "x"}}
    assert complaints(node, kind="Node") == ["metadata.namespace: Forbidden: not allowed on this type"]
    # The scope of a custom resource is its definition's matter.
    assert complaints(node, kind="Gang", group="example.com") == []


@pytest.mark.parametrize(
    ("labels", "words"),
    [
        ({"": "v"}, "name part must be non-empty"),
        ({"a/b/c": "v"}, "a valid label key must consist of"),
        ({"/a": "v"}, "prefix part must be non-empty"),
        ({"A_B/c": "v"}, "prefix part a lowercase RFC 1123 subdomain"),
        ({"a" * 64: "v"}, "name part must be no more than 63 characters"),
        ({"-a": "v"}, "name part must consist of alphanumeric characters"),
        ({"a": "b c"}, "a valid label must be an empty string or consist of"),
        ({"a": "v" * 64}, "must be no more than 63 characters"),
    ],
)
def test_label_keys_and_values_are_checked(labels: Obj, words: str) -> None:
    found = complaints(config_map(labels=labels))
    assert found
    assert all(text.startswith("metadata.labels: Invalid value") for text in found)
    assert any(words in text for text in found)


def test_annotations_may_hold_anything_but_not_too_much() -> None:
    assert complaints(config_map(annotations={"a": "x" * (256 * 1024 - 1)})) == []
    assert complaints(config_map(annotations={"a": "x" * 256 * 1024})) == [
        "metadata.annotations: Too long: may not be more than 262144 bytes"
    ]
    # The limit counts bytes, not characters.
    assert complaints(config_map(annotations={"a": "ä" * 128 * 1024})) != []
    assert complaints(config_map(annotations={"a b": "x"}))[0].startswith("metadata.annotations: Invalid value")


OWNER = {"apiVersion": "batch/v1", "kind": "Job", "name": "j", "uid": "u"}


@pytest.mark.parametrize("field", ["apiVersion", "kind", "name", "uid"])
def test_owners_are_named_in_full(field: str) -> None:
    owner = {**OWNER, field: ""}
    assert any(
        text.startswith(f"metadata.ownerReferences.{field}: Invalid value")
        for text in complaints(config_map(ownerReferences=[owner]))
    )


def test_there_is_one_controller_at_most() -> None:
    owners = [{**OWNER, "controller": True}, {**OWNER, "uid": "v", "name": "k", "controller": True}]
    (text,) = complaints(config_map(ownerReferences=owners))
    assert text.endswith(
        'Only one reference can have Controller set to true. Found "true" in references for Job/j and Job/k'
    )


def test_events_own_nothing() -> None:
    owner = {**OWNER, "apiVersion": "v1", "kind": "Event"}
    assert "disallowed from being an owner" in complaints(config_map(ownerReferences=[owner]))[0]


def test_finalizers_are_qualified_names() -> None:
    assert complaints(config_map(finalizers=["example.com/x", "foregroundDeletion"])) == []
    assert (
        "name is neither a standard finalizer name nor is it fully qualified"
        in complaints(config_map(finalizers=["x"]))[0]
    )
    both = complaints(config_map(finalizers=["orphan", "foregroundDeletion"]))
    assert "finalizer orphan and foregroundDeletion cannot be both set" in both[0]


def test_no_finalizer_can_be_added_to_a_terminating_object() -> None:
    old = config_map(deletionTimestamp="2026-01-01T00:00:00Z", finalizers=["a.b/c"])
    new = copy.deepcopy(old)
    new["metadata"]["finalizers"].append("d.e/f")
    assert complaints(new, old) == [
        "metadata.finalizers: Forbidden: no new finalizers can be added if the object is being deleted, "
        'found new finalizers []string{"d.e/f"}'
    ]
    new["metadata"]["finalizers"] = []
    assert complaints(new, old) == []


@pytest.mark.parametrize(
    ("field", "value"),
    [("name", "x"), ("namespace", "x"), ("uid", "x"), ("creationTimestamp", "2027-01-01T00:00:00Z")],
)
def test_identity_never_changes(field: str, value: str) -> None:
    old = config_map(uid="u", creationTimestamp="2026-01-01T00:00:00Z")
    new = copy.deepcopy(old)
    new["metadata"][field] = value
    assert complaints(new, old) == [f'metadata.{field}: Invalid value: "{value}": field is immutable']


def test_metadata_of_the_wrong_shape_is_named() -> None:
    assert complaints({"metadata": []}) == ["metadata: Invalid value: []: must be an object"]
    for group in ("", "example.com"):
        (text,) = complaints(config_map(labels={"a": 1}), group=group, kind="ConfigMap" if not group else "Gang")
        assert text.startswith("metadata.labels[a]: Invalid value: 1: json: cannot unmarshal number")
        (text,) = complaints(config_map(labels=["a"]), group=group, kind="ConfigMap" if not group else "Gang")
        assert text.startswith('metadata.labels: Invalid value: ["a"]: json: cannot unmarshal array')
