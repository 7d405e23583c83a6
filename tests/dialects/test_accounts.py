"""Accounts of queues and quotas: the effect of each field, and reports of invalid ones."""

from __future__ import annotations

from collections.abc import Container
from typing import Any

import pytest

from phalanx.dialects.kinds import ServedKind
from phalanx.model.account import Account, AccountKey, AccountState, Budget, EvictionRate, SelfProtection, Tree
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
    read_account,
)

GIB = 2**30
KO = "quota.scheduling.koordinator.sh/"


def the_account(kind: ServedKind, document: dict[str, Any]) -> Account:
    (account,) = read_account(kind, document).accounts
    return account


def volcano(**details: Any) -> Account:
    return the_account(VOLCANO_QUEUE, queue(**details))


def codes(account: Account) -> list[str]:
    return [warning.code for warning in account.warnings]


# Volcano's queues


def test_queue_without_fields_has_defaults() -> None:
    account = volcano(name="research")
    assert account.key == AccountKey(Tree.QUEUE, "research")
    assert account.parent == AccountKey(Tree.QUEUE, "root")
    assert (account.weight, account.priority, account.reclaimable, account.fifo) == (1, 0, True, False)
    assert (account.guarantee, account.deserved, account.capability) == ((), None, ())
    assert (account.state, account.hierarchy, account.budget) == (AccountState.OPEN, (), None)
    assert (account.label, account.created) == ("Queue research", EPOCH)
    assert (account.problem, account.warnings) == (None, ())


def test_every_field_of_a_queue_is_read() -> None:
    account = volcano(
        weight=4,
        capability={"cpu": "16", "nvidia.com/gpu": 8},
        deserved={"cpu": "8500m", "memory": "4Gi"},
        guarantee={"resource": {"cpu": 2}},
        reclaimable=False,
        parent="research",
        priority=7,
        dequeueStrategy="fifo",
    )
    assert account.parent == AccountKey(Tree.QUEUE, "research")
    assert account.capability == (("cpu", 16000), ("nvidia.com/gpu", 8))
    assert account.deserved == (("cpu", 8500), ("memory", 4 * GIB))
    assert account.guarantee == (("cpu", 2000),)
    assert (account.weight, account.priority, account.reclaimable, account.fifo) == (4, 7, False, True)


def test_root_queue_has_no_parent() -> None:
    assert volcano(name="root").parent is None


def test_capability_of_zero_is_a_limit_and_an_absent_one_is_none() -> None:
    assert volcano(capability={"cpu": 0}).capability == (("cpu", 0),)
    assert volcano(deserved={}).deserved is None
    assert volcano(deserved={"cpu": 0}).deserved == (("cpu", 0),)


def test_amounts_above_the_capability_are_cut_and_reported() -> None:
    account = volcano(
        capability={"cpu": 4, "memory": "1Gi"},
        deserved={"cpu": 6, "memory": "1Gi", "pods": 3},
        guarantee={"resource": {"cpu": 5}},
    )
    assert account.deserved == (("cpu", 4000), ("memory", GIB), ("pods", 3))
    assert account.guarantee == (("cpu", 4000),)
    assert account.problem is None
    assert sorted(codes(account)) == ["DeservedExceedsCapability", "GuaranteeExceedsCapability"]
    assert any(
        "Queue q (scheduling.volcano.sh): spec.deserved.cpu is 6" in each.message for each in account.warnings
    )


@pytest.mark.parametrize(
    ("spec", "field"),
    [
        ({"capability": {"cpu": "many"}}, 'spec.capability.cpu is "many"'),
        ({"capability": {"cpu": -1}}, "spec.capability.cpu is -1"),
        ({"deserved": [1]}, "spec.deserved is [1]"),
        ({"guarantee": "all"}, 'spec.guarantee is "all"'),
        ({"guarantee": {"resource": {"memory": "1Zi"}}}, 'spec.guarantee.resource.memory is "1Zi"'),
        ({"parent": 3}, "spec.parent is 3"),
    ],
    ids=str,
)
def test_unreadable_amount_is_a_problem_of_the_queue(spec: dict[str, Any], field: str) -> None:
    problem = volcano(**spec).problem
    assert problem is not None
    assert problem.code == "InvalidQueue"
    assert f"Queue q (scheduling.volcano.sh): {field}" in problem.message


