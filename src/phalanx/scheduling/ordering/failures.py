"""Keeps a failure to whom it concerns: a unit whose planning raises is set aside, a plugin that does loses its say.

Nothing here costs anything while nothing fails: the turn of a unit is tried, and what the turn had changed is taken
back if it raises, so that the books stay exact.
"""

from __future__ import annotations

import traceback
from collections.abc import Callable, Iterable
from functools import total_ordering
from types import CodeType
from typing import TypeVar

from phalanx.model.decisions import Failure
from phalanx.scheduling.diagnosis.verdicts import planning_failed
from phalanx.scheduling.framework.plugin import Plugin
from phalanx.scheduling.framework.result_checks import CheckedPoint, CheckedTaskBuckets
from phalanx.scheduling.ordering.queue_order import QueueOrder
from phalanx.scheduling.ordering.surplus import SurplusTurn
from phalanx.scheduling.queue.unit import QueuedUnit
from phalanx.scheduling.session.session import Session

T = TypeVar("T")

# Points at which a plugin may be passed over: what it says there makes a choice better, and none wrong. At all
# others silence could break a limit or a veto, so there the unit waits instead.
_ORDERS = frozenset({"queue_order", "subqueue_order", "gang_order", "pod_order", "victim_order"})
_PREFERENCES = frozenset(
    {
        "subqueues",
        "task_buckets",
        "static_score",
        "score",
        "explain",
        "next_wake",
        "recheck_at",
        "time_key",
        "admitted",
        "victims",
    }
)
OPINIONS = _ORDERS | _PREFERENCES


@total_ordering
class _NoOpinion:
    """Compares as equal with every key of order."""

    def __eq__(self, other: object) -> bool:
        return True

    def __lt__(self, other: object) -> bool:
        return False

    def __hash__(self) -> int:
        return 0


NO_OPINION = _NoOpinion()


class _Silent(Plugin):
    """Stands where a plugin stood that raised: every key is the same to it."""

    name = "silent"

    def __init__(self) -> None:
        pass

    def _same(self, *asked: object) -> _NoOpinion:
        return NO_OPINION

    queue_order = subqueue_order = gang_order = pod_order = victim_order = _same  # type: ignore[assignment]


_SILENT = _Silent()


def try_each(session: Session, units: Iterable[QueuedUnit], turn: Callable[[], object]) -> None:
    """Has units take their turn; again without each plugin that raises where it may be passed over.

    Where that does not help, the units that had no turn are set aside until something about them changes.
    """
    while True:
        marks = session.decisions.begin_turn()
        try:
            turn()
        except Exception as error:
            session.decisions.undo_turn(marks)
            if silence_plugin(session, error):
                continue
            set_aside(session, units, error)
        return


def walk_in_order(
    session: Session,
    units: list[QueuedUnit],
    walk: Callable[[QueueOrder], Callable[[list[QueuedUnit] | SurplusTurn], None]],
) -> None:
    """Gives units their turns until the time is up. If the order raises, what has had no turn is put in order anew
    without the plugin that did; where that does not help, all of it is set aside."""
    while True:
        left = [unit for unit in units if unit.key not in session.attempted]
        try:
            line = QueueOrder(session, left)
            take = walk(line)
            while (turn := line.next()) is not None:
                if session.out_of_time():
                    session.plan.complete = False
                    return
                take(turn)
                if not session.plan.complete:
                    return
        except Exception as error:
            if silence_plugin(session, error):
                continue
            set_aside(session, [unit for unit in left if unit.key not in session.attempted], error)
        return


def ask_plugins(session: Session, what: str, question: Callable[[], T], default: T) -> T:
    """What plugins answer, asked again without each that raises; `default` where that does not help."""
    while True:
        try:
            return question()
        except Exception as error:
            if not silence_plugin(session, error):
                report_failure(session, what, error)
                return default


def guarded(session: Session, what: str, step: Callable[[], object]) -> None:
    """Call `step`; where it raises, undo what it has decided and report it."""
    marks = session.decisions.begin_turn()
    try:
        step()
    except Exception as error:
        session.decisions.undo_turn(marks)
        report_failure(session, what, error)


def silence_plugin(session: Session, error: Exception) -> bool:
    """Silences the plugin behind a failure for this cycle, if there is one and it may be passed over."""
    plugin, point = culprit(session, error)
    if plugin is None or point not in OPINIONS:
        return False
    speakers = session.plugin_runtime.plugins(point)
    place = next((place for place, each in enumerate(speakers) if each is plugin), None)
    if place is None:
        return False
    session.plan.failures.append(_told(f"plugin {plugin.name} at {point}", error, plugin=plugin.name))
    session.plugin_runtime.disable(point, place, _SILENT if point in _ORDERS else None)
    return True


def set_aside(session: Session, units: Iterable[QueuedUnit], error: Exception) -> None:
    """Each unit waits for a change of its own, and is told why."""
    plugin, _ = culprit(session, error)
    name = plugin.name if plugin is not None else ""
    for unit in units:
        session.unschedulable.pop(unit.key, None)
        if unit.pod is not None:
            what = f"pod {unit.pod.pod.key}"
            session.decisions.set_pod_verdict(unit.pod, planning_failed(what, name, error))
            session.plan.failures.append(_told(what, error, plugin=name))
        for gang in unit.gangs:
            what = f"gang {gang.title}"
            session.decisions.set_gang_verdict(gang, planning_failed(what, name, error))
            session.plan.failures.append(_told(what, error, plugin=name))
        session.mark_attempted(unit)
        session.set_aside.append(unit.key)


def culprit(session: Session, error: Exception) -> tuple[Plugin | None, str]:
    """The plugin whose extension point the framework had called when something raised, and which that was."""
    plugins = {
        id(entry.plugin)
        for entry in (*session.plugin_runtime.policy.standing_plugins, *session.plugin_runtime.policy.plugins)
    }
    outer: tuple[Plugin | None, str] = None, ""
    checked: tuple[Plugin | None, str] | None = None
    step = error.__traceback__
    while step is not None:
        who = step.tb_frame.f_locals.get("self")
        if isinstance(who, CheckedPoint | CheckedTaskBuckets):
            checked = who.plugin, who.point
        elif outer[0] is None and id(who) in plugins and isinstance(who, Plugin):
            outer = who, _point(who, step.tb_frame.f_code)
        step = step.tb_next
    # Plugins ask each other: of those that are not ours it is the last.
    return checked or outer


def _point(plugin: Plugin, code: CodeType) -> str:
    for point in OPINIONS:
        if getattr(getattr(type(plugin), point), "__code__", None) is code:
            return point
    return code.co_name


def report_failure(session: Session, what: str, error: Exception) -> None:
    """A part of the cycle failed that belongs to no unit."""
    plugin, _ = culprit(session, error)
    session.plan.failures.append(_told(what, error, plugin=plugin.name if plugin is not None else ""))


def _told(what: str, error: Exception, plugin: str = "") -> Failure:
    return Failure(
        what, f"{type(error).__name__}: {error}"[:500], plugin, "".join(traceback.format_exception(error))
    )
