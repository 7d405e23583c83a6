"""From declarations and objects to one gang: each test names its rule in docs/rules/coscheduling.md, 1.3 to 1.5."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from phalanx.dialects.core import PodObject
from phalanx.dialects.gangs.agreement import Member, MemberDeclaration
from phalanx.dialects.gangs.context import GangContext
from phalanx.dialects.gangs.group_spec import GroupSpec
from phalanx.dialects.gangs.resolver import resolve
from phalanx.dialects.kinds import ServedKind
from phalanx.dialects.options import DialectOptions
from phalanx.dialects.times import parse_time
from phalanx.model.gang import MOST_GANGS, Gang, GangKey, MatchPolicy
from phalanx.model.text.decoding import quoted
from phalanx.model.topology import TopologyRule
from tests.dialects.objects import (
    DIALECTS,
    EPOCH,
    KUBE_BATCH,
    KUBE_BATCH_DESIGN,
    NATIVE,
    SIGS,
    VOLCANO,
    WORKLOAD,
    X_K8S,
    declare,
    group,
    pod,
    read_group,
)

D1 = "scheduling.k8s.io/group-name"
D2, D2_MIN = "pod-group/name", "pod-group/min-available"
D3, D3_MIN = "pod-group.scheduling.sigs.k8s.io/name", "pod-group.scheduling.sigs.k8s.io/min-available"
ALIAS, ALIAS_MIN = "pod-group.scheduling.x-k8s.io/name", "pod-group.scheduling.x-k8s.io/min-available"
D4 = "pod-group.scheduling.sigs.k8s.io"
D5 = "scheduling.x-k8s.io/pod-group"
KO = "gang.scheduling.koordinator.sh/"
ACK_POLICY = "pod-group.scheduling.sigs.k8s.io/match-policy"


def gang(
    *pods: PodObject,
    objects: Sequence[GroupSpec] = (),
    name: str = "g",
    classes: Mapping[str, int] | None = None,
    queue: str = "",
    **options: Any,
) -> Gang:
    members = []
    for read in pods:
        found = declare(read)
        assert found is not None
        assert found.name == name
        declared = MemberDeclaration(
            found, read.spec.priority or 0, read.spec.preemption_policy != "Never", read.spec.scheduler_name
        )
        created = parse_time(read.metadata.creation_timestamp)
        members.append(Member(created, read.metadata.name, read.metadata.uid, declared))
    key = GangKey("default", name)
    context = GangContext(DIALECTS.naming_of, classes or {}, queue)
    return resolve(key, sorted(members), objects, context, DialectOptions(**options)).gang


def read(resource: ServedKind, **details: Any) -> GroupSpec:
    (spec,) = read_group(resource, group(**details))
    return spec


def labelled(name: str = "p", minimum: str | None = "3", age: int = 0, **more: Any) -> PodObject:
    """Return a D3 pod; `age` is how much older than the epoch it is."""
    labels = {D3: "g", **({D3_MIN: minimum} if minimum is not None else {}), **more.pop("labels", {})}
    return pod(name, labels=labels, created=EPOCH - age, **more)


def codes(found: Gang) -> list[str]:
    return [warning.code for warning in found.warnings]


# Rule 2: the object overrides the pods.


def test_rule_2_object_overrides_the_declarations_of_pods_with_a_warning() -> None:
    found = gang(labelled(minimum="3"), objects=[read(SIGS, minMember=5)])
    assert found.min_member == 5
    assert found.problem is None
    assert codes(found) == ["MinAvailableMismatch"]
    assert "pod default/p" in found.warnings[0].message
    assert "says 5" in found.warnings[0].message


def test_rule_2_object_that_agrees_with_its_pods_has_no_warning() -> None:
    assert gang(labelled(minimum="5"), objects=[read(SIGS, minMember=5)]).warnings == ()


@pytest.mark.parametrize(
    ("pods", "first", "second"),
    [
        ([pod(labels={D5: "g"})], X_K8S, SIGS),
        ([pod(labels={D4: "g"})], SIGS, X_K8S),
        ([pod(labels={D3: "g"})], SIGS, X_K8S),
        ([pod(labels={D2: "g"})], X_K8S, SIGS),
        ([pod(annotations={KO + "name": "g"})], SIGS, X_K8S),
        ([pod(annotations={D1: "g"})], VOLCANO, KUBE_BATCH),
        ([pod(annotations={D1: "g"})], KUBE_BATCH, KUBE_BATCH_DESIGN),
        ([pod(annotations={D1: "g"})], KUBE_BATCH, X_K8S),
        ([pod(labels={D5: "g"})], SIGS, VOLCANO),
        ([pod(labels={D5: "g"})], VOLCANO, NATIVE),
        ([], X_K8S, SIGS),
        ([], SIGS, VOLCANO),
    ],
)
def test_rule_2_of_two_objects_the_one_of_the_pods_own_key_applies(
    pods: list[PodObject], first: ServedKind, second: ServedKind
) -> None:
    native = {"schedulingPolicy": {"gang": {"minCount": 9}}}
    objects = [
        read(resource, **(native if resource is NATIVE else {"minMember": minimum}))
        for resource, minimum in ((second, 9), (first, 2))
    ]
    for order in (objects, objects[::-1]):
        found = gang(*pods, objects=order)
        assert found.source is not None
        assert found.source.group == first.group
        assert found.min_member == 2
        assert codes(found) == ["ConflictingGangDeclaration"]


def test_rule_2_native_field_refers_to_a_native_object_only() -> None:
    found = gang(pod(schedulingGroup={"podGroupName": "g"}), objects=[read(X_K8S, minMember=2)])
    assert found.problem is not None
    assert found.problem.code == "PodGroupNotFound"


# Rule 3: members that disagree.


def test_rule_3_oldest_member_decides_and_dissenting_ones_are_named() -> None:
    found = gang(labelled("young", "2"), labelled("old", "3", age=9), labelled("middle", "4", age=5))
    assert found.min_member == 3
    assert codes(found) == ["MinAvailableMismatch"] * 2
    assert "pod default/middle" in found.warnings[0].message
    assert "the oldest member, pod old, says 3" in found.warnings[0].message


def test_rule_3_members_of_one_age_are_ordered_by_name() -> None:
    assert gang(labelled("b", "2"), labelled("a", "3")).min_member == 3


def test_rule_3_member_with_an_unreadable_minimum_dissents_where_the_remaining_are_valid() -> None:
    found = gang(labelled("bad", "xxx", age=9), labelled("good", "3"))
    assert found.min_member == 3
    assert found.problem is None
    assert codes(found) == ["MinAvailableMismatch"]


# Rule 4: bad minima.


@pytest.mark.parametrize("minimum", ["xxx", "0", "-2", "1.5", "1e3", " 3", str(2**31), "9" * 30])
def test_rule_4_invalid_minimum_holds_the_gang(minimum: str) -> None:
    found = gang(labelled(minimum=minimum))
    assert found.problem is not None
    assert found.problem.code == "InvalidPodGroup"
    assert found.problem.message == (
        f'pod default/p: label {D3_MIN} is {minimum!r}; write a whole number from 1 to 2147483647, such as "3"'
    )


def test_rule_4_object_replaces_an_invalid_minimum() -> None:
    found = gang(labelled(minimum="xxx"), objects=[read(X_K8S, minMember=2)])
    assert (found.min_member, found.problem) == (2, None)


def test_rule_4_d9_uses_one_like_kube_batch() -> None:
    found = gang(pod(owner="job", annotations={"scheduling.k8s.io/group-min-member": "lots"}), name="uid-job")
    assert (found.rules.name, found.min_member, found.problem) == ("shadow", 1, None)
    assert codes(found) == ["InvalidPodGroup"]


# Rule 5: a name without a minimum or an object.


@pytest.mark.parametrize(
    "member",
    [
        pod(annotations={D1: "g"}),
        pod(labels={D3: "g"}),
        pod(labels={ALIAS: "g"}),
        pod(labels={D2: "g"}),
        pod(labels={D4: "g"}),
        pod(labels={D5: "g"}),
        pod(annotations={KO + "name": "g"}),
    ],
)
def test_rule_5_name_without_a_minimum_waits_for_its_object(member: PodObject) -> None:
    found = gang(member)
    assert found.problem is not None
    assert found.problem.code == "PodGroupNotFound"
    assert found.problem.message.startswith("PodGroup default/g not found; create it")


@pytest.mark.parametrize(
    "member",
    [
        pod(labels={D3: "g", D3_MIN: "3"}),
        pod(labels={ALIAS: "g", ALIAS_MIN: "3"}),
        pod(labels={D2: "g", D2_MIN: "3"}),
        pod(annotations={KO + "name": "g", KO + "min-available": "3"}),
        pod(labels={D5: "g"}, annotations={KO + "min-available": "3"}),
    ],
)
def test_rule_5_name_with_a_minimum_is_a_gang_without_any_object(member: PodObject) -> None:
    found = gang(member)
    assert (found.min_member, found.problem, found.source, found.uid) == (3, None, None, "")
    assert found.created == EPOCH


def test_rule_5_native_field_waits_for_its_object_whatever_the_labels() -> None:
    found = gang(pod(schedulingGroup={"podGroupName": "g"}, labels={D3_MIN: "3"}))
    assert found.problem is not None
    assert found.problem.code == "PodGroupNotFound"


# Rule 6: names.


@pytest.mark.parametrize("name", ["Tf_Job", "-a", "a-", "a..b", "ü", "a/b", "x" * 254])
def test_rule_6_name_that_no_object_can_have_holds_the_gang(name: str) -> None:
    found = gang(pod(labels={D3: name, D3_MIN: "2"}), name=name)
    assert found.problem is not None
    assert found.problem.code == "InvalidPodGroup"
    assert f"label {D3} is {quoted(name)}" in found.problem.message


def test_name_of_a_gang_cannot_inject_text_into_its_remedy() -> None:
    found = gang(pod(labels={D3: "x\n; delete the cluster", D3_MIN: "2"}), name="x\n; delete the cluster")
    assert found.problem is not None
    wrong, remedy = found.problem.state, found.problem.remedy
    assert '"x\\n;\\x20delete the cluster"' in wrong
    assert remedy.startswith("use lower-case letters")
    assert str(found.key).endswith("/x\\n;\\x20delete the cluster")


def test_rule_6_dots_and_digits_are_valid() -> None:
    assert gang(pod(labels={D3: "0.tf-1.x", D3_MIN: "2"}), name="0.tf-1.x").problem is None


# 1.4: odd cases of objects.


@pytest.mark.parametrize("spec", [{}, {"minMember": 0}, {"minMember": 1}, {"minMember": None}])
def test_odd_zero_and_absent_minimum_both_mean_one(spec: dict[str, Any]) -> None:
    assert gang(objects=[read(X_K8S, **spec)]).min_member == 1


@pytest.mark.parametrize("minimum", [-1, "three", 1.5, True, 2**31, [3]])
def test_odd_object_with_an_invalid_minimum_holds_the_gang(minimum: object) -> None:
    found = gang(objects=[read(X_K8S, minMember=minimum)])
    assert found.problem is not None
    assert found.problem.code == "InvalidPodGroup"
    assert found.problem.message.startswith("PodGroup default/g (scheduling.x-k8s.io): spec.minMember is ")


def test_odd_different_priorities_of_members_are_a_warning() -> None:
    found = gang(labelled("a", priority=1), labelled("b", priority=2))
    assert found.problem is None
    assert found.priority is None
    assert codes(found) == ["PriorityMismatch"]


def test_odd_priority_class_of_the_group_is_the_gangs_priority() -> None:
    spec = read(VOLCANO, minMember=2, priorityClassName="high")
    assert gang(objects=[spec], classes={"high": 1000}).priority == 1000
    missing = gang(objects=[spec])
    assert missing.priority is None
    assert codes(missing) == ["PriorityClassNotFound"]


@pytest.mark.parametrize(
    ("fields", "classes"),
    [
        ({"priorityClassName": "system-node-critical"}, {"system-node-critical": 2_000_001_000}),
        ({"priorityClassName": "mine"}, {"mine": 1_000_000_001}),
    ],
)
def test_odd_system_priorities_are_for_groups_in_system_namespaces(
    fields: dict[str, Any], classes: dict[str, int]
) -> None:
    spec = read(VOLCANO, minMember=2, **fields)
    found = gang(objects=[spec], classes=classes)
    assert found.priority is None
    assert codes(found) == ["SystemPriority"]
    (warning,) = found.warnings
    assert warning.message.endswith(
        "which only groups in system namespaces may have; name a class of at most 1000000000; "
        "until then the members' own priorities decide"
    )
    trusted = gang(objects=[spec], classes=classes, system_namespaces=("default",))
    assert (trusted.priority, codes(trusted)) == (next(iter(classes.values())), [])


def test_odd_highest_priority_for_users_is_accepted() -> None:
    spec = read(VOLCANO, minMember=2, priorityClassName="mine")
    assert gang(objects=[spec], classes={"mine": 1_000_000_000}).priority == 1_000_000_000


def test_odd_priority_of_finished_members_does_not_count() -> None:
    declaration = declare(labelled())
    assert declaration is not None
    members = [
        Member(0, "a", "1", MemberDeclaration(declaration, 5, active=False)),
        Member(1, "b", "2", MemberDeclaration(declaration, 7)),
    ]
    found = resolve(GangKey("default", "g"), members, [], GangContext(DIALECTS.naming_of), DialectOptions())
    assert found.gang.warnings == ()


def test_odd_members_of_two_schedulers_are_a_warning() -> None:
    found = gang(labelled("a"), labelled("b", schedulerName="default-scheduler"))
    assert codes(found) == ["SchedulerNameMismatch"]


# 1.5: match policies.


@pytest.mark.parametrize(
    ("member", "policy"),
    [
        (pod(annotations={D1: "g"}), MatchPolicy.WAITING_RUNNING_SUCCEEDED),
        (pod(labels={D2: "g", D2_MIN: "1"}), MatchPolicy.WAITING_AND_RUNNING),
        (pod(labels={D3: "g", D3_MIN: "1"}), MatchPolicy.ONCE_SATISFIED),
        (pod(labels={D4: "g"}), MatchPolicy.ONCE_SATISFIED),
        (pod(labels={D5: "g"}), MatchPolicy.WAITING_AND_RUNNING),
        (pod(annotations={KO + "name": "g", KO + "min-available": "1"}), MatchPolicy.ONCE_SATISFIED),
        (pod(schedulingGroup={"podGroupName": "g"}), MatchPolicy.UNTIL_SCHEDULED),
    ],
)
def test_policy_each_dialect_has_its_default(member: PodObject, policy: MatchPolicy) -> None:
    assert gang(member).match_policy is policy


@pytest.mark.parametrize(
    ("resource", "policy"),
    [
        (X_K8S, MatchPolicy.WAITING_AND_RUNNING),
        (SIGS, MatchPolicy.ONCE_SATISFIED),
        (VOLCANO, MatchPolicy.WAITING_RUNNING_SUCCEEDED),
        (KUBE_BATCH, MatchPolicy.WAITING_RUNNING_SUCCEEDED),
    ],
)
def test_policy_object_without_pods_has_the_default_of_its_family(
    resource: ServedKind, policy: MatchPolicy
) -> None:
    assert gang(objects=[read(resource, minMember=1)]).match_policy is policy


@pytest.mark.parametrize("policy", list(MatchPolicy))
@pytest.mark.parametrize("key", [KO + "match-policy", ACK_POLICY])
@pytest.mark.parametrize("place", ["labels", "annotations"])
def test_policy_all_four_are_read_from_pods_and_from_objects(policy: MatchPolicy, key: str, place: str) -> None:
    details: dict[str, Any] = {"labels": {D3: "g", D3_MIN: "2"}, "annotations": {}}
    details[place][key] = policy.value
    assert gang(pod(**details)).match_policy is policy
    extras: dict[str, Any] = {place: {key: policy.value}}
    assert gang(labelled(), objects=[read(SIGS, minMember=3, **extras)]).match_policy is policy


def test_policy_unknown_one_is_the_strictest_with_a_warning() -> None:
    found = gang(labelled(labels={ACK_POLICY: "sometimes"}))
    assert found.match_policy is MatchPolicy.ONLY_WAITING
    assert codes(found) == ["UnknownMatchPolicy"]
    assert "write one of only-waiting, waiting-and-running" in found.warnings[0].message


def test_policy_default_can_be_configured() -> None:
    overrides = {"pod-group.scheduling.sigs.k8s.io": MatchPolicy.ONLY_WAITING}
    assert gang(labelled(), match_policies=overrides).match_policy is MatchPolicy.ONLY_WAITING


# 1.2: extras.


def test_extra_of_the_object_precedes_the_pods() -> None:
    found = gang(
        labelled(annotations={KO + "mode": "NonStrict"}),
        objects=[read(SIGS, minMember=3, annotations={KO + "mode": "Strict"})],
    )
    assert codes(found) == []


def test_extra_of_the_oldest_member_with_a_value_applies() -> None:
    found = gang(
        labelled("a", age=9),
        labelled("b", age=5, annotations={KO + "mode": "NonStrict"}),
        labelled("c", age=1, annotations={KO + "mode": "Strict"}),
    )
    assert codes(found) == ["ConflictingGangDeclaration", "ModeNotHonoured"]


@pytest.mark.parametrize(
    ("extra", "value", "field", "expected", "warning"),
    [
        ("mode", "NonStrict", "problem", None, "ModeNotHonoured"),
        ("mode", "Strict", "problem", None, None),
        ("mode", "strict", "problem", None, "UnknownMode"),
        ("waiting-time", "1h10m", "timeout", 4200, None),
        ("waiting-time", "1500ms", "timeout", 2, None),
        ("waiting-time", "10", "timeout", None, "InvalidTimeout"),
        ("waiting-time", "-5m", "timeout", None, "InvalidTimeout"),
        ("waiting-time", "0s", "timeout", None, "InvalidTimeout"),
        ("total-number", "8", "total", 8, None),
        ("total-number", "2", "total", 0, None),
        ("total-number", "all", "total", 0, "InvalidTotalNumber"),
        ("network-topology-spec", '{"gatherStrategy":[{"strategy":"PreferGather"}]}', "problem", None, None),
        ("network-topology-spec", "rack", "problem", None, "InvalidTopology"),
    ],
)
def test_extra_values_are_read_as_documented(
    extra: str, value: str, field: str, expected: object, warning: str | None
) -> None:
    found = gang(labelled(annotations={KO + extra: value}))
    assert getattr(found, field) == expected
    assert codes(found) == ([warning] if warning else [])


RACK = "topology.kubernetes.io/rack"
TAS = "kueue.x-k8s.io/podset-"
TIER = "volcano.sh/network-topology-"


def layer(name: str, strategy: str, **more: object) -> str:
    return json.dumps({"gatherStrategy": [{"layer": name, "strategy": strategy, **more}]})


@pytest.mark.parametrize(
    ("annotations", "rule"),
    [
        ({KO + "network-topology-spec": layer("rack", "MustGather")}, TopologyRule(required=("rack",))),
        ({KO + "network-topology-spec": layer("rack", "PreferGather")}, TopologyRule(preferred="rack")),
        (
            {KO + "network-topology-spec": layer("NodeTopologyLayer", "MustGather")},
            TopologyRule(required=("kubernetes.io/hostname",)),
        ),
        ({TAS + "required-topology": RACK}, TopologyRule.by_label(RACK)),
        ({TAS + "preferred-topology": RACK}, TopologyRule(preferred=RACK)),
        ({TAS + "unconstrained-topology": "true"}, TopologyRule()),
        ({TAS + "unconstrained-topology": "false"}, None),
        ({TIER + "mode": "hard", TIER + "highest-tier": "2"}, TopologyRule(hypernodes=True, highest_tier=2)),
        ({TIER + "highest-tier": "1"}, TopologyRule(hypernodes=True, highest_tier=1)),
        ({TIER + "mode": "soft", TIER + "highest-tier": "1"}, TopologyRule(hypernodes=True)),
    ],
)
def test_extra_topology_of_members_is_read(annotations: dict[str, str], rule: TopologyRule | None) -> None:
    found = gang(labelled(annotations=annotations))
    assert (found.topology, found.problem, found.warnings) == (rule, None, ())


@pytest.mark.parametrize(
    ("annotations", "code"),
    [
        ({TIER + "mode": "strict"}, "InvalidTopology"),
        ({TIER + "highest-tier": "-1"}, "InvalidTopology"),
        ({TAS + "unconstrained-topology": "yes"}, "InvalidTopology"),
        ({TAS + "slice-required-topology": RACK}, "UnsupportedField"),
        ({KO + "network-topology-spec": layer("rack", "MustGather", podCountMultiple=4)}, "UnsupportedField"),
    ],
)
def test_extra_unsupported_topology_holds_the_gang(annotations: dict[str, str], code: str) -> None:
    found = gang(labelled(annotations=annotations))
    assert found.problem is not None
    assert found.problem.code == code


def test_extra_gang_group_is_sorted_and_includes_the_gang_itself() -> None:
    groups = '["default/z", "default/a"]'
    found = gang(labelled(annotations={KO + "groups": groups}))
    assert found.gang_group == (GangKey("default", "a"), GangKey("default", "g"), GangKey("default", "z"))


@pytest.mark.parametrize(
    ("allowed", "may"),
    [((), False), ([["default", "third"]], False), ([["default", "other"]], True), ([["*"]], True)],
)
def test_extra_gang_group_names_other_namespaces_only_where_the_policy_allows_it(
    allowed: list[list[str]], may: bool
) -> None:
    """The message does not reveal the objects of that namespace."""
    options: Any = {"gang_group_namespaces": tuple(map(frozenset, allowed))}
    found = gang(labelled(annotations={KO + "groups": '["other/z", "default/g"]'}), **options)
    assert (GangKey("other", "z") in found.gang_group) == may
    assert (found.problem is None) == may
    if found.problem is not None:
        assert found.problem.code == "InvalidGangGroups"
        assert "namespace 'other'" in found.problem.message


def test_extra_gang_group_has_a_size_limit() -> None:
    most, over = ([f"default/g{number}" for number in range(count)] for count in (MOST_GANGS - 1, MOST_GANGS))
    assert gang(labelled(annotations={KO + "groups": json.dumps(most)})).problem is None
    found = gang(labelled(annotations={KO + "groups": json.dumps(over)}))
    assert found.gang_group == ()
    assert found.problem is not None
    assert found.problem.message == "gang default/g: its gang groups name 33 gangs; at most 32 start together"


@pytest.mark.parametrize("groups", ['["default/g"]', "[]"])
def test_extra_gang_group_of_one_is_none(groups: str) -> None:
    found = gang(labelled(annotations={KO + "groups": groups}))
    assert (found.gang_group, found.warnings) == ((), ())


@pytest.mark.parametrize("groups", ["a/b", "[1]", '["b"]', '["a/b/c"]', '{"a": 1}', '["/b"]'])
def test_extra_unreadable_gang_group_is_only_the_gang_itself(groups: str) -> None:
    found = gang(labelled(annotations={KO + "groups": groups}))
    assert found.gang_group == ()
    assert codes(found) == ["InvalidGangGroups"]


def test_extra_schedule_timeout_of_the_object_precedes_the_annotation() -> None:
    annotations = {KO + "waiting-time": "10m"}
    assert gang(objects=[read(SIGS, scheduleTimeoutSeconds=30, annotations=annotations)]).timeout == 30
    assert gang(objects=[read(SIGS, scheduleTimeoutSeconds=0, annotations=annotations)]).timeout == 600
    assert gang(objects=[read(SIGS, scheduleTimeoutSeconds=0)]).timeout is None


def test_extra_annotation_cannot_state_that_a_gang_was_satisfied_once() -> None:
    assert not gang(objects=[read(SIGS, annotations={"phalanx.dev/once-satisfied": "true"})]).once_satisfied


# Queues.


@pytest.mark.parametrize(
    ("own", "pods", "namespace", "expected"),
    [
        ("", "", "", "default"),
        ("", "", "team", "team"),
        ("", "member", "team", "member"),
        ("own", "member", "team", "own"),
        ("default", "member", "team", "team"),
        ("default", "", "", "default"),
    ],
)
def test_queue_is_read_from_the_object_then_the_members_then_the_namespace(
    own: str, pods: str, namespace: str, expected: str
) -> None:
    annotations = {D1: "g", **({"scheduling.volcano.sh/queue-name": pods} if pods else {})}
    found = gang(pod(annotations=annotations), objects=[read(VOLCANO, queue=own)], queue=namespace)
    assert found.queue == expected


# Members of a native group (docs/rules/kubernetes_native.md, N7).


def native(name: str = "p", **details: Any) -> PodObject:
    return pod(name, schedulingGroup={"podGroupName": "g"}, **details)


def native_group(**details: Any) -> GroupSpec:
    return read(NATIVE, schedulingPolicy={"gang": {"minCount": 2}}, **details)


@pytest.mark.parametrize(
    ("members", "spec", "code"),
    [
        ([native(priority=5)], {"priority": 7}, "PriorityMismatch"),
        ([native("a"), native("b", schedulerName="other")], {}, "SchedulerNameMismatch"),
        ([native("a"), native("b", preemptionPolicy="Never")], {}, "PreemptionPolicyMismatch"),
    ],
)
def test_native_disagreeing_members_are_refused(members: list[PodObject], spec: dict[str, Any], code: str) -> None:
    found = gang(*members, objects=[native_group(**spec)])
    assert found.problem is not None
    assert found.problem.code == code


def test_native_priority_of_the_group_overrides_its_members() -> None:
    found = gang(native(priority=7), objects=[native_group(priority=7)])
    assert (found.priority, found.problem) == (7, None)


def test_native_members_can_differ_in_priority_without_a_priority_of_the_group() -> None:
    found = gang(native("a", priority=1), native("b", priority=2), objects=[native_group()])
    assert found.problem is None
    assert codes(found) == ["PriorityMismatch"]


def test_native_disruption_mode_and_preemption_policy_of_a_group_are_read() -> None:
    policy = {"gang": {"minCount": 1}}
    member = pod("m", schedulingGroup={"podGroupName": "g"})
    free = gang(member, objects=[read(NATIVE, schedulingPolicy=policy)])
    assert (free.unit, free.preemptable) == (False, True)
    bound = read(
        NATIVE, schedulingPolicy=policy, disruptionMode={"all": {}}, annotations={"volcano.sh/preemptable": "false"}
    )
    tied = gang(member, objects=[bound])
    assert (tied.unit, tied.preemptable) == (True, False)


def test_native_workload_of_1_35_declares_a_gang_per_replica() -> None:
    document = group("job", podGroups=[{"name": "workers", "policy": {"gang": {"minCount": 4}}}])
    member = pod(workloadRef={"name": "job", "podGroup": "workers", "podGroupReplicaKey": "1"})
    found = gang(member, objects=read_group(WORKLOAD, document), name="job/workers/1")
    assert (found.min_member, found.problem) == (4, None)


def test_native_missing_workload_is_named() -> None:
    found = gang(pod(workloadRef={"name": "job", "podGroup": "w"}), name="job/w")
    assert found.problem is not None
    assert found.problem.message == "waiting for a Workload that declares the pod group default/job/w; create it"
