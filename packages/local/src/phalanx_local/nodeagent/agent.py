"""Node agent: connects the API with the pods and nodes of the I/O-free core."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import msgspec

from phalanx.kube.causes import cause_text
from phalanx.kube.changes import Change, Delete, Malformed, Synced, Upsert
from phalanx.kube.client import KubeClient, PatchType
from phalanx.kube.errors import ApiError, ConnectionLost
from phalanx.kube.failures import Failures
from phalanx.kube.reflector import Reflector
from phalanx.kube.retry import Backoff
from phalanx.kube.timestamps import format_time
from phalanx.model.text.decoding import decode_json, decoded
from phalanx_local.nodeagent import addresses
from phalanx_local.nodeagent.addresses import AddressPool
from phalanx_local.nodeagent.claims import (
    CLAIMS,
    UNPREPARED,
    UnpreparedError,
    V1ResourceClaim,
    claim_names,
    require_usable,
)
from phalanx_local.nodeagent.core_v1 import V1Node, V1Pod
from phalanx_local.nodeagent.kubelet_node import read_offer
from phalanx_local.nodeagent.node_file import MAX_FILE_SIZE, NodeFile, NodeFileError, parse_node_file
from phalanx_local.nodeagent.node_objects import EVENTS, HOST_ADDRESS, NODES, PODS, Machine
from phalanx_local.nodeagent.node_registration import Adoption, NodeKeeper
from phalanx_local.nodeagent.pod_runtime.containers import RestartBackoff
from phalanx_local.nodeagent.pod_runtime.images import ALL_IMAGES, Images
from phalanx_local.nodeagent.pod_runtime.lifecycle import Command, PodLifecycle
from phalanx_local.nodeagent.pod_runtime.runtime import Runtime
from phalanx_local.nodeagent.pod_runtime.script import ScriptDefaults
from phalanx_local.nodeagent.pod_workers import DeleteWrite, PodWorkers, Write
from phalanx_local.nodeagent.work_queue import KeyedQueue

log = logging.getLogger(__name__)

# A changed nodes file is read after one period without a change, so that a half-written file is not applied.
_FILE_PERIOD = 0.5
# Interval between checks of claims that are not usable yet.
_CLAIM_PERIOD = 2.0
_PODS_ON = "spec.nodeName={}"
_BOUND = "spec.nodeName!="
# An answer such as 403 or 422 repeats until a user changes the cause: retry rarely.
_REJECTED_PAUSE = 30.0
# Maximum number of failing pods in one call; the remaining pods are due at the next call.
_MAX_FAILURES = 10_000
_DECODE_POD = msgspec.json.Decoder(V1Pod)
_DECODE_NODE = msgspec.json.Decoder(V1Node)


class AgentOptions(msgspec.Struct, frozen=True):
    """Options of the node agent.

    `nodes_file` is a path or None; `adoption` selects the other nodes that the agent adopts. `pod_network` is a
    CIDR, "" for the default of the mode. `concurrency` limits concurrent pod writes.
    """

    nodes_file: str | None = None
    adoption: Adoption = Adoption.MARKED
    script: ScriptDefaults = ScriptDefaults()
    restarts: RestartBackoff = RestartBackoff()
    pod_network: str = ""
    images: Images = ALL_IMAGES
    concurrency: int = 64


class NodeAgent:
    """Simulator of the kubelets of many nodes. Without a runtime the containers are simulated too.

    `clock` returns Unix seconds. `log_port` is the port of the log server. `run` is the entry point; it raises
    NodeFileError if the nodes file cannot be read at the start.
    """

    def __init__(
        self,
        client: KubeClient,
        options: AgentOptions,
        *,
        make_runtime: Callable[[NodeAgent], Runtime] | None = None,
        log_port: int = 0,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._client = client
        self._options = options
        self._clock = clock
        self._runtime = make_runtime(self) if make_runtime else None
        usual = addresses.LOOPBACK_NETWORK if self._runtime else addresses.PRETEND_NETWORK
        self.pods = PodWorkers(
            self,
            defaults=None if self._runtime else options.script,
            backoff=options.restarts,
            addresses=AddressPool(options.pod_network or usual),
            host_ip=HOST_ADDRESS,
            images=options.images,
        )
        self.nodes = NodeKeeper(
            client,
            self.pods,
            Machine.here(log_port),
            adoption=options.adoption,
            clock=clock,
            recount=self._recount,
        )
        self._writes = KeyedQueue(self._write, options.concurrency)
        self._lookups = KeyedQueue(self._look_up, 8)
        self._events = KeyedQueue(self._send_event, 4)
        self._failures: dict[str, Backoff] = {}
        self._errors = Failures()
        self._warnings: dict[str, dict[str, Any]] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._timer_due: float | None = None

    async def run(self, ready: Callable[[int], None]) -> None:
        """Run the node agent until cancelled. `ready(nodes)` is called once, when all nodes are registered and all
        pods read."""
        nodes = Reflector(self._client, NODES, _DECODE_NODE.decode, self.nodes.sink, failures=self._errors)
        pods = Reflector(
            self._client, PODS, _DECODE_POD.decode, self._pod_changed, field_selector=_BOUND, failures=self._errors
        )
        stamp = None
        if self._options.nodes_file is not None:
            stamp = _stamp(self._options.nodes_file)
            self._apply_nodes_file(_read(self._options.nodes_file))
        if self._runtime is not None:
            await self._runtime.open()
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self.nodes.run())
                tasks.create_task(nodes.run())
                if self._options.nodes_file is not None:
                    tasks.create_task(self._watch_nodes_file(self._options.nodes_file, stamp))
                await nodes.synced.wait()
                await self.nodes.standing()
                # The pods are read after the nodes: a pod that is read before its node must be read again.
                tasks.create_task(pods.run())
                await pods.synced.wait()
                ready(self.nodes.ready)
        finally:
            if self._timer is not None:
                self._timer.cancel()
            for queue in (self._writes, self._lookups, self._events):
                await queue.close()
            if self._runtime is not None:
                await self._runtime.close()

    def allocatable(self, node: str) -> Mapping[str, int]:
        """Return the allocatable resources of a node that this agent manages, in the units of
        `phalanx.model.resources`; {} for other nodes."""
        return self.pods.node_info(node).allocatable if node in self.pods.nodes else {}

    def address(self, node: str) -> str:
        """Return the host address that pods of a node report."""
        return self.pods.address(node)

    # Pods

    def _pod_changed(self, change: Change[V1Pod]) -> None:
        if isinstance(change, Upsert):
            self.pods.upsert(change.object, self._clock())
        elif isinstance(change, Delete):
            self._failures.pop(change.uid, None)
            self.pods.remove(change.uid, change.last.node if change.last else "")
        elif isinstance(change, Synced):
            self._call_until_done("admission of existing pods", lambda: self.pods.synced(self._clock()))
        elif isinstance(change, Malformed):
            log.warning("pod %s/%s cannot be read and is not run: %s", *change.key, change.error)

    def _recount(self, node: str) -> None:
        self._lookups.mark(f"recount {node}")

    def wake(self) -> None:
        """Set the agent's timer to the time at which the next pod is due."""
        due = self.pods.next_due()
        if due == self._timer_due:
            return
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._timer_due = due
        if due is not None:
            pause = max(0.0, due - self._clock())
            self._timer = asyncio.get_running_loop().call_later(pause, self._advance)

    def _advance(self) -> None:
        self._timer, self._timer_due = None, None
        self._call_until_done("step of due pods", lambda: self.pods.advance(self._clock()))
        self.wake()

    def _call_until_done(self, what: str, call: Callable[[], None]) -> None:
        """Call `call` until it raises no error; an error about one pod must not stop the remaining pods."""
        for _ in range(_MAX_FAILURES):
            try:
                return call()
            except Exception as error:
                self._errors.record_failure("agent", what, error)
        return None

    # Calls from the core (`Outside`)

    def write(self, uid: str) -> None:
        self._writes.mark(uid)

    def command(self, life: PodLifecycle, command: Command) -> None:
        if self._runtime is not None:
            self._runtime.command(life, command)

    def ended(self, life: PodLifecycle) -> None:
        if self._runtime is not None:
            self._runtime.ended(life)

    def forget(self, life: PodLifecycle) -> None:
        if self._runtime is not None:
            self._runtime.forget(life)

    def confirm(self, node: str) -> None:
        self._lookups.mark(f"confirm {node}")

    def rejected(self, life: PodLifecycle) -> None:
        assert life.rejection is not None
        self._record_warning(life, life.rejection.reason, life.rejection.message)

    def prepare(self, life: PodLifecycle) -> None:
        self._lookups.mark(f"claims {life.uid}")

    def _record_warning(self, life: PodLifecycle, reason: str, message: str) -> None:
        self._warnings[life.uid] = _warning(life, reason, message, self._clock())
        self._events.mark(life.uid)

    # Reports of the runtime

    def started(self, uid: str, container: str) -> None:
        self.pods.started(uid, container, self._clock())

    def refused(self, uid: str, container: str, reason: str, message: str) -> None:
        self.pods.refused(uid, container, reason, message, self._clock())

    def exited(self, uid: str, container: str, exit_code: int, reason: str = "", message: str = "") -> None:
        self.pods.exited(uid, container, exit_code, self._clock(), reason, message)

    # The API

    async def _write(self, uid: str) -> float | None:
        write = self.pods.next_write(uid, self._clock())
        if write is None:
            return None
        try:
            await self._send(write)
        except ConnectionLost as error:
            return self._pause(uid, write, error)
        except ApiError as error:
            # A deleted pod needs no status; a pod with another uid belongs to another life.
            if error.status != 404 and not (error.status == 409 and isinstance(write, DeleteWrite)):
                return self._pause(uid, write, error)
        self._failures.pop(uid, None)
        self.pods.wrote(uid, write)
        return 0.0 if self.pods.next_write(uid, self._clock()) is not None else None

    async def _send(self, write: Write) -> None:
        if isinstance(write, DeleteWrite):
            await self._client.delete(PODS.path(write.namespace, write.name), uid=write.uid, grace_seconds=0)
            return
        await self._client.request(
            "PATCH",
            PODS.path(write.namespace, write.name, "status"),
            body=msgspec.json.encode(write.body),
            content_type=PatchType.STRATEGIC.value,
        )

    def _pause(self, uid: str, write: Write, error: ApiError | ConnectionLost) -> float:
        backoff = self._failures.setdefault(uid, Backoff(base=0.2))
        pause = backoff.next(error.retry_after if isinstance(error, ApiError) else None)
        if isinstance(error, ApiError) and error.status in (400, 401, 403, 413, 415, 422):
            pause = max(pause, _REJECTED_PAUSE)
        log.warning("pod %s/%s: %s; next try in %.1f s", write.namespace, write.name, error, pause)
        return pause

    async def _look_up(self, key: str) -> float | None:
        kind, _, subject = key.partition(" ")
        try:
            if kind == "claims":
                return await self._prepare(subject)
            if kind == "recount":
                await self._read_pods(subject)
            else:
                await self._confirm_admission(subject)
        except (ApiError, ConnectionLost) as error:
            subject_kind = "the claims of pod" if kind == "claims" else "the pods of node"
            log.warning("reading %s %s: %s", subject_kind, subject, error)
            return 1.0
        return None

    async def _prepare(self, uid: str) -> float | None:
        """Start a pod whose ResourceClaims are usable; otherwise record one event and return the delay of the next
        check."""
        life = self.pods.life(uid)
        if life is None or not life.held or life.finished:
            return None
        try:
            for name in claim_names(life.pod):
                require_usable(life.pod, name, await self._claim(life.pod.metadata.namespace, name))
        except UnpreparedError as problem:
            if self.pods.unprepared(uid, self._clock()):
                message = f"Failed to prepare dynamic resources: prepare dynamic resources: {problem}"
                self._record_warning(life, UNPREPARED, message)
            return _CLAIM_PERIOD
        self.pods.prepared(uid, self._clock())
        return None

    async def _claim(self, namespace: str, name: str) -> V1ResourceClaim | None:
        try:
            return decode_json(await self._client.request("GET", CLAIMS.path(namespace, name)), V1ResourceClaim)
        except ApiError as error:
            if error.status == 404:
                return None
            raise

    async def _read_pods(self, node: str) -> None:
        """Read the pods that were bound to a node before the agent managed the node."""
        listed = await self._list_pods(node)
        for raw in listed:
            # The reflector has logged unreadable pods already.
            with contextlib.suppress(msgspec.DecodeError):
                pod = decoded(_DECODE_POD.decode, raw)
                subject = f"pod {pod.metadata.namespace}/{pod.metadata.name}"
                self._errors.guard("agent", subject, partial(self.pods.upsert, pod, self._clock()))

    async def _confirm_admission(self, node: str) -> None:
        query = self.pods.query_node(node)
        try:
            answer = await self._client.request("GET", NODES.path(None, node))
        except ApiError as error:
            if error.status == 404:
                return  # the watch reports the deletion; the agent does not manage pods of deleted nodes
            raise
        offer, _ = read_offer(decoded(_DECODE_NODE.decode, answer))
        present = {decode_json(raw, _Named).metadata.uid for raw in await self._list_pods(node)}
        self.pods.confirm_admission(query, offer, present, self._clock())

    async def _list_pods(self, node: str) -> list[bytes]:
        selector = _PODS_ON.format(node)
        answer = await self._client.request("GET", PODS.path(), params={"fieldSelector": selector}, timeout=60)
        return [bytes(raw) for raw in decode_json(answer, _RawList).items or []]

    async def _send_event(self, uid: str) -> None:
        event = self._warnings.pop(uid, None)
        if event is None:
            return
        try:
            await self._client.create(EVENTS.path(event["metadata"]["namespace"]), event)
        except (ApiError, ConnectionLost) as error:  # events are best effort
            log.info("event for pod %s: %s", event["involvedObject"]["name"], error)

    # The nodes file

    def _apply_nodes_file(self, parsed: NodeFile) -> None:
        for problem in parsed.problems:
            log.error("%s", problem)
        # A mistake in the file can hide an entry: until it is corrected, no node is removed.
        self.nodes.want(parsed.nodes, complete=not parsed.problems)

    async def _watch_nodes_file(self, path: str, applied: _Stamp | None) -> None:
        seen = applied
        while True:
            await asyncio.sleep(_FILE_PERIOD)
            stamp = _stamp(path)
            if stamp is None or stamp == applied:
                continue
            if stamp != seen:
                seen = stamp
                continue
            applied = stamp
            try:
                self._apply_nodes_file(_read(path))
            except NodeFileError as error:
                log.error("%s; the nodes stay as they are", error)


