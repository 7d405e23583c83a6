"""`phalanx install` against the embedded API server, and on paper."""

from __future__ import annotations

import functools
import json
from collections.abc import AsyncIterator
from typing import Any

import click
import pytest
import pytest_asyncio
import yaml
from click.testing import CliRunner
from tests.dialects.objects import ACCOUNT_KINDS

from phalanx.cli.installation import manifests
from phalanx.cli.installation.install import all_rights, install, install_into
from phalanx.controllers.service import ControllerOptions
from phalanx.daemon.controllers.policy_record import NAME as POLICIES
from phalanx.daemon.controllers.usage_record import MOST_OBJECTS
from phalanx.daemon.service import SchedulerOptions
from phalanx.daemon.signing_keys import keys_in, load_keys
from phalanx.dialects.dispatched import HUB_LEASE
from phalanx.kube.auth.config import ClusterConfig
from phalanx.kube.client import KubeClient, PatchType
from phalanx.kube.errors import ApiError
from phalanx_local.server import ApiServer, ServerOptions

DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
QUEUES = "/apis/scheduling.volcano.sh/v1beta1/queues"
RIGHTS = [
    "namespace/phalanx-system",
    "serviceaccount/phalanx-scheduler",
    "clusterrole.rbac.authorization.k8s.io/phalanx-scheduler",
    "clusterrolebinding.rbac.authorization.k8s.io/phalanx-scheduler",
    "role.rbac.authorization.k8s.io/phalanx-scheduler",
    "rolebinding.rbac.authorization.k8s.io/phalanx-scheduler",
    "secret/phalanx-signing-keys",
    "clusterrole.rbac.authorization.k8s.io/phalanx-podgroups-edit",
    "clusterrole.rbac.authorization.k8s.io/phalanx-podgroups-view",
    "clusterrole.rbac.authorization.k8s.io/phalanx-viewer",
    "clusterrole.rbac.authorization.k8s.io/phalanx-user",
    "clusterrole.rbac.authorization.k8s.io/phalanx-queue-editor",
    "serviceaccount/phalanx-controllers",
    "clusterrole.rbac.authorization.k8s.io/phalanx-controllers",
    "clusterrolebinding.rbac.authorization.k8s.io/phalanx-controllers",
    "role.rbac.authorization.k8s.io/phalanx-controllers",
    "rolebinding.rbac.authorization.k8s.io/phalanx-controllers",
    "flowschema.flowcontrol.apiserver.k8s.io/phalanx-scheduler-leases",
    "flowschema.flowcontrol.apiserver.k8s.io/phalanx-scheduler",
    "flowschema.flowcontrol.apiserver.k8s.io/phalanx-controllers-leases",
    "flowschema.flowcontrol.apiserver.k8s.io/phalanx-controllers",
    "serviceaccount/phalanx-webhook",
    "clusterrole.rbac.authorization.k8s.io/phalanx-webhook",
    "clusterrolebinding.rbac.authorization.k8s.io/phalanx-webhook",
    "role.rbac.authorization.k8s.io/phalanx-webhook",
    "rolebinding.rbac.authorization.k8s.io/phalanx-webhook",
    "role.rbac.authorization.k8s.io/phalanx-webhook-quota",
    "rolebinding.rbac.authorization.k8s.io/phalanx-webhook-quota",
    "secret/phalanx-webhook-certificates",
]


@pytest_asyncio.fixture
async def client() -> AsyncIterator[KubeClient]:
    server = ApiServer(ServerOptions(insecure=True))
    await server.start()
    async with KubeClient(ClusterConfig(server.url)) as connected:
        yield connected
    await server.stop()


async def run(client: KubeClient, capsys: pytest.CaptureFixture[str], rights: bool = True) -> dict[str, str]:
    """Run the command; return the result for each object."""
    wanted = all_rights("phalanx", "phalanx-system")
    await install_into(
        client, manifests.definitions(), wanted if rights else [], manifests.volcano_queues(), timeout=10
    )
    lines = capsys.readouterr().out.splitlines()
    return {name: outcome for name, _, outcome in (line.partition(" ") for line in lines)}


