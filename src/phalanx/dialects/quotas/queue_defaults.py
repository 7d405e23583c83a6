"""Default queues of namespaces (Volcano's annotation), and the pods without a gang that use them."""

from __future__ import annotations

from phalanx.model.account import DEFAULT_QUEUE


class QueueDefaults:
    """Default queue per namespace for pods without a gang and without a queue of their own; else `default`."""

    def __init__(self) -> None:
        self._queues: dict[str, str] = {}
        self._followers: dict[str, set[str]] = {}

    def queue(self, namespace: str) -> str:
        return self._queues.get(namespace, DEFAULT_QUEUE)

    def change_namespace(self, namespace: str, queue: str) -> list[str]:
        """Set the namespace's default queue ("" removes it); return the uids of pods with a changed queue."""
        last = self.queue(namespace)
        if queue:
            self._queues[namespace] = queue
        else:
            self._queues.pop(namespace, None)
        return sorted(self._followers.get(namespace, ())) if self.queue(namespace) != last else []

    def add_pod(self, namespace: str, uid: str) -> None:
        self._followers.setdefault(namespace, set()).add(uid)

    def remove_pod(self, namespace: str, uid: str) -> None:
        followers = self._followers.get(namespace)
        if followers is not None:
            followers.discard(uid)
            if not followers:
                del self._followers[namespace]
