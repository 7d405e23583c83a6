"""Validation rules of custom resources (x-kubernetes-validations)."""

from __future__ import annotations

from typing import Any

import pytest

from phalanx_local.schema import StructuralSchema

Obj = dict[str, Any]


def spec_rules(*rules: Obj, **properties: Any) -> StructuralSchema:
    spec = {"type": "object", "x-kubernetes-validations": list(rules), "properties": properties}
    return StructuralSchema({"type": "object", "properties": {"spec": spec}})


def run(schema: StructuralSchema, spec: Any, old: Any = None) -> list[str]:
    return [str(error) for error in schema.validate({"spec": spec}, {"spec": old} if old is not None else None)]


INT = {"type": "integer"}
STRING = {"type": "string"}
QUANTITIES = {"type": "object", "additionalProperties": {"x-kubernetes-int-or-string": True}}


def test_a_rule_that_does_not_hold_gives_its_message() -> None:
    schema = spec_rules({"rule": "self.min <= self.max", "message": "min is above max"}, min=INT, max=INT)
    assert run(schema, {"min": 1, "max": 2}) == []
    assert run(schema, {"min": 3, "max": 2}) == ["spec: Invalid value: min is above max"]


def test_a_rule_without_a_message_shows_itself() -> None:
    schema = spec_rules({"rule": "self.min <= self.max"}, min=INT, max=INT)
    assert run(schema, {"min": 3, "max": 2}) == ["spec: Invalid value: failed rule: self.min <= self.max"]


def test_a_message_expression_wins_unless_it_fails() -> None:
    schema = spec_rules(
        {
            "rule": "self.min <= self.max",
            "message": "fixed",
            "messageExpression": "'min ' + string(self.min) + ' is above max ' + string(self.max)",
        },
        min=INT,
        max=INT,
    )
    assert run(schema, {"min": 3, "max": 2}) == ["spec: Invalid value: min 3 is above max 2"]
    failing = spec_rules(
        {"rule": "self.min < 0", "message": "fixed", "messageExpression": "string(1 / (self.min - 3))"}, min=INT
    )
    assert run(failing, {"min": 3}) == ["spec: Invalid value: fixed"]


def test_reason_and_field_path_shape_the_error() -> None:
    schema = spec_rules(
        {"rule": "has(self.a)", "reason": "FieldValueRequired", "fieldPath": ".a", "message": "say a"},
        {"rule": "!has(self.b)", "reason": "FieldValueForbidden", "fieldPath": ".b", "message": "no b"},
        {"rule": "self.c != 'x'", "reason": "FieldValueInvalid", "fieldPath": ".c", "message": "not x"},
        a=STRING,
        b=STRING,
        c=STRING,
    )
    assert run(schema, {"b": "1", "c": "x"}) == [
        "spec.a: Required value: say a",
        "spec.b: Forbidden: no b",
        "spec.c: Invalid value: not x",
    ]


def test_rules_on_scalars_show_the_value() -> None:
    schema = spec_rules(n={"type": "integer", "x-kubernetes-validations": [{"rule": "self % 2 == 0"}]})
    assert run(schema, {"n": 3}) == ["spec.n: Invalid value: 3: failed rule: self % 2 == 0"]


def test_transition_rules_run_on_updates_only() -> None:
    rule = {"rule": "self == oldSelf", "message": "is immutable"}
    schema = spec_rules(queue={"type": "string", "x-kubernetes-validations": [rule]})
    assert run(schema, {"queue": "a"}) == []
    assert run(schema, {"queue": "a"}, {"queue": "a"}) == []
    assert run(schema, {"queue": "b"}, {}) == []
    assert run(schema, {"queue": "b"}, {"queue": "a"}) == ['spec.queue: Invalid value: "b": is immutable']


def test_an_optional_old_self_makes_a_transition_rule_run_on_creation_too() -> None:
    rule = {
        "rule": "oldSelf.hasValue() ? self >= oldSelf.value() : self == 1",
        "optionalOldSelf": True,
        "message": "starts at 1 and grows",
    }
    schema = spec_rules(n={"type": "integer", "x-kubernetes-validations": [rule]})
    assert run(schema, {"n": 1}) == []
    assert len(run(schema, {"n": 2})) == 1
    assert run(schema, {"n": 2}, {"n": 1}) == []
    assert len(run(schema, {"n": 1}, {"n": 2})) == 1


