"""The agent: the API on one side, the pods and nodes of the sans-IO core on the other."""

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
from phalanx_local.nodeagent.node_file import NodeFile, NodeFileError, parse_node_file
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

# A nodes file is read when it has not changed for one look, so that a half-written one is not taken for the truth.
_FILE_PERIOD = 0.5
# How often claims that cannot be used yet are looked at again.
_CLAIM_PERIOD = 2.0
_PODS_ON = "spec.nodeName={}"
_BOUND = "spec.nodeName!="
# An answer such as 403 or 422 will be the same in a second; somebody has to change something first.
_REJECTED_PAUSE = 30.0
# Of pods that are due together; the rest waits for the next time.
_MOST_FAILURES = 10_000
_DECODE_POD = msgspec.json.Decoder(V1Pod)
_DECODE_NODE = msgspec.json.Decoder(V1Node)


class AgentOptions(msgspec.Struct, frozen=True):
    """`nodes_file` is a path or None; `adoption` says which other nodes are taken on.

    `pod_network` is a CIDR, "" for the usual one of the mode. `concurrency` limits pod writes in flight.
    """

    nodes_file: str | None = None
    adoption: Adoption = Adoption.MARKED
    script: ScriptDefaults = ScriptDefaults()
    restarts: RestartBackoff = RestartBackoff()
    pod_network: str = ""
    images: Images = ALL_IMAGES
    concurrency: int = 64


