"""Inter-pod affinity and topology spread, in whole cycles: of single pods and of gangs."""

from __future__ import annotations

from collections import Counter

from phalanx.model.events import NamespaceLabelled
from phalanx.model.peers import Peers, PeerTerm, PodSelection, PreferredPeers, Spread
from phalanx.model.pod import PodClass
from phalanx.model.selectors import Requirement

from .scenario import NAMESPACE, Scenario

ZONE, HOST = "zone", "host"


def meaning(app: str) -> PodSelection:
    return PodSelection((Requirement("app", "In", (app,)),), (NAMESPACE,))


def near(app: str, key: str = ZONE) -> Peers:
    return Peers(affinity=(PeerTerm(meaning(app), key),))


def far(app: str, key: str = HOST) -> Peers:
    return Peers(anti=(PeerTerm(meaning(app), key),))


def even(app: str, key: str = ZONE, skew: int = 1, **fields: object) -> Peers:
    return Peers(spread=(Spread(meaning(app), key, skew, **fields),))  # type: ignore[arg-type]


def world(zones: str = "xyz", per_zone: int = 2, cpu: int = 4, policy: str | None = None) -> Scenario:
    """Nodes x1, x2, y1, ... of which each letter is a zone."""
    found = Scenario(policy)
    for zone in zones:
        for number in range(1, per_zone + 1):
            name = f"{zone}{number}"
            found.node(name, labels={ZONE: zone, HOST: name}, cpu=cpu)
    return found


def placements(world: Scenario) -> dict[str, str]:
    """Return the node of every bound pod."""
    return {name: world.where(name) for name in world.state.pods if world.where(name)}


def zones_of(world: Scenario, prefix: str) -> Counter[str]:
    return Counter(node[0] for name, node in placements(world).items() if name.startswith(prefix))


def pods(world: Scenario, prefix: str, count: int, app: str, peers: Peers, **fields: object) -> Scenario:
    return world.pods(prefix, count, pod_class=PodClass(peers=peers), more=labelled(app), **fields)


def labelled(app: str) -> dict[str, object]:
    return {"labels": (("app", app),)}


def test_single_pods_are_spread_evenly_over_zones() -> None:
    found = pods(world(), "web", 6, "web", even("web"), cpu=1).run()
    assert zones_of(found, "web") == {"x": 2, "y": 2, "z": 2}


def test_zone_without_room_blocks_a_spread_and_is_named() -> None:
    found = pods(world(), "web", 4, "web", even("web"), cpu=1)
    for node in ("z1", "z2"):
        found.pod(f"full-{node}", node=node, cpu=4)
    found.run()
    assert zones_of(found, "web") == {"x": 1, "y": 1}
    verdict = found.why_pod("web-3")
    assert "4 node(s) didn't match pod topology spread constraints, 2 Insufficient cpu" in verdict.message
    found.gone("full-z1").run()
    assert zones_of(found, "web") == {"x": 2, "y": 1, "z": 1}


def test_a_gang_spreads_as_a_whole_or_not_at_all() -> None:
    found = world(per_zone=1)
    found.pod("full", node="z1", cpu=4)
    found.gang("job", 5)
    pods(found, "job", 5, "job", even("job", skew=2), gang="job", cpu=1).run()
    assert not zones_of(found, "job")
    found.gone("full").run()
    assert sorted(zones_of(found, "job").values()) == [1, 2, 2]


def test_gang_with_mutual_anti_affinity_needs_one_node_per_member() -> None:
    found = world()
    found.gang("job", 7)
    pods(found, "job", 7, "job", far("job"), gang="job", cpu=1).run()
    assert not zones_of(found, "job")
    verdict = found.why("job")
    assert verdict.placeable == 6
    assert "6 node(s) didn't match pod anti-affinity rules" in verdict.message
    found.node("w1", labels={ZONE: "w", HOST: "w1"}, cpu=4).run()
    assert len(set(placements(found).values())) == 7