class _Named(msgspec.Struct):
    metadata: _Uid


class _Uid(msgspec.Struct):
    uid: str = ""


class _RawList(msgspec.Struct):
    items: list[msgspec.Raw] | None = None


_Stamp = tuple[int, int, int]


def _stamp(path: str) -> _Stamp | None:
    """Return a stamp that changes when a file is written or replaced; None if the file does not exist."""
    try:
        status = os.stat(path)
    except OSError:
        return None
    return (status.st_mtime_ns, status.st_size, status.st_ino)


def _read(path: str) -> NodeFile:
    try:
        with open(path, encoding="utf-8") as file:
            text = file.read(MAX_FILE_SIZE + 1)
    except (OSError, UnicodeDecodeError) as error:
        raise NodeFileError(f"nodes file {path}: {cause_text(error)}") from error
    if len(text) > MAX_FILE_SIZE:
        raise NodeFileError(f"nodes file {path}: more than {MAX_FILE_SIZE} characters")
    return parse_node_file(text, path)


def _warning(life: PodLifecycle, reason: str, message: str, now: float) -> dict[str, Any]:
    metadata = life.pod.metadata
    return {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": f"{metadata.name[:230]}.{int(now * 1e9):x}", "namespace": metadata.namespace},
        "involvedObject": {
            "apiVersion": "v1",
            "kind": "Pod",
            "namespace": metadata.namespace,
            "name": metadata.name,
            "uid": metadata.uid,
        },
        "reason": reason,
        "message": message,
        "type": "Warning",
        "source": {"component": "kubelet", "host": life.pod.node},
        "reportingComponent": "kubelet",
        "reportingInstance": life.pod.node,
        "firstTimestamp": format_time(now),
        "lastTimestamp": format_time(now),
        "count": 1,
    }
