"""Controller of the state of Volcano's queues: Commands open and close them, with their children, as Volcano's
own controller does (docs/rules/volcano.md, 1.2).

A Command contains no user name, so any user with the right to create Commands in one namespace could close queues.
Commands for queues are executed only in namespaces without tenants (`TRUSTED`).
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any

import msgspec

from phalanx.controllers.controller import ControllerContext, WatchedKind
from phalanx.controllers.store import ObjectStore
from phalanx.controllers.work_queue import WorkQueue
from phalanx.dialects.core import Metadata, Wire
from phalanx.jobs.spec import BUS, VERSION, Command
from phalanx.kube.changes import Key
from phalanx.kube.client import PatchType
from phalanx.kube.errors import ApiError, ConnectionLost
from phalanx.kube.events import ObjectReference
from phalanx.kube.paths import Resource
from phalanx.kube.wire import version_number
from phalanx.model.text.decoding import quoted

log = logging.getLogger(__name__)

QUEUES = Resource("scheduling.volcano.sh", "v1beta1", "queues", "Queue", namespaced=False)
_GROUPS = Resource("scheduling.volcano.sh", "v1beta1", "podgroups", "PodGroup")
_COMMANDS = Resource(BUS, VERSION, "commands", "Command")

TRUSTED = frozenset({"default", "kube-system", "phalanx-system", "volcano-system"})
CLOSED_BY_PARENT = "volcano.sh/closed-by-parent"
ROOT = "root"
_OPEN, _CLOSING, _CLOSED = "Open", "Closing", "Closed"
_SHUT = (_CLOSING, _CLOSED)
_OPEN_QUEUE, _CLOSE_QUEUE = "OpenQueue", "CloseQueue"
# Delay until the watch of queues has caught up with the watch of Commands.
_GATHER = 0.05


class _Spec(Wire):
    parent: str = ""
    queue: str = ""


class _Status(Wire):
    state: str = ""
    allocated: dict[str, Any] | None = None


class _Object(Wire):
    metadata: Metadata
    spec: _Spec = msgspec.field(default_factory=_Spec)
    status: _Status = msgspec.field(default_factory=_Status)


class QueueRecord(msgspec.Struct, frozen=True):
    """Queue in the controller's store. `closed_by_parent`: the queue opens with its parent. `counted`: its status
    has `allocated`, without which many releases reject a status.

    `closed_by_parent`: the queue opens with its parent. `counted`: its status has `allocated`, without which many
    releases reject a status.
    """

    uid: str
    resource_version: str
    name: str
    parent: str
    state: str
    closed_by_parent: bool
    counted: bool
    deleting: bool


class QueueMember(msgspec.Struct, frozen=True):
    """PodGroup with the name of its queue."""

    uid: str
    resource_version: str
    queue: str


class QueueCommand(msgspec.Struct, frozen=True):
    """Command for a queue; `target_uid` is the uid of the queue, if the Command states it."""

    uid: str
    resource_version: str
    namespace: str
    name: str
    created: str
    queue: str
    target_uid: str
    action: str

    @property
    def order(self) -> tuple[str, int, str, str]:
        """Sort key of Commands; those of one second are ordered by their versions, because Commands are not
        updated.
        """
        return self.created, version_number(self.resource_version), self.namespace, self.name


_OBJECT = msgspec.json.Decoder(_Object, strict=False)
_COMMAND = msgspec.json.Decoder(Command, strict=False)


def _read_queue(raw: bytes) -> QueueRecord:
    queue = _OBJECT.decode(raw)
    metadata = queue.metadata
    parent = "" if metadata.name == ROOT else queue.spec.parent or ROOT
    return QueueRecord(
        metadata.uid,
        metadata.resource_version,
        metadata.name,
        parent,
        queue.status.state,
        metadata.annotations.get(CLOSED_BY_PARENT) == "true",
        queue.status.allocated is not None,
        metadata.deletion_timestamp is not None,
    )


def _read_member(raw: bytes) -> QueueMember:
    group = _OBJECT.decode(raw)
    return QueueMember(group.metadata.uid, group.metadata.resource_version, group.spec.queue or "default")


def _read_command(raw: bytes) -> QueueCommand | None:
    command = _COMMAND.decode(raw)
    target, metadata = command.target, command.metadata
    if target is None or target.kind != "Queue" or not target.api_version.startswith("scheduling.volcano.sh/"):
        return None
    return QueueCommand(
        metadata.uid,
        metadata.resource_version,
        metadata.namespace,
        metadata.name,
        metadata.creation_timestamp,
        target.name,
        target.uid,
        command.action,
    )


class QueueStates:
    """Controller that reconciles the state of a queue when the queue, its parent, its PodGroups or a Command for it
    change."""

    name = "queue controller"

    def __init__(self, context: ControllerContext) -> None:
        self._context = context
        self._work: WorkQueue[str] = WorkQueue()
        self.queues: ObjectStore[QueueRecord] = ObjectStore(
            _read_queue, index=lambda queue: queue.parent, changed=self._queue_changed
        )
        self.members: ObjectStore[QueueMember] = ObjectStore(
            _read_member, index=lambda member: member.queue, changed=self._member_changed
        )
        self.commands: ObjectStore[QueueCommand] = ObjectStore(
            _read_command, index=lambda command: command.queue, changed=self._command_changed
        )

    @property
    def watches(self) -> Sequence[WatchedKind]:
        return (
            WatchedKind(QUEUES, self.queues.sink),
            WatchedKind(_GROUPS, self.members.sink),
            WatchedKind(_COMMANDS, self.commands.sink),
        )

    async def run(self, workers: int) -> None:
        # Sequentially: the state of a queue depends on its parent's state.
        await self._work.run(self._try_reconcile, 1)

    def waiting(self) -> int:
        return len(self._work)

    def _queue_changed(self, key: Key, old: QueueRecord | None, new: QueueRecord | None) -> None:
        self._work.add(key[1])
        if old is None or new is None or old.state != new.state:
            for child in self.queues.of(key[1]):
                self._work.add(child.name)

    def _member_changed(self, key: Key, old: QueueMember | None, new: QueueMember | None) -> None:
        for member in (old, new):
            queue = self.queues.get(("", member.queue)) if member is not None else None
            if queue is not None and queue.state == _CLOSING:
                self._work.add(queue.name)

    def _command_changed(self, key: Key, old: QueueCommand | None, new: QueueCommand | None) -> None:
        if new is not None:
            self._work.add(new.queue)

    async def _try_reconcile(self, name: str) -> float | None:
        try:
            return await self.reconcile(name)
        except (ApiError, ConnectionLost) as error:
            if not isinstance(error, ApiError) or error.status not in (404, 409):
                log.warning("queue %s: %s", name, error)
            raise
        except Exception as error:
            self._context.failures.record_failure(self.name, name, error)
            raise

    async def reconcile(self, name: str) -> float | None:
        """Reconcile a queue. Return the seconds until the next reconciliation; None to wait for a change."""
        queue = self.queues.get(("", name))
        commands = sorted(self.commands.of(name), key=lambda command: command.order)
        if queue is None and commands and await self._exists(name):
            return _GATHER
        state = queue.state or _OPEN if queue is not None and not queue.deleting else ""
        for command in commands:
            if queue is not None and state:
                state = self._apply_command(queue, state, command)
        if queue is not None and state:
            state = self._with_parent(queue, state, asked=bool(commands))
            if state in _SHUT:
                # A Closed queue remains Closed: Volcano's webhook rejects changes of a Closing queue.
                busy = any(True for _ in self.members.of(name)) and queue.state != _CLOSED
                state = _CLOSING if busy else _CLOSED
            if state != queue.state:
                await self._write(queue, state)
            queue = self.queues.get(("", name))
            if queue is not None and queue.closed_by_parent and queue.state == _OPEN:
                await self._mark(queue, False)
        for command in commands:
            await self._drop(command)
        return None

    def _apply_command(self, queue: QueueRecord, state: str, command: QueueCommand) -> str:
        """Return the state of a queue after a Command to open or close it."""
        if command.target_uid not in ("", queue.uid):
            return state  # the Command is for an earlier queue of this name
        about = f"Command {command.namespace}/{command.name}"
        if command.namespace not in TRUSTED:
            trusted = ", ".join(sorted(TRUSTED))
            note = f"{about}: Commands for queues are executed only in namespaces {trusted}"
            self._publish(queue, "CommandRefused", note)
        elif command.action == _CLOSE_QUEUE and queue.name == ROOT:
            self._publish(queue, "CommandRefused", f"{about}: the root queue cannot be closed")
        elif command.action == _CLOSE_QUEUE:
            return state if state in _SHUT else _CLOSING
        elif command.action == _OPEN_QUEUE:
            parent = self.queues.get(("", queue.parent))
            if parent is None or parent.state not in _SHUT:
                return _OPEN
            self._publish(
                queue,
                _OPEN_QUEUE,
                f"Failed to open queue {queue.name} because its parent queue {parent.name} is closing or closed. "
                "Open the parent queue first.",
            )
        else:
            action = quoted(command.action)
            note = f"{about}: action {action} is not an action of a queue; use {_OPEN_QUEUE} or {_CLOSE_QUEUE}"
            self._publish(queue, "CommandRefused", note)
        return state

    def _with_parent(self, queue: QueueRecord, state: str, *, asked: bool) -> str:
        """Return the state of a queue that follows from its parent: child queues close with it, and those that it
        closed open with it."""
        parent = self.queues.get(("", queue.parent))
        if parent is None or (asked and state != queue.state):
            return state
        if parent.state in _SHUT and state not in _SHUT:
            return _CLOSING
        if parent.state == _OPEN and state in _SHUT and queue.closed_by_parent:
            return _OPEN
        return state

    async def _write(self, queue: QueueRecord, state: str) -> None:
        parent = self.queues.get(("", queue.parent))
        shut = state in _SHUT and queue.state not in _SHUT
        by_parent = shut and parent is not None and parent.state in _SHUT
        # The annotation is written before closing and after opening: a crash in between only repeats it.
        if shut and by_parent != queue.closed_by_parent:
            queue = await self._mark(queue, by_parent)
        status: dict[str, Any] = {"state": state}
        if not queue.counted:
            status["allocated"] = {"cpu": "0", "memory": "0"}  # the scheduler writes the real values
        # The state follows from the version that the watch delivered: a user can have closed the queue since.
        version = {"uid": queue.uid, "resourceVersion": queue.resource_version}
        body = {"metadata": version, "status": status}
        answer = await self._context.writer.patch(QUEUES.path(None, queue.name, "status"), body, PatchType.MERGE)
        self.queues.put(("", queue.name), msgspec.json.encode(answer))
        if shut:
            self._publish(queue, _CLOSE_QUEUE, "Close queue succeed", "Normal")

    async def _mark(self, queue: QueueRecord, by_parent: bool) -> QueueRecord:
        """Record in an annotation of a queue whether it opens with its parent. Return the written queue."""
        notes = {CLOSED_BY_PARENT: "true" if by_parent else "false"}
        metadata = {"uid": queue.uid, "resourceVersion": queue.resource_version, "annotations": notes}
        patch = {"metadata": metadata}
        answer = await self._context.writer.patch(QUEUES.path(None, queue.name), patch, PatchType.MERGE)
        raw = msgspec.json.encode(answer)
        self.queues.put(("", queue.name), raw)
        return _read_queue(raw)

    async def _exists(self, name: str) -> bool:
        """Return whether the queue exists although the watch does not have it yet."""
        try:
            await self._context.client.get(QUEUES.path(None, name))
        except ApiError as error:
            if error.status != 404:
                raise
            return False
        return True

    async def _drop(self, command: QueueCommand) -> None:
        try:
            await self._context.writer.delete(_COMMANDS.path(command.namespace, command.name), uid=command.uid)
        except ApiError as error:
            if error.status not in (404, 409):
                raise
        self.commands.remove((command.namespace, command.name), command.uid)

    def _publish(self, queue: QueueRecord, reason: str, note: str, kind: str = "Warning") -> None:
        regarding = ObjectReference(QUEUES.kind, queue.name, "", queue.uid, QUEUES.api_version)
        self._context.recorder.record(regarding, type=kind, reason=reason, action=reason, note=note)
