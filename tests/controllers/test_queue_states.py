"""Queues open and close by Command, with their children, and only where no tenant may order it."""

from __future__ import annotations

import asyncio

import msgspec
import pytest

from phalanx.controllers.queue_states import QueueStates
from phalanx.kube.errors import ApiError
from tests.controllers.api import Killed, MemoryApi, context

QUEUES, GROUPS = "scheduling.volcano.sh/v1beta1/queues", "scheduling.volcano.sh/v1beta1/podgroups"
COMMANDS = "bus.volcano.sh/v1alpha1/commands"


class Queues:
    def __init__(self) -> None:
        self.api = MemoryApi()
        self.start()

    def start(self) -> None:
        self.controller = QueueStates(context(self.api))
        self.api.list_into(self.controller)

    def queue(self, name: str, parent: str = "") -> None:
        spec = {"parent": parent} if parent else {}
        self.api.apply(QUEUES, {"metadata": {"name": name}, "spec": spec}, "")

    def group(self, name: str, queue: str) -> None:
        self.api.apply(GROUPS, {"metadata": {"name": name}, "spec": {"queue": queue}})

    def command(self, action: str, queue: str, namespace: str = "default", name: str = "c", uid: str = "") -> None:
        target = {"apiVersion": "scheduling.volcano.sh/v1beta1", "kind": "Queue", "name": queue, "uid": uid}
        self.api.apply(COMMANDS, {"metadata": {"name": name}, "action": action, "target": target}, namespace)

    async def settle(self) -> dict[str, str]:
        for _ in range(20):
            before = len(self.api.writes)
            try:
                while self.api.deliver(self.controller):
                    pass
                for each in self.api.all(QUEUES):
                    await self.controller.reconcile(each["metadata"]["name"])
            except Killed:
                self.api.dies_at = None
                self.start()
                continue
            if len(self.api.writes) == before:
                return {
                    each["metadata"]["name"]: each.get("status", {}).get("state", "")
                    for each in self.api.all(QUEUES)
                }
        raise AssertionError("never at rest")


async def test_a_queue_is_open_until_it_is_closed() -> None:
    queues = Queues()
    queues.queue("a")
    assert await queues.settle() == {"a": "Open"}
    queues.command("CloseQueue", "a")
    assert await queues.settle() == {"a": "Closed"}
    assert queues.api.all(COMMANDS) == []
    queues.command("OpenQueue", "a")
    assert await queues.settle() == {"a": "Open"}


async def test_queue_is_closing_while_groups_are_in_it() -> None:
    queues = Queues()
    queues.queue("a")
    queues.group("g", "a")
    await queues.settle()
    queues.command("CloseQueue", "a")
    assert await queues.settle() == {"a": "Closing"}
    queues.api.erase(GROUPS, "g")
    assert await queues.settle() == {"a": "Closed"}


async def test_children_close_and_open_with_their_parent() -> None:
    queues = Queues()
    for name, parent in (("root", ""), ("p", "root"), ("c1", "p"), ("c2", "p"), ("grandchild", "c1")):
        queues.queue(name, parent)
    await queues.settle()
    queues.command("CloseQueue", "c2")
    await queues.settle()
    queues.command("CloseQueue", "p")
    closed = await queues.settle()
    assert {name: closed[name] for name in ("p", "c1", "c2", "grandchild")} == dict.fromkeys(
        ("p", "c1", "c2", "grandchild"), "Closed"
    )
    queues.command("OpenQueue", "c1")
    assert (await queues.settle())["c1"] == "Closed"
    assert any("Open the parent queue first." in note for _, _, note in queues.api.events)
    queues.command("OpenQueue", "p")
    opened = await queues.settle()
    assert opened == {"root": "Open", "p": "Open", "c1": "Open", "c2": "Closed", "grandchild": "Open"}


async def test_a_tenant_closes_no_queue() -> None:
    queues = Queues()
    queues.queue("a")
    await queues.settle()
    queues.command("CloseQueue", "a", "team-a")
    assert await queues.settle() == {"a": "Open"}
    assert queues.api.all(COMMANDS) == []
    assert ("a", "CommandRefused") in [(name, reason) for name, reason, _ in queues.api.events]


async def test_the_root_stays_open() -> None:
    queues = Queues()
    queues.queue("root")
    await queues.settle()
    queues.command("CloseQueue", "root")
    assert await queues.settle() == {"root": "Open"}


