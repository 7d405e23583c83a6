"""Access to the page: host names, origins, tickets, limits; and its unmodified vendored libraries."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import json
import stat
import sys
from collections.abc import AsyncIterator
from functools import partial
from importlib import resources
from pathlib import Path

import aiohttp
import pytest

from phalanx.cluster.state import ClusterState
from phalanx.dashboard import server
from phalanx.dashboard.access import AddressLogin, ViewerAccessError
from phalanx.dashboard.limits import RateLimits
from phalanx.dashboard.rehearsal.messages import PlannedStart
from phalanx.dashboard.rows.entries import EvictionRow, ReservationRow
from phalanx.dashboard.rows.reservations import reservation_rows
from phalanx.dashboard.tables import Tables
from phalanx.kube.client import PatchType
from phalanx.kube.core_resources import CONFIG_MAPS
from phalanx.model.gang import GangKey
from phalanx.views.promises import PromisedStart
from tests.dashboard.cluster import Page, Site, until

#: SHA-256 of files as they are in the npm packages htm 3.1.1, preact 11.2.0 (its licence) and uPlot 1.6.32.
VENDORED = {
    "htm-preact-3.1.1.js": "72284e8e9079c87817145df1110f74e8a2aa040b2fc384922e18dfcb46fc1fd7",
    "htm-LICENSE.txt": "740725f7252e750af735d0028cc534970772f513331e9f68150fede8fb3ce00f",
    "preact-LICENSE.txt": "1fe6958409c8c257a70c587a18b6f7f412b179b456630790d30b2ec9a8e4b7d4",
    "uPlot-1.6.32.iife.min.js": "19c8d4c6ad88929a79f4ae49d6f7161566dfd0ba3d15cc495e974f787eb78f1f",
    "uPlot-1.6.32.min.css": "df630c6a8d6f8eeaff264b50f73ce5b114f646ffd9a0bb74f049b0a00135fa04",
    "uPlot-LICENSE.txt": "8f989229699b4fe2f1a0432d0e9edc338a8a911e250e2d1b01ecd770a5f5b1bd",
}
STATIC = Path(str(resources.files("phalanx.dashboard"))) / "static"


def test_vendored_libraries_equal_their_published_versions() -> None:
    found = {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in (STATIC / "vendor").iterdir()}
    assert found == VENDORED


def test_our_own_script_makes_no_markup_of_texts() -> None:
    for path in STATIC.rglob("*.js"):
        if "vendor" not in path.parts:
            text = path.read_text("utf-8")
            for word in ("innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval(", "new Function"):
                assert word not in text, f"{path.name}: {word}"


def test_a_ticket_is_good_once() -> None:
    told: list[str] = []
    login = AddressLogin("you", told.append)
    first = login.ticket
    token = login.exchange(first)
    assert told[-1] == login.ticket != first
    with pytest.raises(ViewerAccessError) as refused:
        login.exchange(first)
    assert refused.value.status == 401
    assert asyncio.run(login.viewer(token)).trusted
    with pytest.raises(ViewerAccessError):
        asyncio.run(login.viewer(first))


def test_token_of_the_process_itself_is_accepted_and_no_other_token() -> None:
    login = AddressLogin("you", own_token="own")
    assert asyncio.run(login.viewer("own")).trusted
    for token, method in (("other", login), ("", login), ("own", AddressLogin("you")), ("", AddressLogin("you"))):
        with pytest.raises(ViewerAccessError):
            asyncio.run(method.viewer(token))


def test_client_with_too_many_requests_waits_and_no_other_client_does() -> None:
    now = [0.0]
    limits = RateLimits(per_address=2, in_all=100, clock=lambda: now[0])
    assert [limits.allow("a") for _ in range(5)] == [True] * 4 + [False]
    assert limits.allow("b")
    now[0] = 1.0
    assert [limits.allow("a") for _ in range(3)] == [True, True, False]


def test_all_together_have_a_limit_too() -> None:
    limits = RateLimits(per_address=10, in_all=2, clock=lambda: 0.0)
    assert [limits.allow(str(number)) for number in range(5)] == [True] * 4 + [False]


def eviction(number: int) -> EvictionRow:
    return EvictionRow(id=str(number), when="", namespace="a", pod="p", reason="Preempted", message="")


def test_table_sends_only_changed_rows_and_only_to_viewers_with_the_right() -> None:
    tables = Tables()
    table = tables["evictions"]
    for number in range(3):
        table.put(str(number), eviction(number), "a" if number else "b")
    version = table.version
    table.put("1", eviction(1), "a")
    assert table.version == version  # it says the same
    table.put("3", eviction(3), "a")
    table.drop("0")
    table.drop("2")
    delta = table.since(version, lambda scope: scope == "a")
    assert delta is not None
    assert ([json.loads(row)["id"] for row in delta.put], delta.gone) == (["3"], ["2"])
    assert not table.since(delta.version, lambda scope: True)
    assert table.since(delta.version + 1, lambda scope: True) is None  # of another process


def test_starts_are_drawn_for_viewers_of_their_namespace() -> None:
    starts = [
        PlannedStart("q", 4, PromisedStart(no_later_than="2026-01-01T01:00:00Z"), GangKey("a", "kept")),
        PlannedStart("q", 1, PromisedStart(planned="2026-01-01T00:30:00Z"), None, "b/alone"),
        PlannedStart("q", 2, PromisedStart(reason="NoEndKnown"), GangKey("a", "never")),
    ]
    rows = list(reservation_rows(ClusterState(), starts, 1_767_225_600.0))
    assert [(row, scope) for row, _, scope in rows] == [("start/b/alone", "b"), ("start/a/kept", "a")]
    told = {content.title: content.note for _, content, _ in rows if isinstance(content, ReservationRow)}
    assert told == {"b/alone": "1 pod, as planned now", "a/kept": "4 pods, promised"}


@pytest.mark.asyncio(loop_scope="session")
async def test_another_name_or_origin_is_refused(page: Page) -> None:
    assert (await page.ask("/", Host="evil.example"))[0] == 421
    assert (await page.ask("/api/v1/session", Host="127.0.0.1.evil.example:80"))[0] == 421
    assert (await page.ask("/api/v1/session", Origin="http://evil.example"))[0] == 403
    assert (await page.ask("/api/v1/session", Origin="null"))[0] == 403
    assert (await page.ask("/api/v1/session", Sec_Fetch_Site="cross-site"))[0] == 403
    assert (await page.ask("/api/v1/session", Origin=page.url))[0] == 200
    assert (await page.ask("/healthz", token="", Host="10.0.0.7:8080"))[0] == 200


@pytest.mark.asyncio(loop_scope="session")
async def test_too_many_requests_are_refused(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "RateLimits", partial(RateLimits, clock=lambda: 0.0))
    async with site.dashboard(rehearsed=False, per_address=2.0, in_all=100.0) as page:
        answers = [await page.ask("/api/v1/session") for _ in range(6)]
        assert [status for status, _ in answers] == [200] * 4 + [429] * 2


@pytest.mark.asyncio(loop_scope="session")
async def test_a_body_that_is_too_large_is_refused(page: Page) -> None:
    status, _ = await page.ask("/api/v1/what-if", method="POST", data=b" " * (1 << 20))
    assert status == 413
    status, _ = await page.ask("/api/v1/login", method="POST", data=b"x" * 10_000, token="")
    assert status == 400


@contextlib.asynccontextmanager
async def started(*arguments: str) -> AsyncIterator[tuple[str, list[str]]]:
    """Start the command as a process that must end cleanly on a signal; yield the printed line, and later its
    stderr.
    """
    child = await asyncio.create_subprocess_exec(
        sys.executable, *arguments, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
    )
    assert child.stdout is not None
    assert child.stderr is not None
    errors: list[str] = []
    try:
        async with asyncio.timeout(60):
            line = (await child.stdout.readline()).decode()
        yield line, errors
    finally:
        child.terminate()
        async with asyncio.timeout(60):
            await child.wait()
        errors.append((await child.stderr.read()).decode())
    assert child.returncode == 0, errors
    assert "Traceback" not in errors[0]


@pytest.mark.slow
@pytest.mark.asyncio(loop_scope="session")
async def test_command_prints_an_address_and_ends_on_signal(site: Site, tmp_path: Path) -> None:
    file = tmp_path / "address"
    command = ["dashboard", "--kubeconfig", str(site.directory / "kubeconfig"), "--address-file", str(file)]
    async with started("-m", "phalanx.cli", *command) as (line, _):
        address = line.removeprefix("phalanx dashboard: ").strip()
        assert file.read_text().strip() == address
        assert stat.S_IMODE(file.stat().st_mode) == 0o600
        url, _, ticket = address.partition("/#login=")
        async with aiohttp.ClientSession() as session:
            async with session.post(f"{url}/api/v1/login", data=ticket) as answer:
                assert answer.status == 200
            async with session.post(f"{url}/api/v1/login", data=ticket) as answer:
                assert answer.status == 401


@pytest.mark.slow
@pytest.mark.asyncio(loop_scope="session")
async def test_page_follows_a_changed_policy_of_the_scheduler_under_its_old_address(
    site: Site, tmp_path: Path
) -> None:
    """Sessions continue; the page shows the policy of the scheduler."""
    place, name = "policy-test", "phalanx-policy-in-force"
    await site.apply([{"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": place}}])
    document = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}}
    await site.client.create(CONFIG_MAPS.path(place), {**document, "data": {"policy.yaml": "actions: allocate\n"}})
    kubeconfig, soon = site.directory / "kubeconfig", "import phalanx.reports.scheduler_policy as p; p.LOOK_PERIOD"
    file = tmp_path / "address"
    options = ["--kubeconfig", str(kubeconfig), "--address-file", str(file), "--lease-namespace", place]
    argv = ["phalanx", "dashboard", *options]
    start = f"import sys; {soon} = 0.2; sys.argv = {argv!r}; from phalanx.cli.main import main; main()"
    async with started("-c", start) as (line, errors), asyncio.timeout(90), aiohttp.ClientSession() as session:
        url, _, ticket = line.removeprefix("phalanx dashboard: ").strip().partition("/#login=")
        async with session.post(f"{url}/api/v1/login", data=ticket) as answer:
            token = (await answer.json())["token"]

        async def has_rights() -> bool | None:
            """Return whether any queue has a deserved share; None while the page does not answer."""
            headers = {"Authorization": f"Bearer {token}"}
            try:
                async with session.get(f"{url}/api/v1/tables/queues", headers=headers) as answer:
                    rows = (await answer.json())["rows"] if answer.status == 200 else []
            except aiohttp.ClientError:
                return None
            return any(row["queue"].get("own_share") for row in rows if row.get("queue")) if rows else None

        async def has_none() -> bool:
            return await has_rights() is False

        await until(has_none, "queues without rights")
        news = {"data": {"policy.yaml": "actions: allocate\ntiers:\n- plugins:\n  - name: proportion\n"}}
        await site.client.patch(CONFIG_MAPS.path(place, name), news, PatchType.MERGE)
        await until(has_rights, "queues with rights")
    assert "the scheduler has a new policy" in errors[0]
