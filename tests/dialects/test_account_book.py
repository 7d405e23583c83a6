"""Competing account objects, built-in accounts, and notices to users."""

from __future__ import annotations

from typing import Any

import msgspec

from phalanx.dialects.core import decode_namespace, decode_resource_quota
from phalanx.dialects.intake import Intake
from phalanx.dialects.warnings import ObjectWarning
from phalanx.model.account import Account, AccountKey, ResourceQuota, Tree
from phalanx.model.events import (
    AccountRemoved,
    AccountUpdated,
    ClusterEvent,
    NamespaceQuotasGranted,
    NamespaceWeighed,
    ResourceQuotaRemoved,
    ResourceQuotaUpdated,
)
from tests.dialects.objects import (
    EPOCH,
    KUBE_BATCH_LAST_QUEUE,
    KUBE_BATCH_QUEUE,
    QUOTA,
    QUOTA_TREE,
    SIGS_QUOTA,
    VOLCANO_QUEUE,
    queue,
    quota,
    quota_tree,
)

KO = "quota.scheduling.koordinator.sh/"
Q = AccountKey(Tree.QUEUE, "q")
TEAM_A = AccountKey(Tree.ELASTIC_QUOTA, "team-a")


def intake() -> Intake:
    return Intake(["phalanx"])


def the_account(events: list[ClusterEvent]) -> Account:
    (event,) = events
    assert isinstance(event, AccountUpdated)
    return event.account


def accounts(events: list[ClusterEvent]) -> dict[str, Account]:
    return {event.account.key.name: event.account for event in events if isinstance(event, AccountUpdated)}


def told(door: Intake) -> list[tuple[str, str, str]]:
    return [(notice.about.kind, notice.about.name, notice.reason) for notice in door.drain_warnings()]


def koordinator(name: str, namespaces: str = "", *, created: int = EPOCH, **labels: str) -> dict[str, Any]:
    return quota(
        name,
        namespace="koordinator-system",
        created=created,
        labels={KO + key.replace("_", "-"): value for key, value in labels.items()},
        annotations={KO + "namespaces": namespaces} if namespaces else {},
    )


# One object and its account


def test_account_is_created_changed_and_deleted_with_its_object() -> None:
    door = intake()
    assert the_account(door.account(VOLCANO_QUEUE, queue(weight=2))).weight == 2
    assert door.account(VOLCANO_QUEUE, queue(weight=2)) == []
    assert the_account(door.account(VOLCANO_QUEUE, queue(weight=3))).weight == 3
    assert door.account_removed(VOLCANO_QUEUE, "", "q") == [AccountRemoved(Q)]
    assert door.account_removed(VOLCANO_QUEUE, "", "q") == []


def test_status_change_is_recorded_without_an_event() -> None:
    door = intake()
    door.account(QUOTA, quota(min={"cpu": 1}))
    assert door.account(QUOTA, quota(min={"cpu": 1}, status={"used": {"cpu": "1"}})) == []
    found = door.account_object(TEAM_A)
    assert found is not None
    assert (found.ref.name, found.status) == ("q", {"used": {"cpu": "1"}})
    assert list(door.account_keys()) == [TEAM_A]
    assert door.account_object(Q) is None


def test_state_in_a_status_is_an_event() -> None:
    door = intake()
    door.account(VOLCANO_QUEUE, queue())
    assert the_account(door.account(VOLCANO_QUEUE, queue(status={"state": "Closed"}))).state == "Closed"


def test_kind_that_is_no_longer_served_deletes_its_accounts() -> None:
    door = intake()
    door.account(VOLCANO_QUEUE, queue("b"))
    door.account(VOLCANO_QUEUE, queue("a"))
    door.account(QUOTA, quota())
    gone = door.account_kind_removed(VOLCANO_QUEUE)
    assert gone == [AccountRemoved(AccountKey(Tree.QUEUE, name)) for name in ("a", "b")]


def test_undecodable_object_keeps_its_account_and_closes_it() -> None:
    door = intake()
    door.account(VOLCANO_QUEUE, queue(weight=5))
    broken = the_account(door.malformed_account(VOLCANO_QUEUE, "", "q", "u", "odd bytes"))
    assert broken.problem is not None
    assert (broken.weight, broken.problem.code) == (5, "InvalidQueue")
    assert "Queue q (scheduling.volcano.sh) cannot be read: odd bytes" in broken.problem.message
    assert the_account(door.account(VOLCANO_QUEUE, queue(weight=5))).problem is None