async def test_no_death_changes_the_end() -> None:
    async def story(queues: Queues) -> dict[str, str]:
        for name, parent in (("p", ""), ("c", "p")):
            queues.queue(name, parent)
        await queues.settle()
        queues.command("CloseQueue", "p")
        await queues.settle()
        queues.command("OpenQueue", "p")
        return await queues.settle()

    undisturbed = Queues()
    expected, writes = await story(undisturbed), len(undisturbed.api.writes)
    assert expected == {"p": "Open", "c": "Open"}
    for number in range(1, writes + 1):
        for applied in (False, True):
            queues = Queues()
            queues.api.dies_at = (number, applied)
            assert await story(queues) == expected
            assert queues.api.all(COMMANDS) == []


async def test_later_of_two_commands_decides() -> None:
    for first, second, state in (("OpenQueue", "CloseQueue", "Closed"), ("CloseQueue", "OpenQueue", "Open")):
        queues = Queues()
        queues.queue("a")
        await queues.settle()
        queues.command(first, "a", name="z")
        queues.command(second, "a", name="a")
        assert await queues.settle() == {"a": state}


async def test_a_command_that_is_seen_before_its_queue_is_not_lost() -> None:
    queues = Queues()
    queues.queue("a")
    queues.command("CloseQueue", "a")
    (command,) = queues.api.all(COMMANDS)
    queues.controller.commands.put(("default", "c"), msgspec.json.encode(command))
    assert await queues.controller.reconcile("a") is not None
    assert queues.api.all(COMMANDS) == [command]
    assert await queues.settle() == {"a": "Closed"}
    assert queues.api.all(COMMANDS) == []


@pytest.mark.parametrize("parent", ["", "p"], ids=["own-state", "marked-for-its-parent"])
async def test_queue_that_a_user_closed_before_the_first_status_stays_closed(parent: str) -> None:
    queues = Queues()
    if parent:
        queues.queue(parent)
        await queues.settle()
    queues.queue("a", parent)
    while queues.api.deliver(queues.controller):
        pass
    # The watch has not delivered this write when the controller reconciles the queue.
    queues.api.update(QUEUES, "a", lambda queue: queue.update(status={"state": "Closed"}), "")
    with pytest.raises(ApiError, match="modified"):
        await queues.controller.reconcile("a")
    assert (await queues.settle())["a"] == "Closed"


async def test_command_for_a_missing_queue_is_deleted() -> None:
    queues = Queues()
    queues.command("CloseQueue", "nobody")
    queues.start()
    await queues.controller.reconcile("nobody")
    assert queues.api.all(COMMANDS) == []


async def test_command_for_an_earlier_queue_of_the_name_is_deleted_without_effect() -> None:
    queues = Queues()
    queues.queue("a")
    await queues.settle()
    queues.command("CloseQueue", "a", uid="earlier")
    assert await queues.settle() == {"a": "Open"}
    assert queues.api.all(COMMANDS) == []


@pytest.mark.parametrize(
    ("action", "queue", "part"),
    [
        ("AbortJob", "a", "Command default/c: action 'AbortJob' is not an action of a queue"),
        ("CloseQueue", "root", "Command default/c: the root queue cannot be closed"),
    ],
)
async def test_impossible_command_is_reported(action: str, queue: str, part: str) -> None:
    queues = Queues()
    queues.queue(queue)
    await queues.settle()
    queues.command(action, queue)
    assert await queues.settle() == {queue: "Open"}
    assert queues.api.all(COMMANDS) == []
    assert [(name, reason) for name, reason, note in queues.api.events if part in note] == [
        (queue, "CommandRefused")
    ]


async def test_unexpected_failure_is_reported_and_retried(caplog: pytest.LogCaptureFixture) -> None:
    queues = Queues()
    queues.queue("a")
    queues.start()

    async def patch(*arguments: object) -> None:
        raise RuntimeError("out of order")

    queues.api.patch = patch  # type: ignore[method-assign, assignment]
    work = asyncio.create_task(queues.controller.run(1))
    async with asyncio.timeout(60):
        while "out of order" not in caplog.text:  # noqa: ASYNC110 - nothing tells of lines
            await asyncio.sleep(0)
    work.cancel()
    await asyncio.gather(work, return_exceptions=True)
