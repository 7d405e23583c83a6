"""What a gang has lost to evictions: members that were told to leave and are still there."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

import msgspec

from phalanx.model.pod import Pod
from phalanx.model.text.duration import format_moment
from phalanx.reports.snapshot import DisruptionTarget


def advice_after_eviction(*, placed: bool) -> str:
    """What happens next to a gang that was evicted as a whole. `placed`: an object declares it, and it is as old as
    that object; otherwise it is as old as its first pod."""
    place = "at its old place in the queue" if placed else "in the queue"
    return (
        f"nothing need be changed: once its pods are created anew (a controller does so by itself) it waits {place}"
    )


class EvictedMembers(msgspec.Struct, omit_defaults=True):
    """Why a gang lost members the last time. `pods` are on their way out (empty when they have left), told so at
    `since`, and until `until` (both RFC 3339) at most."""

    reason: str
    message: str
    since: str = ""
    until: str = ""
    pods: list[str] = []

    @property
    def told(self) -> str:
        """Who was told to leave, and when; only while they are there."""
        who = "1 pod was" if len(self.pods) == 1 else f"{len(self.pods)} pods were"
        until = f" (the last grace period ends at {self.until})" if self.until else ""
        return f"{who} evicted{f' at {self.since}' if self.since else ''}{until}"


def evicted_members_of(
    members: Iterable[Pod], disruption_targets: Mapping[str, DisruptionTarget]
) -> EvictedMembers | None:
    """What terminating members were told, most of them; None where nobody was told anything."""
    told = sorted((pod for pod in members if pod.uid in disruption_targets), key=lambda pod: pod.key)
    if not told:
        return None
    words = Counter((disruption_targets[pod.uid].reason, disruption_targets[pod.uid].sentence) for pod in told)
    (reason, message), count = min(words.items(), key=lambda entry: (-entry[1], entry[0]))
    others = f"; {len(told) - count} of them for other reasons" if count < len(told) else ""
    known = [pod for pod in told if pod.leaves]
    return EvictedMembers(
        reason,
        message + others,
        format_moment(min(pod.leaves - pod.grace for pod in known)) if known else "",
        format_moment(max(pod.leaves for pod in known)) if known else "",
        [pod.key for pod in told],
    )
