"""A tenant sees only own objects, and of foreign ones numbers; each test attempts to see more."""

from __future__ import annotations

import asyncio
import json
import logging

import aiohttp
import pytest

from phalanx.dashboard.access import AddressLogin
from phalanx.dashboard.rehearsal.process import RehearsalEnded
from phalanx.dashboard.rows.entries import ROWS
from phalanx.dashboard.server import ServeOptions, dashboard
from phalanx.dashboard.watch import WatchOptions
from phalanx.kube.auth.config import load_config
from phalanx.kube.client import KubeClient
from tests.dashboard.cluster import SECRETS, Page, Site, until

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.e2e]

RBAC = "/apis/rbac.authorization.k8s.io/v1"


def assert_hides(body: bytes, *but: str) -> None:
    for name in SECRETS:
        if name not in but:
            assert name.encode() not in body, body


async def test_no_data_is_served_without_a_token(shared: Page) -> None:
    for path in (
        "session",
        "tables/summary",
        "tables/gangs",
        "history",
        "gangs/ours/train",
        "stream?tables=gangs:0",
    ):
        for token in ("", "nonsense", "x" * 20_000, "a\tb"):
            status, body = await shared.ask(f"/api/v1/{path}", token=token)
            assert status in (400, 401), (path, token[:10], status)
            assert_hides(body)
            assert b"train" not in body


async def test_tenant_sees_own_gangs_and_only_numbers_of_foreign_ones(site: Site, shared: Page) -> None:
    ours = site.token("ours")
    rows = await shared.rows("gangs", token=ours)
    assert {"ours/train", "ours/impossible", "ours/pod/alone"} <= set(rows)
    assert {row["namespace"] for row in rows.values()} == {"ours"}
    # The tenant wrote the queue's name: its present numbers are visible, as in `phalanx queue list`.
    assert rows["ours/train"]["queue"] == "our-queue"
    assert "our-queue" in {row["queue"]["name"] for row in (await shared.rows("queues", token=ours)).values()}
    summary = (await shared.rows("summary", token=ours))["cluster"]["summary"]
    assert summary["nodes"] == 2
    assert summary["states"]["Starting"] == 1  # (such a gang exists: its owner and its name are hidden)
    session = await shared.json("session", token=ours)
    assert (session["namespace"], session["everything"], session["what_if"]) == ("ours", False, False)


async def test_no_answer_names_a_hidden_object(site: Site, shared: Page) -> None:
    ours = site.token("ours")
    paths = [f"tables/{name}" for name in ROWS]
    paths += [f"tables/{name}?namespace=ours" for name in ROWS]
    paths += ["session", "history", "gangs/ours/train", "gangs/ours/impossible", "pods/ours/alone"]
    for path in paths:
        status, body = await shared.ask(f"/api/v1/{path}", token=ours)
        assert status == 200, (path, body)
        assert_hides(body)
    # Fields that are no text are present.
    _, body = await shared.ask("/api/v1/gangs/ours/train", token=ours)
    why = json.loads(body)["why"]
    assert why["evictions"]["pods"]
    evictions = await shared.rows("evictions", token=ours)
    assert not any("hidden" in row["message"] for row in evictions.values())
    whoever = await shared.json("gangs/hidden-ns/covert-train", token=site.token("hidden-ns"))
    assert whoever["row"]["name"] == "covert-train"


async def test_existence_of_a_hidden_object_is_not_revealed(site: Site, shared: Page) -> None:
    ours = site.token("ours")
    answers = set()
    for namespace, name in (("hidden-ns", "covert-train"), ("hidden-ns", "nobody"), ("no-such-ns", "nobody")):
        status, body = await shared.ask(f"/api/v1/gangs/{namespace}/{name}", token=ours)
        answers.add((status, body.replace(namespace.encode(), b"NS")))
    assert len(answers) == 1
    assert answers.pop()[0] == 403
    for table in ROWS:
        for namespace in ("hidden-ns", "no-such-ns"):
            status, body = await shared.ask(f"/api/v1/tables/{table}?namespace={namespace}", token=ours)
            assert status == 403, (table, namespace, body)
    for wrong in ("..", "A", "a/b", "%00", "x" * 64):
        status, _ = await shared.ask(f"/api/v1/tables/gangs?namespace={wrong}", token=ours)
        assert status == 400, wrong


async def test_hypothetical_answers_require_the_right_to_see_everything(site: Site, shared: Page) -> None:
    question = json.dumps({"gang": "ours/impossible"})
    status, body = await shared.ask("/api/v1/what-if", token=site.token("ours"), method="POST", data=question)
    assert status == 403
    assert_hides(body)