@pytest.mark.parametrize(
    ("spec", "code"),
    [
        ({"weight": 0}, "InvalidWeight"),
        ({"weight": "heavy"}, "InvalidWeight"),
        ({"priority": -1}, "InvalidPriority"),
        ({"reclaimable": "yes"}, "InvalidReclaimable"),
        ({"dequeueStrategy": "lifo"}, "InvalidDequeueStrategy"),
        ({"state": "Ajar"}, "InvalidState"),
        ({"capability": {"requests.cpu": 3}}, "UnknownResource"),
    ],
    ids=str,
)
def test_invalid_field_with_a_default_gets_it_and_is_reported(spec: dict[str, Any], code: str) -> None:
    account = volcano(**spec)
    assert account.problem is None
    assert codes(account) == [code]
    assert (account.weight, account.priority, account.reclaimable, account.fifo) == (1, 0, True, False)
    assert account.state is AccountState.OPEN


@pytest.mark.parametrize("state", AccountState)
def test_state_is_read_from_the_status_unless_the_spec_has_one(state: AccountState) -> None:
    assert volcano(status={"state": state.value}).state is state
    assert volcano(state="Closed", status={"state": state.value}).state is AccountState.CLOSED


def test_queue_closed_with_its_parent_is_closed_until_its_status_changes() -> None:
    annotations = {"volcano.sh/closed-by-parent": "true"}
    assert volcano(annotations=annotations).state is AccountState.CLOSED
    assert volcano(annotations=annotations, status={"state": "Open"}).state is AccountState.OPEN


def test_legacy_hierarchy_annotations_are_read() -> None:
    keys = ("volcano.sh/hierarchy", "volcano.sh/hierarchy-weights")

    def read(*texts: str) -> Account:
        return volcano(annotations=dict(zip(keys, texts, strict=True)))

    assert read("root/sci/dev", "100/50/25").hierarchy == (("root", 100), ("sci", 50), ("dev", 25))
    for texts in (("root/sci", "1"), ("root//x", "1/2/3"), ("root/sci", "1/0"), ("root/sci", "1/-2"), ("root", "")):
        assert (read(*texts).hierarchy, codes(read(*texts))) == ((), ["InvalidHierarchy"])


# kube-batch's queues


@pytest.mark.parametrize("kind", [KUBE_BATCH_QUEUE, KUBE_BATCH_LAST_QUEUE], ids=lambda kind: kind.group)
def test_kube_batch_queue_has_a_weight_and_a_capability(kind: ServedKind) -> None:
    account = the_account(kind, queue(weight=3, capability={"cpu": 2}, deserved={"cpu": 1}, parent="x"))
    assert (account.key, account.parent) == (AccountKey(Tree.QUEUE, "q"), AccountKey(Tree.QUEUE, "root"))
    assert (account.weight, account.capability, account.deserved) == (3, (("cpu", 2000),), None)


# Authority over other namespaces


def claimed(kind: ServedKind, document: dict[str, Any], trusted: Container[str] | None) -> list[tuple[str, ...]]:
    return [account.namespaces for account in read_account(kind, document, trusted).accounts if account.namespaces]


def test_quota_claims_other_namespaces_only_in_administrator_namespaces() -> None:
    document = quota(annotations={KO + "namespaces": '["team-a", "team-b"]'})
    assert claimed(SIGS_QUOTA, document, None) == [("team-a", "team-b")]
    assert claimed(SIGS_QUOTA, document, {"team-a"}) == [("team-a", "team-b")]
    assert claimed(SIGS_QUOTA, document, {"kube-system"}) == [("team-a",)]
    (account,) = read_account(SIGS_QUOTA, document, {"kube-system"}).accounts
    assert [warning.code for warning in account.warnings] == ["NamespaceNotItsOwn"]
    assert "it claims namespace 'team-b', which is not its own" in account.warnings[0].message


def test_administrators_object_takes_precedence_although_it_is_younger() -> None:
    document = quota(annotations={KO + "namespaces": "[]"})
    assert read_account(SIGS_QUOTA, document, set()).rank > read_account(SIGS_QUOTA, document, {"team-a"}).rank


# Flat elastic quotas


