"""Restart of a whole group when too few of its members run: what its PodGroup asks for, and when it is due. Pure.

The state is one annotation of the PodGroup, bound to its uid. Who may write the PodGroup may forge it: he restarts
his own group more often, or never.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec
from msgspec.structs import replace

from phalanx.model.text.decoding import parse_whole
from phalanx.model.text.duration import format_duration, parse_duration

RESTART_POLICY = "phalanx.dev/restart-policy"
MAX_RESTARTS = "phalanx.dev/max-restarts"
RESTART_GRACE = "phalanx.dev/restart-grace"
RESTART_BACKOFF = "phalanx.dev/restart-backoff"
TERMINAL_EXIT_CODES = "phalanx.dev/terminal-exit-codes"
RETRYABLE_EXIT_CODES = "phalanx.dev/retryable-exit-codes"
RESTART_STATUS = "phalanx.dev/restart-status"

NEVER, WHEN_BELOW_MINIMUM = "Never", "WhenBelowMinimum"
LONGEST_BACKOFF = 600
_MOST = 2**31 - 1
_LISTED = 10
_FEW = 64


class GroupRestartPolicy(msgspec.Struct, frozen=True):
    """`grace` is how long (seconds) the group may be below its minimum before it is restarted, `backoff` the least
    time between the first two restarts, which doubles. A member that ends with a code that is terminal, or that is
    not among those worth a retry where these are listed, ends the restarts."""

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
        """Seconds after the restart of this number before the next one."""
        return min(LONGEST_BACKOFF, self.backoff << min(max(0, restarts - 1), 16))


class GroupMember(msgspec.Struct, frozen=True, kw_only=True):
    """A pod of the group; `created` in seconds. `evicted` while it leaves because it was disrupted on purpose."""

    name: str
    uid: str
    created: int
    phase: str
    deleting: bool = False
    evicted: bool = False
    exit_codes: tuple[int, ...] = ()

    @property
    def alive(self) -> bool:
        return self.phase not in ("Succeeded", "Failed")

    @property
    def running(self) -> bool:
        return self.phase == "Running" and not self.deleting


class LastRestart(msgspec.Struct, frozen=True, rename="camel"):
    """What is told of a restart: its number, moment, cause and the pods that were deleted (the first of them)."""

    number: int
    at: int
    cause: str
    pods: tuple[str, ...]
    count: int


class RestartStatus(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """What is remembered of a group.

    `met` is the creation of the newest member that ran when the minimum was met, 0 before that. `below_since` is
    since when it is not met any more, and `cause` why. Of members not newer than `cut` a restart has taken all; it
    still does while `restarting`. `newest` are the uids of those that were created in that very second, where they
    are few: their successors may be, too. `terminal` and `message` say why there is none.
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

    def concerns(self, member: GroupMember) -> bool:
        """Whether the last restart takes the member."""
        if member.created == self.cut and self.newest:
            return member.uid in self.newest
        return member.created <= self.cut


class RestartDecision(msgspec.Struct, frozen=True):
    """What is to be remembered, the members to be deleted, whether a restart is `due` if the owners allow it, and
    when to look again (seconds since the epoch)."""

    status: RestartStatus
    to_delete: tuple[GroupMember, ...] = ()
    due: bool = False
    wake_at: int | None = None


def read_restart_policy(annotations: Mapping[str, str]) -> tuple[GroupRestartPolicy | None, str]:
    """The policy, None for no restarts; and what is wrong with it."""
    word = annotations.get(RESTART_POLICY, NEVER)
    if word == NEVER:
        return None, ""
    if word != WHEN_BELOW_MINIMUM:
        return None, f"annotation {RESTART_POLICY} is {word!r}; write {NEVER} or {WHEN_BELOW_MINIMUM}"
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
    """What is remembered of this very group; nothing where somebody copied or mangled it."""
    text = annotations.get(RESTART_STATUS)
    if text:
        try:
            found = msgspec.json.decode(text, type=RestartStatus)
        except (msgspec.DecodeError, RecursionError):
            pass
        else:
            if found.group == uid:
                return found
    return RestartStatus(group=uid)


