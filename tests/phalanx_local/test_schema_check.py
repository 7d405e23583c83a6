"""Valid and invalid schemas of a CustomResourceDefinition."""

from __future__ import annotations

from typing import Any

import pytest

from phalanx_local.schema import check_schema

Obj = dict[str, Any]


def spec(**keywords: Any) -> Obj:
    return {"type": "object", "properties": {"spec": keywords}}


def texts(schema: Any) -> list[str]:
    return [str(error) for error in check_schema(schema)]


AT = "openAPIV3Schema.properties[spec]"

GOOD: list[Obj] = [
    {"type": "object"},
    {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
    {
        "type": "object",
        "properties": {
            "apiVersion": {"type": "string"},
            "kind": {"type": "string"},
            "metadata": {"type": "object", "properties": {"name": {"type": "string", "pattern": "^a"}}},
        },
    },
    spec(type="object", properties={"n": {"type": "integer", "default": 1, "minimum": 1}}),
    spec(type="object", additionalProperties={"type": "string"}),
    spec(type="object", additionalProperties=True),
    spec(**{"x-kubernetes-int-or-string": True, "type": "string"}),
    spec(**{"x-kubernetes-int-or-string": True, "anyOf": [{"type": "integer"}, {"type": "string"}]}),
    spec(type="object", properties={"a": {"type": "string"}}, oneOf=[{"required": ["a"]}]),
    spec(
        **{
            "type": "array",
            "x-kubernetes-list-type": "map",
            "x-kubernetes-list-map-keys": ["n"],
            "items": {"type": "object", "required": ["n"], "properties": {"n": {"type": "string"}}},
        }
    ),
    spec(
        **{"type": "object", "x-kubernetes-embedded-resource": True, "x-kubernetes-preserve-unknown-fields": True}
    ),
]


@pytest.mark.parametrize("schema", GOOD)
def test_good_schemas_pass(schema: Obj) -> None:
    assert texts(schema) == []


@pytest.mark.parametrize(
    ("schema", "words"),
    [
        (None, "openAPIV3Schema: Required value"),
        ({}, "openAPIV3Schema.type: Required value: must not be empty at the root"),
        ({"type": "array", "items": {"type": "string"}}, "must be object at the root"),
        (
            {"type": "object", "additionalProperties": {"type": "string"}},
            "openAPIV3Schema.additionalProperties: Forbidden: must not be used at the root",
        ),
        (spec(), f"{AT}.type: Required value: must not be empty for specified object fields"),
        (spec(type="frob"), f'{AT}.type: Unsupported value: "frob"'),
        (spec(type="array"), f"{AT}.items: Required value: must be specified"),
        (
            spec(type="array", items={}),
            f"{AT}.items.type: Required value: must not be empty for specified array items",
        ),
        (
            spec(type="object", properties={"a": {"type": "string"}}, additionalProperties={"type": "string"}),
            f"{AT}.additionalProperties: Forbidden: additionalProperties and properties are mutual exclusive",
        ),
        (spec(type="string", pattern="("), f'{AT}.pattern: Invalid value: "(": must be a valid regular expression'),
        (spec(type="array", items={"type": "string"}, uniqueItems=True), f"{AT}.uniqueItems: Forbidden"),
        (spec(type="object", **{"$ref": "#/x"}), f"{AT}.$ref: Forbidden"),
        (spec(type="object", patternProperties={"a": {}}), f"{AT}.patternProperties: Forbidden"),
        (
            spec(type="object", **{"x-kubernetes-preserve-unknown-fields": False}),
            "must be true or undefined",
        ),
        (
            spec(**{"x-kubernetes-int-or-string": True, "x-kubernetes-preserve-unknown-fields": True}),
            "must be false if x-kubernetes-int-or-string is true",
        ),
        (spec(type="null"), f"{AT}.type: Forbidden: type cannot be set to null, use nullable as an alternative"),
        ({"type": "object", "nullable": True}, "openAPIV3Schema.nullable: Forbidden: nullable cannot be true"),
        (
            spec(type="array", items={"type": "string", "nullable": True}, **{"x-kubernetes-list-type": "set"}),
            f"{AT}.items.nullable: Forbidden: cannot be nullable when x-kubernetes-list-type is set",
        ),
        (
            {"type": "object", "$schema": "http://json-schema.org/draft-04/schema#"},
            "OpenAPIV3Schema 'schema' is not supported",
        ),
        (
            spec(type="string", **{"x-kubernetes-embedded-resource": True}),
            "must be object if x-kubernetes-embedded-resource is true",
        ),
        (spec(type="string", **{"x-kubernetes-list-type": "set"}), "must be array if x-kubernetes-list-type"),
        (
            spec(type="array", items={"type": "string"}, **{"x-kubernetes-list-type": "frob"}),
            f"{AT}.x-kubernetes-list-type: Unsupported value",
        ),
        (
            spec(type="array", items={"type": "object"}, **{"x-kubernetes-list-type": "map"}),
            f"{AT}.x-kubernetes-list-map-keys: Required value",
        ),
        (
            spec(
                type="array",
                items={"type": "object", "properties": {"n": {"type": "string"}}},
                **{"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["n"]},
            ),
            "so it must have a default or be a required property",
        ),
        (
            spec(
                type="array",
                items={"type": "object", "properties": {}},
                **{"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["n"]},
            ),
            "entries must all be names of item properties",
        ),
        (
            spec(type="array", items={"type": "object"}, **{"x-kubernetes-list-type": "set"}),
            "must be atomic as item of a list with x-kubernetes-list-type=set",
        ),
        (spec(type="string", **{"x-kubernetes-map-type": "atomic"}), "must be object if x-kubernetes-map-type"),
        (
            spec(type="object", properties={"a": {"type": "string"}}, anyOf=[{"type": "object"}]),
            f"{AT}.anyOf[0].type: Forbidden: must be empty to be structural",
        ),
        (
            {"type": "object", "properties": {}, "anyOf": [{"properties": {"z": {"minimum": 1}}}]},
            "openAPIV3Schema.properties[z]: Required value: "
            "because it is defined in openAPIV3Schema.anyOf[0].properties[z]",
        ),
        (
            {"type": "object", "properties": {"metadata": {"type": "object", "properties": {"labels": {}}}}},
            "must not specify anything other than name and generateName",
        ),
        (spec(type="integer", default="x"), f"{AT}.default: Invalid value"),
        (spec(type="object", properties={}, default={"zz": 1}), "must not have unknown fields: zz"),
        (
            {"type": "object", "properties": {"kind": {"type": "string", "default": "x"}}},
            "must not be set in top-level kind",
        ),
    ],
)
def test_bad_schemas_are_refused_with_the_place(schema: Any, words: str) -> None:
    found = texts(schema)
    assert any(words in text for text in found), found


def rules(*listed: Obj, **keywords: Any) -> Obj:
    return spec(
        type="object",
        properties={"n": {"type": "integer"}, "s": {"type": "string"}},
        **{"x-kubernetes-validations": list(listed)},
        **keywords,
    )


def test_a_good_rule_passes() -> None:
    assert (
        texts(rules({"rule": "self.n > 1 || self.s == 'x'", "fieldPath": ".n", "reason": "FieldValueInvalid"}))
        == []
    )


def test_a_rule_that_does_not_compile_is_shown_with_a_pointer() -> None:
    (text,) = texts(rules({"rule": "self.n == self.zz"}))
    assert text == (
        f'{AT}.x-kubernetes-validations[0].rule: Invalid value: {{"rule":"self.n == self.zz"}}: '
        "compilation failed: ERROR: <input>:1:15: undefined field 'zz'\n"
        " | self.n == self.zz\n"
        " | ..............^"
    )


@pytest.mark.parametrize(
    ("rule", "words"),
    [
        ({"rule": ""}, "rule: Required value: rule is not specified"),
        ({"rule": "self.n"}, "cel expression must evaluate to a bool"),
        ({"rule": "self.n == 's'"}, "found no matching overload for '_==_' applied to '(int, string)'"),
        ({"rule": "nobody == 1"}, "undeclared reference to 'nobody'"),
        ({"rule": "self.n.frob()"}, "undeclared reference to 'frob'"),
        ({"rule": "self.n >"}, "Syntax error"),
        ({"rule": "self.n > 1", "messageExpression": "self.n"}, "messageExpression must evaluate to a string"),
        ({"rule": "self.n > 1", "messageExpression": "self.q"}, "messageExpression compilation failed"),
        ({"rule": "self.n > 1", "message": "  "}, "message: Invalid value"),
        ({"rule": "self.n > 1", "message": "a\nb"}, "must not contain line breaks"),
        ({"rule": "self.n > 1\n&& true"}, "message must be specified if rule contains line breaks"),
        ({"rule": "self.n > 1", "reason": "Frob"}, "reason: Unsupported value"),
        ({"rule": "self.n > 1", "fieldPath": ".zz"}, "fieldPath: Invalid value"),
        ({"rule": "self.n > 1", "fieldPath": "n"}, "fieldPath: Invalid value"),
        ({"rule": "self.n > 1", "optionalOldSelf": True}, "may not be set if oldSelf is not used in rule"),
    ],
)
def test_bad_rules_are_refused(rule: Obj, words: str) -> None:
    found = texts(rules(rule))
    assert any(words in text for text in found), found


def test_beside_a_status_the_root_holds_few_keywords() -> None:
    def found(**keywords: Any) -> list[str]:
        schema = {"type": "object", "properties": {"a": {"type": "string"}}, **keywords}
        return [error.field for error in check_schema(schema, has_status=True)]

    assert found(required=["a"]) == []
    assert found(maxProperties=3) == ["openAPIV3Schema"]
    assert check_schema({"type": "object", "maxProperties": 3}) == []


def test_a_default_must_satisfy_the_rules() -> None:
    rule = {"rule": "self.startsWith('kube')", "message": "no"}
    (text,) = texts(spec(type="string", default="nope", **{"x-kubernetes-validations": [rule]}))
    assert text == f'{AT}.default: Invalid value: "nope": no'
    grows = {"rule": "oldSelf.hasValue() || self == 'a'", "optionalOldSelf": True, "message": "first a"}
    (text,) = texts(spec(type="string", default="b", **{"x-kubernetes-validations": [grows]}))
    assert text.endswith("first a")


def test_rules_are_compiled_where_the_schema_is_in_order() -> None:
    bad_list = {"type": "string", "x-kubernetes-list-type": "set"}
    bad_rule = {"type": "string", "x-kubernetes-validations": [{"rule": "self == 1"}]}
    schema = {"type": "object", "properties": {"a": bad_list, "b": bad_rule}}
    assert [error.field for error in check_schema(schema)] == [
        "openAPIV3Schema.properties[a].type",
        "openAPIV3Schema.properties[b].x-kubernetes-validations[0].rule",
    ]
    above = {"type": "object", "properties": {"a": bad_list}, "x-kubernetes-validations": [{"rule": "1"}]}
    assert [error.field for error in check_schema(above)] == ["openAPIV3Schema.properties[a].type"]


NESTED_LOOPS = {"rule": "self.all(x, self.all(y, x == y))"}


def test_a_rule_that_may_take_too_long_is_refused() -> None:
    numbers: Obj = {"type": "array", "items": {"type": "integer"}, "x-kubernetes-validations": [NESTED_LOOPS]}
    assert texts(spec(**numbers, maxItems=1000)) == []
    (text,) = texts(spec(**numbers, maxItems=2000))
    assert text == (
        f"{AT}.x-kubernetes-validations[0].rule: Forbidden: estimated rule cost exceeds budget by factor of 2.0x "
        "(try simplifying the rule, or adding maxItems, maxProperties, and maxLength where arrays, maps, and "
        "strings are declared)"
    )
    assert [error.field for error in check_schema(spec(**numbers))] == [
        f"{AT}.x-kubernetes-validations[0].rule",
        f"{AT}.x-kubernetes-validations[0].rule",
        "openAPIV3Schema",
    ]


def test_number_of_evaluations_of_a_rule_counts() -> None:
    text = {"type": "string", "maxLength": 1000, "x-kubernetes-validations": [{"rule": "self.matches('^[a-z]+$')"}]}
    assert texts(spec(type="array", items=text, maxItems=100)) == []
    found = texts(spec(type="array", items=text))
    assert any("estimated rule cost exceeds budget" in item for item in found)


def test_all_rules_together_may_not_take_too_long() -> None:
    rule = {"rule": "self.all(x, x.all(y, y > 0))"}
    inner = {"type": "array", "items": {"type": "integer"}, "maxItems": 1000}
    field = {"type": "array", "items": inner, "maxItems": 1900, "x-kubernetes-validations": [rule]}
    assert check_schema({"type": "object", "properties": {f"f{index}": field for index in range(5)}}) == []
    errors = check_schema({"type": "object", "properties": {f"f{index}": field for index in range(15)}})
    assert [error.reason for error in errors] == ["FieldValueForbidden"] * 5
    assert errors[-1].field == "openAPIV3Schema"
    assert "estimated rule cost total for entire OpenAPIv3 schema exceeds budget" in errors[-1].message


def test_old_values_are_unavailable_inside_lists_without_keys() -> None:
    items = {
        "type": "object",
        "properties": {"n": {"type": "integer"}},
        "x-kubernetes-validations": [{"rule": "self.n == oldSelf.n"}],
    }
    (text,) = texts(spec(type="array", items=items))
    assert f"oldSelf cannot be used on the uncorrelatable portion of the schema within {AT}" in text
