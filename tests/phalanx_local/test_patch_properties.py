"""Laws of field sets, of apply and of ownership, over generated objects."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from phalanx_local.patches import ApplyConflict, lists_from_schema, server_side_apply, track_update
from phalanx_local.patches.fields import (
    difference,
    intersection,
    owned_by_apply,
    paths,
    union,
)
from phalanx_local.patches.json_patch import same
from tests.extent import examples

NOW = "2026-01-01T00:00:00Z"
LISTS = lists_from_schema(
    {
        "type": "object",
        "properties": {
            "spec": {
                "type": "object",
                "properties": {
                    "n": {"type": "integer"},
                    "m": {"type": "object", "additionalProperties": {"type": "string"}},
                    "s": {"type": "array", "x-kubernetes-list-type": "set", "items": {"type": "string"}},
                    "l": {
                        "type": "array",
                        "x-kubernetes-list-type": "map",
                        "x-kubernetes-list-map-keys": ["k"],
                        "items": {
                            "type": "object",
                            "properties": {"k": {"type": "string"}, "v": {"type": "integer"}},
                        },
                    },
                    "a": {"type": "array", "items": {"type": "integer"}},
                },
            }
        },
    }
)

LETTERS = st.sampled_from("abc")
ITEMS = st.dictionaries(LETTERS, st.none() | st.integers(0, 2), max_size=3).map(
    lambda found: [{"k": key} | ({} if value is None else {"v": value}) for key, value in found.items()]
)
SPECS = st.fixed_dictionaries(
    {},
    optional={
        "n": st.integers(0, 2),
        "m": st.dictionaries(LETTERS, st.sampled_from("xy"), min_size=1, max_size=3),
        "s": st.lists(LETTERS, unique=True, min_size=1, max_size=3),
        "l": ITEMS.filter(bool),
        "a": st.lists(st.integers(0, 2), min_size=1, max_size=2),
    },
)


def config(spec: dict[str, Any]) -> dict[str, Any]:
    # An empty spec would be owned as such, so it is left out.
    return {"apiVersion": "x/v1", "kind": "G", "metadata": {"name": "g"}} | ({"spec": spec} if spec else {})


def apply(live: Any, spec: dict[str, Any], manager: str, *, force: bool = False) -> dict[str, Any]:
    return server_side_apply(
        live,
        config(spec),
        manager=manager,
        force=force,
        api_version="x/v1",
        subresource="",
        now=NOW,
        lists=LISTS,
    )


def members(obj: dict[str, Any]) -> dict[str, set[tuple[str, ...]]]:
    return {item["manager"]: set(paths(item["fieldsV1"])) for item in obj["metadata"].get("managedFields", ())}


@pytest.mark.thorough
@given(SPECS, SPECS, SPECS)
@settings(max_examples=examples(150), deadline=None)
def test_applying_twice_is_applying_once(base: Any, other: Any, spec: Any) -> None:
    live = apply(apply(None, base, "one"), other, "two", force=True)
    once = apply(live, spec, "me", force=True)
    assert apply(once, spec, "me", force=False) == once


@pytest.mark.thorough
@given(SPECS, SPECS)
@settings(max_examples=examples(150), deadline=None)
def test_forced_apply_sets_all_of_its_fields(base: Any, spec: Any) -> None:
    live = apply(apply(None, base, "one"), spec, "two", force=True)
    wanted = set(paths(owned_by_apply(LISTS.root.child("spec"), spec)))
    assert {path[1:] for path in members(live).get("two", set())} == wanted
    for name in ("n", "a"):
        if name in spec:
            assert live["spec"][name] == spec[name]
    for key, value in spec.get("m", {}).items():
        assert live["spec"]["m"][key] == value
    assert set(spec.get("s", ())) <= set(live.get("spec", {}).get("s", ()))


@pytest.mark.thorough
@given(SPECS, SPECS)
@settings(max_examples=examples(150), deadline=None)
def test_two_managers_together_hold_the_union_and_give_back_their_parts(first: Any, second: Any) -> None:
    """Without a conflict the object is the union; after both released it, nothing remains."""
    live = apply(None, first, "one")
    try:
        live = apply(live, second, "two")
    except ApplyConflict:
        return
    for spec in (first, second):
        for key, value in spec.get("m", {}).items():
            assert live["spec"]["m"][key] == value
        assert set(spec.get("s", ())) <= set(live.get("spec", {}).get("s", ()))
        for item in spec.get("l", ()):
            (found,) = [other for other in live["spec"]["l"] if other["k"] == item["k"]]
            assert item.items() <= found.items()
    alone = apply(live, {}, "one")
    assert set(members(alone)) <= {"two"}
    nothing = apply(alone, {}, "two")
    assert not nothing.get("spec")
    assert "managedFields" not in nothing["metadata"]


@pytest.mark.thorough
@given(SPECS, SPECS)
@settings(max_examples=examples(150), deadline=None)
def test_update_owns_exactly_its_changes(before: Any, after: Any) -> None:
    live = apply(None, before, "one")
    live["metadata"]["uid"] = "u"
    changed = {**live, "spec": after}
    result = track_update(live, changed, manager="two", api_version="x/v1", subresource="", now=NOW, lists=LISTS)
    if same(before, after):
        assert "two" not in members(result)
    both = members(result)
    # No other manager retains a path whose value the update changed.
    assert not (both.get("one", set()) & both.get("two", set()))
    gone = set(paths(owned_by_apply(LISTS.root.child("spec"), before))) - set(
        paths(owned_by_apply(LISTS.root.child("spec"), after))
    )
    for path in gone:
        assert ("f:spec", *path) not in both.get("two", set())


def tries(spec: dict[str, Any]) -> dict[str, Any]:
    return owned_by_apply(LISTS.root.child("spec"), spec)


@pytest.mark.thorough
@given(SPECS, SPECS)
@settings(max_examples=examples(200), deadline=None)
def test_field_sets_behave_like_sets_of_paths(first: Any, second: Any) -> None:
    left, right = tries(first), tries(second)
    a, b = set(paths(left)), set(paths(right))
    assert set(paths(union(left, right))) == a | b
    assert set(paths(intersection(left, right))) == a & b
    assert set(paths(difference(left, right))) == a - b
