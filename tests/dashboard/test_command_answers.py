"""Commands of tenants are answered by the API of the page, without names of foreign objects; tests try for more."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from phalanx.cli.installation.dashboard_manifests import address_manifests
from phalanx.cli.installation.manifests import object_path
from phalanx.cli.main import cli
from phalanx.kube.client import PatchType
from tests.dashboard.cluster import SECRETS, Page, Site

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.e2e]


def assert_hides(text: str | bytes) -> None:
    content = text.encode() if isinstance(text, str) else text
    for name in SECRETS:
        assert name.encode() not in content, content


class Tenant:
    """Command line of the tenant of a namespace."""

    def __init__(self, site: Site, namespace: str) -> None:
        self._file = site.directory / f"{namespace}.kubeconfig"
        self._file.write_text(json.dumps(site.server.tenant_kubeconfig(namespace)))

    async def run(self, *words: str, code: int = 0, **environment: str) -> str:
        """Return the output and the error output of a command that ends with `code`."""
        variables = {"KUBECONFIG": str(self._file), **environment}
        result = await asyncio.to_thread(CliRunner(env=variables).invoke, cli, words)
        assert result.exit_code == code, (result.output, result.exception)
        return result.output

    async def json(self, *words: str, **environment: str) -> Any:
        return json.loads(await self.run(*words, "-o", "json", **environment))


async def publish(site: Site, url: str) -> None:
    for manifest in address_manifests(url):
        await site.client.patch(
            object_path(manifest), manifest, PatchType.APPLY, field_manager="phalanx", force=True
        )


@pytest.fixture
def tenant(site: Site) -> Tenant:
    return Tenant(site, "ours")


async def test_why_of_a_tenant_is_answered_at_the_published_address(
    site: Site, shared: Page, tenant: Tenant
) -> None:
    await publish(site, shared.url)
    for name in ("impossible", "podgroup/impossible", "pod/train-0", "pod/alone"):
        output = await tenant.run("why", name)
        assert "ours/" in output
        assert "Pending" in output
        assert_hides(output)
    assert (await tenant.json("why", "impossible"))["reason"] == "NotEnoughResources"
    assert "no gang, job or pod 'nosuch'" in await tenant.run("why", "nosuch", code=1)


async def test_why_of_another_namespace_is_refused_without_a_lookup(
    site: Site, shared: Page, tenant: Tenant
) -> None:
    await publish(site, shared.url)
    texts = {
        await tenant.run("why", name, "-n", "hidden-ns", code=1) for name in ("covert-train", "nosuch", "pod/x")
    }
    assert texts == {"Error: you lack the right to list pods in namespace hidden-ns\n"}
    assert "namespace absent" in await tenant.run("why", "x", "-n", "absent", code=1)


async def test_why_of_an_evicted_pod_names_no_preemptor(site: Site, shared: Page, tenant: Tenant) -> None:
    await publish(site, shared.url)
    output = await tenant.run("why", "pod/train-9")
    assert "evicted for a gang or pod of higher priority" in output
    assert_hides(output)


async def test_why_without_a_server_prints_conditions_and_one_line(site: Site, tenant: Tenant) -> None:
    await publish(site, "http://127.0.0.1:1")
    output = await tenant.run("why", "impossible")
    assert "PodGroup impossible" in output
    assert output.count("warning: the server at http://127.0.0.1:1 cannot be reached") == 1
    assert "Error" in await tenant.run("why", "nosuch", code=1)


async def test_questions_with_strange_values_are_refused(site: Site, shared: Page) -> None:
    ours = site.token("ours")
    for query, expected in (
        ("", 400),
        ("namespace=ours", 400),
        ("namespace=ours&name=" + "x" * 2000, 400),
        ("namespace=OURS&name=x", 400),
        ("namespace=ours&name=../x", 404),
        ("namespace=ours&name=x&kind=secret", 404),
        ("namespace=hidden-ns&name=covert-train", 403),
        ("namespace=ours&name=covert-train", 404),
        ("namespace=ours&name=hidden-ns/covert-train", 404),
    ):
        status, body = await shared.ask(f"/api/v1/commands/why?{query}", token=ours)
        assert status == expected, (query, status, body)
        if status != 404:
            continue
        # The answer repeats the question, and nothing else.
        assert b"shy-node" not in body
    status, _ = await shared.ask("/api/v1/commands/why?namespace=ours&name=train", token="")
    assert status == 401


async def test_impersonation_is_not_dropped_silently(site: Site, shared: Page, tenant: Tenant) -> None:
    output = await tenant.run("why", "impossible", "--as", "admin", "--server", shared.url, code=1)
    assert "--as works with the rights to read the whole cluster only" in output


async def test_commands_answer_an_administrator_without_a_server(site: Site, tmp_path: Path) -> None:
    environment = {"KUBECONFIG": str(site.directory / "kubeconfig")}
    arguments = ["why", "covert-train", "-n", "hidden-ns"]
    result = await asyncio.to_thread(CliRunner(env=environment).invoke, cli, arguments)
    assert result.exit_code == 0, result.output
    assert "covert-train" in result.output