@pytest.mark.parametrize("kind", [QUOTA, SIGS_QUOTA], ids=lambda kind: kind.group)
def test_min_is_the_deserved_amount_and_max_the_limit(kind: ServedKind) -> None:
    account = the_account(kind, quota(min={"cpu": 2}, max={"cpu": "2500m", "nvidia.com/gpu": 1}))
    assert account.key == AccountKey(Tree.ELASTIC_QUOTA, "team-a")
    assert (account.deserved, account.capability) == ((("cpu", 2000),), (("cpu", 2500), ("nvidia.com/gpu", 1)))
    assert (account.namespaces, account.label) == (("team-a",), "ElasticQuota team-a/q")


def test_quota_without_min_deserves_nothing_and_without_max_is_unlimited() -> None:
    account = the_account(QUOTA, quota())
    assert (account.deserved, account.capability) == ((), ())


def test_flat_min_above_the_max_is_cut_to_it() -> None:
    account = the_account(QUOTA, quota(min={"cpu": 5}, max={"cpu": 3}))
    assert (account.deserved, account.capability) == ((("cpu", 3000),), (("cpu", 3000),))
    assert codes(account) == ["MinExceedsMax"]
    assert "ElasticQuota team-a/q (scheduling.x-k8s.io): spec.min.cpu is 5" in account.warnings[0].message


def test_unreadable_amount_is_a_problem_of_the_quota() -> None:
    problem = the_account(QUOTA, quota(max={"cpu": "-3"})).problem
    assert problem is not None
    assert (problem.code, "spec.max.cpu" in problem.message) == ("InvalidElasticQuota", True)


# Koordinator's quotas


def koordinator(**details: Any) -> Account:
    details.setdefault("labels", {KO + "is-parent": "false"})
    return the_account(SIGS_QUOTA, quota(**details))


def test_quota_is_koordinators_by_label_or_by_namespace() -> None:
    assert koordinator().key == AccountKey(Tree.KOORDINATOR, "q")
    assert koordinator(labels={}, annotations={KO + "namespaces": "[]"}).key.tree is Tree.KOORDINATOR
    assert koordinator(labels={}, namespace="koordinator-system").key.tree is Tree.KOORDINATOR
    assert koordinator(labels={"team": "a"}).key.tree is Tree.ELASTIC_QUOTA
    other = the_account(QUOTA, quota(labels={KO + "is-parent": "true"}))
    assert other.key.tree is Tree.ELASTIC_QUOTA


def test_every_field_of_a_koordinator_quota_is_read() -> None:
    account = koordinator(
        min={"cpu": 4},
        max={"cpu": 8},
        labels={
            KO + "parent": "org",
            KO + "is-parent": "true",
            KO + "tree-id": "gpu",
            KO + "allow-lent-resource": "false",
        },
        annotations={KO + "shared-weight": '{"cpu": "3", "memory": 5}', KO + "namespaces": '["b", "a", "b"]'},
    )
    assert account.key == AccountKey(Tree.KOORDINATOR, "q", "gpu")
    assert account.parent == AccountKey(Tree.KOORDINATOR, "org", "gpu")
    assert (account.parental, account.lends) == (True, False)
    assert (account.deserved, account.capability) == ((("cpu", 4000),), (("cpu", 8000),))
    assert account.weights == (("cpu", 3000), ("memory", 5))
    assert account.namespaces == ("a", "b")


def test_koordinator_quota_without_fields_is_below_the_root_lends_and_accepts_pods() -> None:
    account = koordinator()
    assert account.parent == AccountKey(Tree.KOORDINATOR, "koordinator-root-quota")
    assert (account.parental, account.lends, account.weights, account.total) == (False, True, (), None)


def test_builtin_quotas_have_no_parent() -> None:
    for name in ("koordinator-root-quota", "koordinator-system-quota", "koordinator-default-quota"):
        assert koordinator(name=name).parent is None
    assert koordinator(name="koordinator-root-quota").parental


def test_only_the_root_of_a_tree_states_the_total_of_the_tree() -> None:
    annotations = {
        KO + "total-resource": '{"cpu": 10, "memory": "1Gi"}',
        KO + "unschedulable-resource": '{"cpu": 3}',
    }
    root = koordinator(labels={KO + "is-root": "true"}, annotations=annotations)
    assert root.total == (("cpu", 7000), ("memory", GIB))
    assert koordinator(annotations=annotations).total is None


