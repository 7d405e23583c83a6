"""Inter-pod rules of pods, decoded from the API."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from phalanx.dialects.core import NamespaceObject, decode_namespace
from phalanx.dialects.intake import Intake
from phalanx.dialects.pods.decoder import PodDecoder
from phalanx.model.events import NamespaceLabelled, PodUpdated
from phalanx.model.peers import NO_PEERS, Peers, PeerTerm, PodSelection, PreferredPeers, Spread
from phalanx.model.pod import Pod
from phalanx.model.selectors import Requirement
from tests.dialects.objects import pod

ZONE = "topology.kubernetes.io/zone"
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"
APP = {"matchLabels": {"app": "x"}}
IS_APP = Requirement("app", "In", ("x",))


def read_pod(**details: Any) -> Pod:
    events = Intake(["phalanx"]).pod(pod("p", **details))
    return next(event.pod for event in events if isinstance(event, PodUpdated))


def peers(**details: Any) -> Peers:
    found = read_pod(**details)
    assert not found.problem
    return found.pod_class.peers


def affinity(kind: str, *terms: dict[str, Any], rule: str = REQUIRED) -> dict[str, Any]:
    return {"affinity": {kind: {rule: list(terms)}}}


def spread(**fields: Any) -> dict[str, Any]:
    constraint = {"maxSkew": 1, "topologyKey": ZONE, "whenUnsatisfiable": "DoNotSchedule", "labelSelector": APP}
    return {"topologySpreadConstraints": [constraint | fields]}


def term(**fields: Any) -> dict[str, Any]:
    return {"labelSelector": APP, "topologyKey": ZONE} | fields


def test_pod_without_rules_has_no_peers() -> None:
    assert peers() == NO_PEERS
    assert peers(affinity={"nodeAffinity": {}}) == NO_PEERS


def test_terms_match_pods_of_the_pods_own_namespace_by_default() -> None:
    def whom(**fields: Any) -> PodSelection:
        (found,) = peers(**affinity("podAffinity", term(**fields))).affinity
        assert found.key == ZONE
        return found.whom

    assert whom() == PodSelection((IS_APP,), ("default",))
    assert whom(namespaces=["b", "a", "b"]) == PodSelection((IS_APP,), ("a", "b"))
    assert whom(namespaceSelector={}) == PodSelection((IS_APP,), (), ())
    team = Requirement("team", "Exists")
    selector = {"matchExpressions": [{"key": "team", "operator": "Exists"}]}
    assert whom(namespaceSelector=selector, namespaces=["a"]) == PodSelection((IS_APP,), ("a",), (team,))


def test_absent_selector_matches_no_pod_and_an_empty_one_every_pod() -> None:
    def selector(stated: object) -> object:
        return peers(**affinity("podAntiAffinity", term(labelSelector=stated))).anti[0].whom.selector

    assert selector(None) is None
    assert selector({}) == ()


def test_order_of_a_selector_makes_no_difference() -> None:
    one = {"matchExpressions": [{"key": "a", "operator": "In", "values": ["2", "1"]}], "matchLabels": {"b": "3"}}
    other = {"matchExpressions": [
        {"key": "b", "operator": "In", "values": ["3"]}, {"key": "a", "operator": "In", "values": ["1", "2", "1"]},
    ]}  # fmt: skip
    first, second = (peers(**affinity("podAntiAffinity", term(labelSelector=each))) for each in (one, other))
    assert first == second


def test_preferred_terms_have_positive_and_negative_weights() -> None:
    near = {"weight": 5, "podAffinityTerm": term()}
    far = {"weight": 100, "podAffinityTerm": term()}
    both = {"affinity": {"podAffinity": {PREFERRED: [near]}, "podAntiAffinity": {PREFERRED: [far]}}}
    meant = PeerTerm(PodSelection((IS_APP,), ("default",)), ZONE)
    assert peers(**both).preferred == (PreferredPeers(meant, 5), PreferredPeers(meant, -100))


def test_spread_constraint_has_the_defaults_of_the_api() -> None:
    meant = PodSelection((IS_APP,), ("default",))
    assert peers(**spread()).spread == (Spread(meant, ZONE, 1, 1, True, True, False),)
    stated = spread(
        maxSkew=3, minDomains=4, nodeAffinityPolicy="Ignore", nodeTaintsPolicy="Honor", labelSelector=None
    )
    nobody = PodSelection(None, ("default",))
    assert peers(**stated).spread == (Spread(nobody, ZONE, 3, 4, True, False, True),)
    assert not peers(**spread(whenUnsatisfiable="ScheduleAnyway")).spread[0].required


def test_match_label_keys_are_merged_from_the_pods_own_labels_once() -> None:
    labels = {"hash": "1", "app": "x"}
    version = Requirement("hash", "In", ("1",))
    merged = spread(labelSelector=APP | {"matchExpressions": [{"key": "hash", "operator": "In", "values": ["1"]}]})
    for stated in (spread(matchLabelKeys=["hash", "absent"]), merged["topologySpreadConstraints"][0]):
        details = {"topologySpreadConstraints": [stated]} if "maxSkew" in stated else stated
        (found,) = peers(labels=labels, **details).spread
        assert found.whom.selector == (IS_APP, version)
    both = merged["topologySpreadConstraints"][0] | {"matchLabelKeys": ["hash"]}
    assert peers(labels=labels, topologySpreadConstraints=[both]).spread[0].whom.selector == (IS_APP, version)
    near = term(matchLabelKeys=["hash"], mismatchLabelKeys=["app"])
    (found_term,) = peers(labels=labels, **affinity("podAffinity", near)).affinity
    assert found_term.whom.selector == (IS_APP, Requirement("app", "NotIn", ("x",)), version)


def test_pods_of_one_template_share_a_class_unless_relevant_labels_differ() -> None:
    decoder = PodDecoder()
    first, second, third = (
        decoder.template(pod(name, labels={"hash": value}, **spread(matchLabelKeys=["hash"]))).pod_class
        for name, value in (("a", "1"), ("b", "1"), ("c", "2"))
    )
    assert first is second
    assert first != third
    elsewhere = decoder.template(
        pod("d", namespace="other", labels={"hash": "1"}, **spread(matchLabelKeys=["hash"]))
    )
    assert elsewhere.pod_class != first


GREATER = {"matchExpressions": [{"key": "a", "operator": "Gt"}]}
WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "no key": (
        affinity("podAffinity", term(topologyKey="")),
        f"spec.affinity.podAffinity.{REQUIRED}[0].topologyKey",
    ),
    "an operator that there is not": (
        affinity("podAntiAffinity", term(), term(labelSelector=GREATER)),
        f"spec.affinity.podAntiAffinity.{REQUIRED}[1].labelSelector",
    ),
    "a namespace selector that says nothing": (
        affinity("podAffinity", term(namespaceSelector={"matchExpressions": [{"key": "a", "operator": "In"}]})),
        f"spec.affinity.podAffinity.{REQUIRED}[0].namespaceSelector",
    ),
    "a weight beyond 100": (
        affinity("podAffinity", {"weight": 101, "podAffinityTerm": term()}, rule=PREFERRED),
        f"spec.affinity.podAffinity.{PREFERRED}[0].weight",
    ),
    "no skew": (spread(maxSkew=0), "spec.topologySpreadConstraints[0].maxSkew"),
    "neither hard nor soft": (spread(whenUnsatisfiable=""), "spec.topologySpreadConstraints[0].whenUnsatisfiable"),
    "no domains": (spread(minDomains=0), "spec.topologySpreadConstraints[0].minDomains"),
    "domains for a wish": (
        spread(minDomains=2, whenUnsatisfiable="ScheduleAnyway"), "spec.topologySpreadConstraints[0].minDomains",
    ),
    "a policy that there is not": (
        spread(nodeTaintsPolicy="Maybe"), "spec.topologySpreadConstraints[0].nodeTaintsPolicy",
    ),
    "a spread without a key": (spread(topologyKey=""), "spec.topologySpreadConstraints[0].topologyKey"),
    "a selector that is no object": (
        spread(labelSelector="app=x"), "spec.topologySpreadConstraints[0].labelSelector",
    ),
}  # fmt: skip


@pytest.mark.parametrize(("details", "field"), WRONG.values(), ids=WRONG)
def test_unreadable_term_is_named_and_matches_no_pod(details: dict[str, Any], field: str) -> None:
    found = read_pod(**details)
    assert found.problem.startswith(f"{field}: ")
    assert found.pod_class.peers == NO_PEERS


def test_broken_spread_does_not_affect_affinity() -> None:
    found = read_pod(**affinity("podAntiAffinity", term()), **spread(maxSkew=-1))
    assert "maxSkew" in found.problem
    assert found.pod_class.peers.anti
    assert not found.pod_class.peers.spread


def test_labels_of_pods_and_namespaces_are_events() -> None:
    assert read_pod(labels={"b": "2", "a": "1"}).labels == (("a", "1"), ("b", "2"))

    def namespace(name: str, **labels: str) -> NamespaceObject:
        return decode_namespace(msgspec.json.encode({"metadata": {"name": name, "labels": labels}}))

    door = Intake(["phalanx"])
    assert NamespaceLabelled("n", (("team", "red"),)) in door.namespace(namespace("n", team="red"))
    assert door.namespace(namespace("n", team="red")) == []
    assert NamespaceLabelled("n", ()) in door.namespace_removed("n")
