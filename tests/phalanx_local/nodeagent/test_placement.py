"""The kubelet's second look at selectors, affinity and taints, rule by rule."""

from __future__ import annotations

import pytest

from phalanx.model.selectors import Requirement, Taint, Toleration
from phalanx_local.nodeagent.core_v1 import (
    V1Affinity,
    V1NodeAffinity,
    V1NodeSelector,
    V1NodeSelectorTerm,
    V1PodSpec,
)
from phalanx_local.nodeagent.placement import NodeFacts, objection, term_holds


def spec(*terms: V1NodeSelectorTerm) -> V1PodSpec:
    return V1PodSpec(affinity=V1Affinity(V1NodeAffinity(V1NodeSelector(terms))))


PLACE = NodeFacts("n0", {"zone": "a", "cores": "8", "big": ""})


@pytest.mark.parametrize(
    ("key", "operator", "values", "holds"),
    [
        ("zone", "In", ("a", "b"), True),
        ("zone", "In", ("b",), False),
        ("none", "In", ("a",), False),
        ("zone", "NotIn", ("b",), True),
        ("zone", "NotIn", ("a",), False),
        ("none", "NotIn", ("a",), True),
        ("big", "Exists", (), True),
        ("none", "Exists", (), False),
        ("none", "DoesNotExist", (), True),
        ("big", "DoesNotExist", (), False),
        ("cores", "Gt", ("7",), True),
        ("cores", "Gt", ("8",), False),
        ("cores", "Lt", ("9",), True),
        ("zone", "Gt", ("1",), False),
        ("cores", "Gt", ("many",), False),
        ("none", "Lt", ("1",), False),
        ("cores", "Lt", (str(2**63),), False),
        ("zone", "Near", ("a",), False),
    ],
)
def test_one_requirement(key: str, operator: str, values: tuple[str, ...], holds: bool) -> None:
    assert term_holds(PLACE, V1NodeSelectorTerm((Requirement(key, operator, values),))) is holds


def test_all_of_a_term_must_hold_and_an_empty_one_never_does() -> None:
    yes, no = Requirement("zone", "In", ("a",)), Requirement("zone", "In", ("b",))
    field = Requirement("metadata.name", "In", ("n0",))
    assert term_holds(PLACE, V1NodeSelectorTerm((yes,), (field,)))
    assert not term_holds(PLACE, V1NodeSelectorTerm((yes, no)))
    assert not term_holds(PLACE, V1NodeSelectorTerm((yes,), (Requirement("metadata.name", "NotIn", ("n0",)),)))
    assert not term_holds(PLACE, V1NodeSelectorTerm())


def test_one_term_is_enough_and_none_at_all_never() -> None:
    yes = V1NodeSelectorTerm((Requirement("zone", "In", ("a",)),))
    no = V1NodeSelectorTerm((Requirement("zone", "In", ("b",)),))
    assert objection(PLACE, spec(no, yes)) is None
    assert objection(PLACE, V1PodSpec()) is None
    for affinity in ((no,), ()):
        found = objection(PLACE, spec(*affinity))
        assert found is not None
        assert found.reason == "NodeAffinity"


def test_only_no_execute_taints_matter_to_a_bound_pod() -> None:
    place = NodeFacts("n0", taints=(Taint("a", effect="NoSchedule"), Taint("b", effect="NoExecute")))
    found = objection(place, V1PodSpec())
    assert found is not None
    assert found.reason == "TaintToleration"
    assert objection(place, V1PodSpec(tolerations=(Toleration("b", "Exists"),))) is None
