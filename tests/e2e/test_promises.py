"""Promised starts on an API server: the same in every view, before and after a restart, and how old they are."""

from __future__ import annotations

import asyncio
import json
import re
import time
from pathlib import Path
from typing import Any

import msgspec
import pytest

from phalanx.daemon.gang_entries import ListedGangs
from phalanx.daemon.gang_list import GangList
from phalanx.dashboard.access import AddressLogin
from phalanx.dashboard.rehearsal.messages import AskWhy
from phalanx.dashboard.rows.entries import GangRow
from phalanx.dashboard.server import ServeOptions, dashboard
from phalanx.dashboard.watch import WatchOptions
from phalanx.dialects.times import parse_time
from phalanx.kube.auth.config import load_config
from phalanx.kube.client import KubeClient
from phalanx.kube.core_resources import CONFIG_MAPS
from phalanx.reports.why_answer import WhyAnswer
from phalanx.views.promises import promises_of_scheduler
from tests.e2e.processes import command
from tests.e2e.test_generated_pod_groups import MINIMUM, NAME, made
from tests.e2e.test_reserve import POLICY, full
from tests.e2e.world import PODS, Object, Running, World, condition

pytestmark = [pytest.mark.e2e, pytest.mark.asyncio(loop_scope="session")]

RECORD = "phalanx-reservations"
LOOSE = {
    "pod-group.scheduling.sigs.k8s.io": "loose",
    "pod-group.scheduling.sigs.k8s.io/name": "loose",
    "pod-group.scheduling.sigs.k8s.io/min-available": "2",
}
SENTENCE = re.compile(r"[Ii]t starts no later than (\S+),")
# Waiting gangs and pods: one pod of each, and the name that commands use.
WAITING = {
    "train": ("train-0", "podgroup/train"),
    "single": ("single", "pod/single"),
    "loose": ("loose-0", "podgroup/loose"),
    "elder": ("elder-0", "podgroup/elder"),
}


@pytest.fixture
def policy(tmp_path: Path) -> str:
    path = tmp_path / "policy.yaml"
    path.write_text(POLICY + "configurations: [{name: reserve, arguments: {depth: 8}}]\n")
    return str(path)


class Views:
    """All views of the promised starts of one scheduler."""

    def __init__(self, world: World, policy: str) -> None:
        self._world = world
        self._where = ("--kubeconfig", str(world.cluster.kubeconfig), "--lease-namespace", world.namespace)
        self._policy = ("--config", policy)
        self._names = {f"{world.namespace}/{name}": name for name in WAITING}

    async def text(self, *arguments: str, dry_run: bool = True) -> str:
        code, output = await command(*arguments, *self._where, *(self._policy if dry_run else ()))
        assert code == 0, output
        return output

    async def json(self, *arguments: str, dry_run: bool = True) -> Any:
        text = await self.text(*arguments, "-o", "json", dry_run=dry_run)
        return json.loads(text[text.index("{") :])

    async def jobs(self) -> dict[str, Object]:
        listed = await self.json("jobs", "-n", self._world.namespace, dry_run=False)
        return {entry["name"]: entry for entry in listed["items"]}

    async def why(self, name: str) -> Any:
        return await self.json("why", WAITING[name][1], "-n", self._world.namespace)

    async def all(self) -> dict[str, dict[str, str]]:
        """Return by view the promised start of each unit that the view shows."""
        namespace = self._world.namespace
        shown = {"conditions": await self.conditions()}
        shown["jobs"] = {name: entry["start"] for name, entry in (await self.jobs()).items() if entry["start"]}
        starts = (await self.json("jobs", "--start", "-n", namespace))["starts"]
        shown["jobs --start"] = {entry["name"]: entry["start"]["no_later_than"] for entry in starts}
        why = {name: await self.why(name) for name in WAITING}
        shown["why"] = {name: answer["start"]["no_later_than"] for name, answer in why.items()}
        shown["sentence of why"] = {name: sentence(answer["message"]) for name, answer in why.items()}
        rows = (await self.json("reservations", dry_run=False))["items"]
        shown["reservations"] = {self._names[row["name"].removeprefix("pod ")]: row["start"] for row in rows}
        turns = (await self.json("order"))["items"]
        shown["sentence of order"] = {entry["name"]: sentence(entry["message"]) for entry in turns}
        for name in ("train", "elder", "loose"):
            answer = await self.json("what-if", "--gang", f"{namespace}/{name}")
            shown[f"what-if about {name}"] = {name: answer["asked"][0]["promised"]}
            shown[f"sentence of what-if about {name}"] = {name: sentence(answer["asked"][0]["verdict"]["message"])}
        queues = {entry["name"]: entry for entry in (await self.json("queue", "list"))["queues"]}
        firsts = [queues["default"]["first"], (await self.json("queue", "describe", "default"))["first"]]
        for command_name, first in zip(("queue list", "queue describe"), firsts, strict=True):
            assert first["name"] == f"gang {namespace}/elder"
            shown[command_name] = {"elder": first["start"]["no_later_than"]}
            shown[f"sentence of {command_name}"] = {"elder": sentence(first["message"])}
        return shown | await self.page()

    async def page(self) -> dict[str, dict[str, str]]:
        """Return the starts in the rows of the page and of `phalanx top`, and in the pages of gangs."""
        world, namespace = self._world, self._world.namespace
        options = WatchOptions(config=self._policy[1], lease_namespace=namespace)
        login = AddressLogin("you")
        async with (
            KubeClient(load_config(str(world.cluster.kubeconfig))) as client,
            dashboard(client, options, ServeOptions(), login) as (served, following),
        ):
            watch = served.watch

            async def rows() -> list[GangRow]:
                assert not following.done()
                waits = {name: f"{namespace}/{'pod/' * (name == 'single')}{name}" for name in WAITING}
                found = [watch.row(row) for row in waits.values()]
                return [row for row in found if row is not None] if all(row and row.start for row in found) else []

            found: list[GangRow] = await world.until(rows, "the page has rehearsed")
            assert {row.start_kind for row in found} == {"promised"}
            gang = await watch.rehearsal.why(AskWhy(namespace, "train"))
            assert isinstance(gang, WhyAnswer)
            assert gang.start is not None
            return {
                "rows of the page": {row.name: row.start for row in found},
                "page of a gang": {"train": gang.start.no_later_than},
                "sentence on the page": {row.name: sentence(row.message) for row in found},
            }

    async def conditions(self) -> dict[str, str]:
        pods = {item["metadata"]["name"]: item for item in await self._world.list(PODS)}
        return {
            name: sentence(condition(pods[pod], "PodScheduled").get("message", ""))
            for name, (pod, _) in WAITING.items()
        }


