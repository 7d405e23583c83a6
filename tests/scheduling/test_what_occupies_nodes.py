"""Occupancy of nodes: pods that use room, and events that release it."""

from __future__ import annotations

import pytest

from phalanx.model.pod import PodClass, PodPhase
from phalanx.model.selectors import HostPort, NodeSelectorTerm, PreferredTerm, Requirement, Taint, Toleration

from .scenario import Scenario

OTHER = "default-scheduler"


class TestPodsOfOtherSchedulers:
    def test_pods_of_other_schedulers_occupy_their_nodes(self) -> None:
        world = (
            Scenario().node("n1", gpu=2).pod("theirs", gpu=2, node="n1", scheduler=OTHER).pod("ours", gpu=1).run()
        )
        assert world.waiting() == ["ours"]
        world.finishes("theirs").run()
        assert world.where("ours") == "n1"

    def test_pending_pods_of_other_schedulers_are_not_placed(self) -> None:
        world = Scenario().node("n1", gpu=2).pod("theirs", gpu=1, scheduler=OTHER).run()
        assert world.placed() == []

    def test_nominated_pod_of_another_scheduler_reserves_its_room(self) -> None:
        world = Scenario().node("n1", gpu=2)
        world.pod("theirs", gpu=2, scheduler=OTHER, nominated="n1").pod("ours", gpu=1).run()
        assert world.waiting() == ["ours", "theirs"]
        world.becomes("theirs", nominated_node="").run()
        assert world.where("ours") == "n1"

    def test_nominated_pod_that_fails_releases_its_room(self) -> None:
        world = Scenario().node("n1", gpu=2)
        world.pod("theirs", gpu=2, scheduler=OTHER, nominated="n1").pod("ours", gpu=2).run()
        world.becomes("theirs", phase=PodPhase.FAILED).run()
        assert world.where("ours") == "n1"

    def test_nominated_pod_that_is_bound_is_counted_once(self) -> None:
        world = (
            Scenario().node("n1", gpu=2).pod("theirs", gpu=1, scheduler=OTHER, nominated="n1").pod("ours", gpu=1)
        )
        world.becomes("theirs", node="n1", phase=PodPhase.RUNNING).run()
        assert world.where("ours") == "n1"


class TestEndingPods:
    def test_terminating_pod_holds_its_room_until_it_is_gone(self) -> None:
        world = Scenario().node("n1", gpu=1).pod("old", gpu=1, node="n1", terminating=True).pod("new", gpu=1).run()
        assert world.waiting() == ["new"]
        world.gone("old").run()
        assert world.where("new") == "n1"

    @pytest.mark.parametrize("phase", [PodPhase.SUCCEEDED, PodPhase.FAILED])
    def test_finished_pod_holds_no_room(self, phase: PodPhase) -> None:
        world = Scenario().node("n1", gpu=1).pod("old", gpu=1, node="n1", phase=phase).pod("new", gpu=1).run()
        assert world.where("new") == "n1"

    def test_pod_deleted_during_its_binding_releases_its_room(self) -> None:
        world = Scenario().node("n1", gpu=1).pod("a", gpu=1).pod("b", gpu=1).work()
        assert world.placed() == ["a"]
        world.gone("a").run()
        assert world.placed() == ["b"]


class TestUnusualPods:
    def test_unreadable_pod_occupies_its_node(self) -> None:
        world = (
            Scenario()
            .node("n1", gpu=2)
            .pod("odd", gpu=2, node="n1", problem="spec.x is 'y'")
            .pod("new", gpu=1)
            .run()
        )
        assert world.waiting() == ["new"]

    def test_unreadable_pod_is_not_placed(self) -> None:
        world = Scenario().node("n1", gpu=2).pods("twin", 2, gpu=1)
        world.pod("odd", gpu=1, problem="spec.x is 'y'").run()
        assert world.waiting() == ["odd"]
        assert world.why_pod("odd").message == "pod ns/odd cannot be scheduled: spec.x is 'y'"
        world.becomes("odd", problem="").run()
        assert world.why_pod("odd").message == "0/1 nodes are available: 1 Insufficient nvidia.com/gpu."

    def test_pod_with_an_unsupported_constraint_is_refused_by_name(self) -> None:
        field = "spec.topologySpreadConstraints"
        world = Scenario().nodes(2).pod("odd", pod_class=PodClass(unsupported=(field,)), cpu=1).run()
        verdict = world.why_pod("odd")
        assert verdict.code == "UnsupportedField"
        assert verdict.message == f"the pod cannot be scheduled: {field}: not supported by this version of Phalanx"
        assert verdict.change == "remove these fields from the pod, or use another scheduler"

    def test_verdict_of_a_gang_names_its_member_with_an_unsupported_constraint(self) -> None:
        world = Scenario().nodes(2).gang("job", 2).pod("job-0", gang="job", cpu=1)
        world.pod("job-1", gang="job", pod_class=PodClass(unsupported=("spec.resourceClaims",)), cpu=1).run()
        assert world.placed() == []
        assert world.why("job").code == "UnsupportedField"
        assert "pod ns/job-1 cannot be scheduled: spec.resourceClaims" in world.why("job").message

    def test_gated_pod_is_not_placed_until_its_gates_are_removed(self) -> None:
        world = Scenario().node("n1").pod("p", cpu=1, gated=True).run()
        assert world.placed() == []
        world.becomes("p", gated=False).run()
        assert world.where("p") == "n1"

    def test_resized_pod_uses_its_present_amounts(self) -> None:
        world = Scenario().node("n1", cpu=4).pod("grown", cpu=1, node="n1").becomes("grown", usage=(("cpu", 4000),))
        world.pod("new", cpu=1).run()
        assert world.waiting() == ["new"]
        world.becomes("grown", usage=(("cpu", 3000),)).run()
        assert world.where("new") == "n1"

    def test_pod_that_changes_its_gang_during_its_binding_counts_in_the_new_one(self) -> None:
        world = Scenario().node("n1").job("a", 2, cpu=1).work()
        world.gang("b", 1).becomes("a-0", gang="b").run()
        assert world.state.gangs[world.state.pods["a-0"].gang.key].key.name == "b"  # type: ignore[union-attr]
        assert world.state.pods["a-0"].mark is None, "the mark speaks of another gang's plan"


