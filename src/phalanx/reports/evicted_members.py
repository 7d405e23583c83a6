"""Members of a gang that are being evicted and still terminate."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

import msgspec

from phalanx.model.pod import Pod
from phalanx.model.text.counts import count_of
from phalanx.model.text.duration import format_moment

if TYPE_CHECKING:
    from phalanx.reports.snapshot import DisruptionTarget


def advice_after_eviction(*, placed: bool) -> str:
    """Return the advice for a gang that was evicted as a whole. A `placed` gang is declared by an object and keeps
    the age of this object; others are as old as their first pod."""
    place = "at its old place in the queue" if placed else "in the queue"
    return f"wait until its controller recreates its pods, or recreate them; the gang then waits {place}"


class EvictedMembers(msgspec.Struct, omit_defaults=True):
    """Last eviction of members of a gang. `pods` are terminating (empty once they have terminated). They were
    evicted at `since`, and the last grace period ends at `until` (both RFC 3339)."""

    reason: str
    message: str
    since: str = ""
    until: str = ""
    pods: list[str] = []

    @property
    def told(self) -> str:
        """Text with the number of terminating pods and the times of their eviction."""
        verb = "was" if len(self.pods) == 1 else "were"
        until = f" (the last grace period ends at {self.until})" if self.until else ""
        return f"{count_of(len(self.pods), 'pod')} {verb} evicted{f' at {self.since}' if self.since else ''}{until}"


def evicted_members_of(
    members: Iterable[Pod], disruption_targets: Mapping[str, DisruptionTarget]
) -> EvictedMembers | None:
    """Return the eviction of terminating members with its most frequent reason; None if none was evicted."""
    evicted = sorted((pod for pod in members if pod.uid in disruption_targets), key=lambda pod: pod.key)
    if not evicted:
        return None
    causes = Counter((disruption_targets[pod.uid].reason, disruption_targets[pod.uid].sentence) for pod in evicted)
    (reason, message), count = min(causes.items(), key=lambda entry: (-entry[1], entry[0]))
    others = f"; {len(evicted) - count} of them for other reasons" if count < len(evicted) else ""
    known = [pod for pod in evicted if pod.leaves]
    return EvictedMembers(
        reason,
        message + others,
        format_moment(min(pod.leaves - pod.grace for pod in known)) if known else "",
        format_moment(max(pod.leaves for pod in known)) if known else "",
        [pod.key for pod in evicted],
    )
