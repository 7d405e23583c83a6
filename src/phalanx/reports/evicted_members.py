"""Loss of a gang: its evicted members that still terminate."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

import msgspec

from phalanx.model.pod import Pod
from phalanx.model.text.duration import format_moment
from phalanx.reports.snapshot import DisruptionTarget


def advice_after_eviction(*, placed: bool) -> str:
    """Return the advice for a gang that was evicted as a whole.

    With `placed`, an object declares the gang and its age is that of the object; otherwise its age is that of its
    first pod.
    """
    place = "at its old place in the queue" if placed else "in the queue"
    return (
        f"nothing need be changed: once its pods are created anew (a controller does so by itself) it waits {place}"
    )


class EvictedMembers(msgspec.Struct, omit_defaults=True):
    """Last eviction of members of a gang.

    `pods` still terminate (empty after their deletion); they were evicted at `since` and terminate by `until` (both
    RFC 3339).
    """

    reason: str
    message: str
    since: str = ""
    until: str = ""
    pods: list[str] = []

    @property
    def told(self) -> str:
        """Return the sentence about the terminating members and the time of their eviction; "" without such
        members.
        """
        who = "1 pod was" if len(self.pods) == 1 else f"{len(self.pods)} pods were"
        until = f" (the last grace period ends at {self.until})" if self.until else ""
        return f"{who} evicted{f' at {self.since}' if self.since else ''}{until}"


def evicted_members_of(
    members: Iterable[Pod], disruption_targets: Mapping[str, DisruptionTarget]
) -> EvictedMembers | None:
    """Return the most frequent eviction reason of the terminating members; None if none of them has a reason."""
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