def test_first_pod_with_self_affinity_is_placed_anywhere_and_attracts_the_next_ones() -> None:
    found = world()
    found.gang("job", 5)
    pods(found, "job", 5, "job", near("job"), gang="job", cpu=1).run()
    assert sorted(zones_of(found, "job").values()) == [5]


def test_pod_waits_for_the_pods_of_its_required_affinity() -> None:
    found = world()
    pods(found, "web", 3, "web", near("db"), cpu=1).run()
    assert not placements(found)
    verdict = found.why_pod("web-0")
    assert "6 node(s) didn't match pod affinity rules" in verdict.message
    found.now += 1
    pods(found, "db", 1, "db", Peers(), cpu=1).run()
    assert len(set(zones_of(found, "web")) | set(zones_of(found, "db"))) == 1
    assert len(placements(found)) == 4


def test_gang_is_woken_by_the_pods_of_its_required_affinity() -> None:
    found = world()
    found.gang("job", 4)
    pods(found, "job", 4, "job", near("db"), gang="job", cpu=1).run()
    assert not placements(found)
    found.node("far", cpu=4).pod("db", node="far", more=labelled("db")).run()
    assert not zones_of(found, "job"), "a node without the label is in no domain"
    found.now += 1
    pods(found, "db-2", 1, "db", Peers(), cpu=4).run()
    assert sum(zones_of(found, "job").values()) == 4


def test_members_follow_members_of_their_own_gang() -> None:
    found = world(per_zone=1, cpu=8)
    found.gang("job", 4)
    pods(found, "job-w", 3, "worker", near("ps"), gang="job", role="worker", cpu=1)
    pods(found, "job-p", 1, "ps", Peers(), gang="job", role="ps", cpu=1).run()
    assert len(placements(found)) == 4
    assert len(zones_of(found, "job")) == 1


def test_anti_affinity_of_running_pods_applies_whichever_scheduler_placed_them() -> None:
    found = world(per_zone=1)
    for zone in "xy":
        guard = PodClass(peers=far("web", ZONE))
        found.pod(f"guard-{zone}", node=f"{zone}1", scheduler="default-scheduler", pod_class=guard)
    pods(found, "web", 1, "web", Peers(), cpu=1).run()
    assert placements(found)["web-0"] == "z1"
    found.becomes("guard-x", terminating=True)
    pods(found, "web-more", 1, "web", far("web"), cpu=1).run()
    assert "web-more-0" not in placements(found), "who is leaving keeps others away until it has left"
    found.gone("guard-x").run()
    assert placements(found)["web-more-0"] == "x1"


def test_terminating_pods_do_not_count_for_a_spread() -> None:
    found = world("xy", per_zone=1)
    found.pod("old", node="x1", terminating=True, more=labelled("web"))
    pods(found, "web", 1, "web", even("web"), cpu=1)
    found.pod("weight", node="y1", cpu=3).run()
    assert placements(found)["web-0"] == "x1"


def test_preferred_affinity_is_weighed_against_other_scores() -> None:
    meant = PeerTerm(meaning("db"), ZONE)
    for weight, zone in ((100, "y"), (-100, "x")):
        found = world("xy", per_zone=1).pod("db", node="y1", more=labelled("db"))
        wish = Peers(preferred=(PreferredPeers(meant, weight),))
        pods(found, "web", 2, "web", wish, cpu=1).run()
        assert zones_of(found, "web") == {zone: 2}


def test_preferred_affinity_of_running_pods_attracts_new_pods() -> None:
    wish = Peers(preferred=(PreferredPeers(PeerTerm(meaning("web"), ZONE), 50),))
    found = world("xy", per_zone=1).pod("fan", node="y1", pod_class=PodClass(peers=wish), cpu=1)
    pods(found, "web", 2, "web", Peers(), cpu=1).run()
    assert zones_of(found, "web") == {"y": 2}


