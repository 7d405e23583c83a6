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

from phalanx.model.node_rejection import OUT_OF, REJECTION_REASONS, BackoffScope, NodeBackoffEntry
from phalanx.model.pod import PodClass
from phalanx.model.resources import PODS

# Seconds: first back-off of a scope, doubled at each rejection up to the longest; an entry expires after the last.
FIRST_REST = 30
LONGEST_REST = 480
FORGOTTEN_AFTER = 3600


class NodeBackoff:
    """Back-offs by scope; times are in seconds since the epoch. `version` counts the changes of entries."""

    def __init__(self) -> None:
        self.version = 0
        self._entries: dict[BackoffScope, NodeBackoffEntry] = {}
        # Scopes in back-off at the last call of `backed_off`, by namespace ("" for all pods).
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
            until, times = now + min(LONGEST_REST, FIRST_REST * 2 ** min(times, 10)), times + 1
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

    def in_force(self, now: float) -> tuple[NodeBackoffEntry, ...]:
        """Return the sorted entries of scopes that are in back-off."""
        return tuple(sorted(entry for entry in self._entries.values() if entry.until > now))

    def backed_off(self, now: float) -> tuple[BackoffScope, ...]:
        """Return the sorted scopes in back-off; `closed_to` uses them until the next call."""
        scopes = tuple(entry.scope for entry in self.in_force(now)) if self._entries else ()
        self._active = {}
        for scope in scopes:
            self._active.setdefault(scope.namespace, []).append(scope)
        return scopes

    def closed_to(self, pod_class: PodClass, namespace: str) -> list[BackoffScope]:
        """Return the scopes in back-off that contain pods of a class and namespace."""
        if not self._active:
            return []
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
    return class_digest(pod_class) == scope.pod_class


def _uses(pod_class: PodClass, resource: str) -> bool:
    return resource == PODS or any(name == resource and amount > 0 for name, amount in pod_class.requests)
