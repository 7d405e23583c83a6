"""Placement constraints of pods, and refusal of unsupported ones."""

from __future__ import annotations

from typing import Any

import pytest

from phalanx.dialects.pods.decoder import PodDecoder
from phalanx.model.pod import PodClass
from phalanx.model.selectors import HostPort, NodeSelectorTerm, Requirement, Toleration
from tests.dialects.objects import container, pod, sidecar

REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"


def pod_class(**spec: Any) -> PodClass:
    return PodDecoder().template(pod(**spec)).pod_class


def required(*terms: dict[str, Any]) -> PodClass:
    return pod_class(affinity={"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": list(terms)}}})


def test_plain_pod_has_no_constraints() -> None:
    plain = pod_class()
    assert (plain.node_selector, plain.affinity, plain.tolerations, plain.host_ports) == ((), None, (), ())
    assert plain.best_effort


def test_node_selector_is_sorted() -> None:
    assert pod_class(nodeSelector={"b": "2", "a": "1"}).node_selector == (("a", "1"), ("b", "2"))
    assert pod_class(nodeSelector={"b": "2", "a": "1"}) == pod_class(nodeSelector={"a": "1", "b": "2"})


def test_required_affinity_keeps_expressions_and_fields() -> None:
    found = required(
        {
            "matchExpressions": [{"key": "zone", "operator": "In", "values": ["a", "b"]}],
            "matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n1"]}],
        },
        {"matchExpressions": [{"key": "gpu", "operator": "Exists"}]},
    )
    assert found.affinity == (
        NodeSelectorTerm((Requirement("zone", "In", ("a", "b")),), (Requirement("metadata.name", "In", ("n1",)),)),
        NodeSelectorTerm((Requirement("gpu", "Exists"),)),
    )


def test_absent_requirement_differs_from_one_that_no_node_meets() -> None:
    assert pod_class(affinity={"nodeAffinity": {PREFERRED: []}}).affinity is None
    assert required().affinity == ()


@pytest.mark.parametrize(
    "expression",
    [
        {"key": "a", "operator": "Near", "values": ["x"]},
        {"key": "a", "operator": "In"},
        {"key": "a", "operator": "Exists", "values": ["x"]},
        {"key": "a", "operator": "Gt", "values": ["many"]},
        {"key": "a", "operator": "Gt", "values": ["1", "2"]},
        {"key": "a", "operator": "Lt", "values": [str(2**63)]},
    ],
)
def test_bad_expression_invalidates_its_term_only(expression: dict[str, Any]) -> None:
    good = {"matchExpressions": [{"key": "b", "operator": "Lt", "values": ["-5"]}]}
    terms = required({"matchExpressions": [expression]}, good).affinity
    assert terms is not None
    assert terms[0].invalid.startswith("a: ")
    assert not terms[1].invalid


@pytest.mark.parametrize(
    "field",
    [
        {"key": "metadata.namespace", "operator": "In", "values": ["x"]},
        {"key": "metadata.name", "operator": "Exists"},
        {"key": "metadata.name", "operator": "In", "values": ["x", "y"]},
    ],
)
def test_match_fields_accept_only_the_name_and_one_value(field: dict[str, Any]) -> None:
    terms = required({"matchFields": [field]}).affinity
    assert terms is not None
    assert terms[0].invalid


def test_preferred_terms_keep_their_weight_and_weightless_ones_are_dropped() -> None:
    term = {"matchExpressions": [{"key": "ssd", "operator": "Exists"}]}
    entries = [{"weight": weight, "preference": term} for weight in (7, 0, -1, 10**30)]
    preferred = pod_class(affinity={"nodeAffinity": {PREFERRED: entries}}).preferred
    assert [(entry.weight, entry.term.expressions[0].key) for entry in preferred] == [
        (7, "ssd"),
        (100, "ssd"),
    ]


def test_tolerations_default_to_equal() -> None:
    tolerations = pod_class(tolerations=[{"key": "a", "value": "1"}, {"operator": "Exists"}]).tolerations
    assert tolerations == (Toleration("a", "Equal", "1", ""), Toleration("", "Exists", "", ""))


def with_ports(base: dict[str, Any], *ports: dict[str, Any]) -> dict[str, Any]:
    return {**base, "ports": list(ports)}


def test_host_ports_of_main_containers_and_sidecars_count() -> None:
    found = pod_class(
        initContainers=[
            with_ports(sidecar(), {"containerPort": 1, "hostPort": 9000, "protocol": "UDP"}),
            with_ports(container("init"), {"containerPort": 1, "hostPort": 9999}),
        ],
        containers=[
            with_ports(container(), {"containerPort": 80, "hostPort": 8080, "hostIP": "10.0.0.1"}),
            with_ports(container("two"), {"containerPort": 81}),
        ],
    )
    assert found.host_ports == (HostPort(8080, "TCP", "10.0.0.1"), HostPort(9000, "UDP", ""))


def test_with_host_network_every_port_is_a_host_port() -> None:
    found = pod_class(hostNetwork=True, containers=[with_ports(container(), {"containerPort": 80})])
    assert found.host_ports == (HostPort(80),)


def test_scoring_override_is_read_as_canonical_json() -> None:
    annotations = {
        "volcano.sh/resource-strategy-scoring-type": "MostAllocated",
        "volcano.sh/resource-strategy-weight": '{"nvidia.com/gpu": 5, "cpu": 1}',
    }
    assert pod_class(annotations=annotations).strategy == (
        '{"type":"MostAllocated","weight":{"cpu":1,"nvidia.com/gpu":5}}'
    )


@pytest.mark.parametrize(
    "annotation",
    [
        {"volcano.sh/resource-strategy-scoring-type": "Random"},
        {"volcano.sh/resource-strategy-weight": "cpu=1"},
        {"volcano.sh/resource-strategy-weight": '{"cpu": "a lot"}'},
    ],
)
def test_malformed_scoring_override_is_dropped_and_named(annotation: dict[str, str]) -> None:
    spec = PodDecoder().template(pod(annotations=annotation))
    assert spec.pod_class.strategy == ""
    assert next(iter(annotation)) in spec.strategy_faults[0].path


def test_required_node_features_are_read() -> None:
    rules = [{"action": "RestartAllContainers"}]
    assert pod_class(hostUsers=False, hostNetwork=True).features == ("UserNamespacesHostNetworkSupport",)
    assert pod_class(hostUsers=False).features == ()
    assert pod_class(hostNetwork=True).features == ()
    everywhere = pod_class(
        containers=[{**container(), "restartPolicyRules": rules}],
        initContainers=[{**container(), "name": "first", "restartPolicyRules": rules}],
    )
    assert everywhere.features == ("RestartAllContainersOnContainerExits",)
