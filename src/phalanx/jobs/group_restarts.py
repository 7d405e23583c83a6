"""Restart of a whole gang with too few running members: the policy of its PodGroup, and the decision. No I/O.

The state is an annotation of the PodGroup, bound to its uid. A user with write access to the PodGroup can
forge it, and thereby only restarts the user's own group more often or never.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence

import msgspec
from msgspec.structs import replace

from phalanx.model.text.decoding import parse_whole, quoted
from phalanx.model.text.duration import format_duration, parse_duration

RESTART_POLICY = "phalanx.dev/restart-policy"
MAX_RESTARTS = "phalanx.dev/max-restarts"
RESTART_GRACE = "phalanx.dev/restart-grace"
RESTART_BACKOFF = "phalanx.dev/restart-backoff"
TERMINAL_EXIT_CODES = "phalanx.dev/terminal-exit-codes"
RETRYABLE_EXIT_CODES = "phalanx.dev/retryable-exit-codes"
RESTART_STATUS = "phalanx.dev/restart-status"

NEVER, WHEN_BELOW_MINIMUM = "Never", "WhenBelowMinimum"
MAX_BACKOFF = 600
_MAX_NUMBER = 2**31 - 1
_LISTED = 10
_FEW = 64
# Limits of the recorded successes, so that the annotation stays below the limit of the API (256 KiB together).
_MAX_SUCCESSES = 8_000
_MAX_OWNERS = 64


class GroupRestartPolicy(msgspec.Struct, frozen=True):
    """Restart policy of a PodGroup.

    `grace` is the time (seconds) below the minimum before a restart. `backoff` is the minimum time between the
    first two restarts, which doubles. A member that exits with a terminal code, or with a code outside of the
    listed retryable ones, ends the restarts.
    """

    max_restarts: int = 3
    grace: int = 60
    backoff: int = 10
    terminal: tuple[tuple[int, int], ...] = ()
    retryable: tuple[tuple[int, int], ...] = ()

    def is_terminal(self, code: int) -> bool:
        if _within(code, self.terminal):
            return True
        return bool(self.retryable) and not _within(code, self.retryable)

    def pause(self, restarts: int) -> int:
        """Return the seconds of back-off between the restart with this number and the next one."""
        return min(MAX_BACKOFF, self.backoff << min(max(0, restarts - 1), 16))


class GroupMember(msgspec.Struct, frozen=True, kw_only=True):
    """Pod of a gang that can be restarted; `created` in seconds, `owner` is the uid of its controller.

    `evicted`: it terminates because of a voluntary disruption.
    """

    name: str
    uid: str
    created: int
    phase: str
    deleting: bool = False
    evicted: bool = False
    owner: str = ""
    exit_codes: tuple[int, ...] = ()

    @property
    def alive(self) -> bool:
        return self.phase not in ("Succeeded", "Failed")

    @property
    def running(self) -> bool:
        return self.phase == "Running" and not self.deleting

    @property
    def succeeded(self) -> bool:
        """Whether the pod succeeded by itself: a process that SIGTERM ends can exit with 0 too."""
        return self.phase == "Succeeded" and not self.deleting


class LastRestart(msgspec.Struct, frozen=True, rename="camel"):
    """Published record of a gang's last restart: its number, time, cause, the first deleted pods, and their
    number."""

    number: int
    at: int
    cause: str
    pods: tuple[str, ...]
    count: int


class RestartStatus(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """Recorded restart state of a gang, in an annotation of its PodGroup.

    `met` is the creation time of the newest member that ran when the minimum was met, 0 before that.
    `below_since` is the time since which the minimum is not met, and `cause` the reason. The last restart deletes
    all members that are not newer than `cut`; it is in progress while `restarting`. `newest` are the uids of the
    members created in that very second, if they are few, because their successors can have the same second.
    `terminal` and `message` are the reason why there is no restart. `succeeded` identifies members that succeeded,
    also after the deletion of their pods, and `owners` the controllers of this run (digests of uids).
    """

    group: str
    restarts: int = 0
    met: int = 0
    below_since: int = 0
    cause: str = ""
    terminal: bool = False
    cut: int = 0
    newest: tuple[str, ...] = ()
    restarting: bool = False
    message: str = ""
    last: LastRestart | None = None
    succeeded: tuple[str, ...] = ()
    owners: tuple[str, ...] = ()

    def concerns(self, member: GroupMember) -> bool:
        """Return whether the last restart of the gang deletes the member."""
        if member.created == self.cut and self.newest:
            return member.uid in self.newest
        return member.created <= self.cut


class RestartDecision(msgspec.Struct, frozen=True):
    """Decision about a gang's restart: the state to record, the members to delete, whether a restart is `due` if
    the pods' owners allow it, and the time of the next check (seconds since the epoch)."""

    status: RestartStatus
    to_delete: tuple[GroupMember, ...] = ()
    due: bool = False
    wake_at: int | None = None


