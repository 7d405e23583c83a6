"""Room that is held for pods until others, who were told to leave, have left."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable

# Who is still there so many seconds after the end of his grace is waited for no longer.
PATIENCE = 60


class Nomination:
    """Room that one decision holds for its preemptors; every pod of the decision refers to the same nomination.

    `victims` are the uids of the pods that must be gone before the preemptors can be placed there, `until` when
    (seconds since the epoch) the room is given up if they are not, `cause` ties it to the decision. After a restart
    nobody remembers victims (`from_api`): then they are those on its nodes who leave because we have told them to;
    if there are none, the room is held until the preemptor has had its turn. `transfers` counts how often the room
    was held for somebody and taken by the next.
    """

    __slots__ = ("cause", "transfers", "until", "victims")

    def __init__(
        self, victims: frozenset[str] = frozenset(), until: float = 0.0, cause: str = "", transfers: int = 0
    ) -> None:
        self.victims = victims
        self.until = until
        self.cause = cause
        self.transfers = transfers

    @property
    def from_api(self) -> bool:
        """Whether all that is known of it is what the API says."""
        return not self.victims and not self.until

    def __repr__(self) -> str:
        return f"Nomination({len(self.victims)} victims, until={self.until})"

    def awaited(self, leaving: Container[str]) -> list[str]:
        """Those of the victims that are among `leaving`, sorted."""
        return sorted(uid for uid in self.victims if uid in leaving)


class UnreleasedPods:
    """The uids of pods that are still in the way of those for whom they had to leave: they are on their way out, or
    gone while the API still shows what they had (claims of devices are freed by a controller, in its own time)."""

    def __init__(self, leaving: Container[str], lingers: Iterable[Callable[[str], bool]]) -> None:
        self._leaving = leaving
        self._lingers = tuple(lingers)

    def __contains__(self, uid: object) -> bool:
        return isinstance(uid, str) and (uid in self._leaving or any(lingers(uid) for lingers in self._lingers))