class TestZeroRequests:
    def test_single_best_effort_pods_are_placed_last(self) -> None:
        world = Scenario().node("n1", pods=2).pod("nothing", created=1).pod("something", cpu=1, created=2)
        world.pod("more", cpu=1, created=3).run()
        assert world.waiting() == ["nothing"]
        assert world.why_pod("nothing").message == "0/1 nodes are available: 1 Too many pods."
        assert world.why_pod("nothing").change == "free or add 1 pod slot"

    def test_best_effort_members_count_in_a_gang_like_any_other(self) -> None:
        world = (
            Scenario().node("n1", gpu=1).gang("job", 2).pod("idle", gang="job").pod("busy", gang="job", gpu=1).run()
        )
        assert world.placed() == ["busy", "idle"]

    def test_without_backfill_verdict_says_that_no_action_places_best_effort_pods(self) -> None:
        policy = "actions: allocate\ntiers: [{plugins: [{name: predicates}]}]"
        world = Scenario(policy).node("n1").pod("nothing").run()
        assert world.why_pod("nothing").message == "no action of the policy (allocate) places pod ns/nothing"

    def test_without_allocate_verdict_says_that_no_action_places_gangs(self) -> None:
        policy = "actions: backfill\ntiers: [{plugins: [{name: predicates}]}]"
        world = Scenario(policy).node("n1").job("job", 2, cpu=1).run()
        assert world.why("job").code == "NotConsidered"


class TestNodeChanges:
    def test_pods_on_an_unknown_node_count_when_it_is_added(self) -> None:
        world = Scenario().pod("early", gpu=2, node="n1").node("n1", gpu=2).pod("new", gpu=1).run()
        assert world.waiting() == ["new"]

    def test_node_that_returns_has_its_pods(self) -> None:
        world = Scenario().node("n1", gpu=2).pod("old", gpu=2, node="n1").run()
        world.no_node("n1").run()
        world.node("n1", gpu=2).pod("new", gpu=1).run()
        assert world.waiting() == ["new"]

    def test_deletion_of_a_node_during_bindings_to_it_is_handled(self) -> None:
        world = Scenario().node("n1", gpu=2).job("job", 2, gpu=1).work()
        world.no_node("n1")
        world.state.pods.binding_failed("job-0")
        world.state.pods.binding_failed("job-1")
        world.run()
        assert world.placed() == []
        assert world.why("job").message == (
            "0 of the 2 required pods of gang ns/job fit; 0/0 nodes are available for pod ns/job-0: "
            "the cluster has no nodes."
        )
        assert world.why("job").change == "add a node"
        world.node("n2", gpu=2).run()
        assert world.spread() == {"n2": 2}

    def test_node_with_more_pods_than_it_offers_accepts_no_pod(self) -> None:
        """A device plugin withdrew its devices: idle is negative."""
        world = Scenario().node("n1", gpu=4).pods("old", 4, gpu=1, node="n1").run()
        world.node("n1", gpu=0).pod("gpu", gpu=1).pod("cpu", cpu=1).run()
        assert world.waiting() == ["gpu"]
        world.node("n1", gpu=5).run()
        assert world.where("gpu") == "n1"

    def test_new_resource_can_appear_at_any_time(self) -> None:
        world = Scenario().node("n1").pod("p", cpu=1, **{"example.com/fpga": 1}).run()  # type: ignore[arg-type]
        assert (
            world.why_pod("p").change
            == "add a node that offers 1 example.com/fpga (0 eligible nodes offer example.com/fpga)"
        )
        world.node("n2", **{"example.com/fpga": 2}).run()  # type: ignore[arg-type]
        assert world.where("p") == "n2"


