"""`phalanx install --policies`: which admission policies there are, and how they get into a cluster."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio
import yaml
from click.testing import CliRunner

from phalanx.cli.installation.admission import GROUP_VERSION, guarded_schedulers, policies
from phalanx.cli.installation.install import install, install_policies
from phalanx.cli.installation.manifests import access
from phalanx.kube.auth.config import ClusterConfig
from phalanx.kube.client import KubeClient
from phalanx.kube.errors import ApiError
from phalanx.kube.own_objects import LABELS
from phalanx_local.server import ApiServer, ServerOptions

ALL = policies(["batch"], LABELS)
POLICIES = [each for each in ALL if each["kind"] == "ValidatingAdmissionPolicy"]
# Rules about rights; the remaining policies are rules about objects, in the words of the webhook
# (tests/admission).
OF_RIGHTS = [each for each in POLICIES if not each["metadata"]["name"].endswith("-rules")]


@pytest_asyncio.fixture
async def client() -> AsyncIterator[KubeClient]:
    server = ApiServer(ServerOptions(insecure=True))
    await server.start()
    async with KubeClient(ClusterConfig(server.url)) as connected:
        yield connected
    await server.stop()


def test_each_policy_has_its_binding_and_denies() -> None:
    bindings = [each for each in ALL if each["kind"] == "ValidatingAdmissionPolicyBinding"]
    assert [each["spec"]["policyName"] for each in bindings] == [each["metadata"]["name"] for each in POLICIES]
    assert all(each["spec"]["validationActions"] == ["Deny"] for each in bindings)
    assert all(each["spec"]["failurePolicy"] == "Fail" for each in POLICIES)


@pytest.mark.parametrize("policy", OF_RIGHTS, ids=lambda policy: policy["metadata"]["name"])
def test_every_refusal_states_a_fix(policy: dict[str, Any]) -> None:
    for validation in policy["spec"]["validations"]:
        said = validation.get("messageExpression") or validation["message"]
        assert any(advice in said for advice in ("administrator", "remove it", "bind without it"))


def test_pods_of_other_schedulers_are_never_looked_at() -> None:
    for policy in POLICIES:
        named = [rule["resources"] for rule in policy["spec"]["matchConstraints"]["resourceRules"]]
        if any("pods" in resources for resources in named):
            (condition,) = policy["spec"]["matchConditions"]
            words = ('object.spec.schedulerName in ["batch"]', 'object.spec.schedulerName in ["", "batch"]')
            assert any(word in condition["expression"] for word in words)


def test_the_scheduler_holds_the_right_that_reserved_keys_ask_for() -> None:
    roles = [each for each in access("batch-scheduler", "somewhere") if each["kind"] == "ClusterRole"]
    (role,) = [each for each in roles if each["metadata"]["name"] == "batch-scheduler"]
    assert {"apiGroups": ["phalanx.dev"], "resources": ["schedulingresults"], "verbs": ["write"]} in role["rules"]


def test_printing_them_prints_nothing_else_so_that_they_can_be_deleted_again() -> None:
    result = CliRunner().invoke(install, ["--policies", "--print", "--scheduler-name", "batch"])
    assert list(yaml.safe_load_all(result.stdout)) == ALL


def test_policies_are_installed_only_on_request() -> None:
    printed = CliRunner().invoke(install, ["--print"]).stdout
    assert GROUP_VERSION not in printed
    assert CliRunner().invoke(install, ["--crds-only", "--policies", "--print"]).exit_code == 2


async def test_a_second_run_changes_nothing(client: KubeClient, capsys: pytest.CaptureFixture[str]) -> None:
    await install_policies(client, ["batch"])
    first = capsys.readouterr().out.splitlines()
    assert len(first) == len(ALL)
    assert all(line.endswith(" created") for line in first)
    await install_policies(client, ["batch"])
    assert all(line.endswith(" unchanged") for line in capsys.readouterr().out.splitlines())


async def guarded(client: KubeClient) -> dict[str, list[str]]:
    """Return policy -> schedulers whose pods it covers; only policies with such a condition."""
    found = await client.get(f"/apis/{GROUP_VERSION}/validatingadmissionpolicies")
    by_name = {each["metadata"]["name"]: guarded_schedulers(each) for each in found["items"]}
    return {name: names for name, names in by_name.items() if names}


WITH_SCHEDULERS = {"phalanx-job-rules", "phalanx-queues", "phalanx-quota-labels", "phalanx-reserved-keys"}


async def test_policies_cover_pods_of_all_given_schedulers(client: KubeClient) -> None:
    await install_policies(client, ["phalanx", "batch"])
    assert await guarded(client) == {key: ["phalanx", "batch"] for key in WITH_SCHEDULERS}
    result = CliRunner().invoke(
        install, ["--policies", "--print", "--scheduler-name", "phalanx", "--scheduler-name", "batch"]
    )
    assert list(yaml.safe_load_all(result.stdout)) == policies(["phalanx", "batch"], LABELS)


async def test_pods_covered_before_stay_covered_when_a_second_scheduler_is_installed(
    client: KubeClient, capsys: pytest.CaptureFixture[str]
) -> None:
    await install_policies(client, ["phalanx"])
    assert "still check" not in capsys.readouterr().out
    await install_policies(client, ["batch"])
    assert await guarded(client) == {key: ["batch", "phalanx"] for key in WITH_SCHEDULERS}
    assert "still check the pods of phalanx," in capsys.readouterr().out
    await install_policies(client, ["phalanx", "batch"])
    assert "still check" not in capsys.readouterr().out


async def test_covered_schedulers_are_read_from_policies_of_earlier_versions(client: KubeClient) -> None:
    for manifest in policies(["gold"], LABELS):
        for condition in manifest["spec"].get("matchConditions", ()):
            for now, then in (('in ["gold"]', "== 'gold'"), ('in ["", "gold"]', "in ['', 'gold']")):
                condition["expression"] = condition["expression"].replace(now, then)
        if manifest["kind"] == "ValidatingAdmissionPolicy":
            await client.create(f"/apis/{GROUP_VERSION}/validatingadmissionpolicies", manifest)
    await install_policies(client, ["phalanx"])
    assert await guarded(client) == {key: ["phalanx", "gold"] for key in WITH_SCHEDULERS}


@pytest.mark.parametrize("name", ["it's", "", "A"])
def test_every_scheduler_has_a_name_that_objects_may_have(name: str) -> None:
    result = CliRunner().invoke(
        install, ["--policies", "--print", "--scheduler-name", "phalanx", "--scheduler-name", name]
    )
    assert result.exit_code == 2
    assert f"--scheduler-name {name!r}" in result.output


class OlderClient(KubeClient):
    """Talks to a server that knows no admission policies."""

    async def get(self, path: str, *arguments: Any, **more: Any) -> Any:
        if path.startswith(f"/apis/{GROUP_VERSION}"):
            raise ApiError(404, "NotFound", "404 page not found")
        return await super().get(path, *arguments, **more)


async def test_an_older_server_does_without_and_says_so_once(
    client: KubeClient, capsys: pytest.CaptureFixture[str]
) -> None:
    async with OlderClient(client.config) as older:
        await install_policies(older, ["batch"])
    (line,) = capsys.readouterr().out.splitlines()
    assert "has no validatingadmissionpolicies" in line
