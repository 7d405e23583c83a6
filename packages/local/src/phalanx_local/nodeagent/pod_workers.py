"""Pods of all nodes of one agent: admission, timers and pending writes.

The module has no I/O and no clock, like the lifecycles of single pods (`lifecycle.py`); it calls `Outside` for
actions outside of it.
"""

from __future__ import annotations

import heapq
import itertools
from collections import deque
from collections.abc import Iterable, Set
from typing import Any, Protocol

import msgspec

from phalanx_local.nodeagent.addresses import AddressPool
from phalanx_local.nodeagent.capacity import NodeInfo, Rejection
from phalanx_local.nodeagent.claims import has_claims
from phalanx_local.nodeagent.core_v1 import V1Pod
from phalanx_local.nodeagent.kubelet_node import KubeletNode, NodeOffer
from phalanx_local.nodeagent.pod_runtime.containers import RestartBackoff
from phalanx_local.nodeagent.pod_runtime.images import ALL_IMAGES, Images
from phalanx_local.nodeagent.pod_runtime.lifecycle import Command, PodLifecycle, StopCause
from phalanx_local.nodeagent.pod_runtime.script import ScriptDefaults, ScriptError
from phalanx_local.nodeagent.pod_runtime.status import status_patch
from phalanx_local.nodeagent.requests import charge_of, wanted_charge


class StatusWrite(msgspec.Struct, frozen=True):
    """Strategic merge patch of a pod's status. The caller passes `revision` back to `wrote`."""

    namespace: str
    name: str
    revision: int
    body: dict[str, Any]


class DeleteWrite(msgspec.Struct, frozen=True):
    """Deletion of a pod object with grace period 0: no container of the pod runs any more."""

    namespace: str
    name: str
    uid: str


Write = StatusWrite | DeleteWrite


class NodeQuery(msgspec.Struct, frozen=True):
    """Query to the API about one node: the pods with unconfirmed admission, and the pods that occupy the node."""

    node: str
    unconfirmed: frozenset[str]
    holders: frozenset[str]


class Outside(Protocol):
    """Actions that PodWorkers request from the agent. All calls are synchronous and must not call back."""

    def write(self, uid: str) -> None:
        """Schedule a write about this pod to the API (see `PodWorkers.next_write`)."""

    def wake(self) -> None:
        """Set the agent's timer to `next_due` again, because `next_due` has changed."""

    def command(self, life: PodLifecycle, command: Command) -> None:
        """Start or stop a container of the pod."""

    def ended(self, life: PodLifecycle) -> None:
        """Release the resources of a pod whose containers have all ended for good."""

    def forget(self, life: PodLifecycle) -> None:
        """Stop all containers of the pod on this machine, because the pod or its node was deleted."""

    def confirm(self, node: str) -> None:
        """Confirm the admission of a node's pods: call `query_node`, read the node and its pods, then call
        `confirm_admission`."""

    def rejected(self, life: PodLifecycle) -> None:
        """Record an event about a rejected pod."""

    def prepare(self, life: PodLifecycle) -> None:
        """Check the ResourceClaims of a pod, and call `prepared` when the pod can use them."""


class _Member:
    """One pod of the agent, and the last revision of its status that the API has."""

    __slots__ = ("deleted", "life", "over", "published_revision", "wake")

    def __init__(self, life: PodLifecycle) -> None:
        self.life = life
        self.published_revision = 0
        self.deleted = False
        self.over = False
        self.wake: float | None = None


