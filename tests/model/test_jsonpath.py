"""Kubernetes' JSONPath, alone and in kubectl's templates."""

from __future__ import annotations

from typing import Any

import pytest

from phalanx.model.text.jsonpath import compile_path, parse_path
from phalanx.model.text.jsonpath_template import Template

DOCUMENT: dict[str, Any] = {
    "items": [
        {"name": "a", "n": [1, 2, 3], "labels": {"x.y/z": "1"}, "on": True},
        {"name": "b", "n": [], "deep": {"name": "c"}},
    ]
}


@pytest.mark.parametrize(
    ("path", "found"),
    [
        (".items[*].name", ["a", "b"]),
        ("{.items[0].n[-1]}", [3]),
        (".items[0].n", [[1, 2, 3]]),
        (".items[0].n[0:2]", [1, 2]),
        (".items[0].n[-2:]", [2, 3]),
        (".items[?(@.name=='b')].deep.name", ["c"]),
        (r".items[0].labels.x\.y/z", ["1"]),
        (".items[0]['name']", ["a"]),
        ("$..name", ["a", "b", "c"]),
        ("items[1].name", ["b"]),
        (".nope[3].x", []),
    ],
)
def test_path_finds_values_in_the_order_of_the_document(path: str, found: list[Any]) -> None:
    assert parse_path(path).find(DOCUMENT) == found


@pytest.mark.parametrize("path", [".a[", ".a]", "a..", ".a[x]", ".a[?(@.b"])
def test_invalid_path_finds_nothing_in_a_column_and_is_refused_on_a_command_line(path: str) -> None:
    assert parse_path(path).find({"a": 1}) == []
    with pytest.raises(ValueError, match="no JSONPath"):
        compile_path(path)


@pytest.mark.parametrize(
    ("template", "text"),
    [
        ("{.items[*].name}", "a b"),
        (".items[*].name", "a b"),
        ('{range .items[*]}{.name}={.n}{"\\n"}{end}', "a=[1,2,3]\nb=[]\n"),
        ("n: {.items[0].name}, on: {.items[0].on}; {.nope}.", "n: a, on: true; ."),
        ('{range .items[*]}{range .n[*]}{@}{"\\t"}{end}{end}', "1\t2\t3\t"),
        ("{.items[?(@.name=='{')].name}{'}'}", "}"),
    ],
)
def test_template_is_text_with_paths(template: str, text: str) -> None:
    assert Template(template).render(DOCUMENT) == text


@pytest.mark.parametrize(
    ("template", "why"),
    [
        ("{.items", "unbalanced brace"),
        ("a}", "unbalanced brace"),
        ("{end}", "without a {range}"),
        ("{range .items[*]}x", "without its {end}"),
        ("{.a[}", "cannot read"),
        ("{'x}", "unbalanced brace"),
    ],
)
def test_template_with_a_mistake_is_refused_by_name(template: str, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        Template(template)
