"""Scarce GPUs: pods that request GPUs are packed by GPU, and other pods avoid nodes with GPUs and spread."""

from __future__ import annotations

import pytest

from phalanx.model.peers import Peers, PodSelection, Spread
from phalanx.model.pod import PodClass
from phalanx.model.selectors import NodeSelectorTerm, PreferredTerm, Requirement
from phalanx.scheduling.framework.errors import PolicyError
from phalanx.scheduling.policy.loader import DEFAULT_POLICY, load_policy

from .scenario import NAMESPACE, Scenario


def with_arguments(*arguments: str) -> str:
    """Return the default policy with arguments of `nodeorder`."""
    return DEFAULT_POLICY + "    arguments:\n" + "".join(f"      {argument}\n" for argument in arguments)


SPREADS = with_arguments("gpupacking.weight: 0")


def cluster(policy: str | None = None) -> Scenario:
    scenario = Scenario(policy)
    for number in (1, 2):
        scenario.node(f"cpu-{number}", cpu=16).node(f"gpu-{number}", cpu=64, gpu=8)
    return scenario


def test_pods_with_gpus_share_a_node() -> None:
    scenario = cluster().pods("train", 4, cpu=4, gpu=2).run()
    assert list(scenario.spread("train").values()) == [4]


def test_pod_with_gpus_prefers_the_smallest_sufficient_rest() -> None:
    scenario = Scenario().node("large", cpu=64, gpu=8).node("small", cpu=16, gpu=2).node("middle", cpu=32, gpu=4)
    scenario.pod("two", cpu=2, gpu=2).run()
    assert scenario.where("two") == "small"
    scenario.pod("three", cpu=2, gpu=3).run()
    assert scenario.where("three") == "middle"


def test_large_gang_fits_after_small_pods_because_they_are_packed() -> None:
    scenario = cluster().pods("small", 6, cpu=1, gpu=1).run()
    scenario.job("big", 1, cpu=8, gpu=8).run()
    assert len(scenario.placed("big")) == 1


def test_node_without_idle_cpu_for_its_idle_gpus_is_no_better_rest() -> None:
    """Both nodes have 4 idle GPUs afterwards; the busy CPUs of `full` would strand them."""
    scenario = Scenario().node("full", cpu=16, gpu=6).node("open", cpu=16, gpu=6)
    scenario.pod("full-0", cpu=12, gpu=1, node="full").pod("open-0", cpu=1, gpu=1, node="open").run()
    scenario.pod("next", cpu=1, gpu=1).run()
    assert scenario.where("next") == "open"


def test_pods_without_gpus_avoid_nodes_with_gpus_and_spread() -> None:
    scenario = cluster().pods("web", 8, cpu=2).run()
    assert scenario.spread("web") == {"cpu-1": 4, "cpu-2": 4}


def test_pods_without_gpus_use_nodes_with_gpus_where_nothing_else_is_free() -> None:
    scenario = cluster().pods("web", 20, cpu=2).run()
    assert len(scenario.placed("web")) == 20


def test_pods_without_gpus_use_nodes_with_few_gpus_first() -> None:
    scenario = Scenario().node("eight", cpu=64, gpu=8).node("two", cpu=16, gpu=2).pod("web", cpu=1).run()
    assert scenario.where("web") == "two"


def test_pods_with_gpus_spread_where_packing_is_switched_off() -> None:
    scenario = cluster(SPREADS).pods("train", 2, cpu=4, gpu=2).run()
    assert sorted(scenario.spread("train").values()) == [1, 1]


def test_pods_without_gpus_use_all_nodes_where_packing_is_switched_off() -> None:
    scenario = cluster(SPREADS).pods("web", 6, cpu=2).run()
    assert {"gpu-1", "gpu-2"} <= set(scenario.spread("web"))


def test_weight_of_packing_is_not_negative() -> None:
    with pytest.raises(PolicyError, match=r"gpupacking\.weight"):
        load_policy(with_arguments("gpupacking.weight: -1"))


def test_cluster_without_gpus_spreads_all_pods() -> None:
    scenario = Scenario().nodes(3, cpu=8).pods("web", 6, cpu=1).run()
    assert sorted(scenario.spread("web").values()) == [2, 2, 2]


