"""Commands of tenants are answered by the API of the page, without names of foreign objects; tests try for more."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

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


async def invoke(kubeconfig: Path, *words: str, code: int = 0, **environment: str) -> Result:
    variables = {"KUBECONFIG": str(kubeconfig), **environment}
    result = await asyncio.to_thread(CliRunner(env=variables).invoke, cli, words)
    assert result.exit_code == code, (result.output, result.exception)
    return result


class Tenant:
    """Command line of the tenant of a namespace."""

    def __init__(self, site: Site, namespace: str) -> None:
        self.file = site.directory / f"{namespace}.kubeconfig"
        self.file.write_text(json.dumps(site.server.tenant_kubeconfig(namespace)))

    async def run(self, *words: str, code: int = 0, **environment: str) -> str:
        """Return the output and the error output of a command that ends with `code`."""
        return (await invoke(self.file, *words, code=code, **environment)).output

    async def json(self, *words: str) -> Any:
        return json.loads((await invoke(self.file, *words, "-o", "json")).stdout)


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
        ("namespace=ours&name=../x", 400),
        ("namespace=ours&name=..", 400),
        ("namespace=ours&name=x&kind=.", 400),
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
    output = (await invoke(site.directory / "kubeconfig", "why", "pod/quiet-pod", "-n", "hidden-ns")).output
    assert "hidden-ns/quiet-pod" in output


async def test_order_of_a_tenant_counts_foreign_units_in_positions(
    site: Site, shared: Page, tenant: Tenant
) -> None:
    await publish(site, shared.url)
    output = await tenant.run("order", "-o", "wide")
    assert "not shown: 1 waiting unit of other namespaces; POS counts them" in output
    assert_hides(output)
    entries = (await tenant.json("order"))["items"]
    assert {entry["namespace"] for entry in entries} == {"ours"}
    assert max(entry["position"] for entry in entries) > len(entries) or entries[-1]["name"] != "quiet-pod"
    assert all(not entry["message"] for entry in entries)
    assert "you lack the right" in await tenant.run("order", "-n", "hidden-ns", code=1)


async def test_starts_of_a_tenant_name_no_cause_of_another_namespace(
    site: Site, shared: Page, tenant: Tenant
) -> None:
    await publish(site, shared.url)
    for words in ((), ("-A",), ("-o", "json"), ("-o", "name")):
        output = await tenant.run("jobs", "--start", *words)
        assert "impossible" in output
        assert_hides(output)
    assert "you lack the right" in await tenant.run("jobs", "--start", "-n", "hidden-ns", code=1)


async def test_queues_of_a_tenant_are_those_of_its_gangs_and_the_rest_is_counted(
    site: Site, shared: Page, tenant: Tenant
) -> None:
    await publish(site, shared.url)
    for words in (("list",), ("list", "-o", "wide"), ("tree",), ("tree", "-o", "json"), ("describe", "our-queue")):
        output = await tenant.run("queue", *words)
        assert "our-queue" in output
        assert_hides(output)
    assert "not shown: 1 queue that you lack the right to get" in await tenant.run("queue", "list")
    hidden = await tenant.run("queue", "describe", "covert-queue", code=1)
    assert hidden in (await tenant.run("queue", "describe", "covert-queues", code=1)).replace("queues'", "queue'")


async def test_free_room_without_the_right_to_list_nodes_has_no_names(
    site: Site, shared: Page, tenant: Tenant
) -> None:
    await publish(site, shared.url)
    for words in ((), ("-s",), ("-o", "json"), ("-o", "wide"), ("-o", "name")):
        output = await tenant.run("nodes", *words)
        assert_hides(output)
        assert "node-1" not in output
    for words in (("-N",), ("-R",), ("-l", "kubernetes.io/hostname=shy-node"), ("--pool-label", "hostname")):
        assert "need the right to list nodes" in await tenant.run("nodes", *words, code=1)
    _, body = await shared.ask("/api/v1/commands/nodes?pool-label=nodepool", token=site.token("ours"))
    assert {entry["name"] for entry in json.loads(body)["nodes"]} == {""}


async def test_jobs_of_the_server_are_those_of_the_tenant(site: Site, shared: Page, tenant: Tenant) -> None:
    for words in ((), ("-A",), ("-o", "wide"), ("-o", "json"), ("-t", "PD"), ("-q", "our-queue")):
        output = await tenant.run("jobs", *words, "--server", shared.url)
        assert "impossible" in output
        assert_hides(output)
    assert "you lack the right" in await tenant.run("jobs", "-n", "hidden-ns", "--server", shared.url, code=1)
    assert "--selector excludes --server" in await tenant.run("jobs", "-l", "a=b", "--server", shared.url, code=2)


async def test_own_jobs_of_a_tenant_use_the_user_label_of_the_server(
    site: Site, shared: Page, tenant: Tenant
) -> None:
    await publish(site, shared.url)
    # The policy of this server has no user label; the message is that of an administrator, and no 403.
    output = await tenant.run("jobs", "--me", code=2)
    assert "names no label or annotation with the user of a job" in output
    assert "phalanx jobs -l owner=NAME" in output


async def test_own_list_of_a_tenant_has_no_warning_where_the_server_answers(
    site: Site, shared: Page, tenant: Tenant
) -> None:
    await publish(site, shared.url)
    output = await tenant.run("jobs")
    assert "impossible" in output
    assert "not read" not in output
    await publish(site, "http://127.0.0.1:1")
    assert "not read: configmap kube-system/phalanx-reservations" in await tenant.run("jobs")


async def test_jobs_in_all_namespaces_of_a_tenant_are_answered_without_an_option(
    site: Site, shared: Page, tenant: Tenant
) -> None:
    await publish(site, shared.url)
    output = await tenant.run("jobs", "-A")
    assert "impossible" in output
    assert_hides(output)


async def test_lists_of_an_administrator_and_of_the_server_are_equal(site: Site, shared: Page, page: Page) -> None:
    administrator = site.directory / "kubeconfig"
    for words in (
        ("order", "-o", "name"),
        ("queue", "tree"),
        ("nodes", "-N"),
        ("jobs", "-A", "--start", "-o", "name"),
    ):
        answered = await invoke(administrator, *words, "--server", shared.url)
        assert answered.stdout == (await invoke(administrator, *words)).stdout


JOB = """
apiVersion: batch/v1
kind: Job
metadata: {name: next}
spec:
  parallelism: 2
  template:
    spec:
      schedulerName: phalanx
      restartPolicy: Never
      containers: [{name: c, image: i, resources: {requests: {nvidia.com/gpu: 2}, limits: {nvidia.com/gpu: 2}}}]
