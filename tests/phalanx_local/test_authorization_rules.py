"""Comparison of rules: a user may grant a rule only with all of its rights."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from phalanx_local.authorization.attributes import Attributes
from phalanx_local.authorization.rules import PolicyRule, compact, missing
from tests.extent import examples

VERBS, GROUPS, RESOURCES = ("get", "list", "*"), ("", "apps", "*"), ("pods", "pods/status", "*/status", "*")
NAMES, URLS = ("a", "b"), ("/a", "/a/b", "/a*", "*")


def some(values: tuple[str, ...], least: int = 1) -> st.SearchStrategy[tuple[str, ...]]:
    return st.lists(st.sampled_from(values), min_size=least, max_size=2, unique=True).map(tuple)


RULES = st.one_of(
    st.builds(PolicyRule, some(VERBS), some(GROUPS), some(RESOURCES), some(NAMES, 0)),
    st.builds(PolicyRule, verbs=some(VERBS), urls=some(URLS)),
)
REQUESTS = st.one_of(
    st.builds(
        Attributes,
        st.sampled_from(("get", "list", "watch")),
        st.sampled_from(("", "apps", "batch")),
        st.sampled_from(("pods", "nodes")),
        st.sampled_from(("", "status", "scale")),
        st.just("team"),
        st.sampled_from(("", "a", "b", "c")),
    ),
    st.builds(
        lambda verb, path: Attributes(verb, path=path),
        st.sampled_from(("get", "list", "watch")),
        st.sampled_from(("/a", "/a/b", "/ab", "/c")),
    ),
)


@pytest.mark.thorough
@settings(max_examples=examples(100))
@given(held=st.lists(RULES, max_size=3), asked=RULES, request=REQUESTS)
def test_rights_not_missing_are_already_granted(
    held: list[PolicyRule], asked: PolicyRule, request: Attributes
) -> None:
    if not missing(held, [asked]) and asked.allows(request):
        assert any(rule.allows(request) for rule in held)


@pytest.mark.thorough
@settings(max_examples=examples(100))
@given(rules=st.lists(RULES, max_size=3))
def test_no_right_is_missing_from_equal_rules(rules: list[PolicyRule]) -> None:
    assert missing(rules, rules) == []


@pytest.mark.thorough
@settings(max_examples=examples(100))
@given(rules=st.lists(RULES, max_size=3), request=REQUESTS)
def test_combined_rules_allow_the_union_of_their_rights(rules: list[PolicyRule], request: Attributes) -> None:
    parts = compact(missing([], rules))
    assert any(rule.allows(request) for rule in parts) == any(rule.allows(request) for rule in rules)
