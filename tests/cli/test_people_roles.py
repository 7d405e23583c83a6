"""The ClusterRoles for people: rights of each, and rights that none has."""

from __future__ import annotations

from typing import Any

import pytest

from phalanx.cli.installation.install import all_rights
from phalanx.cli.installation.people_manifests import PEOPLE

ROLES: dict[str, dict[str, Any]] = {
    each["metadata"]["name"]: each
    for each in all_rights("phalanx", "phalanx-system")
    if each["kind"] == "ClusterRole"
}
LOOK = {"get", "list", "watch"}
QUEUES = {"queues", "elasticquotas", "elasticquotatrees", "elasticquotaprofiles"}
GATHERED = "rbac.authorization.k8s.io/aggregate-to-"


def granted(role: str) -> set[tuple[str, str, str]]:
    return {
        (verb, group, resource)
        for rule in ROLES[role]["rules"]
        for verb in rule["verbs"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
    }


def test_a_viewer_only_looks_and_sees_all_that_the_scheduler_sees() -> None:
    assert {verb for verb, _, _ in granted("phalanx-viewer")} == LOOK
    seen = {right for right in granted("phalanx-scheduler") if right[0] in LOOK}
    assert seen <= granted("phalanx-viewer")


def test_user_role_submits_jobs_and_may_not_write_queues_or_statuses() -> None:
    writes = {(group, resource) for verb, group, resource in granted("phalanx-user") if verb not in LOOK}
    assert ("batch.volcano.sh", "jobs") in writes
    assert ("scheduling.volcano.sh", "podgroups") in writes
    assert not {resource for _, resource in writes} & QUEUES
    assert not any("/" in resource for _, resource in writes)
    assert ("get", "", "pods/log") in granted("phalanx-user")


def test_a_queue_editor_writes_queues_and_quotas_and_nothing_else() -> None:
    writes = {resource for verb, _, resource in granted("phalanx-queue-editor") if verb not in LOOK}
    assert writes == {*QUEUES, "commands"}
    # Commands open and close queues; the controllers execute those of administrators' namespaces only.
    assert {verb for verb, _, resource in granted("phalanx-queue-editor") if resource == "commands"} == {
        *LOOK,
        "create",
    }


def test_only_read_rights_are_aggregated_into_cluster_roles() -> None:
    """An editor of a namespace must not gain the right to raise its quota."""
    gathered = {
        name: [label for label in ROLES[name]["metadata"]["labels"] if label.startswith(GATHERED)]
        for name in PEOPLE
    }
    assert gathered == {"phalanx-viewer": [f"{GATHERED}view"], "phalanx-user": [], "phalanx-queue-editor": []}


def test_viewer_reads_only_the_schedulers_named_config_maps_and_further_roles_none() -> None:
    """By them `phalanx why` and `queue` know the policy in force, promised starts and past use."""
    rules = [(name, rule) for name in PEOPLE for rule in ROLES[name]["rules"] if "configmaps" in rule["resources"]]
    assert [(name, rule["verbs"]) for name, rule in rules] == [("phalanx-viewer", ["get"])]
    names = rules[0][1]["resourceNames"]
    assert "phalanx-policies-in-force" in names
    assert all(name.startswith("phalanx-") for name in names)


@pytest.mark.parametrize("role", PEOPLE)
def test_no_role_of_people_names_secrets_wildcards_or_more_rights(role: str) -> None:
    rights = granted(role)
    assert not {"*", "bind", "escalate", "impersonate", "use"} & {verb for verb, _, _ in rights}
    assert not {"*", "secrets"} & {resource for _, _, resource in rights}
    assert "*" not in {group for _, group, _ in rights}
