"""`quotas`: limits from objects in the cluster, whatever the policy."""

from __future__ import annotations

import pytest

from phalanx.model.account import AccountKey, Tree
from phalanx.model.events import NamespaceQuotasGranted
from phalanx.model.gang import Problem
from phalanx.model.pod import PodClass
from phalanx.scheduling.plugins.queues.quotas import Quotas

from .desk import Desk, policy, queue
from .scenario import Scenario, limits

BARE = policy()
ALL = AccountKey(Tree.ELASTIC_QUOTA, "")


def elastic(namespace: str) -> AccountKey:
    return AccountKey(Tree.ELASTIC_QUOTA, namespace)


def koordinator(name: str, tree: str = "") -> AccountKey:
    return AccountKey(Tree.KOORDINATOR, name, tree)


def world(cpu: int = 100) -> Scenario:
    return Scenario(BARE).node("n", cpu=cpu, memory=1000, pods=10_000)


class TestQueues:
    def test_capability_applies_under_every_policy(self) -> None:
        scenario = world().queue("a", capability={"cpu": 2}).pods("a", 3, queue="a", cpu=1).run()
        assert Desk(scenario).limit("quotas", queue("a")) == ("capability", {"cpu": 2000})
        assert len(scenario.placed()) == 2
        verdict = scenario.why_pod(scenario.waiting()[0])
        assert verdict.message == "queue a: 2 cpu in use, capability 2; 1 more would exceed it"
        assert verdict.change == "free 1 cpu charged to queue a, or raise its capability to 3"

    def test_capability_of_a_queue_that_had_none_applies_once_it_is_declared(self) -> None:
        scenario = world().queue("a").pods("first", 3, queue="a", cpu=1).run()
        assert len(scenario.placed()) == 3
        scenario.queue("a", capability={"cpu": 4}).pods("second", 3, queue="a", cpu=1).run()
        assert len(scenario.placed()) == 4
        scenario.queue("a").run()
        assert len(scenario.placed()) == 6

    def test_limits_of_accounts_without_any_are_read_once(self, monkeypatch: pytest.MonkeyPatch) -> None:
        scenario, read = world().queue("a").pods("first", 1, queue="a", cpu=1).run(), list[object]()
        monkeypatch.setattr(Quotas, "limit", lambda plugin, session, account: read.append(account))
        scenario.pods("second", 1, queue="a", cpu=1).run()
        assert len(scenario.placed()) == 2
        assert not read

    @pytest.mark.parametrize(("nodes", "helps"), [(5, True), (1, False)])
    def test_verdict_proposes_a_larger_capability_although_the_queue_requests_exceed_the_cluster(
        self, nodes: int, helps: bool
    ) -> None:
        """A queue deserves no more than its capability, and the deserved amount rises with it as long as there is
        room.
        """
        scenario = Scenario().queue("a", capability={"cpu": 16}).queue("b")
        for number in range(nodes):
            scenario.node(f"n{number}", cpu=20)
        scenario.job("runs", 2, queue="a", cpu=8).job("other", 4, queue="b", cpu=1).settle()
        scenario.job("never", 200, queue="a", cpu=4).job("asks", 2, queue="a", cpu=4).settle()
        verdict = scenario.why("asks")
        assert verdict.message.endswith("queue a: 16 cpu in use, capability 16; 8 more would exceed it")
        assert ("raise its capability to 24" in verdict.change) == helps

    def test_capability_of_zero_is_not_unlimited(self) -> None:
        scenario = world().queue("none", capability={"cpu": 0}).queue("any")
        desk = Desk(scenario)
        assert desk.limits("quotas", queue("none")) == {"cpu": 0}
        assert desk.limits("quotas", queue("any")) is None

    def test_verdict_of_a_gang_larger_than_the_cluster_names_the_cluster_and_its_full_queue(self) -> None:
        scenario = world(16).queue("a", capability={"cpu": 10}).job("first", 4, queue="a", cpu=1).run()
        verdict = scenario.job("big", 18, queue="a", cpu=1).run().why("big")
        assert (verdict.code, verdict.unschedulable) == ("NotEnoughResources", False)
        assert verdict.message == (
            "gang ns/big needs 18 cpu; all nodes together offer 16; also, queue a: 4 cpu in use, capability "
            "10; 18 more would exceed it"
        )
        assert verdict.change == "request at most 10 cpu"
        assert scenario.node("more", cpu=2).run().why("big").code == "QuotaExceeded"

    def test_gang_larger_than_the_cluster_in_a_resource_outside_of_its_quota_names_both(self) -> None:
        scenario = world().queue("a", capability={"cpu": 2}).job("big", 3, queue="a", cpu=1, memory=400).run()
        verdict = scenario.why("big")
        assert verdict.message.startswith("gang ns/big needs 1200 memory; all nodes together offer 1000; also")
        assert verdict.change == "add nodes that offer at least 200 more memory"

    def test_resource_that_no_node_offers_is_not_larger_than_the_nodes(self) -> None:
        """Devices allocated to claims are charged to accounts only."""
        claims = PodClass(beside=(("nvidia.com/gpu", 4),))
        scenario = world().queue("a", capability={"gpu": 8})
        scenario.job("big", 3, queue="a", pod_class=claims, cpu=1).run()
        assert scenario.why("big").code == "QuotaExceeded"