def test_shared_weight_of_zero_is_no_weight() -> None:
    assert koordinator(annotations={KO + "shared-weight": '{"cpu": "0"}'}).weights == ()


@pytest.mark.parametrize(
    ("key", "text"),
    [
        ("shared-weight", "3"),
        ("shared-weight", '{"cpu": "x"}'),
        ("shared-weight", '{"cpu": -1}'),
        ("namespaces", "a"),
    ],
)
def test_unreadable_annotation_is_reported_and_ignored(key: str, text: str) -> None:
    account = koordinator(annotations={KO + key: text})
    assert (account.problem, account.weights, account.namespaces) == (None, (), ())
    assert codes(account) == ["InvalidAnnotation"]
    assert KO + key in account.warnings[0].message


# ACK's tree


def node(name: str, *children: dict[str, Any], **fields: Any) -> dict[str, Any]:
    return {"name": name, "children": list(children), **fields}


def tree(root: Any, **details: Any) -> dict[str, Account]:
    return {account.key.name: account for account in read_account(QUOTA_TREE, quota_tree(root, **details)).accounts}


def test_every_node_of_the_tree_is_an_account() -> None:
    found = tree(
        node(
            "root",
            node("a", node("a1", namespaces=["x", "y"], min={"cpu": 1}), min={"cpu": 2}),
            node("b", namespaces=["z"], max={"cpu": 3}),
            min={"cpu": 4},
            max={"cpu": 4},
        )
    )
    assert list(found) == ["root", "a", "a1", "b"]
    assert [account.parent and account.parent.name for account in found.values()] == [None, "root", "a", "root"]
    assert [account.parental for account in found.values()] == [True, True, False, False]
    assert found["a1"].namespaces == ("x", "y")
    assert (found["b"].deserved, found["b"].capability) == ((), (("cpu", 3000),))
    assert all(account.problem is None and not account.warnings for account in found.values())


def test_duplicate_name_breaks_only_the_later_branch() -> None:
    found = tree(node("root", node("a", namespaces=["x"]), node("b", node("a", node("c"), namespaces=["y"]))))
    later = "a (spec.root.children[1].children[0])"
    assert list(found) == ["root", "a", "b", later, "c"]
    assert [name for name, account in found.items() if account.problem is not None] == [later]
    assert found["c"].parent == found[later].key
    assert (found["a"].namespaces, found[later].namespaces) == (("x",), ("y",))


def test_namespace_belongs_to_the_first_leaf_that_names_it() -> None:
    found = tree(node("root", node("a", namespaces=["x"]), node("b", namespaces=["x", "y"])))
    assert (found["a"].namespaces, found["b"].namespaces) == (("x",), ("y",))
    assert (codes(found["a"]), codes(found["b"])) == ([], ["NamespaceClaimedTwice"])


def test_namespaces_above_the_leaves_are_charged_and_reported() -> None:
    found = tree(node("root", node("a", node("a1"), namespaces=["x"])))
    assert (found["a"].namespaces, found["a"].parental) == (("x",), False)
    assert codes(found["a"]) == ["NamespacesAboveLeaf"]


def test_min_above_the_max_or_the_parents_min_is_reported_on_its_node() -> None:
    found = tree(
        node(
            "root",
            node("a", min={"cpu": 3}, max={"cpu": 2}),
            node("b", node("b1", min={"cpu": 2}), node("b2", min={"cpu": 2}), min={"cpu": 1}),
            min={"cpu": 10},
        )
    )
    assert found["a"].deserved == (("cpu", 2000),)
    assert {name: codes(account) for name, account in found.items() if account.warnings} == {
        "a": ["MinExceedsMax"],
        "b": ["ChildrenMinExceedsMin"],
    }
    assert "min.cpu 4 together, more than its own 1" in found["b"].warnings[0].message


def test_unreadable_amount_breaks_its_node() -> None:
    found = tree(node("root", node("a", min={"cpu": "x"}), node("b", namespaces="y"), node("c")))
    assert {name: account.problem is not None for name, account in found.items()} == {
        "root": False,
        "a": True,
        "b": True,
        "c": False,
    }
    problem = found["a"].problem
    assert problem is not None
    assert 'spec.root.children[0].min.cpu is "x"' in problem.message


