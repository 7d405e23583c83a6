"""On which nodes to look for victims first, where pods that may go are too many to look at each."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from phalanx.cluster.resource_space import BoolArray, FloatArray, IntArray
from phalanx.scheduling.preemption.preemptor import Beneficiary
from phalanx.scheduling.preemption.reclaimees import Lenders
from phalanx.scheduling.session.session import Session

# Look at so many nodes at least, and at so many times the room that is needed.
_ROWS = 12
_TIMES = 4


class Whereabouts:
    """The rows on which the beneficiary's pods could be if all went who may go, those first on which the fewest
    must go; at the end those where nobody could be, but pods that count towards an account that is full, or that
    keep others away."""

    def __init__(self, session: Session, beneficiary: Beneficiary, lenders: Lenders) -> None:
        self._session = session
        self._for = beneficiary
        self._lenders = lenders

    def windows(self) -> Iterator[list[int]]:
        """More and more rows."""
        rows, copies = self._promising()
        enough = int(np.searchsorted(np.cumsum(copies), _TIMES * self._for.total)) + 1
        size = max(_ROWS, enough)
        while size < len(rows):
            yield rows[:size].tolist()
            size *= 4
        yield rows.tolist()
        accounts = self._full_accounts()
        minds = any(cls.company.restricts for cls in self._for.classes)
        if accounts or minds or not len(rows):
            # Who keeps pods out of a whole domain may be on a node where none of them could be.
            more = self._lenders.present(None if minds else accounts)
            more[rows] = True
            everywhere = np.flatnonzero(more).tolist()
            if len(everywhere) > len(rows):
                yield everywhere

    def _promising(self) -> tuple[IntArray, IntArray]:
        """(rows, how many copies each could have)."""
        nodes, lenders = self._session.state.nodes, self._lenders
        free = nodes.idle + lenders.sums().freed
        best: FloatArray = np.full(nodes.capacity, np.inf)
        part: FloatArray = np.full(nodes.capacity, np.inf)
        room: IntArray = np.zeros(nodes.capacity, dtype=np.int64)
        present: BoolArray = lenders.present()
        for cls in self._for.classes:
            wanted = cls.amounts[:, None]
            copies = np.where(
                self._session.placer.class_view(cls).static, (free[cls.columns] // wanted).min(axis=0), 0
            )
            missing = (wanted - nodes.idle[cls.columns]).clip(min=0)
            pods = np.ceil(missing / lenders.largest(cls.columns).clip(min=1)).max(axis=0)
            better = (copies > 0) & present & (pods < best)
            best[better] = pods[better]
            part[better] = (missing / wanted).max(axis=0)[better]
            room = np.maximum(room, copies)
        rows = np.flatnonzero(np.isfinite(best))
        rows = rows[np.lexsort((rows, part[rows], best[rows]))]
        return rows, room[rows]

    def _full_accounts(self) -> set[object]:
        """The accounts that do not allow the beneficiary now."""
        full: set[object] = set()
        for payer, wanted in self._for.payers.items():
            for bar in self._session.quota_check.bars(payer):
                if any(bar.refuses(name, amount) for name, amount in wanted.items() if name in bar.ceiling.limits):
                    full.add(bar.account)
        return full