class PodWorkers:
    """Workers for the pods of all nodes of one agent.

    `defaults` as in `PodLifecycle`; `host_ip` is the address of nodes without an address of their own.
    """

    def __init__(
        self,
        outside: Outside,
        *,
        defaults: ScriptDefaults | None,
        backoff: RestartBackoff,
        addresses: AddressPool,
        host_ip: str,
        images: Images = ALL_IMAGES,
    ) -> None:
        self._outside = outside
        self._defaults = defaults
        self._backoff = backoff
        self._addresses = addresses
        self._host_ip = host_ip
        self._images = images
        self._kubelets: dict[str, KubeletNode] = {}
        self._members: dict[str, _Member] = {}
        # Uids of pods on nodes that this agent does not manage (yet).
        self._of_other_nodes: dict[str, set[str]] = {}
        self._arrivals: list[V1Pod] | None = []
        self._waiting: deque[V1Pod] = deque()
        self._timers: list[tuple[float, int, str]] = []
        self._serial = itertools.count()

    # Nodes

    def add_node(self, node: str, offer: NodeOffer, now: float) -> bool:
        """Add a node, or update its capacity, labels and taints. Return True if pods of the node were skipped and
        must be read again."""
        kubelet = self._kubelets.get(node)
        if kubelet is None:
            self._kubelets[node] = KubeletNode(node, offer)
            return bool(self._of_other_nodes.pop(node, None))
        kubelet.update(offer)
        self._retry_resizes(kubelet, now)
        return False

    def remove_node(self, node: str) -> None:
        """Remove a node that was deleted or is not simulated any more: its pods end at once, without any more
        writes about them."""
        kubelet = self._kubelets.pop(node, None)
        if kubelet is None:
            return
        uids = set(kubelet.unconfirmed)
        for uid in [member.life.uid for member in self._on(node)]:
            uids.add(uid)
            self._forget(uid)
        if uids:
            self._of_other_nodes[node] = uids

    def drain(self, node: str, now: float) -> None:
        """Stop all pods of the node and admit no new ones; `drained` returns True after the last pod has ended."""
        if kubelet := self._kubelets.get(node):
            kubelet.draining = True
        for member in self._on(node):
            member.life.drain(now)
            self._step(member, now)

    def undrain(self, node: str) -> None:
        """Cancel the drain of a node: it admits pods again."""
        if kubelet := self._kubelets.get(node):
            kubelet.draining = False

    def drained(self, node: str) -> bool:
        return all(member.life.finished and self._pending(member) is None for member in self._on(node))

    def _on(self, node: str) -> list[_Member]:
        return [member for member in self._members.values() if member.life.pod.node == node]

    @property
    def nodes(self) -> Set[str]:
        return self._kubelets.keys()

    def address(self, node: str) -> str:
        """Return the host address that pods of a node report."""
        kubelet = self._kubelets.get(node)
        return (kubelet.address if kubelet is not None else "") or self._host_ip

    def node_info(self, node: str) -> NodeInfo:
        return self._kubelets[node].info

    # Pods

    def upsert(self, pod: V1Pod, now: float) -> None:
        """Add a bound pod, or update it to its newest version in the API."""
        uid = pod.metadata.uid
        member, kubelet = self._members.get(uid), self._kubelets.get(pod.node)
        if member is not None:
            if member.life.observe(pod, now) and kubelet is not None:
                self._resize(kubelet, member, pod)
            self._step(member, now)
            self._drop_if_over(member)
        elif kubelet is None:
            self._of_other_nodes.setdefault(pod.node, set()).add(uid)
        elif uid in kubelet.unconfirmed:
            kubelet.unconfirmed[uid] = pod
        elif self._arrivals is not None:
            self._arrivals.append(pod)
        else:
            self._arrive(kubelet, pod, now)

    def remove(self, uid: str, node: str = "") -> None:
        """Remove a pod that was deleted from the API. `node` is its node, if known."""
        for kubelet in [self._kubelets[node]] if node in self._kubelets else self._kubelets.values():
            kubelet.unconfirmed.pop(uid, None)
        for name in [node] if node else list(self._of_other_nodes):
            uids = self._of_other_nodes.get(name)
            if uids is not None:
                uids.discard(uid)
                if not uids:
                    del self._of_other_nodes[name]
        if self._arrivals is not None:
            self._arrivals = [pod for pod in self._arrivals if pod.metadata.uid != uid]
        if uid in self._members:
            self._forget(uid)

    def synced(self, now: float) -> None:
        """Admit the bound pods of the first list from the API: running pods first, then by age.

        The caller calls again if one pod raises an error, to admit the remaining pods.
        """
        if self._arrivals is not None:
            arrivals, self._arrivals = self._arrivals, None
            arrivals.sort(key=lambda pod: (not pod.status.start_time, pod.metadata.creation_timestamp or ""))
            self._waiting.extend(arrivals)
        while self._waiting:
            pod = self._waiting.popleft()
            if kubelet := self._kubelets.get(pod.node):
                self._arrive(kubelet, pod, now)

    def life(self, uid: str) -> PodLifecycle | None:
        member = self._members.get(uid)
        return member.life if member else None

    def _arrive(self, kubelet: KubeletNode, pod: V1Pod, now: float) -> None:
        if pod.finished and not pod.terminating:
            return
        if pod.status.start_time or pod.terminating or pod.finished:
            self._take_over(kubelet, pod, now)
        elif kubelet.admit(pod) is None:
            self._begin(kubelet, pod, None, now)
        else:
            kubelet.unconfirmed[pod.metadata.uid] = pod
            self._outside.confirm(kubelet.name)

    def _take_over(self, kubelet: KubeletNode, pod: V1Pod, now: float) -> None:
        address = pod.status.pod_ip or ""
        if address and not pod.spec.host_network:
            self._addresses.claim(pod.metadata.uid, address)
        elif not address and not pod.finished:
            address = self._address(pod)
        life = PodLifecycle.resumed(
            pod,
            now,
            defaults=self._defaults,
            backoff=self._backoff,
            pod_ip=address,
            images=self._images,
        )
        member = self._enroll(life)
        if not life.finished:
            kubelet.info.occupy(pod.metadata.uid, charge_of(pod))
            if life.granted is not None and life.granted != life.stated_resources:
                self._resize(kubelet, member, pod)
        self._enter(kubelet, member, now)

    def _begin(self, kubelet: KubeletNode, pod: V1Pod, rejection: Rejection | None, now: float) -> None:
        """Start a pod that its node has admitted, or reject the pod."""
        if rejection is None:
            try:
                address = self._address(pod)
                life = PodLifecycle(
                    pod,
                    now,
                    defaults=self._defaults,
                    backoff=self._backoff,
                    pod_ip=address,
                    images=self._images,
                )
            except ScriptError as error:
                rejection = Rejection("InvalidAnnotation", f"Pod was rejected: {error}")
            except LookupError as error:
                rejection = Rejection("OutOfPodAddresses", f"Pod was rejected: {error}")
        if rejection is not None:
            kubelet.release(pod.metadata.uid)
            life = PodLifecycle.rejected(pod, now, rejection)
            self._outside.rejected(life)
        self._enter(kubelet, self._enroll(life), now)

    def _address(self, pod: V1Pod) -> str:
        return self.address(pod.node) if pod.spec.host_network else self._addresses.allocate(pod.metadata.uid)

    def _enroll(self, life: PodLifecycle) -> _Member:
        member = self._members[life.uid] = _Member(life)
        return member

    def _enter(self, kubelet: KubeletNode, member: _Member, now: float) -> None:
        life = member.life
        if has_claims(life.pod) and life.never_ran and not life.finished:
            life.held = True
            self._outside.prepare(life)
        if kubelet.draining:
            life.drain(now)
        self._step(member, now)

    # Claims

    def prepared(self, uid: str, now: float) -> None:
        """Start a pod whose ResourceClaims have become usable."""
        if member := self._members.get(uid):
            member.life.held = False
            self._step(member, now)

    def unprepared(self, uid: str, now: float) -> bool:
        """Mark a pod as waiting for its ResourceClaims. Return True the first time, when an event is due."""
        member = self._members.get(uid)
        first = member is not None and member.life.held and member.life.mark_held()
        if first and member is not None:
            self._step(member, now)
        return first

    # In-place resize

    def _resize(self, kubelet: KubeletNode, member: _Member, pod: V1Pod) -> None:
        """Apply an in-place resize of a pod's spec, or record the reason of its rejection."""
        if not member.life.finished:
            member.life.resize(kubelet.resize(member.life.uid, wanted_charge(pod)))

    def _retry_resizes(self, kubelet: KubeletNode, now: float) -> None:
        for uid, wanted in list(kubelet.deferred.items()):
            member = self._members[uid]
            if kubelet.info.check(uid, wanted) is None:
                member.life.resize(kubelet.resize(uid, wanted))
                self._step(member, now)

    # Unconfirmed admissions: the known state can be stale when a pod does not fit

    def query_node(self, node: str) -> NodeQuery:
        """Return the pods about which the API must be read before their admission on a node is confirmed; call it
        before the read."""
        kubelet = self._kubelets.get(node)
        if kubelet is None:
            return NodeQuery(node, frozenset(), frozenset())
        return NodeQuery(node, frozenset(kubelet.unconfirmed), frozenset(kubelet.info.holders))

    def confirm_admission(self, query: NodeQuery, offer: NodeOffer, existing: Iterable[str], now: float) -> None:
        """Admit or reject the unconfirmed pods of a node, from the Node object and the uids of its pods in the
        API."""
        kubelet = self._kubelets.get(query.node)
        if kubelet is None:
            return
        kubelet.update(offer)
        present = set(existing)
        for uid in query.holders - present:
            if uid in self._members:
                self._forget(uid)
        for uid in query.unconfirmed & kubelet.unconfirmed.keys():
            pod = kubelet.unconfirmed.pop(uid)
            if uid not in present:
                continue
            if pod.terminating or pod.finished:
                self._arrive(kubelet, pod, now)
            else:
                self._begin(kubelet, pod, kubelet.admit(pod), now)
        if kubelet.unconfirmed:
            self._outside.confirm(kubelet.name)

    # Reports of the runtime

    def started(self, uid: str, container: str, now: float) -> None:
        if member := self._members.get(uid):
            member.life.started(container, now)
            self._step(member, now)

    def refused(self, uid: str, container: str, reason: str, message: str, now: float) -> None:
        if member := self._members.get(uid):
            member.life.refused(container, reason, message)
            self._step(member, now)

    def exited(
        self, uid: str, container: str, exit_code: int, now: float, reason: str = "", message: str = ""
    ) -> None:
        if member := self._members.get(uid):
            member.life.exited(container, now, exit_code, reason, message)
            self._step(member, now)

    # Time

    def next_due(self) -> float | None:
        """Return the time at which `advance` must be called; None for never."""
        while self._timers:
            at, _, uid = self._timers[0]
            member = self._members.get(uid)
            if member is not None and member.wake == at:
                return at
            heapq.heappop(self._timers)
        return None

    def advance(self, now: float) -> None:
        """Step all pods that are due; the caller calls again if one pod raises an error."""
        while (at := self.next_due()) is not None and at <= now:
            member = self._members[heapq.heappop(self._timers)[2]]
            member.wake = None
            self._step(member, now)

    def _step(self, member: _Member, now: float) -> None:
        life = member.life
        for command in life.step(now):
            self._outside.command(life, command)
        if life.finished and not member.over:
            member.over = True
            self._release(life)
            self._outside.ended(life)
            if kubelet := self._kubelets.get(life.pod.node):
                self._retry_resizes(kubelet, now)
        wake, before = life.wake_at(), member.wake
        member.wake = wake
        if wake is not None and wake != before:
            heapq.heappush(self._timers, (wake, next(self._serial), life.uid))
            self._outside.wake()
        if self._pending(member) is not None:
            self._outside.write(life.uid)

    # Writes

    def next_write(self, uid: str, now: float) -> Write | None:
        """Return the next write about a pod; None if the API has its latest status."""
        member = self._members.get(uid)
        kind = self._pending(member) if member else None
        if member is None or kind is None:
            return None
        metadata = member.life.pod.metadata
        if kind is DeleteWrite:
            return DeleteWrite(metadata.namespace, metadata.name, uid)
        body = status_patch(member.life, now, self.address(member.life.pod.node))
        return StatusWrite(metadata.namespace, metadata.name, member.life.revision, body)

    def wrote(self, uid: str, write: Write) -> None:
        """Record that the API accepted a write about the pod (or that the pod does not exist any more)."""
        member = self._members.get(uid)
        if member is None:
            return
        if isinstance(write, DeleteWrite):
            member.deleted = True
        else:
            member.published_revision = max(member.published_revision, write.revision)
        self._drop_if_over(member)

    def _pending(self, member: _Member) -> type[StatusWrite] | type[DeleteWrite] | None:
        life = member.life
        deletable = life.finished and life.pod.terminating
        if member.deleted:
            return None
        if life.revision > member.published_revision and not (
            deletable and life.never_ran and life.cause is StopCause.DELETED
        ):
            return StatusWrite
        return DeleteWrite if deletable else None

    # End of pods

    def _release(self, life: PodLifecycle) -> None:
        if kubelet := self._kubelets.get(life.pod.node):
            kubelet.release(life.uid)
        self._addresses.release(life.uid, life.pod_ip)

    def _drop_if_over(self, member: _Member) -> None:
        # After the watch has shown the end of the pod, no older state can arrive: no state is needed.
        life = member.life
        if life.finished and life.pod.finished and not life.pod.terminating and self._pending(member) is None:
            self._drop(life.uid)

    def _drop(self, uid: str) -> None:
        member = self._members.pop(uid)
        self._release(member.life)

    def _forget(self, uid: str) -> None:
        self._outside.forget(self._members[uid].life)
        self._drop(uid)