async def test_everything_is_created_once_and_unchanged_after_that(
    client: KubeClient, capsys: pytest.CaptureFixture[str]
) -> None:
    first = await run(client, capsys)
    assert set(RIGHTS) <= set(first)
    assert len(first) == len(manifests.definitions()) + len(RIGHTS) + 2
    assert set(first.values()) == {"created"}
    second = await run(client, capsys)
    assert set(second) == set(first)
    assert set(second.values()) == {"unchanged"}


@pytest.mark.slow
async def test_changed_object_is_restored_and_reported(
    client: KubeClient, capsys: pytest.CaptureFixture[str]
) -> None:
    await run(client, capsys)
    path = "/apis/rbac.authorization.k8s.io/v1/clusterroles/phalanx-scheduler"
    await client.patch(path, {"rules": []}, PatchType.MERGE)
    outcomes = await run(client, capsys)
    changed = {name for name, outcome in outcomes.items() if outcome != "unchanged"}
    assert changed == {"clusterrole.rbac.authorization.k8s.io/phalanx-scheduler"}
    assert outcomes["clusterrole.rbac.authorization.k8s.io/phalanx-scheduler"] == "configured"
    assert (await client.get(path))["rules"] == manifests.access("phalanx-scheduler", "phalanx-system")[2]["rules"]


async def test_the_definitions_are_served_when_the_command_returns(
    client: KubeClient, capsys: pytest.CaptureFixture[str]
) -> None:
    await run(client, capsys, rights=False)
    for definition in manifests.definitions():
        spec = definition["spec"]
        path = f"/apis/{spec['group']}/{spec['versions'][0]['name']}/{spec['names']['plural']}"
        assert (await client.get(path))["kind"] == spec["names"]["listKind"]


@pytest.mark.slow
async def test_reinstallation_does_not_replace_the_signing_key(
    client: KubeClient, capsys: pytest.CaptureFixture[str]
) -> None:
    await run(client, capsys)
    keys = await load_keys(client, "kube-system", lambda: 1000.0, lambda size: b"k" * size)
    assert keys == (("1000", b"k" * 32),)
    assert (await run(client, capsys))["secret/phalanx-signing-keys"] == "unchanged"
    assert keys_in(await client.get("/api/v1/namespaces/kube-system/secrets/phalanx-signing-keys")) == keys


@pytest.mark.slow
async def test_a_queue_is_its_users_to_change(client: KubeClient, capsys: pytest.CaptureFixture[str]) -> None:
    await run(client, capsys, rights=False)
    await client.patch(f"{QUEUES}/default", {"spec": {"weight": 7}}, PatchType.MERGE)
    assert (await run(client, capsys, rights=False))["queue.scheduling.volcano.sh/default"] == "unchanged"
    assert (await client.get(f"{QUEUES}/default"))["spec"]["weight"] == 7


def without_our_mark(name: str) -> dict[str, Any]:
    (definition,) = [entry for entry in manifests.definitions() if entry["metadata"]["name"] == name]
    del definition["metadata"]["labels"]
    return definition


async def test_foreign_definitions_and_their_queues_are_not_changed(
    client: KubeClient, capsys: pytest.CaptureFixture[str]
) -> None:
    theirs = without_our_mark("queues.scheduling.volcano.sh")
    await client.create(DEFINITIONS, theirs)
    outcomes = await run(client, capsys, rights=False)
    name = "customresourcedefinition.apiextensions.k8s.io/queues.scheduling.volcano.sh"
    assert outcomes[name] == "unchanged (not installed by Phalanx)"
    assert "labels" not in (await client.get(f"{DEFINITIONS}/queues.scheduling.volcano.sh"))["metadata"]
    assert (await client.get(QUEUES))["items"] == []
    assert not [told for told in outcomes if told.startswith("queue.scheduling")]


class LateClient(KubeClient):
    """Talks to a server that has not heard of the definition yet when the first queue is made."""

    late = True

    async def create(self, path: str, obj: Any, params: Any = None, *, read: bool = True) -> Any:
        if path == QUEUES and self.late:
            self.late = False
            raise ApiError(404, "NotFound", "404 page not found")
        return await super().create(path, obj, params, read=read)


