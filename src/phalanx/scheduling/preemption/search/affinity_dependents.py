"""Which pods matter to a beneficiary for more than the amounts that they hold."""

from __future__ import annotations

from collections.abc import Iterable

from phalanx.cluster.classes import ClassRecord
from phalanx.scheduling.preemption.victims import Victim
from phalanx.scheduling.session.session import Session


class Interplay:
    """Pods whose being there, or not, tells on where the beneficiary's pods may go: they are counted by what these
    state, or state something about these themselves."""

    def __init__(self, session: Session, classes: Iterable[ClassRecord]) -> None:
        book = session.state.nodes.affinity
        self._counted = {
            id(tally)
            for cls in classes
            if cls.affinity.restricts
            for counter in cls.affinity_state(book).counters()
            for tally, _ in counter.parts
        }

    def __bool__(self) -> bool:
        """Whether it matters to the beneficiary at all which pods are where."""
        return bool(self._counted)

    def concerns(self, cls: ClassRecord) -> bool:
        """Whether a pod of the class matters for where it is."""
        return any(id(tally) in self._counted for tally, _ in cls.affinity.tallies)

    def first(self, candidates: list[Victim]) -> list[Victim]:
        """Those who matter before those who only hold amounts."""
        return sorted(
            candidates, key=lambda victim: not any(self.concerns(record.pod_class) for record in victim.records)
        )