@pytest.mark.parametrize("root", [None, [], {"name": ""}, {"min": {}}], ids=str)
def test_tree_without_a_root_is_reported_and_has_no_accounts(root: Any) -> None:
    spec = read_account(QUOTA_TREE, quota_tree(root))
    assert spec.accounts == ()
    assert [warning.code for warning in spec.warnings] == ["InvalidElasticQuotaTree"]


def test_invalid_node_is_skipped_and_reported() -> None:
    spec = read_account(QUOTA_TREE, quota_tree({"name": "root", "children": [{"name": "a"}, "b", {"name": 3}]}))
    assert [account.key.name for account in spec.accounts] == ["root", "a"]
    assert len(spec.warnings) == 2


def test_tree_outside_of_its_namespace_does_not_count() -> None:
    spec = read_account(QUOTA_TREE, quota_tree(node("root"), namespace="team-a"))
    assert spec.accounts == ()
    assert [warning.code for warning in spec.warnings] == ["WrongNamespace"]


def test_tree_that_is_too_deep_is_cut() -> None:
    deep: dict[str, Any] = node("bottom")
    for at in range(500):
        deep = node(f"n{at}", deep)
    spec = read_account(QUOTA_TREE, quota_tree(deep))
    assert len(spec.accounts) == 32
    assert "deeper nodes are ignored" in spec.warnings[0].message


# Budgets

BUDGET = "phalanx.dev/budget"
DAY = '{"window": "24h", "hours": {"nvidia.com/gpu": "100", "cpu": "1k"}}'


@pytest.mark.parametrize(
    ("kind", "document"),
    [
        (VOLCANO_QUEUE, queue(annotations={BUDGET: DAY})),
        (KUBE_BATCH_QUEUE, queue(annotations={BUDGET: DAY})),
        (QUOTA, quota(annotations={BUDGET: DAY})),
        (SIGS_QUOTA, quota(annotations={BUDGET: DAY, KO + "namespaces": "[]"})),
        (QUOTA_TREE, quota_tree(node("root"), annotations={BUDGET: DAY})),
        (QUOTA_TREE, quota_tree(node("root", attributes={BUDGET: DAY}))),
    ],
    ids=str,
)
def test_every_account_can_have_a_budget(kind: ServedKind, document: dict[str, Any]) -> None:
    account = the_account(kind, document)
    assert account.budget == Budget((("cpu", 1_000_000), ("nvidia.com/gpu", 100)), 86_400)
    assert account.warnings == ()


@pytest.mark.parametrize(
    ("text", "field"),
    [
        ("100", "100 is no JSON object"),
        ("{", "is no JSON"),
        ('{"hours": {"cpu": 1}}', "window is null"),
        ('{"window": "1 day", "hours": {"cpu": 1}}', 'window is "1 day"'),
        ('{"window": "-1h", "hours": {"cpu": 1}}', 'window is "-1h"'),
        ('{"window": "1h"}', "hours is null"),
        ('{"window": "1h", "hours": {"cpu": "x"}}', 'hours.cpu is "x"'),
        ('{"window": "1h", "hours": {"cpu": -1}}', "hours.cpu is -1"),
    ],
)
def test_unreadable_budget_is_none_and_reported_by_field(text: str, field: str) -> None:
    account = volcano(annotations={BUDGET: text})
    assert (account.budget, account.problem) == (None, None)
    assert codes(account) == ["InvalidBudget"]
    assert field in account.warnings[0].message
    assert BUDGET in account.warnings[0].message


def test_remaining_fields_of_a_partly_unreadable_budget_apply() -> None:
    text = '{"window": "1h", "hours": {"cpu": 1, "memory": "x"}, "days": 3}'
    account = volcano(annotations={BUDGET: text})
    assert account.budget == Budget((("cpu", 1000),), 3600)
    assert codes(account) == ["InvalidBudget", "InvalidBudget"]


def test_node_of_a_tree_can_state_its_budget_as_an_object() -> None:
    stated = {"window": "1h", "hours": {"cpu": 1}}
    (account,) = tree(node("root", attributes={BUDGET: stated})).values()
    assert account.budget == Budget((("cpu", 1000),), 3600)


# Limits of eviction

