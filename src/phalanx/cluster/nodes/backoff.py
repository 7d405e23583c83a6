"""Back-off of nodes whose kubelet rejected a pod.

A pod that its kubelet rejects is lost, and its controller creates a replacement at once. The same node is still the
best one for it, so without a pause this repeats until the controller gives up. The kubelet has information that the
scheduler gets later: a pod of another scheduler, a failed device.

A tenant can provoke rejections, and can write the status of its pods. So a rejection closes the node only to pods
that the tenant controls: those of the same class and namespace, or those of the same namespace that request the
exhausted resource. Such a resource closes the node to all pods that request it only while pods of two namespaces
are rejected for it.
"""

from __future__ import annotations

from collections.abc import Iterable
from hashlib import blake2b

import msgspec

from phalanx.model.node_rejection import (
    OUT_OF,
    PROVISIONING_FAILED,
    REJECTION_REASONS,
    BackoffScope,
    NodeBackoffEntry,
)
from phalanx.model.pod import PodClass
from phalanx.model.resources import PODS
from phalanx.model.volumes import UnboundClaim

# Seconds: first back-off of a scope, doubled at each rejection up to the longest; an entry expires after the last.
FIRST_REST = 30
LONGEST_REST = 480
FORGOTTEN_AFTER = 3600
# The same after failed provisioning of a volume. The first is longer than the first pause of a failed pod, or the
# pod would get the same node again. It is short, as a failure can be brief and the node the only one.
FIRST_STORAGE_REST = 4
LONGEST_STORAGE_REST = 60