def test_old_values_in_map_lists_are_found_by_key() -> None:
    roles = {
        "type": "array",
        "x-kubernetes-list-type": "map",
        "x-kubernetes-list-map-keys": ["name"],
        "items": {
            "type": "object",
            "properties": {"name": STRING, "min": INT},
            "x-kubernetes-validations": [{"rule": "self.min >= oldSelf.min", "message": "may not shrink"}],
        },
    }
    schema = spec_rules(roles=roles)
    old = {"roles": [{"name": "ps", "min": 2}, {"name": "worker", "min": 4}]}
    assert run(schema, {"roles": [{"name": "worker", "min": 5}, {"name": "new", "min": 0}]}, old) == []
    assert run(schema, {"roles": [{"name": "worker", "min": 3}]}, old) == [
        "spec.roles[0]: Invalid value: may not shrink"
    ]


def test_unchanged_value_is_not_validated_on_update() -> None:
    schema = spec_rules(
        a={
            "type": "object",
            "properties": {"n": INT},
            "x-kubernetes-validations": [{"rule": "self.n > 5", "message": "too small"}],
        },
        b=STRING,
    )
    assert run(schema, {"a": {"n": 1}, "b": "new"}, {"a": {"n": 1}, "b": "old"}) == []
    assert len(run(schema, {"a": {"n": 2}, "b": "new"}, {"a": {"n": 1}, "b": "old"})) == 1


ODD = {"type": "integer", "x-kubernetes-validations": [{"rule": "self % 2 == 1", "message": "must be odd"}]}


@pytest.mark.parametrize("kind", ["atomic", "set"])
def test_items_of_a_list_that_stayed_as_it_was_are_left_alone_too(kind: str) -> None:
    schema = spec_rules(numbers={"type": "array", "x-kubernetes-list-type": kind, "items": ODD}, other=STRING)
    old = {"numbers": [1, 2], "other": "a"}
    assert run(schema, {"numbers": [1, 2], "other": "b"}, old) == []
    assert run(schema, {"numbers": [2, 1], "other": "a"}, old) == ["spec.numbers[0]: Invalid value: 2: must be odd"]


def test_type_and_version_of_the_root_are_always_judged() -> None:
    rule = {"rule": "self == 'v1'", "message": "must be v1"}
    inner = {"type": "object", "properties": {"apiVersion": {**STRING, "x-kubernetes-validations": [rule]}}}
    schema = StructuralSchema({**inner, "properties": {**inner["properties"], "spec": inner}})  # type: ignore[dict-item]
    obj = {"apiVersion": "v2", "spec": {"apiVersion": "v2"}}
    assert [error.field for error in schema.validate(obj, obj)] == ["apiVersion"]


def test_rule_that_fails_to_evaluate_rejects_an_update_of_unchanged_values() -> None:
    schema = spec_rules({"rule": "self.m['x'] == 1"}, m={"type": "object", "additionalProperties": INT})
    assert len(run(schema, {"m": {}}, {"m": {}})) == 1


@pytest.mark.parametrize("kind", ["granular", "atomic"])
def test_members_of_maps_have_an_old_value(kind: str) -> None:
    inner = {"type": "integer", "x-kubernetes-validations": [{"rule": "self == oldSelf", "message": "fixed"}]}
    schema = spec_rules(a={"type": "object", "properties": {"n": inner}, "x-kubernetes-map-type": kind})
    assert len(run(schema, {"a": {"n": 2}}, {"a": {"n": 1}})) == 1
    assert run(schema, {"a": {"n": 2}}, {"a": {}}) == []


def test_a_field_that_is_null_is_not_there() -> None:
    schema = spec_rules(
        {"rule": "!has(self.n) && self.?n.orValue(7) == 7"}, n={"type": "integer", "nullable": True}
    )
    assert run(schema, {"n": None}) == []


def test_times_and_numbers_inside_lists_and_maps_are_values_of_their_own() -> None:
    schema = spec_rules(
        {"rule": "self.waits.sum() == duration('90s') && self.weights['a'] == 1.0 && 2.0 in self.numbers"},
        waits={"type": "array", "items": {"type": "string", "format": "duration"}},
        weights={"type": "object", "additionalProperties": {"type": "number"}},
        numbers={"type": "array", "items": {"type": "number"}},
    )
    assert run(schema, {"waits": ["1m", "30s"], "weights": {"a": 1}, "numbers": [1, 2]}) == []