def sentence(message: str) -> str:
    found = SENTENCE.search(message)
    return found[1] if found is not None else ""


def group(world: World, name: str) -> Object:
    return {
        "apiVersion": "scheduling.volcano.sh/v1beta1",
        "kind": "PodGroup",
        "metadata": {"name": name, "namespace": world.namespace},
        "spec": {"minMember": 2, "queue": "default"},
    }


async def gang(world: World, name: str) -> None:
    for number in range(2):
        annotations = {"scheduling.k8s.io/group-name": name}
        await world.pod(f"{name}-{number}", cpu="2", activeDeadlineSeconds=60, annotations=annotations)
    await world.until_held(f"{name}-0", words="t starts no later than")


async def waiting(world: World) -> None:
    """Four units wait in this order of their promised starts; the last is the first in line by its age."""
    await full(world)
    await world.make(group(world, "elder"))
    await asyncio.sleep(1.1)  # ranks compare whole seconds
    await world.make(group(world, "train"))
    await gang(world, "train")
    await world.pod("single", cpu="4", activeDeadlineSeconds=60)
    await world.until_held("single", words="t starts no later than")
    for number in range(2):
        await world.pod(f"loose-{number}", cpu="2", activeDeadlineSeconds=60, labels=LOOSE)
    await world.until_held("loose-0", words="t starts no later than")
    await gang(world, "elder")


async def test_jobs_shows_the_promised_start_of_a_gang_with_a_generated_group(world: World, policy: str) -> None:
    running = await started(world, policy)
    await full(world)
    labels = {NAME: "made", MINIMUM: "2"}
    for number in range(2):
        await world.pod(f"made-{number}", cpu="2", activeDeadlineSeconds=60, labels=labels)
    await made(world, "made")
    await world.until_held("made-0", words="t starts no later than")
    await world.settled(running)
    told = sentence(condition(await world.get(PODS, "made-0"), "PodScheduled")["message"])
    assert (await Views(world, policy).jobs())["made"]["start"] == told


async def started(world: World, policy: str) -> Running:
    return await world.scheduler(config=policy, lease_namespace=world.namespace)


async def record(world: World) -> Object:
    return await world.get(CONFIG_MAPS, RECORD)


async def recorded(world: World) -> Object:
    """Wait until all four promises are in the record; return it."""

    async def written() -> Object:
        names = {each["metadata"]["name"]: each for each in await world.list(CONFIG_MAPS)}
        text = names.get(RECORD, {}).get("data", {}).get("reservations.json", "{}")
        return names[RECORD] if len(json.loads(text).get("reservations", [])) == len(WAITING) else {}

    found: Object = await world.until(written, "all promised starts are in the record")
    return found


async def listed(running: Running) -> dict[str, Any]:
    """Return the entries of the scheduler's own list, which has its live plan."""
    scheduler = running.service.scheduler
    made = GangList(scheduler.state, lambda: promises_of_scheduler(scheduler), lambda key: None)
    answer = msgspec.json.decode(await made.answer(), type=ListedGangs)
    return {entry.name: entry for entry in answer.items}