class NodeBackoff:
    """Back-offs by scope; times are in seconds since the epoch. `version` counts the changes of entries, `active`
    states whether any node was in back-off at the last `advance`.
    """

    def __init__(self) -> None:
        self.version = 0
        self.active = False
        self._entries: dict[BackoffScope, NodeBackoffEntry] = {}
        # Scopes in back-off at the last `advance`, and the same by namespace ("" for all pods).
        self._scopes: frozenset[BackoffScope] = frozenset()
        self._active: dict[str, list[BackoffScope]] = {}

    # changes

    def reject(self, node: str, reason: str, namespace: str, pod_class: PodClass, now: int) -> int:
        """Record that the kubelet of a node rejected a pod of this namespace and class; return the end of the
        back-off.

        Rejections of pods that were bound before the back-off do not extend it.
        """
        self._drop_expired(now)
        resource = exhausted_resource(reason, pod_class)
        if resource is None:
            return self._extend(BackoffScope(node, reason, namespace, pod_class=class_digest(pod_class)), now)
        until = self._extend(BackoffScope(node, reason, namespace, resource), now)
        if len(self._rejected_namespaces(node, resource, now)) > 1:
            self._extend(BackoffScope(node, reason, resource=resource), now)
        return until

    def fail_provisioning(self, node: str, namespace: str, storage_class: str, size: int, now: int) -> int:
        """Record that no volume of this class and size (bytes) could be provisioned on a node for a pod of this
        namespace; return the end of the back-off.

        Owners of claims can provoke this too, so only failures in two namespaces close the node to all pods with
        such claims, of the size at which both have failed.
        """
        self._drop_expired(now)
        scope = BackoffScope(node, PROVISIONING_FAILED, namespace, storage_class=storage_class, size=size)
        others = [
            other.size
            for other, entry in self._entries.items()
            if (other.node, other.storage_class) == (node, storage_class)
            and other.namespace not in ("", namespace)
            and entry.until > now
        ]
        if others:
            self._extend(msgspec.structs.replace(scope, namespace="", size=max(size, min(others))), now)
        return self._extend(scope, now)

    def advance(self, now: float) -> tuple[set[str], bool]:
        """Advance the time; return (nodes with scopes that have begun or ended, whether any has ended)."""
        if not self._entries and not self._scopes:
            return set(), False
        former = self._scopes
        self._scopes = frozenset(scope for scope, entry in self._entries.items() if entry.until > now)
        if self._scopes == former:
            return set(), False
        self.active, self._active = bool(self._scopes), {}
        for scope in sorted(self._scopes):
            self._active.setdefault(scope.namespace, []).append(scope)
        return {scope.node for scope in self._scopes ^ former}, bool(former - self._scopes)

    def restore(self, entries: Iterable[NodeBackoffEntry]) -> None:
        """Add stored entries. A scope with a later rejection keeps its entry."""
        for entry in entries:
            known = self._entries.get(entry.scope)
            if known is None or known.last < entry.last:
                self._entries[entry.scope] = entry
                self.version += 1

    def _extend(self, scope: BackoffScope, now: int) -> int:
        entry = self._entries.get(scope) or NodeBackoffEntry(scope, now, now, 0)
        until, times = entry.until, entry.times
        if now <= entry.last and now < until:
            return until
        if until <= now:
            first, longest = (
                (FIRST_STORAGE_REST, LONGEST_STORAGE_REST) if scope.storage_class else (FIRST_REST, LONGEST_REST)
            )
            until, times = now + min(longest, first * 2 ** min(times, 10)), times + 1
        self._entries[scope] = NodeBackoffEntry(scope, until, max(entry.last, now), times)
        self.version += 1
        return until

    def _drop_expired(self, now: int) -> None:
        expired = [
            scope for scope, entry in self._entries.items() if entry.last + FORGOTTEN_AFTER <= now >= entry.until
        ]
        for scope in expired:
            del self._entries[scope]
            self.version += 1

    # queries

    def entries(self) -> tuple[NodeBackoffEntry, ...]:
        """Return all entries, ended ones included: a repeated rejection continues them."""
        return tuple(sorted(self._entries.values()))

    def namespaces(self) -> set[str]:
        """Return the namespaces that any entry is limited to."""
        return {scope.namespace for scope in self._entries if scope.namespace}

    def closed_to(self, pod_class: PodClass, namespace: str) -> list[BackoffScope]:
        """Return the scopes in back-off that contain pods of a class and namespace, as of the last `advance`."""
        scopes = [*self._active.get("", ()), *(self._active.get(namespace, ()) if namespace else ())]
        return [scope for scope in scopes if _contains(scope, pod_class)]

    def reopening(self, pod_class: PodClass, namespace: str) -> dict[str, int]:
        """Return the nodes in back-off for pods of a class and namespace, with the end of their last back-off."""
        ends: dict[str, int] = {}
        for scope in self.closed_to(pod_class, namespace):
            ends[scope.node] = max(ends.get(scope.node, 0), self._entries[scope].until)
        return ends

    def next_end(self, now: float) -> int | None:
        """Return the end of the next back-off; None if there is none."""
        return min((entry.until for entry in self._entries.values() if entry.until > now), default=None)

    def _rejected_namespaces(self, node: str, resource: str, now: int) -> set[str]:
        return {
            scope.namespace
            for scope, entry in self._entries.items()
            if scope.namespace and (scope.node, scope.resource) == (node, resource) and entry.until > now
        }


def exhausted_resource(reason: str, pod_class: PodClass) -> str | None:
    """Return the resource that the kubelet's reason names, if a pod of the class uses it; else None."""
    resource = reason.removeprefix(OUT_OF) if reason.startswith(OUT_OF) else ""
    return resource if resource and _uses(pod_class, resource) else None


def recorded_reason(reason: str, pod_class: PodClass) -> str:
    """Return the kubelet's reason, without the name of a resource that no pod of the class uses.

    Writers of a pod's status choose that name.
    """
    known = reason in REJECTION_REASONS or exhausted_resource(reason, pod_class) is not None
    return reason if known else OUT_OF


def class_digest(pod_class: PodClass) -> str:
    """Return a text that is equal for equal classes, in every process."""
    return blake2b(msgspec.json.encode(pod_class), digest_size=12).hexdigest()


def _contains(scope: BackoffScope, pod_class: PodClass) -> bool:
    if scope.resource:
        return _uses(pod_class, scope.resource)
    if scope.storage_class:
        return any(
            isinstance(need, UnboundClaim)
            and not need.node
            and need.storage_class == scope.storage_class
            and need.size >= scope.size
            for need in pod_class.volumes
        )
    return class_digest(pod_class) == scope.pod_class


def _uses(pod_class: PodClass, resource: str) -> bool:
    return resource == PODS or any(name == resource and amount > 0 for name, amount in pod_class.requests)