def test_resource_lists_compare_as_quantities() -> None:
    rule = {
        "rule": "self.min.all(k, !(k in self.max) || quantity(string(self.min[k]))"
        ".compareTo(quantity(string(self.max[k]))) <= 0)",
        "message": "min must not exceed max",
    }
    schema = spec_rules(rule, min=QUANTITIES, max=QUANTITIES)
    assert run(schema, {"min": {"cpu": "500m", "memory": "1Gi"}, "max": {"cpu": 1, "memory": "1025Mi"}}) == []
    assert run(schema, {"min": {"cpu": "2"}, "max": {"cpu": "1500m"}}) == [
        "spec: Invalid value: min must not exceed max"
    ]


def test_null_is_not_judged() -> None:
    schema = spec_rules(n={"type": "integer", "nullable": True, "x-kubernetes-validations": [{"rule": "self > 0"}]})
    assert run(schema, {"n": None}) == []


def test_the_root_sees_its_name_and_kind_and_nothing_else_of_its_metadata() -> None:
    def root(rule: str) -> StructuralSchema:
        return StructuralSchema(
            {
                "type": "object",
                "properties": {"spec": {"type": "object", "properties": {"n": INT}}},
                "x-kubernetes-validations": [{"rule": rule, "message": "no"}],
            }
        )

    obj = {"apiVersion": "x/v1", "kind": "G", "metadata": {"name": "gang-1"}, "spec": {"n": 1}}
    assert root("self.metadata.name.startsWith('gang-') && self.kind == 'G'").validate(obj) == []
    (error,) = root("has(self.metadata.labels)").validate(obj)
    assert "rule compile error" in error.message
    assert "undefined field 'labels'" in error.message


def test_dates_and_durations_are_values_of_their_own() -> None:
    schema = spec_rules(
        {"rule": "self.start < self.end && self.grace < duration('1h')", "message": "no"},
        start={"type": "string", "format": "date-time"},
        end={"type": "string", "format": "date-time"},
        grace={"type": "string", "format": "duration"},
    )
    good = {"start": "2026-01-01T00:00:00Z", "end": "2026-01-01T02:00:00+01:00", "grace": "59m"}
    assert run(schema, good) == []
    assert run(schema, {**good, "end": "2026-01-01T00:30:00+01:00"}) == ["spec: Invalid value: no"]


def test_names_that_expressions_cannot_spell_are_escaped() -> None:
    schema = spec_rules(
        {"rule": "self.minimum__dash__count > 0 && self.__namespace__ != 'x' && self.a__dot__b == 'c'"},
        **{"minimum-count": INT, "namespace": STRING, "a.b": STRING},
    )
    assert run(schema, {"minimum-count": 1, "namespace": "y", "a.b": "c"}) == []


def test_sets_compare_without_order() -> None:
    rule = {"rule": "self == oldSelf", "message": "changed"}
    schema = spec_rules(
        tags={
            "type": "array",
            "x-kubernetes-list-type": "set",
            "items": STRING,
            "x-kubernetes-validations": [rule],
        }
    )
    assert run(schema, {"tags": ["a", "b"]}, {"tags": ["b", "a"]}) == []
    assert len(run(schema, {"tags": ["a"]}, {"tags": ["b", "a"]})) == 1


@pytest.mark.parametrize(
    ("rule", "spec", "words"),
    [
        ("self.m['x'] == 1", {"m": {}}, "no such key: x evaluating rule: self.m['x'] == 1"),
        ("self.n / 0 == 1", {"n": 1}, "division by zero evaluating rule"),
        ("self.either > 1", {"either": "a"}, "'no such overload': call arguments did not match"),
        ("self.absent == 'x'", {}, "no such key: absent"),
    ],
)
def test_a_rule_that_has_no_answer_refuses_the_object(rule: str, spec: Obj, words: str) -> None:
    schema = spec_rules(
        {"rule": rule},
        m={"type": "object", "additionalProperties": INT},
        n=INT,
        either={"x-kubernetes-int-or-string": True},
        absent=STRING,
    )
    (text,) = run(schema, spec)
    assert text.startswith('spec: Invalid value: "object": ')
    assert words in text


def test_rules_wait_until_the_shape_is_right() -> None:
    schema = spec_rules({"rule": "self.n > 0", "message": "no"}, n=INT)
    assert run(schema, {"n": "x"})[-1] == (
        "<nil>: Invalid value: null: some validation rules were not checked because the object was invalid; "
        "correct the existing errors to complete validation"
    )


def test_rules_cannot_run_for_ever() -> None:
    rule = {"rule": "self.l.all(a, self.l.all(b, self.l.all(c, a + b + c >= 0)))"}
    schema = spec_rules(rule, l={"type": "array", "items": INT})
    (text,) = run(schema, {"l": list(range(200))})
    assert "running out of cost budget" in text
