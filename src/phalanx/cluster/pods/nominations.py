"""Nominations: resources that are reserved on nodes for pods until their victims have terminated."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable

# Seconds after the end of its grace period from which a victim is no longer awaited.
PATIENCE = 60


class Nomination:
    """Resources that one decision reserves on nodes for its preemptors; all pods of the decision share one
    nomination.

    `victims` are the uids of the pods that must be gone before the preemptors can be placed. `until` (seconds since
    the epoch) is when the room is released if they are not. `cause` identifies the decision. After a restart the
    victims are unknown (`from_api`): then they are the pods that we have evicted from its nodes; without any, the
    room is reserved until the preemptor has had its turn. `transfers` counts how often the room was reserved for
    one pod and used by another one. `held`: the room of a placeholder that the pod replaces; it is never published,
    and no turn without a placement withdraws it.
    """

    __slots__ = ("cause", "held", "transfers", "until", "victims")

    def __init__(
        self,
        victims: frozenset[str] = frozenset(),
        until: float = 0.0,
        cause: str = "",
        transfers: int = 0,
        held: bool = False,
    ) -> None:
        self.victims = victims
        self.until = until
        self.cause = cause
        self.transfers = transfers
        self.held = held

    @property
    def from_api(self) -> bool:
        """Whether the nomination is known from the API only."""
        return not self.victims and not self.until

    def __repr__(self) -> str:
        return f"Nomination({len(self.victims)} victims, until={self.until})"

    def awaited(self, leaving: Container[str]) -> list[str]:
        """Return those of the nomination's victims that are still in `leaving`, sorted."""
        return sorted(uid for uid in self.victims if uid in leaving)


class UnreleasedPods:
    """Uids of evicted pods that still block their preemptors: they terminate, or are gone while the API still
    shows their allocations (claims of devices are released by a controller, with a delay)."""

    def __init__(self, leaving: Container[str], lingers: Iterable[Callable[[str], bool]]) -> None:
        self._leaving = leaving
        self._lingers = tuple(lingers)

    def __contains__(self, uid: object) -> bool:
        return isinstance(uid, str) and (uid in self._leaving or any(lingers(uid) for lingers in self._lingers))
