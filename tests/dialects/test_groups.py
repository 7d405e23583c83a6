"""Group objects of every family, read into one spec."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from phalanx.dialects.field_owners import field_owners
from phalanx.dialects.gangs.group_objects import seen_of, unreadable_group
from phalanx.dialects.gangs.group_spec import GroupSpec
from phalanx.dialects.kinds import ServedKind
from phalanx.dialects.reader import decode_group, decode_object
from phalanx.model.selectors import Requirement
from phalanx.model.topology import SubgroupRule, TopologyRule
from tests.dialects.objects import (
    DIALECTS,
    EPOCH,
    GROUP_KINDS,
    KUBE_BATCH,
    KUBE_BATCH_DESIGN,
    KUBE_BATCH_LAST,
    NATIVE,
    NATIVE_1_36,
    SIGS,
    VOLCANO,
    WORKLOAD,
    X_K8S,
    group,
    read_group,
)


def read(resource: ServedKind, **details: Any) -> GroupSpec:
    (spec,) = read_group(resource, group(**details))
    return spec


NATIVE_V1ALPHA3 = ServedKind("scheduling.k8s.io", "v1alpha3", "podgroups")
PREEMPTABLE = "volcano.sh/preemptable"
CUSTOM = [X_K8S, SIGS, VOLCANO, KUBE_BATCH, KUBE_BATCH_DESIGN, KUBE_BATCH_LAST]


@pytest.mark.parametrize("resource", CUSTOM, ids=lambda resource: resource.group)
def test_group_of_every_family_is_read(resource: ServedKind) -> None:
    spec = read(resource, minMember=3, minResources={"cpu": "4", "memory": "8Gi", "pods": 3})
    assert (spec.gang, spec.min_member, spec.created, spec.problem) == ("g", 3, EPOCH, None)
    assert dict(spec.min_resources or ()) == {"cpu": 4000, "memory": 8 * 2**30, "pods": 3}
    assert (spec.ref.group, spec.ref.version, spec.ref.kind, spec.ref.plural) == (
        resource.group,
        resource.version,
        "PodGroup",
        "podgroups",
    )
    assert (spec.ref.namespace, spec.ref.name, spec.ref.uid) == ("default", "g", "uid-g")


def test_limits_written_by_volcanos_controller_are_read_for_quotas() -> None:
    stated = {
        "cpu": "2",
        "requests.cpu": "2",
        "limits.cpu": "4",
        "limits.memory": "1Gi",
        "count/pods": "2",
        "pods": "2",
    }
    spec = read(VOLCANO, minMember=2, minResources=stated)
    assert dict(spec.min_resources or ()) == {"cpu": 2000, "pods": 2}
    assert dict(spec.min_limits) == {"limits.cpu": 4000, "limits.memory": 2**30}
    spec = read(VOLCANO, minMember=2, minResources={"limits.cpu": "many"})
    assert spec.problem is not None
    assert "spec.minResources.limits.cpu" in spec.problem.message


@pytest.mark.parametrize("resource", [*CUSTOM, NATIVE, NATIVE_1_36], ids=lambda resource: resource.group)
def test_owner_of_a_group_can_forbid_the_eviction_of_its_members(resource: ServedKind) -> None:
    assert read(resource).preemptable
    assert not read(resource, annotations={PREEMPTABLE: "false"}).preemptable
    assert not read(resource, labels={PREEMPTABLE: "false"}).preemptable
    assert read(resource, annotations={PREEMPTABLE: "true"}, labels={PREEMPTABLE: "false"}).preemptable


def test_setting_of_a_workload_applies_to_all_its_groups() -> None:
    policy: dict[str, Any] = {"basic": {}}
    groups = [{"name": "ps", "policy": policy}, {"name": "worker", "policy": policy}]
    specs = read_group(WORKLOAD, group("job", annotations={PREEMPTABLE: "false"}, podGroups=groups))
    assert [spec.preemptable for spec in specs] == [False, False]


def test_unreadable_eviction_setting_forbids_eviction_and_is_reported() -> None:
    spec = read(VOLCANO, annotations={PREEMPTABLE: "never"}, minMember=2)
    assert (spec.preemptable, spec.problem) == (False, None)
    assert [(warning.code, warning.message) for warning in spec.warnings] == [
        (
            "InvalidAnnotation",
            "PodGroup default/g (scheduling.volcano.sh): metadata.annotations[volcano.sh/preemptable]: "
            '\'never\' is not "true" or "false"; it forbids eviction',
        )
    ]


@pytest.mark.parametrize(
    ("resource", "name"),
    [
        (X_K8S, "scheduling.x-k8s.io"),
        (SIGS, "scheduling.sigs.k8s.io"),
        (VOLCANO, "kube-batch"),
        (KUBE_BATCH, "kube-batch"),
        (NATIVE, "native"),
    ],
)
def test_pods_name_the_objects_of_each_family_by_its_own_key(resource: ServedKind, name: str) -> None:
    assert DIALECTS.naming_of[resource.group].rules.name == name


def test_every_watched_kind_can_be_read() -> None:
    for kind in GROUP_KINDS:
        for version in kind.versions:
            specs = read_group(kind.served_as(version), group(podGroups=[{"name": "w", "policy": {"basic": {}}}]))
            assert len(specs) == 1


@pytest.mark.parametrize("spelling", ["minMember", "minMembers", "numMember"])
def test_kube_batch_all_spellings_of_the_design_are_read(spelling: str) -> None:
    spec = read(KUBE_BATCH_DESIGN, **{spelling: 4}, totalResources={"cpu": "8"}, policy=None)
    assert spec.min_member == 4
    assert dict(spec.min_resources or ()) == {"cpu": 8000}


@pytest.mark.parametrize("spec", ["text", 3, [1]])
def test_spec_that_is_no_object_is_a_problem(spec: object) -> None:
    document = {**group(), "spec": spec}
    (read_spec,) = read_group(X_K8S, document)
    assert read_spec.problem is not None
    assert "spec is" in read_spec.problem.message


@pytest.mark.parametrize(
    ("resources", "path"),
    [
        ({"cpu": "many"}, "spec.minResources.cpu"),
        ({"memory": "-1Gi"}, "spec.minResources.memory"),
        ("lots", "spec.minResources"),
    ],
)
def test_unreadable_resources_are_a_problem(resources: object, path: str) -> None:
    spec = read(X_K8S, minResources=resources)
    assert spec.problem is not None
    assert spec.problem.code == "InvalidPodGroup"
    assert path in spec.problem.message


def test_negative_timeout_is_ignored_with_a_warning() -> None:
    spec = read(X_K8S, scheduleTimeoutSeconds=-5)
    assert (spec.timeout, spec.problem) == (None, None)
    assert [warning.code for warning in spec.warnings] == ["InvalidTimeout"]


@pytest.mark.parametrize("value", [2**31, -(10**30), "10", True])
def test_numbers_beyond_32_bits_and_texts_are_a_problem(value: object) -> None:
    spec = read(X_K8S, scheduleTimeoutSeconds=value)
    assert spec.problem is not None
    assert "spec.scheduleTimeoutSeconds" in spec.problem.message


# Volcano


def test_volcano_queue_priority_and_roles_are_read() -> None:
    spec = read(
        VOLCANO,
        minMember=5,
        queue="research",
        priorityClassName="high",
        minTaskMember={"worker": 4, "ps": 1, "x": 0},
    )
    assert (spec.queue, spec.priority_class) == ("research", "high")
    assert spec.roles == (("ps", 1), ("worker", 4))


def test_volcano_role_minima_above_the_minimum_are_ignored_with_a_warning() -> None:
    spec = read(VOLCANO, minMember=1, minTaskMember={"worker": 4, "ps": 1})
    assert (spec.min_member, spec.roles, spec.problem, spec.warnings) == (5, (("ps", 1), ("worker", 4)), None, ())


def test_volcano_role_minima_set_by_a_webhook_are_ignored_without_a_warning() -> None:
    document = group(minMember=4, minTaskMember={"worker": 4, "ps": 1})
    owner = {"apiVersion": "batch.volcano.sh/v1alpha1", "kind": "Job", "name": "j"}
    document["metadata"]["ownerReferences"] = [owner]
    (spec,) = read_group(VOLCANO, document)
    assert (spec.min_member, spec.roles, spec.warnings) == (4, (), ())


@pytest.mark.parametrize("roles", [{"ps": -1}, {"ps": "one"}, ["ps"], {"ps": True}])
def test_volcano_invalid_role_minima_are_a_problem(roles: object) -> None:
    spec = read(VOLCANO, minMember=4, minTaskMember=roles)
    assert spec.problem is not None
    assert "spec.minTaskMember" in spec.problem.message


@pytest.mark.parametrize(
    ("phase", "admitted"),
    [(None, False), ("", False), ("Pending", False), ("Inqueue", True), ("Running", True), ("Unknown", True)],
)
def test_volcano_group_is_queued_once_it_is_admitted(phase: str | None, admitted: bool) -> None:
    spec = read(VOLCANO, status={"phase": phase})
    assert (spec.admission, spec.admitted) == (True, admitted)


@pytest.mark.parametrize(("phase", "completed"), [("Running", False), ("Unknown", False), ("Completed", True)])
def test_volcano_group_is_completed_by_its_phase(phase: str, completed: bool) -> None:
    assert read(VOLCANO, status={"phase": phase}).completed == completed


@pytest.mark.parametrize(
    ("owners", "owned"),
    [
        (None, False),
        ([], False),
        ("odd", False),
        (["odd"], False),
        ([{"kind": "Pod", "name": "driver"}], False),
        ([{"kind": "SparkApplication", "name": "pi"}], True),
        ([{"kind": "Pod", "name": "driver"}, {"kind": "Job", "name": "j", "controller": True}], True),
    ],
)
def test_group_is_owned_where_its_owner_can_create_members(owners: object, owned: bool) -> None:
    document = group()
    document["metadata"]["ownerReferences"] = owners
    (spec,) = read_group(VOLCANO, document)
    assert spec.owned == owned


@pytest.mark.parametrize(
    ("topology", "rule"),
    [
        (None, None),
        ({"highestTierAllowed": 2}, TopologyRule(hypernodes=True, highest_tier=2)),
        ({"mode": "hard", "highestTierAllowed": 0}, TopologyRule(hypernodes=True, highest_tier=0)),
        ({"highestTierName": "rack"}, TopologyRule(hypernodes=True, highest_tier_name="rack")),
        ({"mode": "hard"}, TopologyRule(hypernodes=True)),
        ({"mode": "soft", "highestTierAllowed": 2}, TopologyRule(hypernodes=True)),
    ],
)
def test_volcano_topology_of_members_is_read(topology: dict[str, Any] | None, rule: TopologyRule | None) -> None:
    spec = read(VOLCANO, minMember=2, networkTopology=topology)
    assert (spec.topology, spec.problem) == (rule, None)


def test_volcano_subgroups_are_read_with_their_defaults() -> None:
    policies = [
        {"name": "a"},
        {
            "name": "b",
            "labelSelector": {"matchLabels": {"volcano.sh/task-spec": "worker"}},
            "matchLabelKeys": ["volcano.sh/partition-id"],
            "subGroupSize": 4,
            "minSubGroups": 2,
            "networkTopology": {"mode": "hard", "highestTierAllowed": 1},
        },
    ]
    worker = (Requirement("volcano.sh/task-spec", "In", ("worker",)),)
    tier = TopologyRule(hypernodes=True, highest_tier=1)
    assert read(VOLCANO, minMember=2, subGroupPolicy=policies).subgroups == (
        SubgroupRule("a"),
        SubgroupRule("b", worker, ("volcano.sh/partition-id",), 4, 2, tier),
    )


@pytest.mark.parametrize(
    ("extra", "field"),
    [
        ({"networkTopology": "hard"}, 'spec.networkTopology is "hard"'),
        ({"networkTopology": {"mode": "strict"}}, 'spec.networkTopology.mode is "strict"; write hard or soft'),
        ({"networkTopology": {"highestTierAllowed": -1}}, "spec.networkTopology.highestTierAllowed is -1"),
        ({"networkTopology": {"highestTierAllowed": 1, "highestTierName": "rack"}}, "not both"),
        ({"subGroupPolicy": {"name": "a"}}, "spec.subGroupPolicy is"),
        ({"subGroupPolicy": [{"subGroupSize": 2}]}, "spec.subGroupPolicy[0].name is null"),
        ({"subGroupPolicy": [{"name": "a", "subGroupSize": 0}]}, "spec.subGroupPolicy[0].subGroupSize is 0"),
        ({"subGroupPolicy": [{"name": "a", "minSubGroups": "2"}]}, "spec.subGroupPolicy[0].minSubGroups is"),
        ({"subGroupPolicy": [{"name": "a", "matchLabelKeys": [1]}]}, "spec.subGroupPolicy[0].matchLabelKeys is"),
        ({"subGroupPolicy": [{"name": "a", "labelSelector": "x"}]}, "spec.subGroupPolicy[0].labelSelector is"),
    ],
)
def test_volcano_unreadable_topology_holds_the_group(extra: dict[str, Any], field: str) -> None:
    problem = read(VOLCANO, minMember=2, **extra).problem
    assert problem is not None
    assert (problem.code, field in problem.message) == ("InvalidPodGroup", True)


# The native API


@pytest.mark.parametrize("resource", [NATIVE, NATIVE_1_36])
def test_native_gang_and_basic_policies_are_read(resource: ServedKind) -> None:
    assert read(resource, schedulingPolicy={"gang": {"minCount": 4}}).min_member == 4
    basic = read(resource, schedulingPolicy={"basic": {}})
    assert (basic.min_member, basic.problem) == (1, None)


@pytest.mark.parametrize(
    ("policy", "code"),
    [
        ({"elastic": {"min": 2}}, "UnknownPolicy"),
        ({}, "InvalidPodGroup"),
        (None, "InvalidPodGroup"),
        ({"basic": {}, "gang": {"minCount": 2}}, "InvalidPodGroup"),
        ({"gang": {}}, "InvalidPodGroup"),
        ({"gang": {"minCount": 0}}, "InvalidPodGroup"),
        ({"gang": None}, "InvalidPodGroup"),
    ],
)
def test_native_unsupported_policies_are_problems(policy: object, code: str) -> None:
    problem = read(NATIVE, schedulingPolicy=policy).problem
    assert problem is not None
    assert problem.code == code


def test_native_topology_key_requires_one_domain() -> None:
    spec = read(
        NATIVE,
        schedulingPolicy={"gang": {"minCount": 2}},
        schedulingConstraints={"topology": [{"key": "rack"}]},
    )
    assert (spec.topology, spec.problem) == (TopologyRule.by_label("rack"), None)


@pytest.mark.parametrize(
    ("mode", "unit"),
    [
        (None, False),
        ("Pod", False),
        ("PodGroup", True),
        ({"single": {}}, False),
        ({"all": {}}, True),
        ({"single": {}, "all": None}, False),
        ({"single": None, "all": {}}, True),
        ({"quorum": {}}, True),
        ({}, True),  # a union whose member only a later version knows
        ("Other", True),
        (["Pod"], True),
    ],
)
@pytest.mark.parametrize("resource", [NATIVE, NATIVE_V1ALPHA3, NATIVE_1_36], ids=lambda resource: resource.version)
def test_native_unknown_disruption_mode_is_the_strictest(resource: ServedKind, mode: object, unit: bool) -> None:
    assert read(resource, schedulingPolicy={"gang": {"minCount": 2}}, disruptionMode=mode).unit is unit


@pytest.mark.parametrize("condition", ["PodGroupScheduled", "PodGroupInitiallyScheduled"])
def test_native_condition_shows_that_the_quorum_was_met_once(condition: str) -> None:
    status = {"conditions": [{"type": condition, "status": "True"}]}
    assert read(NATIVE, schedulingPolicy={"basic": {}}, status=status).once_satisfied
    refused: dict[str, Any] = {"conditions": [{"type": condition, "status": "False"}, "garbage"]}
    assert not read(NATIVE, schedulingPolicy={"basic": {}}, status=refused).once_satisfied


def test_native_workload_declares_its_pod_groups() -> None:
    document = group(
        "job",
        podGroups=[
            {"name": "ps", "policy": {"basic": {}}},
            {"name": "worker", "policy": {"gang": {"minCount": 4}}},
            "garbage",
        ],
    )
    specs = read_group(WORKLOAD, document)
    assert [(spec.gang, spec.min_member) for spec in specs] == [("job/ps", 1), ("job/worker", 4)]


# Decoding


def test_object_without_a_name_is_refused() -> None:
    for raw in (b"{}", b"[]", b'{"metadata":{"name":""}}', b'{"metadata":3}', b"{"):
        with pytest.raises(msgspec.DecodeError):
            decode_object(raw)
    assert decode_object(b'{"metadata":{"name":"g"}}') == {"metadata": {"name": "g"}}


@pytest.mark.parametrize(
    "document",
    [
        {"metadata": {"name": "g"}},
        {"metadata": {"name": "g", "labels": {"a": "b"}, "generation": 3}, "spec": {"minMember": 2}},
        {"metadata": {"name": "g"}, "spec": None, "status": None},
        {"apiVersion": "v1", "kind": "PodGroup", "metadata": {"name": "g"}, "spec": [1], "status": {"phase": "x"}},
        {"metadata": {"name": "g"}, "spec": {}, "data": {"what": "no PodGroup has"}},
    ],
)
def test_group_is_decoded_as_any_object(document: dict[str, Any]) -> None:
    raw = msgspec.json.encode(document)
    assert decode_group(raw) == decode_object(raw) == document


def test_group_without_a_name_is_refused() -> None:
    for raw in (b"{}", b"[]", b'{"metadata":{"name":""}}', b'{"metadata":{"name":1}}', b'{"metadata":3}', b"{"):
        with pytest.raises(msgspec.DecodeError):
            decode_group(raw)


def test_writer_of_a_group_is_read_on_request() -> None:
    entry = {"manager": "kubectl-edit", "operation": "Update", "fieldsV1": {"f:spec": {"f:minMember": {}}}}
    for managed in ([entry], [], None, "text"):
        document = {"metadata": {"name": "g", "managedFields": managed}, "spec": {}}
        read = decode_group(msgspec.json.encode(document))
        assert list(field_owners(read["metadata"])) == list(field_owners(document["metadata"]))


def test_undecodable_object_holds_its_gang() -> None:
    spec = unreadable_group(X_K8S, "default", "g", "u", "unexpected end")
    assert spec.gang == "g"
    assert (spec.unit, spec.preemptable) == (True, False)  # its last known statements about members apply
    assert spec.problem is not None
    assert spec.problem.message == (
        "PodGroup default/g (scheduling.x-k8s.io) cannot be read: unexpected end; apply it again"
    )


@pytest.mark.parametrize("status", [{"phase": "Running"}, {"phase": "Running", "strange": 10**30}, {}])
def test_status_of_a_group_is_known_whatever_numbers_it_contains(status: dict[str, Any]) -> None:
    assert seen_of({"metadata": {"name": "train"}, "status": status}).status == status