class TestElasticQuotas:
    def test_max_limits_a_namespace_and_the_sum_of_all_min_limits_all(self) -> None:
        scenario = world().elastic_quota("a", {"cpu": 4, "gpu": 0}, {"cpu": 6}).elastic_quota("b", {"cpu": 6}, {})
        desk = Desk(scenario)
        assert desk.limit("quotas", elastic("a")) == ("max", {"cpu": 6000})
        assert desk.limit("quotas", elastic("b")) is None
        assert desk.limit("quotas", ALL) == ("sum of all min", {"cpu": 10_000, "gpu": 0})

    def test_resource_in_no_min_is_not_limited_by_the_sum(self) -> None:
        scenario = world().elastic_quota("a", {}, {"cpu": 6})
        assert Desk(scenario).limit("quotas", ALL) is None

    def test_broken_quota_counts_neither_for_nor_against_other_quotas(self) -> None:
        scenario = world().elastic_quota("a", {"cpu": 4}, {}).elastic_quota("b", {"cpu": 6}, {})
        scenario.within("b").pods("b", 3, cpu=1, node="n")
        scenario.account(elastic("b"), deserved={"cpu": 6}, problem=Problem("X", "x"))
        assert Desk(scenario).limits("quotas", ALL) == {"cpu": 7000}  # 4, and 3 that b uses
        scenario.within("a").pods("a", 5, cpu=1).run()
        assert len(scenario.placed("a-")) == 4