@pytest.mark.parametrize("by_server", [True, False])
async def test_a_definition_that_another_project_has_applied_over_ours_is_theirs(
    client: KubeClient, capsys: pytest.CaptureFixture[str], by_server: bool
) -> None:
    """Apply preserves labels that it does not state: our label stays on a definition that is no longer ours."""
    plain = "podgroups.scheduling.x-k8s.io"
    outcomes = await run(client, capsys, rights=False)
    name = f"customresourcedefinition.apiextensions.k8s.io/{plain}"
    assert outcomes[name] == "created"
    theirs = without_our_mark(plain)
    theirs["spec"]["names"]["shortNames"] = ["theirs"]
    if by_server:
        await client.patch(f"{DEFINITIONS}/{plain}", theirs, PatchType.APPLY, field_manager="kubectl", force=True)
    else:
        note = {"kubectl.kubernetes.io/last-applied-configuration": json.dumps(theirs)}
        change = {"metadata": {"annotations": note}, "spec": {"names": {"shortNames": ["theirs"]}}}
        await client.patch(f"{DEFINITIONS}/{plain}", change, PatchType.MERGE)
    assert (await client.get(f"{DEFINITIONS}/{plain}"))["metadata"]["labels"]["app.kubernetes.io/managed-by"]
    assert (await run(client, capsys, rights=False))[name] == "unchanged (not installed by Phalanx)"
    assert (await client.get(f"{DEFINITIONS}/{plain}"))["spec"]["names"]["shortNames"] == ["theirs"]


@pytest.mark.parametrize("by_server", [True, False])
async def test_our_definition_applied_by_another_manager_stays_ours(
    client: KubeClient, capsys: pytest.CaptureFixture[str], by_server: bool
) -> None:
    """The files of deploy/, and an upgrade by this command."""
    plain = "podgroups.scheduling.x-k8s.io"
    (older,) = [entry for entry in manifests.definitions() if entry["metadata"]["name"] == plain]
    older["spec"]["names"]["shortNames"] = ["old"]
    if by_server:
        await client.patch(f"{DEFINITIONS}/{plain}", older, PatchType.APPLY, field_manager="kubectl")
    else:
        noted = {"kubectl.kubernetes.io/last-applied-configuration": json.dumps(older)}
        await client.create(DEFINITIONS, {**older, "metadata": {**older["metadata"], "annotations": noted}})
    outcomes = await run(client, capsys, rights=False)
    assert outcomes[f"customresourcedefinition.apiextensions.k8s.io/{plain}"] == "configured"
    found = await client.get(f"{DEFINITIONS}/{plain}")
    assert found["spec"]["names"].get("shortNames") != ["old"]


async def test_a_server_that_needs_a_moment_is_asked_again(
    client: KubeClient, capsys: pytest.CaptureFixture[str]
) -> None:
    async with LateClient(client.config) as late:
        outcomes = await run(late, capsys, rights=False)
    assert not late.late
    assert outcomes["queue.scheduling.volcano.sh/root"] == "created"


async def test_definition_whose_names_are_in_use_fails_with_a_clear_message(
    client: KubeClient, capsys: pytest.CaptureFixture[str]
) -> None:
    theirs = without_our_mark("elasticquotas.scheduling.x-k8s.io")
    theirs["metadata"]["name"] = "quotas.scheduling.x-k8s.io"
    theirs["spec"]["names"] |= {"plural": "quotas", "singular": "quota", "kind": "Quota", "listKind": "QuotaList"}
    await client.create(DEFINITIONS, theirs)
    with pytest.raises(
        click.ClickException, match=r"definition elasticquotas\.scheduling\.x-k8s\.io is rejected: .*eq"
    ):
        await run(client, capsys, rights=False)


# On paper


def test_a_scheduler_of_another_name_may_hold_the_lease_that_it_asks_for() -> None:
    leases = {
        name
        for each in all_rights("gpu", "team")
        for rule in each.get("rules", ())
        if rule.get("resources") == ["leases"] and "update" in rule["verbs"]
        for name in rule["resourceNames"]
    }
    assert leases == {SchedulerOptions(scheduler_names=("gpu",)).lease_name, ControllerOptions().lease_name}


@functools.cache
def printed(*arguments: str) -> list[dict[str, Any]]:
    """Return the output of `phalanx install --print`, read-only."""
    result = CliRunner().invoke(install, ["--print", *arguments])
    assert result.exit_code == 0, result.output
    return list(yaml.safe_load_all(result.output))