class NodeAgent:
    """Plays the kubelets of many nodes. Without a runtime the containers pretend to run.

    `clock` gives Unix seconds. `log_port` is where the logs are served. `run` is all there is to call; it
    raises NodeFileError when the nodes file cannot be read at the start.
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
        self._events = KeyedQueue(self._tell_event, 4)
        self._failures: dict[str, Backoff] = {}
        self._errors = Failures()
        self._warnings: dict[str, dict[str, Any]] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._timer_due: float | None = None

    async def run(self, ready: Callable[[int], None]) -> None:
        """Until cancelled. `ready(nodes)` is called once, when all nodes stand and all pods have been read."""
        nodes = Reflector(self._client, NODES, _DECODE_NODE.decode, self.nodes.sink, failures=self._errors)
        pods = Reflector(
            self._client, PODS, _DECODE_POD.decode, self._pod_changed, field_selector=_BOUND, failures=self._errors
        )
        stamp = None
        if self._options.nodes_file is not None:
            stamp = _stamp(self._options.nodes_file)
            self._want(_read(self._options.nodes_file))
        if self._runtime is not None:
            await self._runtime.open()
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self.nodes.run())
                tasks.create_task(nodes.run())
                if self._options.nodes_file is not None:
                    tasks.create_task(self._follow(self._options.nodes_file, stamp))
                await nodes.synced.wait()
                await self.nodes.standing()
                # Only now: a pod that is read before its node would have to be read again.
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
        """What a node of ours offers, in the units of `phalanx.model.resources`."""
        return self.pods.node_info(node).allocatable if node in self.pods.nodes else {}

    def address(self, node: str) -> str:
        """What the pods of a node have as host address."""
        return self.pods.address(node)

    # Pods

    def _pod_changed(self, change: Change[V1Pod]) -> None:
        if isinstance(change, Upsert):
            self.pods.upsert(change.object, self._clock())
        elif isinstance(change, Delete):
            self._failures.pop(change.uid, None)
            self.pods.remove(change.uid, change.last.node if change.last else "")
        elif isinstance(change, Synced):
            self._through("the pods that are there", lambda: self.pods.synced(self._clock()))
        elif isinstance(change, Malformed):
            log.warning("pod %s/%s cannot be read and is not run: %s", *change.key, change.error)

    def _recount(self, node: str) -> None:
        self._lookups.mark(f"recount {node}")

    def wake(self) -> None:
        """Have the core called when the next thing is due."""
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
        self._through("the pods that are due", lambda: self.pods.advance(self._clock()))
        self.wake()

    def _through(self, what: str, call: Callable[[], None]) -> None:
        """Calls until all have had their turn, whatever one of them raises."""
        for _ in range(_MOST_FAILURES):
            try:
                return call()
            except Exception as error:
                self._errors.record_failure("agent", what, error)
        return None

    # What the core asks for

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
        self._tell(life, life.rejection.reason, life.rejection.message)

    def prepare(self, life: PodLifecycle) -> None:
        self._lookups.mark(f"claims {life.uid}")

    def _tell(self, life: PodLifecycle, reason: str, message: str) -> None:
        self._warnings[life.uid] = _warning(life, reason, message, self._clock())
        self._events.mark(life.uid)

    # What the runtime reports

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
            # A pod that is not there needs no status; one of another uid is not ours to write about.
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
            what = "the claims of pod" if kind == "claims" else "the pods of node"
            log.warning("reading %s %s: %s", what, subject, error)
            return 1.0
        return None

    async def _prepare(self, uid: str) -> float | None:
        """Start a pod whose claims are in order, or tell once that they are not and look again later."""
        life = self.pods.life(uid)
        if life is None or not life.held or life.finished:
            return None
        try:
            for name in claim_names(life.pod):
                require_usable(life.pod, name, await self._claim(life.pod.metadata.namespace, name))
        except UnpreparedError as problem:
            if self.pods.unprepared(uid, self._clock()):
                why = f"Failed to prepare dynamic resources: prepare dynamic resources: {problem}"
                self._tell(life, UNPREPARED, why)
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
        """Pods that were bound before their node was ours."""
        listed = await self._list_pods(node)
        for raw in listed:
            # The reflector has complained already of what cannot be read.
            with contextlib.suppress(msgspec.DecodeError):
                pod = decoded(_DECODE_POD.decode, raw)
                what = f"pod {pod.metadata.namespace}/{pod.metadata.name}"
                self._errors.guard("agent", what, partial(self.pods.upsert, pod, self._clock()))

    async def _confirm_admission(self, node: str) -> None:
        query = self.pods.query_node(node)
        try:
            answer = await self._client.request("GET", NODES.path(None, node))
        except ApiError as error:
            if error.status == 404:
                return  # the watch will tell; pods of a node that vanished are not ours
            raise
        offer, _ = read_offer(decoded(_DECODE_NODE.decode, answer))
        present = {decode_json(raw, _Named).metadata.uid for raw in await self._list_pods(node)}
        self.pods.confirm_admission(query, offer, present, self._clock())

    async def _list_pods(self, node: str) -> list[bytes]:
        selector = _PODS_ON.format(node)
        answer = await self._client.request("GET", PODS.path(), params={"fieldSelector": selector}, timeout=60)
        return [bytes(raw) for raw in decode_json(answer, _RawList).items or []]

    async def _tell_event(self, uid: str) -> None:
        event = self._warnings.pop(uid, None)
        if event is None:
            return
        try:
            await self._client.create(EVENTS.path(event["metadata"]["namespace"]), event)
        except (ApiError, ConnectionLost) as error:  # events are a courtesy
            log.info("event for pod %s: %s", event["involvedObject"]["name"], error)

    # The nodes file

    def _want(self, parsed: NodeFile) -> None:
        for problem in parsed.problems:
            log.error("%s", problem)
        # While there are mistakes in it, a missing entry may be one of them: no node is removed.
        self.nodes.want(parsed.nodes, complete=not parsed.problems)

    async def _follow(self, path: str, applied: _Stamp | None) -> None:
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
                self._want(_read(path))
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
    """Changes when the file is written or replaced; None while there is none."""
    try:
        status = os.stat(path)
    except OSError:
        return None
    return (status.st_mtime_ns, status.st_size, status.st_ino)


def _read(path: str) -> NodeFile:
    try:
        with open(path, encoding="utf-8") as file:
            text = file.read()
    except (OSError, UnicodeDecodeError) as error:
        raise NodeFileError(f"nodes file {path}: {error}") from error
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