def test_object_that_was_never_decodable_gets_the_usual_account_of_its_kind() -> None:
    door = intake()
    assert the_account(door.malformed_account(VOLCANO_QUEUE, "", "q", "u", "odd")).key == Q
    assert the_account(door.malformed_account(SIGS_QUOTA, "team-a", "x", "u", "odd")).key == TEAM_A
    assert door.malformed_account(QUOTA_TREE, "kube-system", "tree", "u", "odd") == []
    assert [reason for _, _, reason in told(door)] == [
        "InvalidQueue",
        "InvalidElasticQuota",
        "InvalidElasticQuotaTree",
    ]


# Two objects, one place


def test_volcano_queue_takes_precedence_over_a_kube_batch_queue() -> None:
    door = intake()
    door.account(KUBE_BATCH_LAST_QUEUE, queue(weight=3))
    assert the_account(door.account(KUBE_BATCH_QUEUE, queue(weight=2))).weight == 2
    assert the_account(door.account(VOLCANO_QUEUE, queue(weight=1, created=EPOCH + 9))).weight == 1
    (first, second) = door.drain_warnings()
    assert {first.about.api_version, second.about.api_version} == {
        "scheduling.incubator.k8s.io/v1alpha1",
        "scheduling.sigs.dev/v1alpha2",
    }
    assert "queue q is declared by Queue q (scheduling.volcano.sh) already" in first.message
    assert the_account(door.account_removed(VOLCANO_QUEUE, "", "q")).weight == 2


def test_oldest_quota_of_a_namespace_applies_and_ties_use_the_name() -> None:
    door = intake()
    door.account(QUOTA, quota("b", created=EPOCH + 1, min={"cpu": 1}))
    assert the_account(door.account(SIGS_QUOTA, quota("c", min={"cpu": 2}))).deserved == (("cpu", 2000),)
    assert the_account(door.account(QUOTA, quota("a", min={"cpu": 3}))).deserved == (("cpu", 3000),)
    assert sorted(told(door)) == [
        ("ElasticQuota", "b", "DuplicateInNamespace"),
        ("ElasticQuota", "c", "DuplicateInNamespace"),
    ]
    door.account_removed(QUOTA, "team-a", "a")
    assert the_account(door.account_removed(SIGS_QUOTA, "team-a", "c")).deserved == (("cpu", 1000),)
    assert door.drain_warnings() == []


def test_older_of_two_trees_applies_as_a_whole() -> None:
    door = intake()
    door.account(QUOTA_TREE, quota_tree({"name": "old"}, "a", created=EPOCH))
    assert door.account(QUOTA_TREE, quota_tree({"name": "new"}, "b", created=EPOCH + 1)) == []
    assert told(door) == [("ElasticQuotaTree", "b", "DuplicateElasticQuotaTree")]
    events = door.account_removed(QUOTA_TREE, "kube-system", "a")
    assert accounts(events).keys() == {"new"}
    assert AccountRemoved(AccountKey(Tree.ACK, "old")) in events


def test_tree_in_kube_system_takes_precedence_over_an_older_one() -> None:
    door = intake()
    door.account(QUOTA_TREE, quota_tree({"name": "stray"}, namespace="team-a", created=EPOCH - 9))
    assert accounts(door.account(QUOTA_TREE, quota_tree({"name": "root"}))).keys() == {"root"}


def test_namespace_can_have_a_flat_quota_and_a_koordinator_quota() -> None:
    door = intake()
    door.account(QUOTA, quota())
    door.account(SIGS_QUOTA, quota(labels={KO + "is-parent": "false"}))
    assert {AccountKey(Tree.KOORDINATOR, "q"), TEAM_A} <= set(door.account_keys())
    assert door.drain_warnings() == []


def test_quota_that_becomes_a_koordinator_quota_leaves_its_namespace() -> None:
    door = intake()
    door.account(SIGS_QUOTA, quota())
    events = door.account(SIGS_QUOTA, quota(labels={KO + "is-parent": "false"}))
    assert AccountRemoved(TEAM_A) in events
    assert "q" in accounts(events)


