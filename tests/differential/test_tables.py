"""kube-scheduler's own cases: the oracle and our plugins must give their results."""

from __future__ import annotations

import pytest

from phalanx.scheduling.framework.policy import Policy
from phalanx.scheduling.policy.loader import load_policy
from tests.differential.comparison import plugins_behind
from tests.differential.oracle.verdict import PLUGINS
from tests.differential.ours import Ours
from tests.differential.tables.notation import Case, table

FILTERS = {
    "node_unschedulable": "NodeUnschedulable",
    "taints": "TaintToleration",
    "node_affinity": "NodeAffinity",
    "node_ports": "NodePorts",
    "resources_fit": "NodeResourcesFit",
    "topology_spread": "PodTopologySpread",
    "inter_pod_affinity": "InterPodAffinity",
    "volume_restrictions": "VolumeRestrictions",
    "read_write_once_pod": "VolumeRestrictions",
    "volume_zone": "VolumeZone",
    "volume_zone_sets": "VolumeZone",
    "volume_zone_binding": "VolumeZone",
}
CASES = [pytest.param(name, case, id=f"{name}-{case.name}") for name in FILTERS for case in table(name)]


@pytest.mark.parametrize(("name", "case"), CASES)
def test_the_oracle_agrees(name: str, case: Case) -> None:
    rule = PLUGINS[FILTERS[name]]
    out = {node["metadata"]["name"] for node in case.world.nodes if rule(case.world, case.pod, node)}
    assert out == case.out


@pytest.mark.parametrize(("name", "case"), CASES)
def test_we_agree(name: str, case: Case) -> None:
    plugin = FILTERS[name]
    verdicts = Ours.of(case.world).verdicts()["new"]
    says = {node: {plugin for reason in why for plugin in plugins_behind(reason)} for node, why in verdicts.items()}
    assert {node for node, plugins in says.items() if plugin in plugins} == case.out


SCORES = {
    "node_affinity_scores": "nodeaffinity",
    "taints_scores": "tainttoleration",
    "image_locality": "imagelocality",
    "topology_spread_scores": "podtopologyspread",
    "inter_pod_affinity_scores": "podaffinity",
}
WEIGHTS = (*SCORES.values(), "leastrequested", "balancedresource")
SCORED = [pytest.param(name, case, id=f"{name}-{case.name}") for name in SCORES for case in table(name)]


def only(weight: str) -> Policy:
    """A policy that scores by one rule alone."""
    arguments = "".join(f"      {each}.weight: {int(each == weight)}\n" for each in WEIGHTS)
    return load_policy(
        "actions: allocate\ntiers:\n- plugins:\n  - name: predicates\n  - name: nodeorder\n    arguments:\n"
        + arguments
    )


@pytest.mark.parametrize(("name", "case"), SCORED)
def test_scores_equal_those_of_kube_scheduler(name: str, case: Case) -> None:
    """Up to a constant, as equal amounts for all nodes decide nothing, and up to rounding."""
    ours = Ours.of(case.world, only(SCORES[name])).scores("new")
    assert case.scores is not None
    assert ours.keys() == case.scores.keys()
    best, highest = max(ours.values()), max(case.scores.values())
    distances = {node: (best - ours[node], highest - score) for node, score in case.scores.items()}
    assert all(abs(mine - theirs) <= 1 for mine, theirs in distances.values()), distances
