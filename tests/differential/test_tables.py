"""kube-scheduler's own cases: the oracle and we must say what they say."""

from __future__ import annotations

import pytest

from tests.differential.comparison import plugins_behind
from tests.differential.oracle.verdict import PLUGINS
from tests.differential.ours import Ours
from tests.differential.tables.notation import Case, table
from tests.differential.test_verdicts import NOT_YET

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
    if plugin in NOT_YET:
        pytest.skip("not built yet")
    verdicts = Ours.of(case.world).verdicts()["new"]
    says = {node: {plugin for reason in why for plugin in plugins_behind(reason)} for node, why in verdicts.items()}
    assert {node for node, plugins in says.items() if plugin in plugins} == case.out