def read_restart_policy(annotations: Mapping[str, str]) -> tuple[GroupRestartPolicy | None, str]:
    """Return the restart policy from a PodGroup's annotations, None for no restarts; and the error of an invalid
    policy."""
    word = annotations.get(RESTART_POLICY, NEVER)
    if word == NEVER:
        return None, ""
    if word != WHEN_BELOW_MINIMUM:
        return None, f"annotation {RESTART_POLICY} is {quoted(word)}; write {NEVER} or {WHEN_BELOW_MINIMUM}"
    default = GroupRestartPolicy()
    try:
        return (
            GroupRestartPolicy(
                _whole(annotations, MAX_RESTARTS, default.max_restarts),
                _seconds(annotations, RESTART_GRACE, default.grace),
                _seconds(annotations, RESTART_BACKOFF, default.backoff),
                _codes(annotations, TERMINAL_EXIT_CODES),
                _codes(annotations, RETRYABLE_EXIT_CODES),
            ),
            "",
        )
    except ValueError as error:
        return None, str(error)


def read_restart_status(annotations: Mapping[str, str], uid: str) -> RestartStatus:
    """Return the recorded restart state of a PodGroup; an empty state if the annotation is invalid or of another
    group."""
    text = annotations.get(RESTART_STATUS)
    if text:
        try:
            status = msgspec.json.decode(text, type=RestartStatus)
        except (msgspec.DecodeError, RecursionError):
            pass
        else:
            if status.group == uid:
                return status
    return RestartStatus(group=uid)


def decide_restart(
    policy: GroupRestartPolicy,
    status: RestartStatus,
    minimum: int,
    members: Sequence[GroupMember],
    now: int,
) -> RestartDecision:
    """Return whether and how to restart a gang with these members now."""
    status = _record_successes(status, minimum, members)
    if status.restarting:
        remaining = [member for member in members if member.alive and status.concerns(member)]
        if remaining:
            return RestartDecision(status, tuple(member for member in remaining if not member.deleting))
        status = replace(status, restarting=False, newest=(), met=0, below_since=0, cause="", message="")
    running = [member for member in members if member.running]
    present = {_digest(member.uid) for member in members if member.phase == "Succeeded"}
    succeeded = len(present.union(status.succeeded))
    if len(running) + succeeded >= minimum:
        met = max((member.created for member in running), default=0)
        return RestartDecision(_reset(replace(status, met=max(met, status.met))))
    # The members that ran when the minimum was met: a starting group is not below its minimum.
    if not any(member.created <= status.met for member in running):
        return RestartDecision(_reset(status))
    if any(member.evicted for member in members if member.deleting and member.alive):
        return RestartDecision(_reset(status))
    cause, terminal = _cause(policy, status, members, len(running) + succeeded, minimum)
    if not status.below_since:
        status = replace(status, below_since=now, cause=cause, terminal=terminal)
    elif terminal and not status.terminal:
        status = replace(status, cause=cause, terminal=True)
    if status.terminal:
        return RestartDecision(replace(status, message=f"not restarted: {status.cause}"))
    if status.restarts >= policy.max_restarts:
        text = f"not restarted: {status.cause}, and {status.restarts} of {policy.max_restarts} restarts are used up"
        return RestartDecision(replace(status, message=text))
    due = status.below_since + policy.grace
    if status.last is not None:
        due = max(due, status.last.at + policy.pause(status.restarts))
    if now < due:
        return RestartDecision(status, wake_at=due)
    return RestartDecision(status, due=True)


def begin_restart(status: RestartStatus, members: Sequence[GroupMember], now: int) -> RestartStatus:
    """Return the restart state to write before the first pod is deleted."""
    to_delete = sorted((member for member in members if member.alive), key=lambda member: member.name)
    number = status.restarts + 1
    names = tuple(member.name for member in to_delete[:_LISTED])
    cut = max((member.created for member in to_delete), default=0)
    newest = tuple(member.uid for member in to_delete if member.created == cut)
    return replace(
        status,
        restarts=number,
        restarting=True,
        cut=cut,
        newest=newest if len(newest) <= _FEW else (),
        message="",
        last=LastRestart(number, now, status.cause, names, len(to_delete)),
    )