async def test_stream_contains_no_foreign_objects(site: Site, shared: Page) -> None:
    ours = site.token("ours")
    listed = await shared.json("tables/gangs", token=ours)
    tables = ",".join(f"{name}:{listed['version'] if name == 'gangs' else 0}" for name in ROWS)
    path = f"{shared.url}/api/v1/stream?tables={tables}&epoch={listed['epoch']}"
    headers = {"Authorization": f"Bearer {ours}"}
    seen = b""
    async with asyncio.timeout(60), shared.session.get(path, headers=headers) as answer:
        await site.pod("hidden-ns", "quiet-pod-2", requests={"cpu": "1"})
        await site.evicted("ours", "own", "Preempted by gang hidden-ns/covert-train on shy-node")
        await site.evicted("ours", "own-2", "Preempted by gang hidden-ns-2/covert-train-7 of queue covert-queue-0")
        await site.pod("ours", "visible", requests={"cpu": "1"})
        while b"ours/pod/visible" not in seen or b"own-2" not in seen:
            seen += await answer.content.readany()
    assert_hides(seen)
    await site.client.delete("/api/v1/namespaces/ours/pods/visible", grace_seconds=0)
    await site.client.delete("/api/v1/namespaces/hidden-ns/pods/quiet-pod-2", grace_seconds=0)


async def test_names_of_deleted_objects_stay_hidden(site: Site, shared: Page) -> None:
    await site.gang("hidden-ns", "covert-train-old", 1, requests={"cpu": "1"})
    watch = shared.served.watch
    await until(lambda: "hidden-ns/covert-train-old" in watch.tables["gangs"], "the gang")
    await site.client.delete("/api/v1/namespaces/hidden-ns/pods/covert-train-old-0", grace_seconds=0)
    await site.client.delete("/apis/scheduling.volcano.sh/v1beta1/namespaces/hidden-ns/podgroups/covert-train-old")
    await until(lambda: "hidden-ns/covert-train-old" not in watch.tables["gangs"], "the gang is gone")
    await site.evicted("ours", "later", "Preempted by covert-train-old, a gang")
    ours = site.token("ours")

    async def told() -> bool:
        return any(row["pod"] == "later" for row in (await shared.rows("evictions", token=ours)).values())

    await until(told, "the eviction")
    _, body = await shared.ask("/api/v1/tables/evictions", token=ours)
    assert_hides(body)