# Koordinator


def test_builtin_quotas_exist_as_long_as_any_other_does() -> None:
    door = intake()
    events = door.account(SIGS_QUOTA, koordinator("team-a"))
    found = accounts(events)
    builtin = {"koordinator-root-quota", "koordinator-system-quota", "koordinator-default-quota"}
    assert found.keys() == {"team-a"} | builtin
    assert all(found[name].parent is None and found[name].source is None for name in builtin)
    assert found["koordinator-root-quota"].parental
    gone = door.account_removed(SIGS_QUOTA, "koordinator-system", "team-a")
    assert {event.key.name for event in gone if isinstance(event, AccountRemoved)} == found.keys()


def test_declared_builtin_quota_overrides_the_default() -> None:
    door = intake()
    events = door.account(SIGS_QUOTA, quota("koordinator-default-quota", "koordinator-system", max={"cpu": 1}))
    default = accounts(events)["koordinator-default-quota"]
    assert (default.capability, default.parent) == ((("cpu", 1000),), None)


def test_every_koordinator_tree_has_a_root() -> None:
    door = intake()
    door.account(SIGS_QUOTA, koordinator("main"))
    events = door.account(SIGS_QUOTA, koordinator("gpus", tree_id="gpu"))
    root = AccountKey(Tree.KOORDINATOR, "koordinator-root-quota", "gpu")
    assert {event.account.key for event in events if isinstance(event, AccountUpdated)} == {
        AccountKey(Tree.KOORDINATOR, "gpus", "gpu"),
        root,
    }
    assert AccountRemoved(root) in door.account_removed(SIGS_QUOTA, "koordinator-system", "gpus")


def test_quota_names_are_unique_over_all_trees() -> None:
    door = intake()
    door.account(SIGS_QUOTA, koordinator("team-a"))
    other = quota("team-a", namespace="other", created=EPOCH + 1, labels={KO + "tree-id": "gpu"})
    assert door.account(SIGS_QUOTA, other) == []
    assert told(door) == [("ElasticQuota", "team-a", "DuplicateQuotaName")]


def test_namespace_belongs_to_the_oldest_quota_that_names_it() -> None:
    door = intake()
    young = door.account(SIGS_QUOTA, koordinator("young", '["x", "y"]', created=EPOCH + 1))
    assert accounts(young)["young"].namespaces == ("x", "y")
    events = door.account(SIGS_QUOTA, koordinator("old", '["y", "z"]'))
    assert accounts(events)["old"].namespaces == ("y", "z")
    assert accounts(events)["young"].namespaces == ("x",)
    assert told(door) == [("ElasticQuota", "young", "NamespaceClaimedTwice")]
    events = door.account_removed(SIGS_QUOTA, "koordinator-system", "old")
    assert accounts(events)["young"].namespaces == ("x", "y")
    assert accounts(events)["young"].warnings == ()


# Notices


def notices(door: Intake) -> list[ObjectWarning]:
    return door.drain_warnings()


def test_each_fault_is_reported_once_on_its_object() -> None:
    door = intake()
    door.account(VOLCANO_QUEUE, queue(weight=0, capability={"cpu": "x"}))
    first = notices(door)
    assert [notice.reason for notice in first] == ["InvalidQueue", "InvalidWeight"]
    assert first[0].about.uid == "uid-q"
    door.account(VOLCANO_QUEUE, queue(weight=0, capability={"cpu": "x"}, reclaimable=False))
    assert notices(door) == []
    door.account(VOLCANO_QUEUE, queue(weight=0, capability={"cpu": "y"}))
    assert [notice.reason for notice in notices(door)] == ["InvalidQueue"]


def test_resolved_fault_is_not_reported() -> None:
    door = intake()
    door.account(QUOTA, quota("b", created=EPOCH + 1))
    door.account(QUOTA, quota("a"))
    door.account(VOLCANO_QUEUE, queue(weight=0))
    door.account_removed(QUOTA, "team-a", "a")
    door.account(VOLCANO_QUEUE, queue(weight=1))
    assert notices(door) == []


# Namespaces