def decide_restart(
    policy: GroupRestartPolicy,
    status: RestartStatus,
    minimum: int,
    members: Sequence[GroupMember],
    now: int,
) -> RestartDecision:
    """How it goes on with a group whose members are these."""
    if status.restarting:
        left = [member for member in members if member.alive and status.concerns(member)]
        if left:
            return RestartDecision(status, tuple(member for member in left if not member.deleting))
        status = replace(status, restarting=False, newest=(), met=0, below_since=0, cause="", message="")
    running = [member for member in members if member.running]
    succeeded = sum(1 for member in members if member.phase == "Succeeded")
    if len(running) + succeeded >= minimum:
        met = max((member.created for member in running), default=0)
        return RestartDecision(_calm(replace(status, met=max(met, status.met))))
    # Those who ran when the minimum was met: a group that starts anew is not below it, it only starts.
    if not any(member.created <= status.met for member in running):
        return RestartDecision(_calm(status))
    if any(member.evicted for member in members if member.deleting and member.alive):
        return RestartDecision(_calm(status))
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
    """What is written before the first pod is deleted."""
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


def described(policy: GroupRestartPolicy, last: LastRestart) -> str:
    """A restart, as an event tells it."""
    more = f" and {last.count - len(last.pods)} more" if last.count > len(last.pods) else ""
    return (
        f"restart {last.number} of {policy.max_restarts}: {last.cause}; deletes {', '.join(last.pods)}{more}, "
        f"the next one not before {format_duration(policy.pause(last.number))} have passed"
    )


def _calm(status: RestartStatus) -> RestartStatus:
    if not (status.below_since or status.message or status.terminal):
        return status
    return replace(status, below_since=0, cause="", message="", terminal=False)


def _cause(
    policy: GroupRestartPolicy, status: RestartStatus, members: Sequence[GroupMember], there: int, minimum: int
) -> tuple[str, bool]:
    """Why the group is below its minimum, and whether that is for good."""
    text = f"{there} of at least {minimum} members run"
    failed = [member for member in members if member.phase == "Failed" and member.created > status.cut]
    told = ""
    for member in sorted(failed, key=lambda each: (each.created, each.name)):
        codes = [code for code in member.exit_codes if code]
        bad = next((code for code in codes if policy.is_terminal(code)), None)
        if bad is not None:
            return f"{text}: pod {member.name} ended with exit code {bad}, which is terminal", True
        ending = f" with exit code {codes[0]}" if codes else ""
        told = told or f": pod {member.name} failed{ending}"
    return text + told, False


def _within(code: int, ranges: Sequence[tuple[int, int]]) -> bool:
    return any(first <= code <= last for first, last in ranges)


def _whole(annotations: Mapping[str, str], key: str, default: int) -> int:
    text = annotations.get(key)
    found = default if text is None else parse_whole(text, 0, _MOST)
    if found is None:
        raise ValueError(f"annotation {key} is {text!r}; write a whole number such as {default}")
    return found


def _seconds(annotations: Mapping[str, str], key: str, default: int) -> int:
    text = annotations.get(key)
    if text is None:
        return default
    try:
        found = parse_duration(text)
    except ValueError:
        found = -1
    if found < 0:
        raise ValueError(f"annotation {key} is {text!r}; write a duration such as 30s or 5m")
    return found


def _codes(annotations: Mapping[str, str], key: str) -> tuple[tuple[int, int], ...]:
    """`1,3,100-120`."""
    text = annotations.get(key, "").strip()
    ranges = []
    for part in text.split(",") if text else ():
        first, dash, last = part.strip().partition("-")
        low = parse_whole(first, 1, 255)
        high = parse_whole(last, 1, 255) if dash else low
        if low is None or high is None or high < low:
            raise ValueError(f"annotation {key} is {text!r}; write exit codes from 1 to 255 such as 3,100-120")
        ranges.append((low, high))
    return tuple(ranges)