@pytest.mark.slow
def test_print_writes_the_objects_that_install_applies() -> None:
    kinds = [document["kind"] for document in printed()]
    definitions = len(manifests.definitions())
    assert kinds.count("CustomResourceDefinition") == definitions
    assert kinds[definitions:] == [
        "Namespace",
        "ServiceAccount",
        "ClusterRole",
        "ClusterRoleBinding",
        "Role",
        "RoleBinding",
        "Secret",
        *["ClusterRole"] * 2,
        # of people
        *["ClusterRole"] * 3,
        "ServiceAccount",
        "ClusterRole",
        "ClusterRoleBinding",
        "Role",
        "RoleBinding",
        # of the webhook
        "ServiceAccount",
        "ClusterRole",
        "ClusterRoleBinding",
        "Role",
        "RoleBinding",
        "Role",
        "RoleBinding",
        "Secret",
        *["FlowSchema"] * 4,
        "Queue",
        "Queue",
    ]
    assert {document["kind"] for document in printed("--crds-only")} == {"CustomResourceDefinition", "Queue"}


@pytest.mark.slow
def test_names_follow_the_scheduler_and_the_namespace() -> None:
    documents = printed("--scheduler-name", "gpu", "--namespace", "team")
    account = next(document for document in documents if document["kind"] == "ServiceAccount")
    assert (account["metadata"]["namespace"], account["metadata"]["name"]) == ("team", "gpu-scheduler")
    subjects = [document["subjects"] for document in documents if document["kind"].endswith("Binding")]
    accounts = [name for name in ("gpu-scheduler", "gpu-controllers", "phalanx-webhook") for _ in range(2)]
    accounts.append("phalanx-webhook")
    assert subjects == [[{"kind": "ServiceAccount", "name": name, "namespace": "team"}] for name in accounts]


def test_the_lease_that_may_be_taken_is_the_one_that_the_scheduler_takes() -> None:
    role = next(document for document in printed() if document["kind"] == "Role")
    assert role["metadata"]["namespace"] == SchedulerOptions().lease_namespace
    leases = [rule for rule in role["rules"] if rule["resources"] == ["leases"]]
    assert [rule.get("resourceNames") for rule in leases] == [None, [SchedulerOptions().lease_name], [HUB_LEASE]]
    assert leases[2]["verbs"] == ["get"]


@pytest.mark.slow
def test_a_lease_of_any_other_name_may_be_granted() -> None:
    role = next(document for document in printed("--lease-name", "turns") if document["kind"] == "Role")
    leases = [rule for rule in role["rules"] if rule["resources"] == ["leases"]]
    assert [rule.get("resourceNames") for rule in leases] == [None, ["turns"], [HUB_LEASE]]


@pytest.mark.slow
def test_scheduler_of_a_second_name_may_not_touch_the_lease_or_records_of_the_first() -> None:
    """Two schedulers in one cluster: each may write the objects whose names begin with its own name."""
    roles = [next(each for each in printed("--scheduler-name", name) if each["kind"] == "Role") for name in "ab"]
    one, other = (
        {(rule["resources"][0], name) for rule in role["rules"] for name in rule.get("resourceNames", ())}
        for role in roles
    )
    shared = {("secrets", "phalanx-signing-keys"), ("configmaps", POLICIES)}
    assert one & other == {*shared, ("leases", HUB_LEASE)}  # the latter only read


def test_scheduler_may_read_and_write_only_its_own_config_maps() -> None:
    role = next(document for document in printed() if document["kind"] == "Role")
    rules = [rule for rule in role["rules"] if rule["resources"] == ["configmaps"]]
    assert [rule["verbs"] for rule in rules] == [["create"], ["get", "patch"]]
    assert rules[1]["resourceNames"][0] == "phalanx-usage-0"
    assert len(rules[1]["resourceNames"]) == MOST_OBJECTS + 4


def rights() -> dict[str, Any]:
    """The scheduler's ClusterRole."""
    return next(document for document in printed() if document["kind"] == "ClusterRole")


def test_editor_of_a_namespace_may_edit_its_pod_groups() -> None:
    roles = {document["metadata"]["name"]: document for document in printed() if document["kind"] == "ClusterRole"}
    for verb, label in (("create", "edit"), ("list", "view")):
        role = roles[f"phalanx-podgroups-{label}"]
        assert role["metadata"]["labels"][f"rbac.authorization.k8s.io/aggregate-to-{label}"] == "true"
        assert all(verb in rule["verbs"] for rule in role["rules"])
        handled = {
            (group, name) for rule in role["rules"] for group in rule["apiGroups"] for name in rule["resources"]
        }
        assert ("scheduling.volcano.sh", "podgroups") in handled
        assert {
            ("batch.volcano.sh", "jobs"),
            ("flow.volcano.sh", "jobflows"),
            ("bus.volcano.sh", "commands"),
        } < handled
        assert not {"queues", "*"} & {name for _, name in handled}
    assert roles["phalanx-podgroups-edit"]["rules"][0]["resources"] == ["podgroups"]