def test_soft_spread_is_scored_but_blocks_no_pod() -> None:
    found = world("xyz", per_zone=1)
    wish = even("web", required=False)
    pods(found, "web", 12, "web", wish, cpu=1).run()
    assert zones_of(found, "web") == {"x": 4, "y": 4, "z": 4}
    found = world("xy", per_zone=1).pod("full", node="x1", cpu=4)
    pods(found, "web", 3, "web", wish, cpu=1).run()
    assert zones_of(found, "web") == {"y": 3}


def test_affinity_of_a_disabled_filter_blocks_no_pod() -> None:
    policy = """
    actions: allocate
    tiers: [{plugins: [{name: predicates, arguments:
      {predicate.PodAffinityEnable: false, predicate.PodTopologySpreadEnable: false}}, {name: binpack}]}]
    """
    found = world(per_zone=1, policy=policy)
    both = Peers(anti=far("web").anti, affinity=near("nobody").affinity, spread=even("web").spread)
    pods(found, "web", 3, "web", both, cpu=1).run()
    assert zones_of(found, "web") == {"x": 3}


def test_changed_labels_of_pods_nodes_and_namespaces_are_followed() -> None:
    found = world(per_zone=1)
    anywhere = PodSelection((Requirement("app", "In", ("db",)),), (), (Requirement("team", "Exists"),))
    for zone in "xyz":
        found.pod(f"db-{zone}", node=f"{zone}1", more=labelled("db"))
    away = Peers(anti=(PeerTerm(anywhere, ZONE),))
    pods(found, "web", 1, "web", away, cpu=1)
    found.observe("namespace", NamespaceLabelled(NAMESPACE, (("team", "red"),))).run()
    assert "web-0" not in placements(found)
    found.becomes("db-y", labels=(("app", "cache"),)).run()
    assert placements(found)["web-0"] == "y1"
    pods(found, "late", 1, "late", away, cpu=1).run()
    assert placements(found)["late-0"] == "y1"
    pods(found, "later", 1, "later", Peers(anti=(PeerTerm(anywhere, ZONE), PeerTerm(meaning("late"), ZONE))), cpu=1)
    found.run()
    assert "later-0" not in placements(found)
    found.node("x1", labels={HOST: "x1"}, cpu=4).run()
    assert placements(found)["later-0"] == "x1", "its node is in no zone now"