class TestKoordinator:
    def runtime(self, scenario: Scenario, *names: str) -> list[int | None]:
        """Return whole CPUs of the runtime quota."""
        desk = Desk(scenario)
        found = [desk.limit("quotas", koordinator(name)) for name in names]
        assert all(ceiling is None or ceiling[0] == "runtime quota" for ceiling in found)
        return [ceiling[1]["cpu"] // 1000 if ceiling is not None else None for ceiling in found]

    def quota(self, scenario: Scenario, name: str, least: int, most: int, **fields: object) -> Scenario:
        stated = {"deserved": {"cpu": least}, "capability": {"cpu": most}, "parent": koordinator(ROOT)}
        return scenario.account(koordinator(name), label=f"quota {name}", **(stated | fields))

    def tree(self, cpu: int = 100) -> Scenario:
        return world(cpu).account(koordinator(ROOT), parental=True)

    def test_koordinator_runtime_quota_matches_the_worked_example(self) -> None:
        """100 GPUs; (weight, request, min): (40, 5, 10), (60, 20, 15), (50, 40, 20), (80, 70, 15)."""
        scenario = self.tree().node("n", gpu=100, pods=10_000)
        rows = {"a": (40, 5, 10), "b": (60, 20, 15), "c": (50, 40, 20), "d": (80, 70, 15)}
        for name, (weight, request, least) in rows.items():
            stated = {"deserved": {"gpu": least}, "capability": {"gpu": 100}, "weights": limits({"gpu": weight})}
            scenario.account(koordinator(name), parent=koordinator(ROOT), **stated)
            scenario.pods(name, request, quota=name, gpu=1)
        desk = Desk(scenario)
        runtimes = [desk.limits("quotas", koordinator(name)) for name in rows]
        assert runtimes == [{"gpu": 5}, {"gpu": 20}, {"gpu": 35}, {"gpu": 40}]
        scenario.run()
        assert [len(scenario.placed(f"{name}-")) for name in rows] == [5, 20, 35, 40]

    def test_koordinator_minima_above_the_total_shrink(self) -> None:
        scenario = self.tree()
        for name, least in {"a": 90, "b": 60}.items():
            self.quota(scenario, name, least, 200).pods(name, least, quota=name, cpu=1)
        assert self.runtime(scenario, "a", "b") == [60, 40]

    def test_koordinator_quota_that_does_not_scale_does_not_shrink(self) -> None:
        scenario = self.tree()
        for name, least in {"a": 90, "b": 60}.items():
            self.quota(scenario, name, least, 200, scales=False).pods(name, least, quota=name, cpu=1)
        assert self.runtime(scenario, "a", "b") == [90, 60]

    def test_pods_outside_of_the_tree_are_not_shared(self) -> None:
        scenario = self.tree(20)
        for name in ("koordinator-system-quota", "koordinator-default-quota"):
            scenario.account(koordinator(name)).pods(name, 3, quota=name, cpu=1, node="n")
        for name in ("a", "b"):
            self.quota(scenario, name, 0, 20).pods(name, 20, quota=name, cpu=1)
        assert self.runtime(scenario, "a", "b") == [7, 7]

    @pytest.mark.parametrize("cpu", [5, 20])
    def test_verdict_names_a_quota_at_its_max_whether_or_not_nodes_have_room(self, cpu: int) -> None:
        """More nodes would change nothing, so the verdict does not name them."""
        scenario = self.quota(self.tree(cpu), "full", 5, 5).pods("runs", 5, quota="full", cpu=1).run()
        scenario.pod("waits", quota="full", cpu=1).run()
        told = scenario.why_pod("waits")
        assert told.message == "quota full: 5 cpu in use, max 5; 1 more would exceed it"
        assert told.change == "free 1 cpu charged to quota full, or raise its max to 6"

    def test_children_share_the_runtime_quota_of_their_parent(self) -> None:
        scenario = self.tree()
        self.quota(scenario, "eng", 40, 100, parental=True)
        self.quota(scenario, "sci", 60, 60).pods("sci", 60, quota="sci", cpu=1)
        self.quota(scenario, "dev", 30, 80, parent=koordinator("eng")).pods("dev", 80, quota="dev", cpu=1)
        self.quota(scenario, "prod", 10, 80, parent=koordinator("eng")).pods("prod", 20, quota="prod", cpu=1)
        assert self.runtime(scenario, "dev", "prod", "sci") == [30, 10, 60]
        # The parent's own part applies as well: a child with earlier usage leaves less to its siblings.
        assert Desk(scenario).limit("quotas", koordinator("eng")) == ("runtime quota", {"cpu": 40_000})

    def test_quota_tree_can_have_a_total_of_its_own(self) -> None:
        scenario = world().account(koordinator(ROOT, "gpus"), parental=True)
        top = {"parent": koordinator(ROOT, "gpus"), "total": {"cpu": 10}, "parental": True}
        scenario.account(koordinator("top", "gpus"), capability={"cpu": 100}, **top)
        for name in ("a", "b"):
            fields = {"capability": {"cpu": 100}, "parent": koordinator("top", "gpus")}
            scenario.account(koordinator(name, "gpus"), **fields).pods(name, 20, quota=name, cpu=1)
        desk = Desk(scenario)
        assert [desk.limits("quotas", koordinator(name, "gpus")) for name in ("a", "b")] == [{"cpu": 5000}] * 2

    def test_total_of_another_tree_is_subtracted_from_the_default_tree(self) -> None:
        """Koordinator's test: 300 CPUs, a tree of 200 leaves 100, one of 250 leaves 50."""
        scenario = self.tree(300).account(koordinator(ROOT, "zone-a"), parental=True)
        self.quota(scenario, "rest", 0, 300).pods("rest", 300, quota="rest", cpu=1)
        for total, left in ((200, 100), (250, 50)):
            fields = {"parent": koordinator(ROOT, "zone-a"), "parental": True, "total": {"cpu": total}}
            scenario.account(koordinator("zone", "zone-a"), **fields)
            assert self.runtime(scenario, "rest") == [left]
        scenario.no_account(koordinator("zone", "zone-a"))
        assert self.runtime(scenario, "rest") == [300]

    def test_broken_koordinator_quota_does_not_reduce_other_quotas(self) -> None:
        scenario = self.tree()
        self.quota(scenario, "a", 0, 100).pods("a", 100, quota="a", cpu=1)
        self.quota(scenario, "b", 50, 100, problem=Problem("X", "x")).pods("b", 100, quota="b", cpu=1)
        self.quota(scenario, "c", 50, 100, parent=koordinator("b")).pods("c", 100, quota="c", cpu=1)
        assert self.runtime(scenario, "a", "b", "c") == [100, None, None]

    def test_only_resources_named_in_max_are_limited(self) -> None:
        scenario = self.tree().account(koordinator("a"), deserved={"memory": 5}, parent=koordinator(ROOT))
        self.quota(scenario, "b", 0, 40).pods("b", 100, quota="b", cpu=1, memory=1)
        desk = Desk(scenario)
        assert desk.limit("quotas", koordinator("a")) is None
        assert desk.limits("quotas", koordinator("b")) == {"cpu": 40_000}

    def test_non_preemptible_pods_are_limited_to_the_min(self) -> None:
        scenario = self.tree()
        self.quota(scenario, "a", 2, 10).pods("firm", 4, quota="a", cpu=1, firm=True).run()
        assert len(scenario.placed("firm-")) == 2
        scenario.pods("loose", 4, quota="a", cpu=1).run()
        assert len(scenario.placed("loose-")) == 4


ROOT = "koordinator-root-quota"


class TestTrees:
    def test_every_node_of_an_elastic_quota_tree_enforces_its_max(self) -> None:
        def node(name: str) -> AccountKey:
            return AccountKey(Tree.ACK, name)

        scenario = world().account(node("root"), capability={"cpu": 3})
        scenario.account(node("a"), parent=node("root"), capability={"cpu": 2}, namespaces=("a",))
        scenario.account(node("b"), parent=node("root"), namespaces=("b",))
        scenario.within("a").pods("a", 4, cpu=1, created=1).within("b").pods("b", 4, cpu=1).run()
        assert (len(scenario.placed("a-")), len(scenario.placed("b-"))) == (2, 1)
        desk = Desk(scenario)
        assert desk.limit("quotas", node("root")) == ("max", {"cpu": 3000})
        assert desk.limit("quotas", node("b")) is None


class TestMissingNodes:
    def test_pod_bound_to_a_missing_node_is_charged_to_no_account(self) -> None:
        """Any creator of pods can write any node's name into them."""
        scenario = world().elastic_quota("a", {"cpu": 2}, {"cpu": 4}).elastic_quota("b", {"cpu": 2}, {"cpu": 4})
        scenario.within("a").pod("ghost", node="nowhere", scheduler="other", cpu=1000)
        scenario.within("b").pod("p", cpu=1).run()
        assert "p" in scenario.placed()
        # If the node is added, its account is charged for the pod.
        scenario.node("nowhere", cpu=2000).run()
        assert scenario.state.ledger.accounts[elastic("a")].used["cpu"] == 1_000_000


class TestQuotaOfAnotherNamespace:
    """Charges of pods that name a Koordinator quota themselves."""

    def scenario(self) -> Scenario:
        scenario = world().account(koordinator("koordinator-root-quota"))
        for name, namespaces in (("a", ("team-a",)), ("b", ("team-b",)), ("open", ()), ("eng", ("team-e",))):
            parental = name == "eng"
            scenario.account(koordinator(name), capability={"cpu": 2}, namespaces=namespaces, parental=parental)
        scenario.account(koordinator("dev"), parent=koordinator("eng"), capability={"cpu": 2})
        for name in ("koordinator-system-quota", "koordinator-default-quota"):
            scenario.account(koordinator(name))
        return scenario

    @pytest.mark.parametrize(
        ("namespace", "names", "charged"),
        [
            ("team-a", "", "a"),
            ("team-a", "a", "a"),
            ("team-a", "nobody-knows-it", "a"),
            ("team-a", "koordinator-system-quota", "a"),
            ("team-a", "koordinator-default-quota", "a"),
            ("team-a", "koordinator-root-quota", "a"),
            ("team-a", "b", "a"),
            ("team-a", "open", "a"),
            ("team-e", "dev", "dev"),
            ("team-a", "dev", "a"),
            ("free", "open", "open"),
            ("free", "b", "koordinator-default-quota"),
            ("free", "dev", "koordinator-default-quota"),
            ("free", "koordinator-system-quota", "koordinator-default-quota"),
            ("kube-system", "koordinator-system-quota", "koordinator-system-quota"),
        ],
    )
    def test_pod_can_name_only_a_quota_for_its_namespace(self, namespace: str, names: str, charged: str) -> None:
        scenario = self.scenario().within(namespace).pod("p", quota=names, cpu=1, node="n")
        accounts = scenario.state.ledger.accounts
        used = {key.name for key, account in accounts.items() if key.tree is Tree.KOORDINATOR and account.used}
        leaves = {name for name in used if name not in ("eng", "koordinator-root-quota")}
        assert leaves == {charged}

    @pytest.mark.parametrize(
        ("namespace", "names", "charged"),
        [("team-a", "b", "b"), ("team-a", "open", "a"), ("free", "dev", "dev"), ("free", "b", "b")],
    )
    def test_administrator_can_grant_a_namespace_the_quotas_of_another(
        self, namespace: str, names: str, charged: str
    ) -> None:
        scenario = self.scenario().within(namespace).pod("p", quota=names, cpu=1, node="n")
        scenario.observe("grant", NamespaceQuotasGranted(namespace, ("b", "dev")))
        accounts = scenario.state.ledger.accounts
        assert accounts[koordinator(charged)].used["cpu"] == 1000
        scenario.observe("grant", NamespaceQuotasGranted(namespace, ()))
        assert not scenario.state.ledger.accounts[koordinator("b")].used.get("cpu")
