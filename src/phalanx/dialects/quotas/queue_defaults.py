"""The queues that namespaces prefer (Volcano's annotation), and the lone pods that go by them."""

from __future__ import annotations

from phalanx.model.account import DEFAULT_QUEUE


class QueueDefaults:
    """A pod on its own that names no queue goes where its namespace says, else to `default`."""

    def __init__(self) -> None:
        self._queues: dict[str, str] = {}
        self._followers: dict[str, set[str]] = {}

    def queue(self, namespace: str) -> str:
        return self._queues.get(namespace, DEFAULT_QUEUE)

    def change_namespace(self, namespace: str, queue: str) -> list[str]:
        """The uids of the pods whose queue is another now; "" takes the namespace's word back."""
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