def test_the_rights_name_no_wildcard_and_no_secret() -> None:
    role = rights()
    words = {word for rule in role["rules"] for part in rule.values() for word in part}
    assert not words & {"*", "secrets", "configmaps", "escalate", "bind", "impersonate"}
    pods = {name: rule["verbs"] for rule in role["rules"] for name in rule["resources"] if name.startswith("pods")}
    assert pods == {
        "pods": ["get", "list", "watch", "delete", "patch"],
        "pods/binding": ["create"],
        "pods/status": ["patch"],
        "pods/eviction": ["create"],
    }


def test_rights_cover_the_needs_of_queues_and_quotas() -> None:
    role = rights()

    def verbs(group: str, resource: str) -> set[str]:
        rules = [rule for rule in role["rules"] if group in rule["apiGroups"] and resource in rule["resources"]]
        return {verb for rule in rules for verb in rule["verbs"]}

    read = {"get", "list", "watch"}
    for kind in ACCOUNT_KINDS:
        assert read <= verbs(kind.group, kind.plural)
        if kind.plural in ("queues", "elasticquotas"):
            assert verbs(kind.group, f"{kind.plural}/status") == {"patch"}
    assert verbs("scheduling.volcano.sh", "queues") == read | {"create"}
    # Projects whose own definition has no status subresource.
    assert verbs("scheduling.sigs.k8s.io", "elasticquotas") == read | {"patch"}
    assert verbs("scheduling.x-k8s.io", "elasticquotas") == read
    assert verbs("", "resourcequotas") == read


def test_disruption_budgets_are_read_and_left_to_their_owners() -> None:
    role = rights()
    rules = [rule for rule in role["rules"] if "policy" in rule["apiGroups"]]
    assert [(rule["resources"], rule["verbs"]) for rule in rules] == [
        (["poddisruptionbudgets"], ["get", "list", "watch"])
    ]


def test_volumes_are_bound_and_never_made_or_deleted() -> None:
    role = rights()
    found = {
        name: set(rule["verbs"])
        for rule in role["rules"]
        for name in rule["resources"]
        if name.startswith(("persistent", "storage", "csi", "volume"))
    }
    read = {"get", "list", "watch"}
    written = {"persistentvolumes", "persistentvolumeclaims"}
    only_read = {"storageclasses", "csinodes", "csidrivers", "csistoragecapacities", "volumeattachments"}
    assert found == dict.fromkeys(written, read | {"patch"}) | dict.fromkeys(only_read, read)


@pytest.mark.parametrize("name", ["Bad_Name", "", "-a", "x" * 250])
def test_scheduler_name_invalid_for_an_account_is_refused_before_anything_is_applied(name: str) -> None:
    result = CliRunner().invoke(install, ["--scheduler-name", name, "--kubeconfig", "/no/such/file"])
    assert result.exit_code == 2
    assert f"--scheduler-name '{name[:77]}" in result.output


def test_address_of_the_page_is_published_on_request_only() -> None:
    def public(*arguments: str) -> list[dict[str, Any]]:
        return [each for each in printed(*arguments) if each["metadata"].get("namespace") == "kube-public"]

    assert public() == []
    config_map, role, binding = public("--dashboard-url", "https://phalanx.example/")
    assert config_map["data"] == {"url": "https://phalanx.example"}
    assert (role["rules"][0]["verbs"], role["rules"][0]["resourceNames"]) == (["get"], ["phalanx"])
    assert binding["subjects"][0]["name"] == "system:authenticated"


@pytest.mark.parametrize("url", ["http://phalanx.example", "phalanx.example", "https://user@phalanx.example"])
def test_address_that_would_expose_tokens_is_not_published(url: str) -> None:
    result = CliRunner().invoke(install, ["--print", "--dashboard-url", url])
    assert result.exit_code == 2
    assert "--dashboard-url" in result.output