def restart_event(policy: GroupRestartPolicy, last: LastRestart) -> str:
    """Return the text of the event about a gang's restart."""
    more = f" and {last.count - len(last.pods)} more" if last.count > len(last.pods) else ""
    return (
        f"restart {last.number} of {policy.max_restarts}: {last.cause}; deletes {', '.join(last.pods)}{more}, "
        f"next restart in {format_duration(policy.pause(last.number))} at the earliest"
    )


def _record_successes(status: RestartStatus, minimum: int, members: Sequence[GroupMember]) -> RestartStatus:
    """Return the restart state with the members that have succeeded: their pods can be deleted before other members
    end.

    Members whose controllers are all new belong to another run of the gang, for which earlier successes do not
    count.
    """
    owners = tuple(sorted({_digest(member.owner) for member in members if member.owner}))
    if status.succeeded and owners and not set(owners).intersection(status.owners):
        status = replace(status, succeeded=(), owners=())
    fresh = {_digest(member.uid) for member in members if member.succeeded}.difference(status.succeeded)
    room = max(0, min(minimum, _MAX_SUCCESSES) - len(status.succeeded))
    succeeded = (*status.succeeded, *sorted(fresh)[:room])
    if not succeeded:
        return status
    new_owners = [owner for owner in owners if owner not in status.owners]
    known = (*status.owners, *new_owners)[-_MAX_OWNERS:]
    return replace(status, succeeded=succeeded, owners=known)


def _digest(uid: str) -> str:
    """Return a short identifier of a uid, because the annotation has limited length."""
    return hashlib.blake2s(uid.encode(), digest_size=6).hexdigest()


def _reset(status: RestartStatus) -> RestartStatus:
    if not (status.below_since or status.message or status.terminal):
        return status
    return replace(status, below_since=0, cause="", message="", terminal=False)


def _cause(
    policy: GroupRestartPolicy, status: RestartStatus, members: Sequence[GroupMember], present: int, minimum: int
) -> tuple[str, bool]:
    """Return the reason why the gang runs fewer members than its minimum, and whether the reason forbids a
    restart."""
    text = f"{present} of at least {minimum} members run"
    failed = [member for member in members if member.phase == "Failed" and member.created > status.cut]
    detail = ""
    for member in sorted(failed, key=lambda failure: (failure.created, failure.name)):
        codes = [code for code in member.exit_codes if code]
        bad = next((code for code in codes if policy.is_terminal(code)), None)
        if bad is not None:
            return f"{text}: pod {member.name} ended with exit code {bad}, which is terminal", True
        ending = f" with exit code {codes[0]}" if codes else ""
        detail = detail or f": pod {member.name} failed{ending}"
    return text + detail, False


def _within(code: int, ranges: Sequence[tuple[int, int]]) -> bool:
    return any(first <= code <= last for first, last in ranges)


def _whole(annotations: Mapping[str, str], key: str, default: int) -> int:
    text = annotations.get(key)
    number = default if text is None else parse_whole(text, 0, _MAX_NUMBER)
    if number is None:
        raise ValueError(f"annotation {key} is {quoted(text)}; write a whole number such as {default}")
    return number


def _seconds(annotations: Mapping[str, str], key: str, default: int) -> int:
    text = annotations.get(key)
    if text is None:
        return default
    try:
        seconds = parse_duration(text)
    except ValueError:
        seconds = -1
    if seconds < 0:
        raise ValueError(f"annotation {key} is {quoted(text)}; write a duration such as 30s or 5m")
    return seconds


def _codes(annotations: Mapping[str, str], key: str) -> tuple[tuple[int, int], ...]:
    """Parse the exit codes in an annotation such as `1,3,100-120` to ranges."""
    text = annotations.get(key, "").strip()
    ranges = []
    for part in text.split(",") if text else ():
        first, dash, last = part.strip().partition("-")
        low = parse_whole(first, 1, 255)
        high = parse_whole(last, 1, 255) if dash else low
        if low is None or high is None or high < low:
            raise ValueError(
                f"annotation {key} is {quoted(text)}; write exit codes from 1 to 255 such as 3,100-120"
            )
        ranges.append((low, high))
    return tuple(ranges)
