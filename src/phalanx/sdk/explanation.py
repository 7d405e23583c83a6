"""Verdict about a waiting job, and its start, as values of the SDK."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from phalanx.reports.why_answer import WhyAnswer


@dataclasses.dataclass(frozen=True)
class StartEstimate:
    """Start of a waiting job, as times in RFC 3339 ("" if unknown).

    `no_later_than` is a promise, based on enforced limits. Half of the jobs with such a forecast have started by
    `expected`, 80 of 100 by `expected_until`. `planned` is the start in the current plan. `reason` and `message`
    explain a missing forecast.
    """

    no_later_than: str = ""
    expected: str = ""
    expected_until: str = ""
    planned: str = ""
    basis: str = ""
    reason: str = ""
    message: str = ""

    def __str__(self) -> str:
        if self.no_later_than:
            return f"starts no later than {self.no_later_than}" + (f" ({self.basis})" if self.basis else "")
        if self.expected:
            return f"expected to start at {self.expected}"
        if self.planned:
            return f"planned to start at {self.planned}"
        return self.message or "no start is known"


class Explanation:
    """Answer of `phalanx why` about a job. `details` is the whole answer, with the fields of `-o json`."""

    def __init__(self, details: WhyAnswer) -> None:
        self.details = details

    @property
    def state(self) -> str:
        return str(self.details.state)

    @property
    def reason(self) -> str:
        """Code of the dominant reason; "" if nothing blocks the job."""
        return self.details.reason

    @property
    def message(self) -> str:
        return self.details.message

    @property
    def fix(self) -> str:
        """Smallest change that would help; "" if none is known."""
        return self.details.change

    @property
    def nodes(self) -> dict[str, int]:
        """Number of nodes that each reason excludes."""
        return {part.reason: part.count for part in self.details.nodes}

    @property
    def start(self) -> StartEstimate | None:
        start = self.details.start
        if start is None:
            return None
        names = [field.name for field in dataclasses.fields(StartEstimate)]
        return StartEstimate(**{name: getattr(start, name) for name in names})

    def __str__(self) -> str:
        reason = f" ({self.reason})" if self.reason else ""
        lines = [f"{self.details.name}: {self.state}{reason}", f"  {self.message}"]
        lines += [f"  {count} nodes: {text}" for text, count in self.nodes.items()]
        lines += [f"  Fix: {self.fix}"] if self.fix else []
        lines += [f"  Start: {self.start}"] if self.start is not None else []
        lines += [f"  Warning: {warning}" for warning in self.details.warnings]
        return "\n".join(lines)

    __repr__ = __str__

    def _repr_html_(self) -> str:
        from phalanx.sdk.html import explanation

        return explanation(self.details)