def namespace(*, annotations: dict[str, str] | None = None, labels: dict[str, str] | None = None) -> Any:
    metadata = {"name": "team-a", "annotations": annotations or {}, "labels": labels or {}}
    return decode_namespace(msgspec.json.encode({"metadata": metadata}))


def resource_quota(name: str = "q", used: dict[str, Any] | None = None, **spec: Any) -> Any:
    document = {"metadata": {"name": name, "namespace": "team-a"}, "spec": spec, "status": {"used": used or {}}}
    return decode_resource_quota(msgspec.json.encode(document))


WEIGHT = "volcano.sh/namespace.weight"


def weights(events: list[ClusterEvent]) -> list[int]:
    return [event.weight for event in events if isinstance(event, NamespaceWeighed)]


def test_granted_quotas_of_a_namespace_are_one_event() -> None:
    door = intake()

    def granted(events: list[ClusterEvent]) -> list[tuple[str, ...]]:
        return [event.quotas for event in events if isinstance(event, NamespaceQuotasGranted)]

    both = namespace(annotations={"phalanx.dev/quotas": "vision, prod,,vision "})
    assert granted(door.namespace(both)) == [("prod", "vision")]
    assert granted(door.namespace(both)) == []
    assert granted(door.namespace(namespace(labels={"phalanx.dev/quotas": "prod"}))) == [()]
    door.namespace(both)
    assert granted(door.namespace_removed("team-a")) == [()]


def test_weight_of_a_namespace_is_its_own_or_the_largest_of_its_quotas() -> None:
    door = intake()
    assert weights(door.namespace(namespace())) == []
    assert weights(door.resource_quota(resource_quota("a", hard={WEIGHT: "3"}))) == [3]
    assert weights(door.resource_quota(resource_quota("b", hard={WEIGHT: 2}))) == []
    assert weights(door.resource_quota(resource_quota("b", hard={WEIGHT: 5}))) == [5]
    assert weights(door.namespace(namespace(labels={WEIGHT: "2"}))) == [2]
    assert weights(door.namespace(namespace(labels={WEIGHT: "2"}, annotations={WEIGHT: "7"}))) == [7]
    assert weights(door.namespace_removed("team-a")) == [5]
    assert weights(door.resource_quota_removed("team-a", "b")) == [3]
    assert weights(door.resource_quota_removed("team-a", "a")) == [1]


def test_invalid_weight_is_reported_once_and_ignored() -> None:
    door = intake()
    for _ in range(2):
        assert weights(door.namespace(namespace(annotations={WEIGHT: "heavy"}))) == []
    assert weights(door.resource_quota(resource_quota(hard={WEIGHT: "0"}))) == []
    assert told(door) == [
        ("Namespace", "team-a", "InvalidNamespaceWeight"),
        ("ResourceQuota", "q", "InvalidNamespaceWeight"),
    ]


def test_resource_quotas_are_read_with_their_usage() -> None:
    door = intake()
    hard = {"requests.cpu": "2", "limits.memory": "1Gi", "pods": 3, "requests.nvidia.com/gpu": "1", WEIGHT: 1}
    used = {"requests.cpu": "500m", "odd": "x"}
    quota = ResourceQuota(
        "team-a",
        "q",
        hard=(("limits.memory", 2**30), ("pods", 3), ("requests.cpu", 2000), ("requests.nvidia.com/gpu", 1)),
        used=(("requests.cpu", 500),),
    )
    assert door.resource_quota(resource_quota(hard=hard, used=used)) == [ResourceQuotaUpdated(quota)]
    assert door.resource_quota(resource_quota(hard=hard, used=used)) == []
    assert door.resource_quota_removed("team-a", "q") == [ResourceQuotaRemoved("team-a", "q")]
    assert door.resource_quota_removed("team-a", "q") == []


def test_resource_quota_with_scopes_is_marked_as_scoped() -> None:
    scopes: list[dict[str, Any]] = [{"scopes": ["BestEffort"]}, {"scopeSelector": {"matchExpressions": []}}]
    for spec in scopes:
        (event,) = intake().resource_quota(resource_quota(**spec))
        assert isinstance(event, ResourceQuotaUpdated)
        assert event.quota.scoped