@pytest.mark.slow
async def test_a_right_that_is_given_counts_and_one_that_is_taken_ends_the_stream(
    site: Site, shared: Page, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A user who may read pods everywhere sees all gangs, and still no queue or node by name."""
    monkeypatch.setattr("phalanx.dashboard.access.ALLOWED_FOR", 0.5)
    monkeypatch.setattr("phalanx.dashboard.stream._RIGHTS_PERIOD", 0.2)
    await site.client.create("/api/v1/namespaces/ours/serviceaccounts", {"metadata": {"name": "auditor"}})
    await site.client.create(
        f"{RBAC}/clusterroles",
        {
            "metadata": {"name": "see-pods"},
            "rules": [{"apiGroups": [""], "resources": ["pods"], "verbs": ["list"]}],
        },
    )
    subject = {"kind": "ServiceAccount", "name": "auditor", "namespace": "ours"}
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "see-pods"}
    await site.client.create(
        f"{RBAC}/clusterrolebindings", {"metadata": {"name": "see-pods"}, "subjects": [subject], "roleRef": role}
    )
    issued = await site.client.create("/api/v1/namespaces/ours/serviceaccounts/auditor/token", {"spec": {}})
    token = issued["status"]["token"]
    rows = await shared.rows("gangs", token=token)
    assert {"ours/train", "hidden-ns/covert-train"} <= set(rows)
    for table in ("queues", "nodes"):
        _, body = await shared.ask(f"/api/v1/tables/{table}", token=token)
        assert_hides(body)
        assert json.loads(body)["omitted"]
    _, body = await shared.ask("/api/v1/gangs/ours/train", token=token)
    # (Pods name their queue, so a viewer of pods knows its name; its numbers stay hidden.)
    assert_hides(body, "hidden-ns", "covert-train", "quiet-pod", "covert-queue")
    version = (await shared.json("tables/gangs", token=token))["version"]
    path = f"{shared.url}/api/v1/stream?tables=gangs:{version}&epoch={shared.served.watch.tables.epoch}"
    async with (
        asyncio.timeout(90),
        shared.session.get(path, headers={"Authorization": f"Bearer {token}"}) as answer,
    ):
        await site.client.delete(f"{RBAC}/clusterrolebindings/see-pods")
        seen = b""
        while b"event: denied" not in seen and b"event: reset" not in seen:
            piece = await answer.content.readany()
            assert piece, seen
            seen += piece


async def test_logins_and_refusals_are_written_down_and_tokens_are_not(
    site: Site, shared: Page, caplog: pytest.LogCaptureFixture
) -> None:
    ours = site.token("ours")
    with caplog.at_level(logging.INFO, "phalanx.dashboard.audit"):
        await shared.json("session", token=ours)
        await shared.ask("/api/v1/tables/gangs?namespace=hidden-ns", token=ours)
    text = caplog.text
    assert "login: user='system:serviceaccount:ours:tenant'" in text
    assert "refused: user='system:serviceaccount:ours:tenant' namespace='hidden-ns'" in text
    assert ours not in text


async def test_the_account_of_the_chart_has_the_rights_that_the_page_needs(shared: Page) -> None:
    """(`shared` runs as that account.) A missing right causes a warning or a missing object."""
    watch = shared.served.watch
    states = {reflector.resource.plural: reflector.state.value for reflector in watch._observer.reflectors}  # type: ignore[union-attr]
    assert "forbidden" not in states.values(), states
    assert {each.state.value for each in watch.evictions.reflectors} == {"watching"}
    assert watch.tables["nodes"].get("shy-node") is not None


async def test_a_dashboard_that_may_not_read_the_cluster_says_so(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("phalanx.kube.reflector.REFUSED", 0.5)
    monkeypatch.setattr("phalanx.kube.reflector.REFUSED_PAUSE", 0.1)
    config = site.server.tenant_kubeconfig("ours")
    (site.directory / "tenant.kubeconfig").write_text(json.dumps(config))
    async with KubeClient(load_config(str(site.directory / "tenant.kubeconfig"))) as client:
        login = AddressLogin("you")
        async with (
            dashboard(client, WatchOptions(), ServeOptions(), login) as (served, _),
            aiohttp.ClientSession() as session,
        ):
            page = Page(served, session, login)
            await until(lambda: served.watch.forbidden, "the refusal")
            status, body = await page.ask("/api/v1/tables/gangs")
            assert status == 503
            assert b"the dashboard lacks the right to list" in body


async def test_page_ends_when_the_process_that_caches_the_cluster_has_died(site: Site) -> None:
    async with (
        KubeClient(load_config(str(site.directory / "kubeconfig"))) as client,
        dashboard(client, WatchOptions(), ServeOptions(), AddressLogin("you")) as (served, following),
    ):
        await until(lambda: served.watch.last, "a rehearsal")
        served.watch.rehearsal._process.kill()
        await until(following.done, "the end")
        with pytest.raises(ExceptionGroup) as ended:
            following.result()
        assert ended.group_contains(RehearsalEnded)


async def test_queue_readable_by_a_tenant_shows_numbers_and_no_foreign_names(site: Site, shared: Page) -> None:
    rule = {
        "apiGroups": ["scheduling.volcano.sh"],
        "resources": ["queues"],
        "resourceNames": ["our-queue"],
        "verbs": ["get"],
    }
    await site.client.create(f"{RBAC}/clusterroles", {"metadata": {"name": "see-queue"}, "rules": [rule]})
    issued = await site.client.create("/api/v1/namespaces/ours/serviceaccounts", {"metadata": {"name": "member"}})
    assert issued["metadata"]["name"] == "member"
    subject = {"kind": "ServiceAccount", "name": "member", "namespace": "ours"}
    for kind, name, path in (
        ("ClusterRole", "see-queue", f"{RBAC}/clusterrolebindings"),
        ("ClusterRole", "view", f"{RBAC}/namespaces/ours/rolebindings"),
    ):
        role = {"apiGroup": "rbac.authorization.k8s.io", "kind": kind, "name": name}
        await site.client.create(path, {"metadata": {"name": f"m-{name}"}, "subjects": [subject], "roleRef": role})
    answer = await site.client.create("/api/v1/namespaces/ours/serviceaccounts/member/token", {"spec": {}})
    token = answer["status"]["token"]
    rows = await shared.rows("queues", token=token)
    assert set(rows) == {"queue/our-queue", "queue/default"}  # (single pods of the namespace are in `default`)
    assert rows["queue/our-queue"]["queue"]["pending"]
    status, body = await shared.ask("/api/v1/tables/queues", token=token)
    assert status == 200
    assert_hides(body)
    history = await shared.json("history", token=token)
    assert all(set(each["used"]) <= {"our-queue"} for each in history["series"])
