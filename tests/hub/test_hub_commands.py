"""`phalanx install --hub` and `--member`, and `phalanx clusters`."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio
import yaml
from click.testing import CliRunner, Result

from phalanx.cli.installation.hub_manifests import hub_access, hub_definitions, member_access, multikueue_access
from phalanx.cli.installation.karmada_manifests import karmada_access, karmada_member_access
from phalanx.cli.main import cli
from phalanx.hub.jobs.kinds import JOB_KINDS
from phalanx.hub.names import DISPATCHES, MEMBER_CLUSTERS
from phalanx.hub.objects import Json
from phalanx.kube.client import PatchType
from tests.hub.federation import NAMESPACE, Site

pytestmark = [pytest.mark.e2e, pytest.mark.asyncio]


@pytest_asyncio.fixture
async def hub(tmp_path: Path) -> AsyncIterator[Site]:
    site = Site("hub", tmp_path)
    await site.start()
    yield site
    await site.stop()


async def phalanx(site: Site, *arguments: str) -> Result:
    whole = [*arguments, "--kubeconfig", str(site.kubeconfig)]
    return await asyncio.to_thread(CliRunner().invoke, cli, whole)


async def member(site: Site, name: str, **condition: str) -> None:
    body = {
        "apiVersion": MEMBER_CLUSTERS.api_version,
        "kind": "MemberCluster",
        "metadata": {"name": name},
        "spec": {"kubeconfigSecret": name},
    }
    await site.client.create(MEMBER_CLUSTERS.path(), body)
    status = {"status": {"conditions": [{"type": "Active", **condition}]}} if condition else {"status": {}}
    await site.client.patch(MEMBER_CLUSTERS.path(None, name, "status"), status, PatchType.MERGE)


async def dispatch(site: Site, gang: str, status: Json) -> None:
    body = {
        "apiVersion": DISPATCHES.api_version,
        "kind": "Dispatch",
        "metadata": {"name": gang},
        "spec": {"gang": {"apiVersion": "scheduling.x-k8s.io/v1alpha1", "name": gang, "uid": "u"}},
    }
    await site.client.create(DISPATCHES.path(NAMESPACE), body)
    await site.client.patch(DISPATCHES.path(NAMESPACE, gang, "status"), {"status": status}, PatchType.MERGE)


async def test_clusters_says_which_can_be_used_and_which_gangs_are_where(hub: Site) -> None:
    await hub.install(hub_definitions())
    empty = await phalanx(hub, "clusters")
    assert empty.output == "No member clusters. To join one, see docs/many-clusters.md.\n"
    assert (await phalanx(hub, "clusters", "--gangs")).output == "No gangs are dispatched by the hub.\n"
    await member(hub, "east", status="True", reason="Active", message="")
    await member(hub, "new")
    await member(hub, "west", status="Unknown", reason="Unreachable", message="no \x1b[31mroute\nthere")
    answers = [
        {"cluster": "east", "start": "2026-12-01T14:20:00Z", "message": "Later"},
        {"cluster": "west", "message": "is Drain"},
    ]
    attempts = [{"epoch": 1, "cluster": "west", "outcome": "Lost", "message": "Rerun", "time": "x"}]
    await dispatch(
        hub, "train", {"phase": "Granted", "cluster": "east", "epoch": 2, "answers": answers, "attempts": attempts}
    )
    lines = (await phalanx(hub, "clusters")).output.splitlines()
    assert [line.split()[:4] for line in lines] == [
        ["NAME", "STATE", "ACTIVE", "REASON"],
        ["east", "Active", "True", "Active"],
        ["new", "Active", "Unknown", "NotSeenByHub"],
        ["west", "Active", "Unknown", "Unreachable"],
    ]
    assert lines[3].endswith("no  [31mroute there")
    shown = (await phalanx(hub, "clusters", "--gangs")).output.splitlines()
    assert shown[1].split() == ["ml/train", "Granted", "east", "2", "<none>"]
    assert shown[2:] == [
        "  epoch 1 in west: Lost Rerun",
        "  east: starts 2026-12-01T14:20:00Z (Later)",
        "  west: starts never (is Drain)",
    ]
    structured = yaml.safe_load((await phalanx(hub, "clusters", "-o", "yaml")).output)
    assert [(each["name"], each["gangs"]) for each in structured] == [("east", 1), ("new", 0), ("west", 0)]


async def test_why_at_the_hub_lists_the_answer_of_each_cluster_and_the_choice(hub: Site) -> None:
    await hub.install(hub_definitions())
    answers = [
        {"cluster": "east", "start": "2026-12-01T14:20:00Z", "message": "Later"},
        {"cluster": "west", "message": "no node has \x1b[31m8 GPUs"},
    ]
    attempts = [{"epoch": 1, "cluster": "west", "outcome": "SpillOver", "message": "slipped", "time": "x"}]
    sent = {"phase": "Granted", "cluster": "east", "epoch": 2, "promised": "2026-12-01T14:20:00Z"}
    await dispatch(hub, "train", {**sent, "answers": answers, "attempts": attempts})
    await dispatch(hub, "held", {"phase": "Pending", "reason": "QuotaExceeded", "message": "queue q has 8 of 8"})
    shown = await phalanx(hub, "why", "podgroup/train", "-n", NAMESPACE)
    assert shown.output.splitlines() == [
        "gang ml/train: Granted in cluster east, epoch 2",
        "  Promised: 2026-12-01T14:20:00Z",
        "  Answers of the clusters at dispatch:",
        "   * east: starts 2026-12-01T14:20:00Z (Later)",
        "     west: no start (no node has  [31m8 GPUs)",
        "    (* selected: earliest start; within one minute lowest cost, then fewest gangs)",
        "  Before: epoch 1 in west: SpillOver, slipped",
    ]
    held = (await phalanx(hub, "why", "podgroup/held", "-n", NAMESPACE)).output.splitlines()
    assert held[0] == "gang ml/held: Pending at the hub (QuotaExceeded)"
    assert held[-1].startswith("  Fix: raise the queue's capability at the hub")


async def test_a_cluster_that_is_no_hub_says_so(hub: Site) -> None:
    result = await phalanx(hub, "clusters")
    assert result.exit_code == 1
    assert "this cluster is not a hub; set it up with: phalanx install --hub" in result.output


@pytest.mark.slow
async def test_installing_brings_the_hubs_definitions_and_accounts_and_may_be_repeated(hub: Site) -> None:
    first = await phalanx(hub, "install", "--hub", "--member")
    assert first.exit_code == 0, first.output
    assert "customresourcedefinition.apiextensions.k8s.io/dispatches.phalanx.dev created" in first.output
    again = await phalanx(hub, "install", "--hub", "--member")
    assert again.exit_code == 0
    assert "created" not in again.output


def rules(manifests: list[Json]) -> list[Json]:
    return [rule for each in manifests for rule in each.get("rules", ())]


async def test_the_hub_has_no_right_to_the_secrets_of_members_nor_to_give_rights() -> None:
    for rule in rules(member_access("phalanx-system")):
        assert "secrets" not in rule["resources"]
        assert "*" not in (*rule["resources"], *rule["verbs"], *rule["apiGroups"])
        assert not {"escalate", "bind", "impersonate"} & set(rule["verbs"])
    writing = {
        resource
        for rule in rules(hub_access("phalanx-system"))
        if set(rule["verbs"]) - {"get", "list", "watch"}
        for resource in rule["resources"]
    }
    own = {"pods/status", "dispatches", "dispatches/status", "memberclusters/status", "leases", "events"}
    # Of a job the status, and nothing that users have written.
    assert writing == own | {f"{kind.resource.plural}/status" for kind in JOB_KINDS}
    for rule in [*rules(karmada_access("phalanx-system")), *rules(karmada_member_access("phalanx-system"))]:
        assert "secrets" not in rule["resources"]
        if set(rule["verbs"]) - {"get", "list", "watch"}:
            assert set(rule["resources"]) <= {"resourcebindings", "resourcebindings/status", "events", "leases"}
    for rule in rules(multikueue_access("phalanx-system")):
        if set(rule["verbs"]) - {"get", "list", "watch"}:
            assert set(rule["resources"]) <= {"workloads/status", "events", "leases"}