class TestWhatWouldHelp:
    def test_verdict_names_a_full_zone_and_the_effect_of_a_larger_skew(self) -> None:
        found = pods(world(), "web", 4, "web", even("web"), cpu=1)
        for node in ("z1", "z2"):
            found.pod(f"full-{node}", node=node, cpu=4)
        change = found.run().why_pod("web-3").change
        assert change == "free or add 1 cpu on the 2 eligible nodes, or set maxSkew to 2 for zone"
        found.becomes_all("full").gone("full-z1", "full-z2")
        found.run()
        assert not found.waiting()

    def test_verdict_names_a_closed_zone_that_blocks_a_spread(self) -> None:
        found = world()
        for node in ("z1", "z2"):
            found.node(node, labels={ZONE: "z", HOST: node}, cpu=4, unschedulable=True)
        change = pods(found, "web", 4, "web", even("web"), cpu=1).run().why_pod("web-3").change
        assert change == (
            "make room in zone z (0 matching pods; other domains have up to 1), or set maxSkew to 2"
            " (makes 4 nodes eligible)"
        )

    def test_verdict_asks_for_more_zones_where_min_domains_is_not_met(self) -> None:
        found = pods(world(), "web", 4, "web", even("web", min_domains=5), cpu=1).run()
        assert found.why_pod("web-3").change == (
            "add nodes in 2 more domains of zone, lower minDomains to 3, or set maxSkew to 2"
            " (makes 6 nodes eligible)"
        )

    def test_verdict_counts_nodes_without_the_topology_label(self) -> None:
        found = Scenario().nodes(2, cpu=4)
        change = pods(found, "web", 1, "web", even("web"), cpu=1).run().why_pod("web-0").change
        assert change == "label nodes with zone (makes 2 nodes eligible)"

    def test_verdict_names_the_pods_that_a_pod_waits_for(self) -> None:
        change = pods(world(), "web", 1, "web", near("db"), cpu=1).run().why_pod("web-0").change
        assert change == (
            "start pods with app=db on nodes with the label zone, or relax podAffinity (makes 6 nodes eligible)"
        )
        found = world(per_zone=1).pod("db", node="y1", more=labelled("db"), cpu=4)
        assert (
            pods(found, "web", 1, "web", near("db"), cpu=1)
            .run()
            .why_pod("web-0")
            .change.startswith("free or add 1 cpu on the 1 eligible node")
        )

    def test_verdict_names_the_anti_affinity_that_blocks_a_pod(self) -> None:
        found = world(per_zone=1)
        for zone in "xyz":
            found.pod(f"old-{zone}", node=f"{zone}1", more=labelled("old"))
        change = pods(found, "web", 1, "web", far("old", ZONE), cpu=1).run().why_pod("web-0").change
        assert change.startswith(
            "add a node in another zone, or relax podAntiAffinity: such pods are in zone x, y, z (makes 3 nodes"
        )
        for zone in "xyz":
            found.pod(f"guard-{zone}", node=f"{zone}1", pod_class=PodClass(peers=far("late", HOST)))
        change = pods(found, "late", 1, "late", Peers(), cpu=1).run().why_pod("late-0").change
        assert change.startswith(
            "wait until pods with anti-affinity to this pod terminate: such pods are in host x1, y1, z1"
        )


class TestWhereAGangGathers:
    def test_gang_with_self_affinity_is_placed_where_all_fit_not_where_the_first_scores_best(self) -> None:
        found = Scenario()
        found.node("x1", labels={ZONE: "x"}, cpu=3)
        for number in range(5):
            found.node(f"y{number}", labels={ZONE: "y"}, cpu="1200m")
        found.gang("job", 5)
        pods(found, "job", 5, "job", near("job"), gang="job", cpu=1).run()
        assert zones_of(found, "job") == {"y": 5}

    def test_leaders_are_placed_where_their_followers_fit_too(self) -> None:
        found = Scenario()
        found.node("x1", labels={ZONE: "x"}, cpu=8)
        found.pod("full", node="x1", cpu=6)
        for number in range(5):
            found.node(f"y{number}", labels={ZONE: "y"}, cpu="1300m")
        found.gang("job", 5)
        pods(found, "job-w", 4, "worker", near("ps"), gang="job", role="worker", cpu=1)
        pods(found, "job-p", 1, "ps", Peers(), gang="job", role="ps", cpu=1).run()
        assert zones_of(found, "job") == {"y": 5}

    def test_gang_with_self_affinity_waits_where_no_domain_fits_all_members(self) -> None:
        found = world(per_zone=1)
        found.gang("job", 5)
        pods(found, "job", 5, "job", near("job"), gang="job", cpu=1).run()
        assert found.placed("job") == []
        found.node("x2", labels={ZONE: "x", HOST: "x2"}, cpu=1).run()
        assert zones_of(found, "job") == {"x": 5}

    def test_gangs_of_a_gang_group_follow_each_other_whatever_their_names(self) -> None:
        for follower, leader in (("a", "b"), ("b", "a")):
            found = world(per_zone=1)
            for name in "ab":
                found.gang(name, 2, gang_group=["a", "b"])
            pods(found, f"{follower}-w", 2, "worker", near("ps"), gang=follower, cpu=1)
            pods(found, f"{leader}-p", 2, "ps", Peers(), gang=leader, cpu=1).run()
            assert len(found.placed()) == 4
