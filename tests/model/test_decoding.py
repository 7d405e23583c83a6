"""Decoding of untrusted input within limits: one error for every violation."""

from __future__ import annotations

import json

import msgspec
import pytest
import yaml

from phalanx.model.text.decoding import (
    MAX_DEPTH,
    decode_json,
    decode_loosely,
    nested_too_deep,
    parse_float,
    parse_whole,
    parts_at,
    quoted,
    shallow,
)
from phalanx.model.text.duration import parse_duration
from phalanx.model.text.quantity import QuantityError, parse_quantity
from phalanx.model.text.yaml_text import decode_yaml

DEEP = b"[" * 100_000 + b"]" * 100_000
LONG = "9" * 5_000


@pytest.mark.parametrize(
    "raw", [DEEP, b"[" * 100_000, b'{"a":' * 2_000, LONG.encode(), b"1e999", b'"\xff"', b'"\\ud800"', b"", b"nul"]
)
def test_json_beyond_the_limits_is_one_error(raw: bytes) -> None:
    with pytest.raises(msgspec.DecodeError):
        decode_json(raw)


def test_brackets_in_texts_do_not_count_as_levels() -> None:
    text = json.dumps({"a": "[" * 1000, "b": ['\\"[{' * 300] * 300})
    assert not nested_too_deep(text)
    assert decode_json(text) == json.loads(text)


@pytest.mark.parametrize(("levels", "deep"), [(MAX_DEPTH, False), (MAX_DEPTH + 1, True)])
def test_limit_is_exact(levels: int, deep: bool) -> None:
    assert nested_too_deep("[" * levels + "]" * levels) is deep


def test_part_beyond_the_limits_is_a_text_and_the_remainder_is_unchanged() -> None:
    raw = b'{"a": 1, "n": ' + LONG.encode() + b', "deep": ' + DEEP + b', "f": 1e999}'
    read = decode_loosely(raw)
    assert (read["a"], read["n"], read["f"]) == (1, LONG, "1e999")
    assert "nested too deep" in repr(read["deep"])


def test_parts_are_found_without_recursion() -> None:
    raw = b'{"items": [{"a": ' + DEEP + b'}, {"b": "}]"}], "metadata": {"x": 1}}'
    assert [raw[begin:end][:4] for begin, end, around in parts_at(raw, 3) if around == b"["] == [b'{"a"', b'{"b"']
    assert json.loads(shallow(raw, 3)) == {"items": [None, None], "metadata": {"x": 1}}


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("7", 7),
        ("-7", -7),
        ("+07", 7),
        ("", None),
        ("7.0", None),
        ("٧", None),
        ("1_0", None),
        (" 7", None),
        ("7\n", None),
        (LONG, None),
        ("9" * 19, None),
        (str(2**63 - 1), 2**63 - 1),
    ],
)
def test_integers_are_read(text: str, number: int | None) -> None:
    assert parse_whole(text) == number


@pytest.mark.parametrize("text", ["", "nan", "inf", "-inf", "1e999", "x", "1" * 200])
def test_other_values_are_no_integers(text: str) -> None:
    assert parse_float(text) is None


@pytest.mark.parametrize("text", [LONG, "1e" + LONG, "0." + LONG, "9" * 200_000])
def test_quantity_or_duration_with_many_digits_is_read_in_bounded_time(text: str) -> None:
    with pytest.raises(QuantityError) as refused:
        parse_quantity(text)
    with pytest.raises(ValueError, match="too long") as bad:
        parse_duration(text + "s")
    assert max(len(str(refused.value)), len(str(bad.value))) < 300


def test_number_of_thousands_of_digits_is_clamped() -> None:
    assert parse_quantity(10**4000) == 2**63 - 1


def test_quoted_value_is_short_and_quoting_never_fails() -> None:
    deep: list[object] = []
    for _ in range(100_000):
        deep = [deep]
    for value in (deep, 10**5000, "x" * 10**6, {"a": "y" * 1000}):
        assert len(quoted(value)) < 100


BOMB = "a0: &a0 [x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"a{level}: &a{level} [{', '.join([f'*a{level - 1}'] * 9)}]\n" for level in range(1, 12)
)
MERGES = "a0: &a0 {k: v}\n" + "".join(
    f"a{level}: &a{level} {{<<: [{', '.join([f'*a{level - 1}'] * 9)}]}}\n" for level in range(1, 12)
)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (BOMB, "excessive aliasing"),
        (MERGES, "excessive aliasing"),
        ("&a [*a]", "contains itself"),
        ("a: " + "[" * 100_000, "nested more than"),
        ("- " * 5_000 + "x", "nested more than"),
        ("a: " + LONG, "too long for a number"),
        ("a: " + "1:" * 5_000 + "1", "too long for a number"),
        ("? {a: b}\n: c", "unhashable"),
        ("!!bool x", "KeyError"),
        ("a: !!timestamp 2024-99-99", "month"),
        (b"\xff", "UTF-8"),
        ("- a\n---\n- b", "single document"),
    ],
)
def test_yaml_beyond_the_limits_is_one_error(text: str, why: str) -> None:
    with pytest.raises(yaml.YAMLError, match=why):
        decode_yaml(text)


def test_yaml_is_read_as_its_equivalent_json() -> None:
    text = "base: &b {x: 1}\nother: {<<: *b, y: 2024-01-31}\n1: .nan\n"
    assert decode_yaml(text) == {"base": {"x": 1}, "other": {"x": 1, "y": "2024-01-31"}, "1": "nan"}
