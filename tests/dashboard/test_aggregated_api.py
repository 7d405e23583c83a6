"""Users with client certificates are answered by the aggregated API, on the path of the API server."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
import re
import shutil
import ssl
import subprocess
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any
from unittest import mock

import aiohttp
import pytest
import pytest_asyncio

from phalanx.cli.installation.manifests import object_path
from phalanx.cli.installation.visibility_manifests import visibility_access, visibility_service
from phalanx.dashboard.access import Viewer
from phalanx.dashboard.aggregated import server as aggregated_server
from phalanx.dashboard.aggregated.server import AggregatedOptions
from phalanx.kube.auth.config import load_config
from phalanx.kube.client import PatchType
from phalanx.kube.errors import ApiError
from phalanx.reports.aggregated_names import API_SERVICE, GROUP, GROUP_VERSION
from phalanx_local.aggregation import aggregator
from phalanx_local.authentication.certificates import Authority, load_pair
from tests.dashboard.cluster import SECRETS, Page, Site, until
from tests.dashboard.test_command_answers import Tenant, assert_hides, invoke, publish

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.e2e]

KUBECTL = shutil.which("kubectl")
ANSWERS = f"/apis/{GROUP_VERSION}/namespaces/{{}}/answers/{{}}"


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def aggregated(site: Site) -> AsyncIterator[Page]:
    """Page with the aggregated API, which the API server forwards to."""
    await apply(site, visibility_access("phalanx-system"))
    options = AggregatedOptions("127.0.0.1", 0)
    with (
        mock.patch.object(aggregated_server, "REFRESH_SECONDS", 0.1),
        mock.patch.object(aggregator, "CHECK_SECONDS", 0.05),
    ):
        async with site.dashboard("token", aggregated=options) as page:
            address = f"127.0.0.1:{page.served.aggregated_port}"
            await apply(site, visibility_service("phalanx-system", address))
            await until(lambda: is_available(site), "an available APIService")
            yield page


async def apply(site: Site, manifests: list[dict[str, Any]]) -> None:
    for manifest in manifests:
        path = object_path(manifest)
        await site.client.patch(path, manifest, PatchType.APPLY, field_manager="phalanx", force=True)


async def is_available(site: Site) -> bool:
    found = await site.client.get(f"/apis/apiregistration.k8s.io/v1/apiservices/{API_SERVICE}")
    conditions = (found.get("status") or {}).get("conditions") or []
    return any(entry["status"] == "True" for entry in conditions)


class Certified(Tenant):
    """Command line of the tenant of a namespace, with a certificate and no token."""

    def __init__(self, site: Site, namespace: str) -> None:
        self.file = site.directory / f"{namespace}-certificate.kubeconfig"
        self.file.write_text(json.dumps(site.server.certified_kubeconfig(namespace)))

    async def ask(
        self, path: str, method: str = "GET", data: bytes | None = None, **headers: str
    ) -> tuple[int, bytes]:
        """Send a request to the API server as this user, with further headers."""
        config = load_config(str(self.file))
        sent = {name.replace("_", "-"): value for name, value in headers.items()}
        async with (
            aiohttp.ClientSession() as session,
            session.request(
                method, f"{config.server}{path}", headers=sent, data=data, ssl=config.tls.context()
            ) as answer,
        ):
            return answer.status, await answer.read()

    async def answer(self, command: str, query: str = "", namespace: str = "ours", **more: Any) -> tuple[int, Any]:
        """Return status and document of a question."""
        status, body = await self.ask(f"{ANSWERS.format(namespace, command)}?{query}", **more)
        return status, json.loads(body)


@pytest.fixture
def tenant(site: Site) -> Certified:
    return Certified(site, "ours")


async def test_why_is_a_document_of_the_api(aggregated: Page, tenant: Certified) -> None:
    status, found = await tenant.answer("why", "name=impossible")
    assert (status, found["apiVersion"], found["kind"]) == (200, GROUP_VERSION, "Answer")
    assert found["metadata"]["namespace"] == "ours"
    assert found["answer"]["reason"] == "NotEnoughResources"


@pytest.mark.parametrize(
    "words",
    [
        ("why", "impossible"),
        ("why", "pod/alone"),
        ("order", "-o", "wide"),
        ("order", "-A"),
        ("queue", "tree"),
        ("queue", "list"),
        ("quota", "list"),
        ("nodes",),
        ("jobs",),
        ("jobs", "--start"),
        ("jobs", "-A"),
        pytest.param(("what-if", "--free"), marks=pytest.mark.slow),
    ],
)
async def test_commands_answer_a_certificate_as_they_answer_a_token(
    site: Site, shared: Page, aggregated: Page, tenant: Certified, words: tuple[str, ...]
) -> None:
    await publish(site, shared.url)
    by_certificate, by_token = await tenant.run(*words), await Tenant(site, "ours").run(*words)
    assert_hides(by_certificate)
    assert comparable(by_certificate) == comparable(by_token)


def comparable(output: str) -> str:
    """Return an output without times, names of users and repeated spaces."""
    plain = re.sub(r"\d+(\.\d+)? ?(s|ms|m|h|min)\b|\d\d:\d\d:\d\d", "", output)
    return re.sub(r" +", " ", plain).replace("system:serviceaccount:ours:tenant", "tenant-ours")


async def test_exec_plugin_with_a_certificate_is_run_once(
    site: Site, aggregated: Page, tenant: Certified, tmp_path: Path
) -> None:
    config = json.loads(tenant.file.read_text())
    user = config["users"][0]["user"]
    status = {
        "clientCertificateData": base64.b64decode(user["client-certificate-data"]).decode(),
        "clientKeyData": base64.b64decode(user["client-key-data"]).decode(),
    }
    version = "client.authentication.k8s.io/v1"
    answer, runs = tmp_path / "answer.json", tmp_path / "runs"
    answer.write_text(json.dumps({"apiVersion": version, "kind": "ExecCredential", "status": status}))
    script = f"echo run >> {runs}; cat {answer}"
    plugin = {"apiVersion": version, "command": "sh", "args": ["-c", script], "interactiveMode": "Never"}
    config["users"][0]["user"] = {"exec": plugin}
    file = tmp_path / "exec.kubeconfig"
    file.write_text(json.dumps(config))
    assert "ours/impossible" in (await invoke(file, "why", "impossible")).output
    assert runs.read_text().split() == ["run"]


async def test_user_with_a_token_is_answered_without_a_published_address(site: Site, aggregated: Page) -> None:
    with contextlib.suppress(ApiError):
        await site.client.delete("/api/v1/namespaces/kube-public/configmaps/phalanx")
    assert "ours/impossible" in await Tenant(site, "ours").run("why", "impossible")


async def test_impersonated_user_is_answered_with_the_rights_of_that_user(site: Site, aggregated: Page) -> None:
    Certified(site, "ours")
    admin = site.directory / "kubeconfig"
    words = ("--as", "tenant-ours", "--as-group", "system:authenticated", "-n", "ours")
    output = (await invoke(admin, "why", "impossible", *words)).output
    assert "ours/impossible" in output
    output = (await invoke(admin, "order", *words)).output
    assert_hides(output)


async def test_headers_of_a_client_give_no_rights_of_another_user(aggregated: Page, tenant: Certified) -> None:
    forged = {
        "X_Remote_User": "kubernetes-admin",
        "x_remote_group": "system:masters",
        "X_Remote_Uid": "0",
        "X_REMOTE_EXTRA_scopes": "all",
    }
    status, found = await tenant.answer("why", "name=covert-train", namespace="hidden-ns", **forged)
    assert (status, found["reason"]) == (403, "Forbidden")
    assert found["message"] == "you lack the right to list pods in namespace hidden-ns"
    status, found = await tenant.answer("order", "all-namespaces=true", **forged)
    assert status == 200
    assert_hides(json.dumps(found))


async def test_headers_on_the_page_name_nobody(aggregated: Page) -> None:
    headers = {"X_Remote_User": "kubernetes-admin", "X_Remote_Group": "system:masters"}
    status, _ = await aggregated.ask("/api/v1/commands/order", token="", **headers)
    assert status == 401
    status, _ = await aggregated.ask(ANSWERS.format("ours", "order"), token="", **headers)
    assert status == 404


async def test_direct_requests_without_the_front_proxy_are_refused(site: Site, aggregated: Page) -> None:
    port = aggregated.served.aggregated_port
    forged = {"X-Remote-User": "kubernetes-admin", "X-Remote-Group": "system:masters"}
    bearer = {"Authorization": f"Bearer {site.token('ours')}"}
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    async with aiohttp.ClientSession() as session:
        for path in ("/apis", f"/apis/{GROUP_VERSION}", ANSWERS.format("ours", "order"), "/openapi/v2", "/x"):
            for headers in (forged, bearer, forged | bearer, {}):
                async with session.get(f"https://127.0.0.1:{port}{path}", headers=headers, ssl=context) as answer:
                    assert answer.status == 401
                    assert_hides(await answer.read())
        for path in ("/healthz", "/livez", "/readyz"):
            async with session.get(f"https://127.0.0.1:{port}{path}", ssl=context) as answer:
                assert (answer.status, await answer.text()) == (200, "ok")


async def test_certificate_of_a_user_is_none_of_the_front_proxy(site: Site, aggregated: Page) -> None:
    assert site.server.authority is not None
    pair = site.server.authority.client_pair("front-proxy-client", ("system:masters",))
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    load_pair(context, pair)
    url = f"https://127.0.0.1:{aggregated.served.aggregated_port}{ANSWERS.format('ours', 'order')}"
    async with aiohttp.ClientSession() as session:
        with pytest.raises((aiohttp.ClientError, ConnectionError)):
            async with session.get(url, headers={"X-Remote-User": "kubernetes-admin"}, ssl=context):
                pass


@pytest.mark.parametrize(
    ("command", "query", "status"),
    [
        ("why", "", 400),
        ("why", "name=nosuch", 404),
        ("why", "name=covert-train", 404),
        ("why", "name=hidden-ns/covert-train", 404),
        ("why", "name=covert-train&namespace=hidden-ns", 404),
        ("why", f"name={'x' * 2000}", 400),
        ("why", "name=..", 400),
        ("order", "own=hidden-ns", 200),
        ("order", "own=hidden-ns&all-namespaces=true", 200),
        ("order", "namespace=hidden-ns", 200),
        ("jobs", "all-namespaces=true", 200),
        ("queues", "", 200),
        ("nodes", "selector=kubernetes.io/hostname", 403),
        ("nodes", "pool-label=kubernetes.io/hostname", 403),
        ("what-if", "", 405),
        ("nosuch", "", 404),
        ("WHY", "name=train", 404),
    ],
)
async def test_answers_and_refusals_name_no_foreign_object(
    aggregated: Page, tenant: Certified, command: str, query: str, status: int
) -> None:
    found, document = await tenant.answer(command, query)
    assert (found, document["kind"]) == (status, "Answer" if status == 200 else "Status"), document
    text = json.dumps(document)
    for secret in SECRETS:
        assert secret not in text or secret in query


async def test_questions_with_a_body_are_limited_and_about_one_namespace(
    aggregated: Page, tenant: Certified
) -> None:
    async def post(data: bytes, namespace: str = "ours") -> tuple[int, Any]:
        return await tenant.answer("what-if", namespace=namespace, method="POST", data=data)

    assert (await post(b'{"free": true, "namespace": "hidden-ns"}'))[0] == 400
    assert (await post(b'{"free": true, "namespace": "hidden-ns"}', "hidden-ns"))[0] == 403
    assert (await post(b"["))[0] == 400
    status, found = await post(b" " * 600_000)
    assert (status, found["reason"]) == (413, "RequestEntityTooLarge")
    # A body that the user has no right to send is not read.
    assert (await post(b" " * 600_000, "hidden-ns"))[0] == 403


async def test_second_rehearsal_of_a_user_is_refused_on_either_way(
    site: Site, aggregated: Page, tenant: Certified
) -> None:
    answers = aggregated.served.answers
    async with answers.rehearsals.turn(Viewer("tenant-ours")):
        status, found = await tenant.answer("what-if", method="POST", data=b'{"free": true, "namespace": "ours"}')
    assert (status, found["reason"]) == (429, "TooManyRequests")
    assert "your earlier question" in found["message"]


async def test_user_without_the_right_to_the_answers_is_refused_by_the_api_server(
    site: Site, aggregated: Page, tenant: Certified
) -> None:
    path = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings/phalanx-visibility"
    binding = await site.client.get(path)
    await site.client.delete(path)
    try:
        status, found = await tenant.answer("order")
        assert status == 403
        assert "cannot get resource" in found["message"]
    finally:
        for field in ("uid", "resourceVersion", "creationTimestamp"):
            del binding["metadata"][field]
        await site.client.create(path.rpartition("/")[0], binding)


async def test_user_in_many_groups_is_answered(site: Site, aggregated: Page) -> None:
    groups = [word for number in range(300) for word in ("--as-group", f"team-{number}-of-a-large-organization")]
    words = ("--as", "tenant-ours", *groups, "-n", "ours")
    assert "ours/impossible" in (await invoke(site.directory / "kubeconfig", "why", "impossible", *words)).output


async def test_rotated_authority_of_the_front_proxy_is_read_and_a_broken_one_is_not_used(
    site: Site, aggregated: Page, tenant: Certified
) -> None:
    path = "/api/v1/namespaces/kube-system/configmaps/extension-apiserver-authentication"
    data = (await site.client.get(path))["data"]

    async def write(**changed: str) -> None:
        fields = {key.replace("_", "-"): value for key, value in changed.items()}
        await site.client.patch(path, {"data": data | fields}, PatchType.MERGE)

    async def is_answered() -> bool:
        status, _ = await tenant.ask(ANSWERS.format("ours", "queues"))
        return status == 200

    async def is_refused() -> bool:
        return not await is_answered()

    try:
        await write(requestheader_client_ca_file=Authority().certificate.decode())
        await until(is_refused, "a refusal of the replaced authority")
        await write()
        await until(is_answered, "an answer with the authority of the front proxy")
        await write(requestheader_allowed_names='["other"]')
        await until(is_refused, "a refusal of the name")
        await write()
        await until(is_answered, "an answer with the name of the front proxy")
        await write(requestheader_client_ca_file="PEM", requestheader_allowed_names="[")
        await asyncio.sleep(0.3)
        assert await is_answered()
    finally:
        await write()


async def test_api_service_of_another_installation_is_not_changed(site: Site, aggregated: Page) -> None:
    path = f"/apis/apiregistration.k8s.io/v1/apiservices/{API_SERVICE}"
    before = (await site.client.get(path))["spec"]
    other = AggregatedOptions("127.0.0.1", 0, "tools", "phalanx-visibility")
    problem = await aggregated_server.register(site.client, other, b"PEM")
    assert problem == "the APIService names another Service than tools/phalanx-visibility"
    assert (await site.client.get(path))["spec"] == before


@pytest.mark.skipif(KUBECTL is None, reason="kubectl is not installed")
async def test_kubectl_lists_the_group_and_reads_answers(site: Site, aggregated: Page, tenant: Certified) -> None:
    async def kubectl(*words: str) -> str:
        return await asyncio.to_thread(run_kubectl, tenant.file, site.directory, *words)

    assert "answers" in await kubectl("api-resources", "--api-group", GROUP)
    assert GROUP_VERSION in await kubectl("api-versions")
    path = ANSWERS.format("ours", "order")
    assert '"kind":"Answer"' in await kubectl("get", "--raw", path)
    assert "order" in await kubectl("get", f"answer.{GROUP}", "order", "-n", "ours")
    assert "answer:" in await kubectl("get", f"answer.{GROUP}", "order", "-n", "ours", "-o", "yaml")
    assert "KIND:       Answer" in await kubectl("explain", f"answers.{GROUP}")


def run_kubectl(kubeconfig: Path, home: Path, *words: str) -> str:
    """Return the output of kubectl, which prints no warning."""
    command = [str(KUBECTL), "--kubeconfig", str(kubeconfig), "--cache-dir", str(home / "cache"), *words]
    result = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert (result.returncode, result.stderr) == (0, ""), (words, result.stdout)
    return result.stdout
