"""JSON Patch (RFC 6902) and JSON merge patch (RFC 7386)."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from phalanx_local.patches import PatchError, json_patch, merge_patch
from tests.extent import examples

JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 5) | st.text("abc", max_size=2),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text("abc", max_size=2), inner, max_size=3),
    max_leaves=12,
)
OBJECTS = st.dictionaries(st.text("abc", min_size=1, max_size=2), JSON, max_size=4)


@pytest.mark.parametrize(
    ("doc", "ops", "wanted"),
    [
        ({"a": 1}, [{"op": "add", "path": "/b", "value": 2}], {"a": 1, "b": 2}),
        ({"l": [1, 3]}, [{"op": "add", "path": "/l/1", "value": 2}], {"l": [1, 2, 3]}),
        ({"l": [1]}, [{"op": "add", "path": "/l/-", "value": 2}], {"l": [1, 2]}),
        ({"a": 1, "b": 2}, [{"op": "remove", "path": "/a"}], {"b": 2}),
        ({"l": [1, 2, 3]}, [{"op": "remove", "path": "/l/-1"}], {"l": [1, 2]}),
        ({"a": 1}, [{"op": "replace", "path": "/a", "value": [1]}], {"a": [1]}),
        ({"a": {"b": 1}}, [{"op": "move", "from": "/a/b", "path": "/c"}], {"a": {}, "c": 1}),
        ({"a": {"b": 1}}, [{"op": "copy", "from": "/a", "path": "/c"}], {"a": {"b": 1}, "c": {"b": 1}}),
        ({"a": 1}, [{"op": "test", "path": "/a", "value": 1}], {"a": 1}),
        ({"m~n": {"a/b": 1}}, [{"op": "replace", "path": "/m~0n/a~1b", "value": 2}], {"m~n": {"a/b": 2}}),
        # kube-apiserver is more lenient than the RFC here, and clients count on it.
        ({}, [{"op": "replace", "path": "/a", "value": 1}], {"a": 1}),
        ({}, [{"op": "test", "path": "/a", "value": None}], {}),
    ],
)
def test_operations_apply_in_order(doc: Any, ops: Any, wanted: Any) -> None:
    before = copy.deepcopy(doc)
    assert json_patch(doc, ops) == wanted
    assert doc == before


@pytest.mark.parametrize(
    ("ops", "code", "words"),
    [
        ([{"op": "test", "path": "/a", "value": 2}], 422, "testing value /a failed: test failed"),
        ([{"op": "test", "path": "/a", "value": True}], 422, "test failed"),
        ([{"op": "remove", "path": "/zz"}], 422, "Unable to remove nonexistent key: zz: missing value"),
        ([{"op": "add", "path": "/x/y", "value": 1}], 422, 'doc is missing path: "/x/y": missing value'),
        ([{"op": "replace", "path": "/l/7", "value": 1}], 422, "doc is missing key: /l/7: missing value"),
        ([{"op": "add", "path": "/l/9", "value": 1}], 422, "Unable to access invalid index: 9"),
        ([{"op": "add", "path": "/l/x", "value": 1}], 422, "value was not a proper array index: 'x'"),
        ([{"op": "frob", "path": "/a"}], 422, "Unexpected kind: frob"),
        ([{"op": "add", "value": 1}], 422, "failed to decode path"),
        ([{"op": "move", "path": "/b"}], 422, "missing from field"),
        ([{"op": "move", "from": "/m", "path": "/m/n"}], 422, "cannot move into itself"),
        (["x"], 400, "must be an object"),
        ({"op": "add"}, 400, "must be a list"),
        ([{"op": "test", "path": "/a", "value": 1}] * 10_001, 413, "maximum operations in a JSON patch is 10000"),
    ],
)
def test_bad_operations_are_refused_as_a_whole(ops: Any, code: int, words: str) -> None:
    doc = {"a": 1, "l": [1], "m": {}}
    with pytest.raises(PatchError) as caught:
        json_patch(doc, ops)
    assert caught.value.code == code
    assert words in caught.value.message
    assert doc == {"a": 1, "l": [1], "m": {}}


def test_a_failed_operation_undoes_the_earlier_ones() -> None:
    doc = {"a": {"b": 1}}
    with pytest.raises(PatchError):
        json_patch(doc, [{"op": "add", "path": "/a/c", "value": 1}, {"op": "remove", "path": "/zz"}])
    assert doc == {"a": {"b": 1}}


@pytest.mark.parametrize(
    ("doc", "patch", "wanted"),
    [
        # the table of RFC 7386, appendix A, as far as it is about objects
        ({"a": "b"}, {"a": "c"}, {"a": "c"}),
        ({"a": "b"}, {"b": "c"}, {"a": "b", "b": "c"}),
        ({"a": "b"}, {"a": None}, {}),
        ({"a": "b", "b": "c"}, {"a": None}, {"b": "c"}),
        ({"a": ["b"]}, {"a": "c"}, {"a": "c"}),
        ({"a": "c"}, {"a": ["b"]}, {"a": ["b"]}),
        ({"a": {"b": "c"}}, {"a": {"b": "d", "c": None}}, {"a": {"b": "d"}}),
        ({"a": [{"b": "c"}]}, {"a": [1]}, {"a": [1]}),
        ({"e": None}, {"a": 1}, {"e": None, "a": 1}),
        ({}, {"a": {"bb": {"ccc": None}}}, {"a": {"bb": {}}}),
    ],
)
def test_merge_patch_follows_the_rfc(doc: Any, patch: Any, wanted: Any) -> None:
    assert merge_patch(doc, patch) == wanted


@pytest.mark.thorough
@settings(max_examples=examples(100))
@given(OBJECTS, OBJECTS)
def test_a_merge_patch_is_idempotent_and_leaves_its_inputs_alone(doc: Any, patch: Any) -> None:
    before = copy.deepcopy((doc, patch))
    once = merge_patch(doc, patch)
    assert merge_patch(once, patch) == once
    assert (doc, patch) == before


@pytest.mark.thorough
@settings(max_examples=examples(100))
@given(OBJECTS, OBJECTS)
def test_replacing_every_key_by_operations_gives_the_other_document(doc: Any, other: Any) -> None:
    ops = [{"op": "remove", "path": f"/{key}"} for key in doc]
    ops += [{"op": "add", "path": f"/{key}", "value": value} for key, value in other.items()]
    assert json_patch(doc, ops) == other


def test_a_merge_patch_must_be_an_object() -> None:
    with pytest.raises(PatchError, match="Invalid JSON Patch"):
        merge_patch({}, [])  # type: ignore[arg-type]


POINTERS = st.sampled_from(["", "/", "/a", "/b", "/a/0", "/a/-", "/a/b", "/a/0/b", "/-1", "/0", "a", "/a/b/c"])
OPERATIONS = st.fixed_dictionaries(
    {"op": st.sampled_from(["add", "remove", "replace", "move", "copy", "test"]), "path": POINTERS},
    optional={"from": POINTERS, "value": JSON},
)


@pytest.mark.thorough
@settings(max_examples=examples(100))
@given(OBJECTS, st.lists(OPERATIONS, max_size=5))
@example({}, [{"op": "add", "path": "", "value": 1.5}, {"op": "move", "from": "/a", "path": "/b"}])
@example({}, [{"op": "add", "path": "", "value": "text"}, {"op": "copy", "from": "/0", "path": "/b"}])
def test_any_sequence_of_operations_gives_an_object_or_a_refusal(doc: Any, ops: Any) -> None:
    before = copy.deepcopy(doc)
    try:
        patched: Any = json_patch(doc, ops)
    except PatchError as refusal:
        code = refusal.code
    else:
        code = 200 if isinstance(patched, dict) else 500
    assert code in (200, 400, 413, 422)
    assert doc == before
