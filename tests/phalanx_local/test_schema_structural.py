"""Custom resources under their schema: defaults, pruning, values."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from phalanx_local.schema import StructuralSchema
from tests.extent import examples

Obj = dict[str, Any]


def schema(**properties: Any) -> StructuralSchema:
    spec = {"type": "object", "properties": properties}
    return StructuralSchema({"type": "object", "properties": {"spec": spec}})


def complaints(spec: Any, old: Any = None, **properties: Any) -> list[str]:
    before = {"spec": old} if old is not None else None
    return [str(error) for error in schema(**properties).validate({"spec": spec}, before)]


def defaulted(spec: Any, **properties: Any) -> Any:
    obj = {"spec": spec}
    schema(**properties).default(obj)
    return obj["spec"]


def test_missing_values_are_defaulted_at_any_depth() -> None:
    role = {"type": "object", "properties": {"min": {"type": "integer", "default": 1}}}
    assert defaulted(
        {"roles": [{}, {"min": 3}], "byName": {"a": {}}},
        roles={"type": "array", "items": role},
        byName={"type": "object", "additionalProperties": role},
        policy={"type": "object", "default": {"kind": "gang"}, "properties": {"kind": {"type": "string"}}},
    ) == {"roles": [{"min": 1}, {"min": 3}], "byName": {"a": {"min": 1}}, "policy": {"kind": "gang"}}


def test_defaults_apply_inside_defaults() -> None:
    inner = {"type": "object", "default": {}, "properties": {"n": {"type": "integer", "default": 7}}}
    assert defaulted({}, inner=inner) == {"inner": {"n": 7}}


def test_no_value_is_defaulted_inside_a_missing_object() -> None:
    inner = {"type": "object", "properties": {"n": {"type": "integer", "default": 7}}}
    assert defaulted({}, inner=inner) == {}


def test_null_becomes_the_default_or_is_removed_unless_nullable() -> None:
    assert defaulted(
        {"a": None, "b": None, "c": None},
        a={"type": "string", "default": "x"},
        b={"type": "string"},
        c={"type": "string", "nullable": True, "default": "x"},
    ) == {"a": "x", "c": None}


def test_defaults_are_copies() -> None:
    under_test = schema(m={"type": "object", "default": {}, "additionalProperties": {"type": "string"}})
    one: Obj = {"spec": {}}
    two: Obj = {"spec": {}}
    under_test.default(one)
    under_test.default(two)
    one["spec"]["m"]["a"] = "1"
    assert two["spec"]["m"] == {}


def test_unknown_fields_are_pruned() -> None:
    under_test = schema(a={"type": "string"}, l={"type": "array", "items": {"type": "object", "properties": {}}})
    obj: Obj = {
        "apiVersion": "x/v1",
        "kind": "G",
        "metadata": {"name": "g", "labels": {"any": "thing"}},
        "spec": {"a": "1", "b": 2, "l": [{"z": 1}]},
        "status": {},
    }
    assert under_test.prune(obj) == ["spec.b", "spec.l[0].z", "status"]
    assert obj == {
        "apiVersion": "x/v1",
        "kind": "G",
        "metadata": {"name": "g", "labels": {"any": "thing"}},
        "spec": {"a": "1", "l": [{}]},
    }


def test_pruning_spares_open_objects_and_embedded_metadata() -> None:
    under_test = schema(
        open={
            "type": "object",
            "x-kubernetes-preserve-unknown-fields": True,
            "properties": {"known": {"type": "object", "properties": {"a": {"type": "string"}}}},
        },
        template={
            "type": "object",
            "x-kubernetes-embedded-resource": True,
            "properties": {"spec": {"type": "object", "properties": {"a": {"type": "string"}}}},
        },
    )
    obj: Obj = {
        "spec": {
            "open": {"x": {"y": 1}, "known": {"a": "1", "b": 2}},
            "template": {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "spec": {"b": 1}, "z": 1},
        }
    }
    assert under_test.prune(obj) == ["spec.open.known.b", "spec.template.spec.b", "spec.template.z"]
    assert obj["spec"]["open"] == {"x": {"y": 1}, "known": {"a": "1"}}


@pytest.mark.parametrize(
    ("rule", "value", "words"),
    [
        (
            {"type": "integer"},
            "x",
            'spec.f: Invalid value: "string": spec.f in body must be of type integer: "string"',
        ),
        (
            {"type": "integer"},
            "1",
            'spec.f: Invalid value: "string": spec.f in body must be of type integer: "string"',
        ),
        (
            {"type": "boolean"},
            1,
            'spec.f: Invalid value: "integer": spec.f in body must be of type boolean: "integer"',
        ),
        ({"type": "string"}, None, 'spec.f: Invalid value: "null": spec.f in body must be of type string: "null"'),
        ({"type": "object"}, [], 'spec.f: Invalid value: "array": spec.f in body must be of type object: "array"'),
        (
            {"x-kubernetes-int-or-string": True},
            True,
            'spec.f: Invalid value: "boolean": spec.f in body must be of type integer,string: "boolean"',
        ),
        (
            {"type": "integer", "minimum": 1},
            0,
            "spec.f: Invalid value: 0: spec.f in body should be greater than or equal to 1",
        ),
        (
            {"type": "integer", "minimum": 1, "exclusiveMinimum": True},
            1,
            "spec.f: Invalid value: 1: spec.f in body should be greater than 1",
        ),
        (
            {"type": "integer", "maximum": 5},
            6,
            "spec.f: Invalid value: 6: spec.f in body should be less than or equal to 5",
        ),
        (
            {"type": "integer", "multipleOf": 2},
            3,
            "spec.f: Invalid value: 3: spec.f in body should be a multiple of 2",
        ),
        (
            {"type": "integer", "format": "int32"},
            2**31,
            '<nil>: Invalid value: "": Checked value must be of type integer with format int32 in spec.f',
        ),
        (
            {"type": "string", "minLength": 2},
            "a",
            'spec.f: Invalid value: "a": spec.f in body should be at least 2 chars long',
        ),
        ({"type": "string", "maxLength": 2}, "abc", "spec.f: Too long: may not be more than 2 bytes"),
        (
            {"type": "string", "pattern": "^[a-z]+$"},
            "A",
            "spec.f: Invalid value: \"A\": spec.f in body should match '^[a-z]+$'",
        ),
        (
            {"type": "string", "pattern": "^[a-z]+$"},
            "a\n",
            "spec.f: Invalid value: \"a\\n\": spec.f in body should match '^[a-z]+$'",
        ),
        (
            {"type": "string", "enum": ["a", "b"]},
            "c",
            'spec.f: Unsupported value: "c": supported values: "a", "b"',
        ),
        (
            {"type": "string", "format": "date-time"},
            "yesterday",
            'spec.f: Invalid value: "yesterday": spec.f in body must be of type date-time: "yesterday"',
        ),
        (
            {"type": "array", "items": {"type": "string"}, "minItems": 1},
            [],
            "spec.f: Invalid value: 0: spec.f in body should have at least 1 items",
        ),
        (
            {"type": "array", "items": {"type": "string"}, "maxItems": 1},
            ["a", "b"],
            "spec.f: Too many: 2: must have at most 1 item",
        ),
        (
            {"type": "object", "additionalProperties": {"type": "string"}, "maxProperties": 1},
            {"a": "1", "b": "2"},
            "spec.f: Too many: 2: must have at most 1 item",
        ),
        (
            {"type": "object", "required": ["x"], "properties": {"x": {"type": "string"}}},
            {},
            "spec.f.x: Required value",
        ),
        (
            {"type": "object", "additionalProperties": {"type": "integer"}},
            {"k": "v"},
            'spec.f.k: Invalid value: "string": spec.f.k in body must be of type integer: "string"',
        ),
        (
            {"type": "array", "x-kubernetes-list-type": "set", "items": {"type": "string"}},
            ["a", "b", "a"],
            'spec.f[2]: Duplicate value: "a"',
        ),
        (
            {
                "type": "array",
                "x-kubernetes-list-type": "map",
                "x-kubernetes-list-map-keys": ["n"],
                "items": {"type": "object", "properties": {"n": {"type": "string"}}},
            },
            [{"n": "a"}, {"n": "a"}],
            'spec.f[1]: Duplicate value: {"n":"a"}',
        ),
    ],
)
def test_each_keyword_is_enforced_in_the_servers_words(rule: Obj, value: Any, words: str) -> None:
    assert complaints({"f": value}, f=rule) == [words]


def test_wrong_type_is_reported_beside_all_other_errors() -> None:
    assert complaints({"f": 1.5}, f={"type": "integer"}) == [
        'spec.f: Invalid value: "number": spec.f in body must be of type integer: "number"',
        '<nil>: Invalid value: "": Checked value must be of type integer (default format) in spec.f',
    ]
    assert complaints({"f": True}, f={"type": "integer", "format": "int64"}) == [
        'spec.f: Invalid value: "": spec.f in body must be of type int64: ""'
    ]
    assert complaints({"f": 1}, f={"type": "string", "format": "date-time"}) == [
        'spec.f: Invalid value: "int64": spec.f in body must be of type date-time: "int64"'
    ]
    assert complaints({"f": 1}, f={"type": "string", "enum": ["a"]}) == [
        'spec.f: Invalid value: "integer": spec.f in body must be of type string: "integer"',
        'spec.f: Unsupported value: 1: supported values: "a"',
    ]
    either = {"x-kubernetes-int-or-string": True, "anyOf": [{"type": "integer"}, {"type": "string"}]}
    assert complaints({"f": True}, f=either) == [
        'spec.f: Invalid value: "boolean": spec.f in body must be of type integer,string: "boolean"',
        '<nil>: Invalid value: "": "spec.f" must validate at least one schema (anyOf)',
        'spec.f: Invalid value: "boolean": spec.f in body must be of type integer: "boolean"',
    ]


def test_only_the_first_error_of_a_text_is_reported() -> None:
    rule = {"type": "string", "maxLength": 1, "pattern": "^x$", "format": "uuid"}
    assert complaints({"f": "abc"}, f=rule) == [
        "spec.f: Too long: may not be more than 1 byte",
        'spec.f: Invalid value: "abc": spec.f in body must be of type uuid: "abc"',
    ]


@pytest.mark.parametrize(
    ("name", "good", "bad"),
    [
        ("byte", ["QUI=", "QUJD"], ["", "QUI", "Q UI="]),
        ("date", ["2026-02-28"], ["2026-02-30", "2026-W01-1", "2026-2-1"]),
        ("date-time", ["2026-01-01T00:00:00Z", "2026-01-01t00:00:00.5+02:00"], ["2026-01-01T00:00:00", "now"]),
        ("duration", ["1h30m", "-1.5s", "2 days", "3 wk", "0"], ["", "h", "1 x"]),
        ("ipv4", ["10.0.0.1", "010.0.0.1", "::ffff:1.2.3.4"], ["10.0.0", "10.0.0.256", "::1"]),
        ("ipv6", ["::1", "fe80::1"], ["10.0.0.1", "fe80::1%eth0"]),
        ("cidr", ["10.0.0.0/8", "fd00::/08"], ["10.0.0.0", "10.0.0.0/33", "10.0.0.0/255.0.0.0"]),
        ("mac", ["00:00:5e:00:53:01", "02-00-5e-10-00-00-00-01", "0000.5e00.5301"], ["00:00", "0:0:0:0:0:0"]),
        ("hostname", ["example.com", "a1", "bücher.de"], ["-a", "my-host-name", "a_b.com", "a.1"]),
        ("email", ["a@b", "A B <a@b.c>"], ["a", "a b@c"]),
        ("uri", ["https://a/b", "/a", "mailto:a@b"], ["a", "", "http://a:b/"]),
        ("uuid4", ["123e4567-e89b-42d3-a456-426614174000"], ["123e4567-e89b-12d3-a456-426614174000"]),
        ("hexcolor", ["#fff", "00FF00"], ["#ffff"]),
        ("rgbcolor", ["rgb(0, 255,10)"], ["rgb(0,256,0)"]),
        ("isbn", ["0321751043", "978-0321751041"], ["0321751044"]),
        ("creditcard", ["4111-1111-1111-1111"], ["4111 1111 1111 1112"]),
        ("ssn", ["123-45-6789"], ["123456789"]),
        ("k8s-short-name", ["a-1"], ["A", "a" * 64]),
    ],
)
def test_formats(name: str, good: list[str], bad: list[str]) -> None:
    rule = {"type": "string", "format": name}
    assert [text for text in good if complaints({"f": text}, f=rule)] == []
    assert [text for text in bad if not complaints({"f": text}, f=rule)] == []


@pytest.mark.parametrize(
    ("rule", "values"),
    [
        ({"type": "number"}, [1, 1.5]),
        ({"type": "integer"}, [1, 2.0, -3]),
        ({"x-kubernetes-int-or-string": True}, [1, "50%"]),
        ({"type": "string", "nullable": True}, [None, "a"]),
        ({"type": "string", "format": "frobnicated"}, ["anything"]),
        ({"type": "string", "format": "date-time"}, ["2026-01-01T00:00:00Z", "2026-01-01T00:00:00.5+02:00"]),
        ({"type": "string", "format": "ipv4"}, ["10.0.0.1"]),
        ({"type": "string", "format": "duration"}, ["10s", "1h30m"]),
        ({"type": "object", "x-kubernetes-preserve-unknown-fields": True}, [{"a": {"b": [1]}}]),
        ({"x-kubernetes-preserve-unknown-fields": True}, [1, "a", [1], {}, None]),
        ({"type": "string", "enum": ["a", ""]}, ["a", ""]),
    ],
)
def test_good_values_pass(rule: Obj, values: list[Any]) -> None:
    for value in values:
        assert complaints({"f": value}, f=rule) == []


ONE_OF = {
    "type": "object",
    "properties": {"basic": {"type": "object"}, "gang": {"type": "object"}},
    "oneOf": [{"required": ["basic"]}, {"required": ["gang"]}],
}


def test_one_of_wants_exactly_one() -> None:
    assert complaints({"f": {"gang": {}}}, f=ONE_OF) == []
    none = '<nil>: Invalid value: "": "spec.f" must validate one and only one schema (oneOf). Found none valid'
    assert none in complaints({"f": {}}, f=ONE_OF)
    both = (
        '<nil>: Invalid value: "": "spec.f" must validate one and only one schema (oneOf). '
        "Found 2 valid alternatives"
    )
    assert complaints({"f": {"gang": {}, "basic": {}}}, f=ONE_OF) == [both]


def test_any_of_all_of_and_not() -> None:
    rule = {
        "type": "integer",
        "anyOf": [{"maximum": 1}, {"minimum": 9}],
        "allOf": [{"minimum": 0}],
        "not": {"enum": [10]},
    }
    assert complaints({"f": 1}, f=rule) == []
    assert any("must validate at least one schema (anyOf)" in text for text in complaints({"f": 5}, f=rule))
    assert any("must validate all the schemas (allOf)" in text for text in complaints({"f": -1}, f=rule))
    assert complaints({"f": 10}, f=rule) == [
        '<nil>: Invalid value: "": "spec.f" must not validate the schema (not)'
    ]


def test_unchanged_invalid_value_does_not_block_an_update() -> None:
    rules = {"a": {"type": "integer", "minimum": 5}, "b": {"type": "string"}}
    assert complaints({"a": 1, "b": "new"}, {"a": 1, "b": "old"}, **rules) == []
    assert len(complaints({"a": 2, "b": "old"}, {"a": 1, "b": "old"}, **rules)) == 1


def test_true_is_not_taken_for_one() -> None:
    rules = {"a": {"type": "object", "properties": {"on": {"type": "boolean"}}}}
    assert len(complaints({"a": {"on": 1}}, {"a": {"on": True}}, **rules)) == 1


def test_alternatives_are_not_blamed_for_members_that_stayed() -> None:
    rule = {
        "type": "object",
        "properties": {"a": {"type": "integer"}, "b": {"type": "string"}},
        "allOf": [{"properties": {"a": {"minimum": 5}}}],
    }
    assert complaints({"f": {"a": 1, "b": "new"}}, {"f": {"a": 1, "b": "old"}}, f=rule) == []
    assert len(complaints({"f": {"a": 2}}, {"f": {"a": 1}}, f=rule)) == 2


def test_items_of_map_lists_are_matched_by_their_keys_on_update() -> None:
    roles = {
        "type": "array",
        "x-kubernetes-list-type": "map",
        "x-kubernetes-list-map-keys": ["n"],
        "items": {
            "type": "object",
            "properties": {"n": {"type": "string"}, "v": {"type": "integer", "minimum": 5}},
        },
    }
    old = {"roles": [{"n": "a", "v": 1}]}
    assert complaints({"roles": [{"n": "b", "v": 9}, {"n": "a", "v": 1}]}, old, roles=roles) == []
    assert len(complaints({"roles": [{"n": "b", "v": 1}, {"n": "a", "v": 1}]}, old, roles=roles)) == 1


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-2, 2) | st.sampled_from(["", "a", "b"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("abz"), inner, max_size=3),
    max_leaves=10,
)
ODD: Obj = {
    "a": {"type": "integer", "default": 1},
    "b": {
        "type": "array",
        "items": {
            "type": "object",
            "properties": {"a": {"type": "string", "default": "x"}, "b": {"type": "string", "nullable": True}},
        },
    },
}


@pytest.mark.thorough
@given(st.dictionaries(st.sampled_from("abz"), VALUES, max_size=3))
@settings(max_examples=examples(100), deadline=None)
def test_defaulting_and_pruning_settle_at_once_and_no_value_breaks_them(spec: Any) -> None:
    under_test = schema(**ODD)
    obj: Obj = {"metadata": {}, "spec": spec}
    under_test.prune(obj)
    under_test.default(obj)
    once = copy.deepcopy(obj)
    assert under_test.prune(obj) == []
    under_test.default(obj)
    assert obj == once
    under_test.validate(obj)