async def test_all_views_show_the_promised_start_of_the_record(world: World, policy: str) -> None:
    first = await started(world, policy)
    await waiting(world)
    await world.settled(first)
    views, kept = Views(world, policy), await recorded(world)
    shown = await views.all()
    promised = shown["jobs"]
    assert list(dict(sorted(promised.items(), key=lambda item: item[1]))) == list(WAITING)
    assert {view: {**promised, **starts} for view, starts in shown.items()} == dict.fromkeys(shown, promised)

    version, written = kept["metadata"]["resourceVersion"], json.loads(kept["data"]["written.json"])
    live = await listed(first)
    assert {name: live[name].start for name in WAITING} == promised
    assert {str(live[name].promise.source) for name in WAITING} == {"live"}
    assert {live[name].promise.version for name in WAITING} == {str(written["plan"])}
    jobs = await views.jobs()
    for origin in [jobs[name]["promise"] for name in WAITING] + [(await views.why("train"))["start"]["origin"]]:
        assert (origin["source"], origin["version"]) == ("stored", version)
        assert parse_time(origin["time"]) == written["time"]
    text = await views.text("why", "podgroup/train", "-n", world.namespace)
    assert re.search(r"Starts: no later than in \d+ min \(\d\d:\d\d:\d\d\); promised \d+ s ago", text)
    assert re.search(rf"record of the scheduler, version {version}, written \d+ s ago \(\d\d:\d\d:\d\d\)", text)


async def test_promised_starts_and_their_record_outlive_a_restart(world: World, policy: str) -> None:
    first = await started(world, policy)
    await waiting(world)
    await world.settled(first)
    before = await recorded(world)
    views = Views(world, policy)
    shown = (await views.jobs(), await views.conditions())
    await first.kill()
    # Without a scheduler the record is unchanged, and the views show it.
    down = await views.all()
    assert {view: {**shown[1], **starts} for view, starts in down.items()} == dict.fromkeys(down, shown[1])
    second = await started(world, policy)
    await world.settled(second)
    assert (await record(world))["metadata"]["resourceVersion"] == before["metadata"]["resourceVersion"]
    assert await views.conditions() == shown[1]
    jobs, live = await views.jobs(), await listed(second)
    for name in WAITING:
        assert jobs[name]["start"] == shown[0][name]["start"] == live[name].start


async def test_record_that_was_not_updated_since_a_promised_start_passed_is_reported(
    world: World, policy: str
) -> None:
    first = await started(world, policy)
    await waiting(world)
    await world.settled(first)
    kept = await recorded(world)
    await first.kill()
    views = Views(world, policy)
    assert "the record of promised starts" not in await views.text("jobs", "-n", world.namespace, dry_run=False)
    # Nine hundred seconds ago it would have said this.
    long_ago = int(time.time()) - 900
    document = json.loads(kept["data"]["reservations.json"])
    for promise in document["reservations"]:
        promise.update(start=long_ago + 300, told=long_ago + 300, promised=long_ago + 300, made=long_ago)
        promise.pop("words", None)
    data = {
        "reservations.json": json.dumps(document),
        "written.json": json.dumps({"version": 1, "time": long_ago, "plan": 1}),
    }
    await world.patch(CONFIG_MAPS, RECORD, {"data": data})
    told = (
        r"4 promised starts have passed, and the record of promised starts, written at \S+, was not updated since"
    )
    for arguments, dry_run in (
        (("jobs", "-n", world.namespace), False),
        (("reservations",), False),
        (("why", "podgroup/train", "-n", world.namespace), True),
        (("queue", "list"), True),
        (("order",), True),
    ):
        output = await views.text(*arguments, dry_run=dry_run)
        assert re.search(told, output), output
        assert "1970" not in output
    output = await views.text("why", "podgroup/train", "-n", world.namespace)
    assert re.search(r"Starts: overdue, 10 min ago \(", output), output


async def test_record_without_a_time_or_with_times_of_zero_never_shows_1970(world: World, policy: str) -> None:
    first = await started(world, policy)
    await waiting(world)
    await world.settled(first)
    kept = await recorded(world)
    await first.kill()
    document = json.loads(kept["data"]["reservations.json"])
    for promise in document["reservations"][:2]:
        promise.update(start=0, told=0, promised=0, made=0)
    for promise in document["reservations"][2:]:
        promise["words"] = {"at": 0, "expected": 0, "until": 0}
    data = {"reservations.json": json.dumps(document), "written.json": None}
    await world.patch(CONFIG_MAPS, RECORD, {"data": data})
    views = Views(world, policy)
    outputs = [
        await views.text("jobs", "-n", world.namespace, "-o", form, dry_run=False) for form in ("wide", "json")
    ]
    outputs += [await views.text("reservations", "-o", form, dry_run=False) for form in ("wide", "json")]
    for name in WAITING:
        outputs += [await views.text("why", WAITING[name][1], "-n", world.namespace)]
    outputs += [await views.text("jobs", "--start", "-n", world.namespace), await views.text("queue", "list")]
    assert not [output for output in outputs if "1970" in output]
    assert "one of start, promised, told and made is no time" in outputs[0]