RUN, RATE = "phalanx.dev/min-run-time", "phalanx.dev/eviction-rate"
PROTECTION, LONGEST = "phalanx.dev/self-protection", "phalanx.dev/max-protection-time"
LIMITS = {RUN: "1h30m", RATE: "10/1m", PROTECTION: "none", LONGEST: "2h"}


@pytest.mark.parametrize(
    ("kind", "document"),
    [
        (VOLCANO_QUEUE, queue(annotations=LIMITS)),
        (KUBE_BATCH_QUEUE, queue(annotations=LIMITS)),
        (QUOTA, quota(annotations=LIMITS)),
        (SIGS_QUOTA, quota(annotations=LIMITS)),
        (SIGS_QUOTA, quota(annotations={**LIMITS, KO + "namespaces": "[]"})),
        (QUOTA_TREE, quota_tree(node("root"), annotations=LIMITS)),
        (QUOTA_TREE, quota_tree(node("root", attributes=LIMITS))),
    ],
)
def test_every_account_can_limit_the_eviction_of_its_pods(kind: ServedKind, document: dict[str, Any]) -> None:
    account = the_account(kind, document)
    assert (account.min_run_time, account.eviction_rate) == (5400, EvictionRate(10, 60))
    assert (account.self_protection, account.max_protection) == (SelfProtection.NONE, 7200)
    assert account.warnings == ()


def test_node_of_a_tree_has_its_own_eviction_limits() -> None:
    child = node("child", attributes={RUN: "10m"})
    accounts = read_account(QUOTA_TREE, quota_tree(node("root", child), annotations={RUN: "1m"})).accounts
    assert [(account.key.name, account.min_run_time) for account in accounts] == [("root", 60), ("child", 600)]


def test_account_without_eviction_fields_has_no_limits() -> None:
    account = volcano()
    assert (account.min_run_time, account.eviction_rate) == (0, None)
    assert (account.self_protection, account.max_protection) == (None, 0)


@pytest.mark.parametrize(
    ("stated", "advice"),
    [
        (
            {PROTECTION: "some"},
            f'annotation {PROTECTION} is "some"; write none, guaranteed or all; the value is ignored',
        ),
        ({LONGEST: "0"}, f'annotation {LONGEST} is "0"; write a duration such as 2h'),
        ({LONGEST: "long"}, f'annotation {LONGEST} is "long"; write a duration such as 2h'),
    ],
)
def test_invalid_protection_setting_is_reported_and_affects_no_other_field(
    stated: dict[str, str], advice: str
) -> None:
    account = volcano(annotations={RUN: "5m", **stated})
    assert (account.self_protection, account.max_protection, account.min_run_time) == (None, 0, 300)
    (warning,) = account.warnings
    assert warning.code == "InvalidAnnotation"
    assert advice in warning.message


@pytest.mark.parametrize("text", ["soon", "-5m", "10", "1d"])
def test_invalid_run_time_is_reported_by_field_and_affects_no_other_field(text: str) -> None:
    account = volcano(annotations={RUN: text, RATE: "1/1h"}, weight=3)
    assert (account.min_run_time, account.eviction_rate) == (0, EvictionRate(1, 3600))
    assert (account.weight, account.problem) == (3, None)
    (warning,) = account.warnings
    assert warning.code == "InvalidAnnotation"
    assert f'annotation {RUN} is "{text}"; write a duration' in warning.message


@pytest.mark.parametrize(
    "text", ["10", "10/", "/1m", "ten/1m", "-1/1m", "0/1m", "10/0s", "10/-1m", "10/m", "1.5/1m"]
)
def test_invalid_eviction_rate_is_reported_by_field_and_affects_no_other_field(text: str) -> None:
    account = volcano(annotations={RUN: "5m", RATE: text})
    assert (account.min_run_time, account.eviction_rate, account.problem) == (300, None, None)
    (warning,) = account.warnings
    assert warning.code == "InvalidAnnotation"
    assert f'annotation {RATE} is "{text}"; write pods per duration, such as 10/1m' in warning.message


def test_invalid_field_of_a_tree_node_is_reported_with_that_node() -> None:
    accounts = tree(node("root", node("child", attributes={RATE: 5}), min={"cpu": 1}))
    assert codes(accounts["root"]) == []
    (warning,) = accounts["child"].warnings
    assert f'spec.root.children[0] {RATE} is "5"; write pods per duration' in warning.message
