"""Unknown fields and wrong JSON types of built-in kinds."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from phalanx_local.validation import malformed, unknown_fields, validate
from phalanx_local.validation.kinds import GROUPS, kind_type, kinds_of
from tests.extent import examples

Obj = dict[str, Any]


def pod(**spec: Any) -> Obj:
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "p", "namespace": "n"},
        "spec": {"containers": [{"name": "c", "image": "i"}], **spec},
    }


def test_unknown_fields_are_found_at_any_depth() -> None:
    obj = pod(nodename="n", affinity={"nodeAffinity": {"oops": 1}})
    obj["spec"]["containers"][0]["imagee"] = "x"
    obj["metadata"]["label"] = {}
    obj["extra"] = 1
    assert unknown_fields("", "Pod", obj) == [
        "metadata.label",
        "spec.containers[0].imagee",
        "spec.nodename",
        "spec.affinity.nodeAffinity.oops",
        "extra",
    ]


def test_free_keys_and_untyped_values_are_not_unknown() -> None:
    obj = pod(nodeSelector={"any": "thing"}, overhead={"cpu": "1"})
    obj["metadata"]["annotations"] = {"any": "thing"}
    obj["metadata"]["managedFields"] = [{"manager": "m", "fieldsV1": {"f:x": {"any": {}}}}]
    assert unknown_fields("", "Pod", obj) == []


def test_unknown_kinds_are_not_judged() -> None:
    assert unknown_fields("example.com", "Gang", {"any": {"thing": 1}}) == []
    assert malformed("example.com", "Gang", {"spec": 1}) == []


def test_versions_of_the_gang_api_differ() -> None:
    spec = {"schedulingPolicy": {"gang": {"minCount": 2}}}
    alpha = {"apiVersion": "scheduling.k8s.io/v1alpha2", "spec": {**spec, "podGroupTemplateRef": {}}}
    beta = {"apiVersion": "scheduling.k8s.io/v1beta1", "spec": {**spec, "workloadRef": {}}}
    for obj, field in ((alpha, "podGroupTemplateRef"), (beta, "workloadRef")):
        assert unknown_fields("scheduling.k8s.io", "PodGroup", obj) == []
        other = {**obj, "apiVersion": (beta if obj is alpha else alpha)["apiVersion"]}
        assert unknown_fields("scheduling.k8s.io", "PodGroup", other) == [f"spec.{field}"]


@pytest.mark.parametrize(
    ("spec", "field", "words"),
    [
        (
            {"priority": "x"},
            "spec.priority",
            "cannot unmarshal string into Go struct field spec.priority of type int32",
        ),
        ({"priority": 2**31}, "spec.priority", "of type int32"),
        ({"priority": 1.5}, "spec.priority", "cannot unmarshal number"),
        ({"hostNetwork": "true"}, "spec.hostNetwork", "of type bool"),
        ({"nodeName": 5}, "spec.nodeName", "of type string"),
        ({"containers": {}}, "spec.containers", "cannot unmarshal object"),
        ({"containers": [None]}, "spec.containers[0]", "cannot unmarshal null"),
        ({"containers": ["a"]}, "spec.containers[0]", "cannot unmarshal string"),
        ({"nodeSelector": {"a": 1}}, "spec.nodeSelector[a]", "of type string"),
        ({"overhead": {"cpu": "1x"}}, "spec.overhead[cpu]", "quantities must match the regular expression"),
        ({"affinity": []}, "spec.affinity", "cannot unmarshal array"),
        ({"tolerations": [{"tolerationSeconds": "3"}]}, "spec.tolerations[0].tolerationSeconds", "of type int64"),
    ],
)
def test_wrong_types_are_named_without_further_errors(spec: Obj, field: str, words: str) -> None:
    for errors in (malformed("", "Pod", pod(**spec)), validate("", "Pod", pod(**spec), None)):
        (error,) = errors
        assert error.field == field
        assert words in error.message


def test_null_counts_as_absent() -> None:
    assert validate("", "Pod", pod(affinity=None, tolerations=None, nodeName=None), None) == []
    obj = pod()
    obj["status"] = None
    assert validate("", "Pod", obj, None) == []


def test_every_table_reads_and_every_kind_has_metadata_or_is_a_request() -> None:
    without = set()
    for group, stems in GROUPS.items():
        for stem in stems:
            version = stem.rpartition(".")[2]
            for kind in kinds_of(group, version):
                found = kind_type(group, kind, version)
                assert found is not None
                if "metadata" not in found.fields:
                    without.add(kind)
    assert without == set()
    assert kind_type("", "Frob") is None


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**40), 2**40)
    | st.floats(allow_nan=False)
    | st.text("aA-./", max_size=4),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text("ab", max_size=2), inner, max_size=2),
    max_leaves=4,
)
SPEC_FIELDS = sorted(kind_type("", "Pod").fields["spec"].type.fields)  # type: ignore[union-attr]
CONTAINER_FIELDS = sorted(
    kind_type("", "Pod").fields["spec"].type.fields["containers"].type.element.fields  # type: ignore[union-attr]
)


@pytest.mark.thorough
@given(
    st.dictionaries(st.sampled_from(SPEC_FIELDS), JSON, max_size=4),
    st.dictionaries(st.sampled_from(CONTAINER_FIELDS), JSON, max_size=4),
    st.none() | st.sampled_from(["", "status", "resize", "ephemeralcontainers"]),
)
@settings(max_examples=examples(300), deadline=None)
def test_no_value_breaks_the_check_of_a_pod(spec: Obj, container: Obj, subresource: str | None) -> None:
    new = pod(**spec)
    if isinstance(new["spec"]["containers"], list):
        new["spec"]["containers"].append(container)
    old = pod() if subresource is not None else None
    for error in validate("", "Pod", new, old, subresource or ""):
        assert error.field
        assert error.reason
        assert error.message


OTHER_KINDS = [
    ("", "Node"),
    ("", "Namespace"),
    ("", "Service"),
    ("", "ConfigMap"),
    ("", "Secret"),
    ("", "ResourceQuota"),
    ("apps", "Deployment"),
    ("apps", "StatefulSet"),
    ("batch", "Job"),
    ("batch", "CronJob"),
    ("policy", "PodDisruptionBudget"),
    ("coordination.k8s.io", "Lease"),
    ("scheduling.k8s.io", "PriorityClass"),
    ("scheduling.k8s.io", "PodGroup"),
    ("scheduling.k8s.io", "Workload"),
]


@pytest.mark.slow
@given(st.data(), st.sampled_from(OTHER_KINDS))
@settings(max_examples=300, deadline=None)
def test_no_value_breaks_the_check_of_other_kinds(data: st.DataObject, kind: tuple[str, str]) -> None:
    root = kind_type(*kind)
    assert root is not None

    def part(name: str) -> Any:
        member = root.fields.get(name)
        names = sorted(member.type.fields) if member is not None and member.type.fields else ["a"]
        return data.draw(st.dictionaries(st.sampled_from(names), JSON, max_size=3))

    new: Obj = {"metadata": {"name": "x", "namespace": "n"}, "spec": part("spec"), "status": part("status")}
    old: Obj = {"metadata": {"name": "x", "namespace": "n"}, "spec": {}, "status": {}}
    for before, subresource in ((None, ""), (old, ""), (old, "status")):
        validate(*kind, new, before, subresource)