class TestEligibility:
    def test_cordoned_node_accepts_no_pod_until_it_is_uncordoned(self) -> None:
        world = Scenario().node("n1", unschedulable=True).pod("p", cpu=1).run()
        assert world.why_pod("p").message == "0/1 nodes are available: 1 node(s) were unschedulable."
        assert world.why_pod("p").change == "uncordon nodes (makes 1 node eligible)"
        world.node("n1").run()
        assert world.where("p") == "n1"

    def test_removed_taint_wakes_the_pods_that_it_excluded(self) -> None:
        world = Scenario().node("n1", taints=[Taint("gpu", "yes")]).pod("p", cpu=1).run()
        assert world.why_pod("p").message == "0/1 nodes are available: 1 node(s) had untolerated taint {gpu: yes}."
        assert world.why_pod("p").change == "tolerate the taint {gpu: yes} or remove it (makes 1 node eligible)"
        world.node("n1").run()
        assert world.where("p") == "n1"

    def test_verdict_does_not_propose_tolerating_one_of_two_taints(self) -> None:
        world = Scenario().node("n1", taints=[Taint("a"), Taint("b")]).pod("p", cpu=1).run()
        assert world.why_pod("p").message == "0/1 nodes are available: 1 node(s) had untolerated taint {a: }."
        assert (
            world.why_pod("p").change
            == "add a node that matches the selectors, affinity and tolerations of the pod"
        )

    def test_added_label_wakes_the_pods_that_select_it(self) -> None:
        cls = PodClass(node_selector=(("disk", "ssd"),))
        world = Scenario().node("n1").pod("p", pod_class=cls, cpu=1).run()
        assert world.why_pod("p").code == "NoEligibleNode"
        assert world.why_pod("p").message == (
            "0/1 nodes are available: 1 node(s) didn't match Pod's node affinity/selector."
        )
        world.node("n1", labels={"disk": "ssd"}).run()
        assert world.where("p") == "n1"

    def test_preferred_affinity_outweighs_an_emptier_node(self) -> None:
        wish = PreferredTerm(100, NodeSelectorTerm((Requirement("disk", "In", ("ssd",)),)))
        world = Scenario().nodes(3, cpu=8).node("ssd", cpu=8, labels={"disk": "ssd"}).pod("load", cpu=4, node="ssd")
        world.pod("p", pod_class=PodClass(preferred=(wish,)), cpu=1).run()
        assert world.where("p") == "ssd"

    def test_soft_taint_is_avoided_while_there_is_another_node(self) -> None:
        world = Scenario().node("n1", cpu=2, taints=[Taint("soft", effect="PreferNoSchedule")]).node("n2", cpu=2)
        world.pod("load", cpu=1, node="n2").pods("p", 2, cpu=1, created=5).run()
        assert (world.where("p-0"), world.where("p-1")) == ("n2", "n1")

    def test_one_host_port_fits_once_per_node(self) -> None:
        world = Scenario().nodes(2).job("web", 3, pod_class=PodClass(host_ports=(HostPort(80),)), cpu=1).run()
        assert world.placed() == []
        assert world.why("web").placeable == 2
        assert world.why("web").message.endswith("2 node(s) didn't have free ports for the requested pod ports.")
        world.node("n3").run()
        assert world.spread() == {"n1": 1, "n2": 1, "n3": 1}

    def test_pod_that_tolerates_everything_uses_cordoned_and_tainted_nodes(self) -> None:
        world = Scenario().node("n1", unschedulable=True, taints=[Taint("any", effect="NoExecute")])
        world.pod("p", pod_class=PodClass(tolerations=(Toleration(operator="Exists"),)), cpu=1).run()
        assert world.where("p") == "n1"

    def test_reasons_of_a_verdict_are_counted_per_node(self) -> None:
        world = (
            Scenario()
            .nodes(3, "small", cpu=1)
            .node("tainted", taints=[Taint("k", "v")])
            .node("off", unschedulable=True)
        )
        world.pod("p", cpu=2, memory="1Ti").run()
        verdict = world.why_pod("p")
        assert verdict.message == (
            "0/5 nodes are available: 3 Insufficient cpu, 3 Insufficient memory, 1 node(s) had untolerated taint "
            "{k: v}, 1 node(s) were unschedulable."
        )
        assert [(part.reason, part.count) for part in verdict.nodes][:2] == [
            ("Insufficient cpu", 3),
            ("Insufficient memory", 3),
        ]

    def test_verdict_of_a_request_larger_than_any_node_names_the_fitting_amount(self) -> None:
        world = Scenario().nodes(2, cpu=4).pod("p", cpu=5).run()
        assert world.why_pod("p").change == (
            "request at most 4 cpu per pod, or add a node that offers 5 cpu "
            "(the largest eligible node offers 4 cpu)"
        )
