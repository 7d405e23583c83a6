"""Events about pods that name a quota which does not apply to them."""

from __future__ import annotations

from phalanx.dialects.warnings import ObjectRef
from phalanx.model.account import AccountKey, Tree
from phalanx.model.events import NamespaceQuotasGranted
from phalanx.model.gang import GroupRef
from phalanx.status.warnings.ignored_quota_labels import ignored_quota_labels
from tests.scheduling.scenario import Scenario

SOURCE = GroupRef("scheduling.x-k8s.io", "v1alpha1", "PodGroup", "podgroups", "ns", "train", "u")


def cluster() -> Scenario:
    scenario = Scenario().node("n", cpu=9)
    for name, namespaces in (("koordinator-default-quota", ()), ("theirs", ("others",)), ("mine", ("ns",))):
        key = AccountKey(Tree.KOORDINATOR, name)
        scenario.account(key, label=f"ElasticQuota kube-system/{name}", namespaces=namespaces)
    return scenario


def told(scenario: Scenario) -> list[tuple[ObjectRef, str, str]]:
    notices = ignored_quota_labels(scenario.state, scenario.cycle().binds)
    return [(notice.about, notice.reason, notice.message) for notice in notices]


def test_pod_with_an_ignored_quota_label_gets_one_event_with_the_fix_when_bound() -> None:
    scenario = cluster().pod("p", quota="theirs", cpu=1).pod("q", quota="mine", cpu=1).pod("silent", cpu=1)
    assert told(scenario) == [
        (
            ObjectRef("v1", "Pod", "ns", "p", "p"),
            "QuotaLabelIgnored",
            "pod ns/p: label quota.scheduling.koordinator.sh/name names quota theirs, which is not for pods of "
            "namespace ns; ElasticQuota kube-system/mine is charged for it; remove the label, or have an "
            "administrator add the quota to annotation phalanx.dev/quotas of the namespace",
        )
    ]
    scenario.confirm()
    assert told(scenario) == []


def test_object_of_a_group_with_ignored_quota_labels_gets_one_event() -> None:
    scenario = cluster().job("train", 3, cpu=1, quota="nobodys").gang("train", 3, source=SOURCE)
    assert told(scenario) == [
        (
            ObjectRef("scheduling.x-k8s.io/v1alpha1", "PodGroup", "ns", "train", "u"),
            "QuotaLabelIgnored",
            "pod ns/train-0: label quota.scheduling.koordinator.sh/name names quota nobodys, which does not exist; "
            "ElasticQuota kube-system/mine is charged for it",
        )
    ]


def test_granted_quotas_and_labels_without_any_quota_object_cause_no_event() -> None:
    scenario = cluster().observe("grant", NamespaceQuotasGranted("ns", ("theirs",)))
    assert told(scenario.pod("p", quota="theirs", cpu=1)) == []
    assert told(Scenario().node("n").pod("p", quota="theirs", cpu=1)) == []
