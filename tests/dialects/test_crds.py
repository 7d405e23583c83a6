"""The custom resource definitions of `phalanx install`.

They were read by the code of kube-apiserver 1.36 when they were written. These tests cover the fields that users
and the dialects rely on, and that our own server's schemas accept and refuse the right objects.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from phalanx.cli.installation.manifests import definitions
from phalanx.dialects.api_groups import NATIVE
from phalanx.dialects.kinds import ServedKind
from phalanx.dialects.nodes.hypernodes import HYPER_NODES
from phalanx.dialects.nodes.maintenance import MAINTENANCE_WINDOWS
from phalanx.dialects.quotas.usage_status import QuotaUsage
from phalanx.model.gang import Gang, GangCounts, GangKey, GroupRef
from phalanx.model.verdict import Verdict
from phalanx_local.schema.structural import StructuralSchema
from tests.dialects.objects import ACCOUNT_KINDS, GROUP_KINDS, desired_status, read_account, usage_status

CRDS = {entry["metadata"]["name"]: entry for entry in definitions()}


def version(name: str) -> dict[str, Any]:
    (only,) = CRDS[name]["spec"]["versions"]
    assert isinstance(only, dict)
    return only


def schema(name: str) -> dict[str, Any]:
    found = version(name)["schema"]["openAPIV3Schema"]
    assert isinstance(found, dict)
    return found


def nodes(node: dict[str, Any], path: str = "") -> Iterator[tuple[str, dict[str, Any]]]:
    yield path, node
    for name, sub in node.get("properties", {}).items():
        yield from nodes(sub, f"{path}.{name}")
    for word in ("items", "additionalProperties"):
        if isinstance(node.get(word), dict):
            yield from nodes(node[word], f"{path}.{word}")


def test_every_kind_of_the_dialects_is_defined_in_their_preferred_version() -> None:
    for kind in (*GROUP_KINDS, *ACCOUNT_KINDS, HYPER_NODES, MAINTENANCE_WINDOWS):
        if kind.group != NATIVE:
            assert version(f"{kind.plural}.{kind.group}")["name"] == kind.versions[0]


@pytest.mark.parametrize(
    ("name", "short", "columns"),
    [
        ("podgroups.scheduling.x-k8s.io", ["pg", "pgs"], "Phase MinMember Running Succeeded Failed Age"),
        ("podgroups.scheduling.sigs.k8s.io", [], "Phase MinMember Running Succeeded Failed Age"),
        (
            "podgroups.scheduling.volcano.sh",
            ["pg", "podgroup-v1beta1"],
            "STATUS minMember RUNNINGS AGE QUEUE",
        ),
        ("podgroups.scheduling.incubator.k8s.io", [], "Phase MinMember Running Succeeded Failed Queue Age"),
        (
            "podgroups.incubator.scheduling.k8s.io",
            [],
            "Phase MinMember MinMembers Running Succeeded Failed Queue Age",
        ),
        ("podgroups.scheduling.sigs.dev", [], "Phase MinMember Running Succeeded Failed Queue Age"),
        ("elasticquotas.scheduling.x-k8s.io", ["eq", "eqs"], "Used Min Max Age"),
        ("elasticquotas.scheduling.sigs.k8s.io", [], "Used Min Max Age"),
        ("elasticquotatrees.scheduling.sigs.k8s.io", [], "Root Age"),
        ("elasticquotaprofiles.quota.koordinator.sh", ["eqp"], "Quota Age"),
        ("queues.scheduling.volcano.sh", ["q", "queue-v1beta1"], "PARENT WEIGHT STATE Age"),
        ("queues.scheduling.incubator.k8s.io", [], "Weight Age"),
        ("queues.incubator.scheduling.k8s.io", [], "Weight Age"),
        ("queues.scheduling.sigs.dev", [], "Weight Age"),
        ("maintenancewindows.phalanx.dev", ["mw"], "Phase Nodes From Until AtStart Running"),
        (
            "reservations.phalanx.dev",
            ["rsv"],
            "Phase Reason Start End Nodes Pods Queue",
        ),
        ("hypernodes.topology.volcano.sh", ["hn"], "Tier TierName Age"),
        ("jobs.batch.volcano.sh", ["vcjob", "vj"], "STATUS minAvailable RUNNINGS AGE QUEUE"),
        ("cronjobs.batch.volcano.sh", ["cronvcjob", "cronvj"], "SCHEDULE SUSPEND LAST_SCHEDULE AGE"),
        ("commands.bus.volcano.sh", [], "ACTION TARGET AGE"),
        ("jobflows.flow.volcano.sh", ["jf"], "Status Age"),
        ("jobtemplates.flow.volcano.sh", ["jt"], "Age"),
    ],
)
def test_names_and_columns_of_definitions_match_upstream(name: str, short: list[str], columns: str) -> None:
    assert CRDS[name]["spec"]["names"].get("shortNames", []) == short
    shown = [column["name"].replace(" ", "_") for column in version(name)["additionalPrinterColumns"]]
    assert shown == columns.split()


def test_only_one_short_name_is_shared_so_that_a_name_means_one_kind() -> None:
    words = [word for crd in CRDS.values() for word in crd["spec"]["names"].get("shortNames", [])]
    assert {word for word in words if words.count(word) > 1} == {"pg"}


def test_no_other_kind_is_defined() -> None:
    assert len(CRDS) == 22


def test_short_names_of_jobs_differ_from_those_of_kubernetes() -> None:
    theirs = {"job", "jobs", "cj", "cronjob", "cronjobs"}
    assert not theirs & {word for crd in CRDS.values() for word in crd["spec"]["names"].get("shortNames", [])}


def test_category_gangs_selects_the_kinds_that_declare_gangs_and_no_category_is_all() -> None:
    """`kubectl delete all --all` must delete no gang."""
    categories = {name: crd["spec"]["names"].get("categories", []) for name, crd in CRDS.items()}
    gangs = {name for name in CRDS if name.startswith("podgroups.")} | {"jobs.batch.volcano.sh"}
    assert {name for name, listed in categories.items() if listed == ["gangs"]} == gangs
    assert {name for name, listed in categories.items() if listed} == gangs


@pytest.mark.parametrize("name", CRDS)
def test_definitions_have_the_form_that_the_api_server_requires(name: str) -> None:
    crd = CRDS[name]
    spec, names = crd["spec"], crd["spec"]["names"]
    assert name == f"{names['plural']}.{spec['group']}"
    assert names["singular"] == names["kind"].lower()
    assert names["listKind"] == f"{names['kind']}List"
    assert spec["scope"] == (
        "Cluster" if names["kind"] in ("Queue", "HyperNode", "MaintenanceWindow", "Reservation") else "Namespaced"
    )
    only = version(name)
    assert (only["served"], only["storage"]) == (True, True)
    # A Command has no status: it is carried out and deleted.
    assert only.get("subresources") == (None if names["kind"] == "Command" else {"status": {}})
    approval = crd["metadata"].get("annotations", {}).get("api-approved.kubernetes.io", "")
    assert approval.startswith("unapproved, ") is spec["group"].endswith(".k8s.io")


@pytest.mark.parametrize("name", CRDS)
def test_every_field_has_a_type_and_every_list_its_merge_strategy(name: str) -> None:
    for path, node in nodes(schema(name)):
        if "x-kubernetes-int-or-string" in node:
            assert "type" not in node, path
        else:
            assert node["type"] in ("object", "array", "string", "integer", "boolean"), path
        if node.get("type") == "array":
            assert node["x-kubernetes-list-type"] in ("map", "set", "atomic"), path
        assert not ("properties" in node and "additionalProperties" in node), path


def test_conditions_are_a_map_by_type() -> None:
    for name in CRDS:
        conditions = schema(name)["properties"].get("status", {}).get("properties", {}).get("conditions")
        # Conditions of a job are named by its phases, the last one last.
        if conditions and name not in ("jobs.batch.volcano.sh", "jobflows.flow.volcano.sh"):
            assert conditions["x-kubernetes-list-map-keys"] == ["type"]
            assert "type" in conditions["items"]["required"]


def test_groups_of_kube_batch_differ_only_in_the_spellings_of_its_design() -> None:
    served, last = schema("podgroups.scheduling.incubator.k8s.io"), schema("podgroups.scheduling.sigs.dev")
    assert served == last
    design = yaml.safe_load(yaml.safe_dump(schema("podgroups.incubator.scheduling.k8s.io")))
    spec, status = (design["properties"][part]["properties"] for part in ("spec", "status"))
    for own in ("minMembers", "totalResources", "policy"):
        del spec[own]
    del status["admitted"], design["properties"]["spec"]["x-kubernetes-validations"]
    assert design == served


def faults(name: str, spec: dict[str, Any], status: dict[str, Any] | None = None) -> list[str]:
    """Return the errors of our own API server about an object, as `path: message`; [] if it accepts all of it."""
    structural = StructuralSchema(schema(name))
    crd = CRDS[name]
    document: dict[str, Any] = {
        "apiVersion": f"{crd['spec']['group']}/{version(name)['name']}",
        "kind": crd["spec"]["names"]["kind"],
        "metadata": {"name": "g"},
        "spec": spec,
        "status": status or {},
    }
    pruned = structural.prune(document)
    structural.default(document)
    return pruned + [str(error) for error in structural.validate(document)]


@pytest.mark.parametrize(
    ("name", "spec"),
    [
        ("podgroups.scheduling.x-k8s.io", {}),
        ("podgroups.scheduling.x-k8s.io", {"minMember": 0}),
        (
            "podgroups.scheduling.x-k8s.io",
            {"minMember": 3, "minResources": {"cpu": 4, "memory": "8Gi"}, "scheduleTimeoutSeconds": 10},
        ),
        (
            "podgroups.scheduling.volcano.sh",
            {
                "minMember": 5,
                "minTaskMember": {"ps": 1, "worker": 4},
                "queue": "research",
                "priorityClassName": "high",
                "minResources": {"nvidia.com/gpu": "8"},
                "networkTopology": {"mode": "hard", "highestTierAllowed": 2},
                "subGroupPolicy": [{"name": "a", "subGroupSize": 2, "matchLabelKeys": ["rank"]}],
            },
        ),
        (
            "hypernodes.topology.volcano.sh",
            {
                "tier": 1,
                "tierName": "rack",
                "members": [
                    {"type": "Node", "selector": {"exactMatch": {"name": "n1"}}},
                    {"type": "Node", "selector": {"labelMatch": {"matchLabels": {"rack": "r1"}}}},
                    {"type": "HyperNode", "selector": {"regexMatch": {"pattern": "^leaf-"}}},
                ],
            },
        ),
        ("podgroups.incubator.scheduling.k8s.io", {"minMembers": 3, "policy": {"restart": ["any", 1]}}),
        ("podgroups.scheduling.incubator.k8s.io", {"minMember": 3, "queue": "", "priorityClassName": ""}),
        ("queues.scheduling.volcano.sh", {"weight": 1, "reclaimable": False, "capability": {"cpu": "10"}}),
        ("elasticquotas.scheduling.x-k8s.io", {"min": {"cpu": 4, "memory": "1Gi"}, "max": {"cpu": "4"}}),
        ("elasticquotas.scheduling.x-k8s.io", {"min": {"cpu": "500m"}}),
        # As upstream: such a quota is accepted, cut, and reported.
        ("elasticquotas.scheduling.x-k8s.io", {"min": {"cpu": 5}, "max": {"cpu": "4500m"}}),
        ("elasticquotas.scheduling.sigs.k8s.io", {"min": {"nvidia.com/gpu": 2}, "max": {"nvidia.com/gpu": 1}}),
        (
            "elasticquotatrees.scheduling.sigs.k8s.io",
            {
                "root": {
                    "name": "root",
                    "min": {"cpu": 8},
                    "max": {"cpu": "8"},
                    "children": [
                        {"name": "a", "children": [{"name": "a1", "namespaces": ["x"], "attributes": {"k": "v"}}]},
                        {"name": "b", "min": {"cpu": "odd"}},
                    ],
                }
            },
        ),
        (
            "elasticquotaprofiles.quota.koordinator.sh",
            {
                "quotaName": "gpus",
                "quotaLabels": {"a": "b"},
                "resourceRatio": "0.9",
                "nodeSelector": {
                    "matchLabels": {"pool": "gpu"},
                    "matchExpressions": [{"key": "zone", "operator": "In", "values": ["a"]}],
                },
            },
        ),
        (
            "jobs.batch.volcano.sh",
            {
                "schedulerName": "phalanx",
                "minAvailable": 2,
                "minSuccess": 1,
                "plugins": {"svc": ["--publish-not-ready-addresses"], "ssh": []},
                "policies": [{"events": ["PodEvicted", "PodPending"], "action": "RestartJob", "timeout": "5m0s"}],
                "volumes": [
                    {"mountPath": "/data", "volumeClaimName": "data"},
                    {"mountPath": "/scratch", "volumeClaim": {"resources": {"requests": {"storage": "1Gi"}}}},
                ],
                "networkTopology": {"mode": "soft", "highestTierAllowed": 1},
                "tasks": [
                    {
                        "name": "worker",
                        "replicas": 4,
                        "minAvailable": 2,
                        "policies": [{"exitCode": 3, "action": "TerminateJob"}],
                        "dependsOn": {"name": ["master"], "iteration": "any"},
                        "partitionPolicy": {"totalPartitions": 2, "partitionSize": 2, "minPartitions": 1},
                        "topologyPolicy": "single-numa-node",
                        "template": {"metadata": {"labels": {"a": "b"}}, "spec": {"anything": [1, {"at": "all"}]}},
                    }
                ],
            },
        ),
        (
            "cronjobs.batch.volcano.sh",
            {
                "schedule": "*/5 * * * *",
                "timeZone": "Europe/Berlin",
                "jobTemplate": {"metadata": {"labels": {"a": "b"}}, "spec": {"tasks": [{"name": "a"}]}},
            },
        ),
        (
            "jobflows.flow.volcano.sh",
            {
                "jobRetainPolicy": "delete",
                "flows": [
                    {"name": "a"},
                    {
                        "name": "b",
                        "dependsOn": {
                            "targets": ["a"],
                            "probe": {
                                "httpGetList": [
                                    {
                                        "taskName": "t",
                                        "path": "/",
                                        "port": 80,
                                        "httpHeader": {"name": "a", "value": "b"},
                                    }
                                ],
                                "tcpSocketList": [{"taskName": "t", "port": 80}],
                                "taskStatusList": [{"taskName": "t", "phase": "Running"}],
                            },
                        },
                        "patch": {"jobSpec": {"tasks": [{"name": "t", "replicas": 2}]}},
                    },
                ],
            },
        ),
        ("jobtemplates.flow.volcano.sh", {"tasks": [{"template": {"spec": {"containers": []}}}]}),
    ],
    ids=str,
)
def test_good_objects_are_accepted_whole(name: str, spec: dict[str, Any]) -> None:
    assert faults(name, spec) == []


@pytest.mark.parametrize(
    ("name", "spec", "complaint"),
    [
        ("podgroups.scheduling.x-k8s.io", {"minMember": -1}, "spec.minMember"),
        ("podgroups.scheduling.x-k8s.io", {"minMember": "three"}, "spec.minMember"),
        ("podgroups.scheduling.x-k8s.io", {"minResources": {"cpu": "many"}}, "spec.minResources"),
        ("podgroups.scheduling.volcano.sh", {"queue": "Bad_Name"}, "spec.queue"),
        ("podgroups.scheduling.volcano.sh", {"minTaskMember": {"": 1}}, "a task needs a name"),
        (
            "podgroups.scheduling.volcano.sh",
            {"networkTopology": {"highestTierAllowed": 1, "highestTierName": "rack"}},
            "not both",
        ),
        ("podgroups.incubator.scheduling.k8s.io", {"minMember": 2, "minMembers": 3}, "two spellings"),
        ("queues.scheduling.volcano.sh", {"weight": 0}, "spec.weight"),
        ("queues.scheduling.volcano.sh", {"parent": "g"}, "its own parent"),
        ("queues.scheduling.volcano.sh", {"dequeueStrategy": "lifo"}, "spec.dequeueStrategy"),
        ("elasticquotas.scheduling.x-k8s.io", {"min": {"cpu": "many"}}, "spec.min"),
        ("elasticquotas.scheduling.sigs.k8s.io", {"max": ["cpu"]}, "spec.max"),
        ("elasticquotatrees.scheduling.sigs.k8s.io", {"root": {"namespaces": "x"}}, "spec.root.namespaces"),
        ("jobs.batch.volcano.sh", {"tasks": []}, "spec.tasks"),
        ("jobs.batch.volcano.sh", {"minSuccess": 0}, "spec.minSuccess"),
        ("jobs.batch.volcano.sh", {"queue": "Bad_Name"}, "spec.queue"),
        ("jobs.batch.volcano.sh", {"policies": [{"event": "Rain"}]}, "spec.policies[0].event"),
        ("jobs.batch.volcano.sh", {"tasks": [{"name": "with.dot"}]}, "spec.tasks[0].name"),
        ("jobs.batch.volcano.sh", {"tasks": [{"partitionPolicy": {}}]}, "partitionSize"),
        ("jobs.batch.volcano.sh", {"volumes": [{"mountPath": "a:b"}]}, "spec.volumes[0].mountPath"),
        ("jobs.batch.volcano.sh", {"volumes": [{"volumeClaimName": "a"}]}, "mountPath"),
        ("cronjobs.batch.volcano.sh", {"jobTemplate": {}}, "schedule"),
        (
            "cronjobs.batch.volcano.sh",
            {"schedule": "@daily", "jobTemplate": {}, "concurrencyPolicy": "Never"},
            "spec.concurrencyPolicy",
        ),
        ("jobflows.flow.volcano.sh", {"flows": [{"dependsOn": {}}]}, "name"),
        ("jobflows.flow.volcano.sh", {"jobRetainPolicy": "keep"}, "spec.jobRetainPolicy"),
    ],
    ids=str,
)
def test_bad_objects_are_refused_by_name(name: str, spec: dict[str, Any], complaint: str) -> None:
    assert any(complaint in fault for fault in faults(name, spec)), faults(name, spec)


def test_absent_fields_of_a_job_get_defaults() -> None:
    job: dict[str, Any] = {"spec": {"networkTopology": {}, "tasks": [{"name": "a", "partitionPolicy": {}}]}}
    StructuralSchema(schema("jobs.batch.volcano.sh")).default(job)
    assert job["spec"] == {
        "maxRetry": 3,
        "queue": "default",
        "networkTopology": {"mode": "hard"},
        "tasks": [{"name": "a", "partitionPolicy": {"minPartitions": 0}}],
    }


def test_command_names_its_target_completely() -> None:
    structural = StructuralSchema(schema("commands.bus.volcano.sh"))
    target = {"apiVersion": "batch.volcano.sh/v1alpha1", "kind": "Job", "name": "j", "uid": "u", "controller": True}
    command = {"metadata": {"name": "c"}, "action": "AbortJob", "target": target, "reason": "r", "message": "m"}
    assert (structural.prune(command), list(structural.validate(command))) == ([], [])
    del target["uid"]
    assert ["uid" in str(error) for error in structural.validate(command)] == [True]


@pytest.mark.parametrize("kind", [kind for kind in GROUP_KINDS if kind.group != NATIVE], ids=str)
def test_every_written_status_fits_its_schema(kind: Any) -> None:
    resource: ServedKind = kind.served_as(kind.versions[0])
    ref = GroupRef(resource.group, resource.version, "PodGroup", resource.plural, "default", "g", "u")
    gang = Gang(GangKey("default", "g"), source=ref, min_member=2)
    for counts in (
        GangCounts(),
        GangCounts(pending=2),
        GangCounts(bound=2),
        GangCounts(running=1, pending=1),
        GangCounts(running=2, failed=1),
        GangCounts(failed=2),
        GangCounts(succeeded=2),
    ):
        for verdict in (None, Verdict("NotEnoughResources", "0/4 nodes are available")):
            for admitted in (False, True):
                change = desired_status(
                    ref, {}, gang, counts, verdict=verdict, occupied_by="default/job", admitted=admitted, now=1
                )
                status = change.patch["status"] if change else {}
                assert faults(f"{kind.plural}.{kind.group}", {"minMember": 2}, status) == []


@pytest.mark.parametrize(
    "kind", [kind for kind in ACCOUNT_KINDS if kind.plural in ("queues", "elasticquotas")], ids=str
)
def test_every_status_of_a_queue_or_quota_fits_its_schema(kind: Any) -> None:
    held = {"cpu": 1500, "memory": 3 * 2**30, "nvidia.com/gpu": 2, "pods": 7}
    phases = {"Pending": 1, "Inqueue": 2, "Running": 3, "Completed": 4, "Unknown": 5, "odd": 6}
    for labels in ({}, {"quota.scheduling.koordinator.sh/is-parent": "false"}):
        document = {
            "metadata": {"name": "q", "namespace": "team-a", "labels": labels},
            "spec": {"max": {"pods": 9}},
        }
        (account,) = read_account(kind.served_as(kind.versions[0]), document).accounts
        status = usage_status({}, account, QuotaUsage(held, held, phases))
        assert status
        assert faults(f"{kind.plural}.{kind.group}", {}, status) == []


@pytest.mark.parametrize("page", ["maintenance", "advance-reservations"])
def test_examples_in_the_documents_are_accepted_whole(page: str) -> None:
    text = (Path(__file__).parents[2] / f"docs/{page}.md").read_text("utf-8")
    objects = [yaml.safe_load(block) for block in re.findall(r"```yaml\n(apiVersion:.*?)```", text, re.DOTALL)]
    assert objects
    plurals = {crd["spec"]["names"]["kind"]: name for name, crd in CRDS.items() if name.endswith(".phalanx.dev")}
    for each in objects:
        assert faults(plurals[each["kind"]], each["spec"]) == []
