"""The names of everything that was ever seen, and whose they are: what texts may say to whom is decided by them."""

from __future__ import annotations

from collections.abc import Iterator

from phalanx.model.account import AccountKey, Tree
from phalanx.model.events import (
    AccountUpdated,
    ClusterEvent,
    CompositeUpdated,
    GangUpdated,
    NamespaceLabelled,
    NamespaceQuotasGranted,
    NamespaceWeighed,
    NodeUpdated,
    PodUpdated,
)
from phalanx.model.gang import shown_name

#: Names that are remembered, those that were seen first are forgotten first. Texts outlive what they name.
_MOST = 500_000

Owner = tuple[str, str]
"""What is called so (gang, pod, namespace, queue, node, user), and the namespace that it is in; "" for none.
A namespace that has a pod on a node owns its name as `room`, that of a queue that it names itself as `used`."""


class NameIndex:
    def __init__(self) -> None:
        self._owners: dict[str, set[Owner]] = {}

    def __len__(self) -> int:
        return len(self._owners)

    def owners(self, name: str) -> set[Owner]:
        return self._owners.get(name, _NOBODY)

    def take_in(self, event: ClusterEvent) -> None:
        """Notes the names that a fact brings."""
        for name, what, namespace in _names_in(event):
            owners = self._owners.get(name)
            if owners is None:
                if not name:
                    continue
                owners = self._owners[name] = set()
                if len(self._owners) > _MOST:
                    del self._owners[next(iter(self._owners))]
            owners.add((what, namespace))


_NOBODY: set[Owner] = set()
_KINDS = {Tree.NAMESPACE: "namespace", Tree.USER: "user"}


def _names_in(event: ClusterEvent) -> Iterator[tuple[str, str, str]]:
    match event:
        case PodUpdated(pod):
            yield pod.name, "pod", pod.namespace
            yield pod.namespace, "namespace", pod.namespace
            yield pod.gang, "gang", pod.namespace
            yield shown_name(pod.gang), "gang", pod.namespace
            yield pod.user, "user", pod.namespace
            yield pod.node, "room", pod.namespace
            yield pod.queue, "queue", ""
            yield pod.queue, "used", pod.namespace
            yield pod.quota, "queue", ""
        case GangUpdated(gang):
            yield gang.key.name, "gang", gang.key.namespace
            yield gang.title.removeprefix(f"{gang.key.namespace}/"), "gang", gang.key.namespace
            if gang.owner is not None:
                yield gang.owner.name, "gang", gang.key.namespace
            yield gang.key.namespace, "namespace", gang.key.namespace
            yield gang.queue, "queue", ""
            yield gang.queue, "used", gang.key.namespace
        case CompositeUpdated(composite):
            yield composite.key.name, "gang", composite.key.namespace
            yield composite.ref.name, "gang", composite.key.namespace
        case AccountUpdated(account):
            yield from _account(account.key)
            if account.source is not None and account.source.namespace:
                yield account.source.name, "quota", account.source.namespace
                yield account.source.namespace, "namespace", account.source.namespace
        case NodeUpdated(node):
            yield node.name, "node", ""
        case NamespaceLabelled(namespace) | NamespaceWeighed(namespace) | NamespaceQuotasGranted(namespace):
            yield namespace, "namespace", namespace
        case _:
            pass


def _account(key: AccountKey) -> Iterator[tuple[str, str, str]]:
    kind = _KINDS.get(key.tree, "queue")
    yield key.name, kind, key.name if kind == "namespace" else ""
