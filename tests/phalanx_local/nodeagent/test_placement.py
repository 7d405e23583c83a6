"""The kubelet's second look at selectors, affinity and taints, rule by rule."""

from __future__ import annotations

import pytest

from phalanx.model.selectors import Requirement, Taint, Toleration
from phalanx_local.nodeagent.placement import Place, objection, term_holds
from phalanx_local.nodeagent.wire import Affinity, NodeAffinity, NodeSelector, NodeSelectorTerm, PodSpec


def spec(*terms: NodeSelectorTerm) -> PodSpec:
    return PodSpec(affinity=Affinity(NodeAffinity(NodeSelector(terms))))


PLACE = Place("n0", {"zone": "a", "cores": "8", "big": ""})


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
    assert term_holds(PLACE, NodeSelectorTerm((Requirement(key, operator, values),))) is holds


def test_all_of_a_term_must_hold_and_an_empty_one_never_does() -> None:
    yes, no = Requirement("zone", "In", ("a",)), Requirement("zone", "In", ("b",))
    field = Requirement("metadata.name", "In", ("n0",))
    assert term_holds(PLACE, NodeSelectorTerm((yes,), (field,)))
    assert not term_holds(PLACE, NodeSelectorTerm((yes, no)))
    assert not term_holds(PLACE, NodeSelectorTerm((yes,), (Requirement("metadata.name", "NotIn", ("n0",)),)))
    assert not term_holds(PLACE, NodeSelectorTerm())


def test_one_term_is_enough_and_none_at_all_never() -> None:
    yes = NodeSelectorTerm((Requirement("zone", "In", ("a",)),))
    no = NodeSelectorTerm((Requirement("zone", "In", ("b",)),))
    assert objection(PLACE, spec(no, yes)) is None
    assert objection(PLACE, PodSpec()) is None
    for affinity in ((no,), ()):
        found = objection(PLACE, spec(*affinity))
        assert found is not None
        assert found.reason == "NodeAffinity"


def test_only_no_execute_taints_matter_to_a_bound_pod() -> None:
    place = Place("n0", taints=(Taint("a", effect="NoSchedule"), Taint("b", effect="NoExecute")))
    found = objection(place, PodSpec())
    assert found is not None
    assert found.reason == "TaintToleration"
    assert objection(place, PodSpec(tolerations=(Toleration("b", "Exists"),))) is None