@pytest.mark.parametrize(
    ("resource", "offered", "requested"),
    [
        ("nvidia.com/gpu", 8, 1),
        ("amd.com/gpu", 8, 1),
        ("nvidia.com/mig-1g.5gb", 56, 3),
        ("volcano.sh/vgpu-number", 80, 1),
        ("koordinator.sh/gpu-core", 800, 50),
        ("koordinator.sh/gpu-memory-ratio", 800, 50),
        ("volcano.sh/gpu-memory", 8 * 16_000, 4_000),
        ("gpu.intel.com/i915", 4, 1),
    ],
)
def test_gpus_of_all_vendors_and_in_parts_are_packed_and_avoided(
    resource: str, offered: int, requested: int
) -> None:
    scenario = Scenario().node("cpu-1", cpu=16)
    for number in (1, 2):
        scenario.node(f"gpu-{number}", cpu=64, **{resource: offered})  # type: ignore[arg-type]
    scenario.pods("train", 3, cpu=1, **{resource: requested}).pods("web", 4, cpu=2).run()
    assert scenario.spread("web") == {"cpu-1": 4}
    assert list(scenario.spread("train").values()) == [3]


def test_node_that_arrives_later_changes_no_order_of_the_others() -> None:
    late = Scenario().node("a", cpu=32, gpu=4).node("b", cpu=8, gpu=1).pod("web", cpu=1).pod("one", cpu=1, gpu=1)
    late.run().node("giant", cpu=128, gpu=16)
    late.pods("web-later", 3, cpu=1).pods("two", 2, cpu=1, gpu=1).run()
    again = Scenario().node("a", cpu=32, gpu=4).node("b", cpu=8, gpu=1).node("giant", cpu=128, gpu=16)
    again.pod("web", cpu=1, node=late.where("web")).pod("one", cpu=1, gpu=1, node=late.where("one"))
    again.pods("web-later", 3, cpu=1).pods("two", 2, cpu=1, gpu=1).run()
    assert late.spread() == again.spread()


def test_first_node_with_gpus_is_avoided_by_pods_that_waited_before_it_came() -> None:
    scenario = Scenario().node("full", cpu=2).pods("web", 3, cpu=2).run()
    scenario.node("gpu", cpu=64, gpu=8).node("open", cpu=4).run()
    assert scenario.spread("web") == {"full": 1, "open": 2}


def test_preferred_node_affinity_counts_more_than_avoided_gpus() -> None:
    fast = PreferredTerm(1, NodeSelectorTerm((Requirement("disk", "In", ("fast",)),)))
    scenario = Scenario().node("cpu", cpu=16).node("gpu", cpu=16, gpu=8, labels={"disk": "fast"})
    scenario.pod("web", cpu=1, pod_class=PodClass(preferred=(fast,))).run()
    assert scenario.where("web") == "gpu"


def test_replicas_with_gpus_that_prefer_to_spread_are_spread() -> None:
    """Replicas of a Service or workload have this preference by default, as in kube-scheduler."""
    scenario = Scenario()
    for number in (1, 2, 3):
        name = f"gpu-{number}"
        scenario.node(name, cpu=64, gpu=8, labels={"kubernetes.io/hostname": name})
    serving = PodSelection((Requirement("app", "In", ("serving",)),), (NAMESPACE,))
    peers = Peers(spread=(Spread(serving, "kubernetes.io/hostname", 1, required=False),))
    more = {"labels": (("app", "serving"),)}
    scenario.pods("serving", 3, cpu=1, gpu=1, pod_class=PodClass(peers=peers), more=more).run()
    assert scenario.spread("serving") == {"gpu-1": 1, "gpu-2": 1, "gpu-3": 1}


def test_most_allocated_pods_without_gpus_avoid_nodes_with_gpus_too() -> None:
    policy = with_arguments("leastrequested.weight: 0", "mostrequested.weight: 1")
    scenario = cluster(policy).pods("web", 4, cpu=2).run()
    assert scenario.spread("web") == {"cpu-1": 4}


def test_node_whose_device_plugin_reports_its_gpus_late_is_avoided_from_then_on() -> None:
    scenario = Scenario().node("a", cpu=16).node("b", cpu=16).pods("web", 2, cpu=1).run()
    assert scenario.spread("web") == {"a": 1, "b": 1}
    scenario.node("a", cpu=16, gpu=8).pods("more", 4, cpu=1).run()
    assert scenario.spread("more") == {"b": 4}
    scenario.node("a", cpu=16).pods("last", 3, cpu=1).run()
    assert scenario.spread("last") == {"a": 3}