"""


@pytest.mark.slow
async def test_what_if_of_a_tenant_counts_foreign_gangs_without_names(
    site: Site, shared: Page, tenant: Tenant, tmp_path: Path
) -> None:
    await publish(site, shared.url)
    (tmp_path / "job.yaml").write_text(JOB)
    for words in (
        ("--gang", "train"),
        ("--gang", "train", "--priority", "1000"),
        ("-f", str(tmp_path / "job.yaml"), "--priority", "1000"),
        ("--free",),
        ("--free", "--queue", "our-queue", "--pod", "cpu=1"),
        ("--gang", "impossible", "-o", "json"),
    ):
        output = await tenant.run("what-if", *words)
        assert_hides(output)
        assert "node-1" not in output


async def test_what_if_of_a_tenant_about_foreign_objects_is_refused(
    site: Site, shared: Page, tenant: Tenant, tmp_path: Path
) -> None:
    await publish(site, shared.url)
    queue = "apiVersion: scheduling.volcano.sh/v1beta1\nkind: Queue\nmetadata: {name: covert-queue}\n"
    foreign = JOB.replace("{name: next}", "{name: next, namespace: hidden-ns}")
    bomb = "a: &a [x, x]\nb: &b [*a, *a]\n" + "".join(
        f"{new}: &{new} [{', '.join([f'*{old}'] * 9)}]\n" for old, new in zip("bcdefghi", "cdefghij", strict=True)
    )
    for number, (text, words) in enumerate(
        ((queue, "only workloads"), (foreign, "not in namespace ours"), (JOB * 3 + queue, ""), (bomb, ""))
    ):
        file = tmp_path / f"{number}.yaml"
        file.write_text(text)
        assert words in await tenant.run("what-if", "-f", str(file), code=1)
    for options, words in (
        (("--gang", "hidden-ns/covert-train"), "unknown gang 'hidden-ns/covert-train' in namespace 'ours'"),
        (("--gang", "train", "-n", "hidden-ns"), "you lack the right to list pods in namespace hidden-ns"),
        (("--free", "--queue", "covert-queue"), "you lack the right to get queues/covert-queue"),
        (("--queue", "our-queue", "--weight", "9"), "you lack the right to get queues/our-queue"),
        (("--without-nodes", "shy-node"), "need the right to list nodes"),
        (("--gang", "train", "--add-nodes", "1", "--like", "shy-node"), "need the right to list nodes"),
    ):
        output = await tenant.run("what-if", *options, code=1)
        assert words in output
        for name in SECRETS:
            assert name not in output or name in "".join(options)


@pytest.mark.slow
async def test_second_rehearsal_of_a_user_is_refused_until_the_first_ends(site: Site, shared: Page) -> None:
    question = json.dumps({"namespace": "ours", "gang": "impossible"})
    ours = site.token("ours")

    async def ask() -> int:
        status, _ = await shared.ask(
            "/api/v1/commands/what-if?namespace=ours", token=ours, method="POST", data=question
        )
        return status

    statuses = await asyncio.gather(*(ask() for _ in range(5)))
    assert sorted(statuses) == [200, 429, 429, 429, 429]
    assert await ask() == 200


async def test_huge_and_malformed_questions_are_refused(site: Site, shared: Page) -> None:
    ours = site.token("ours")
    for body, expected in (
        (b"{" + b" " * (1 << 19) + b"}", 413),
        (b"[" * 200_000, 400),
        (b"\xff", 400),
        (b"{}", 400),
        (b'{"namespace": "ours", "policy": "x"}', 400),
        (b'{"namespace": "ours", "gang": "a\\u0000b"}', 404),
        (b'{"namespace": "ours", "gang": "impossible", "horizon": "\\u0000"}', 400),
        (b'{"namespace": "hidden-ns", "gang": "x"}', 400),
        (b'{"namespace": "", "gang": "hidden-ns/covert-train"}', 400),
    ):
        path = "/api/v1/commands/what-if?namespace=ours"
        status, answer = await shared.ask(path, token=ours, method="POST", data=body)
        assert status == expected, (body[:40], status, answer)
        assert_hides(answer)
    path = "/api/v1/commands/what-if?namespace=hidden-ns"
    status, _ = await shared.ask(path, token=ours, method="POST", data=b'{"namespace": "hidden-ns"}')
    assert status == 403
    status, _ = await shared.ask("/api/v1/commands/what-if", token=ours, method="POST", data=b'{"namespace": ""}')
    assert status == 400
