"""Isolation of failures: a unit that raises in planning is set aside, a plugin that raises is disabled.

This costs nothing while nothing fails. If a turn raises, its changes are undone, so that the state stays exact.
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

# Extension points at which a plugin can be skipped: its results improve a choice, but are not needed for a correct
# one. At all other points a skipped plugin could break a limit or a veto, so the unit waits instead.
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
    """Sort key that is equal to every other key."""

    def __eq__(self, other: object) -> bool:
        return True

    def __lt__(self, other: object) -> bool:
        return False

    def __hash__(self) -> int:
        return 0


NO_OPINION = _NoOpinion()


class _Silent(Plugin):
    """Replacement of a plugin that raised: all its sort keys are equal."""

    name = "silent"

    def __init__(self) -> None:
        pass

    def _same(self, *asked: object) -> _NoOpinion:
        return NO_OPINION

    queue_order = subqueue_order = gang_order = pod_order = victim_order = _same  # type: ignore[assignment]


_SILENT = _Silent()


def try_each(session: Session, units: Iterable[QueuedUnit], turn: Callable[[], object]) -> None:
    """Call `turn` for units; retry without each plugin that raises where it can be skipped.

    If that does not help, set the units aside until one of their objects changes.
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
    """Walk through the units in order until the time is up.

    If the order raises, sort the remaining units again without the plugin behind it; if that does not help, set
    them aside.
    """
    while True:
        remaining = [unit for unit in units if unit.key not in session.attempted]
        try:
            order = QueueOrder(session, remaining)
            process_turn = walk(order)
            while (turn := order.next()) is not None:
                if session.out_of_time():
                    session.plan.complete = False
                    return
                process_turn(turn)
                if not session.plan.complete:
                    return
        except Exception as error:
            if silence_plugin(session, error):
                continue
            set_aside(session, [unit for unit in remaining if unit.key not in session.attempted], error)
        return


def ask_plugins(session: Session, what: str, question: Callable[[], T], default: T) -> T:
    """Return the plugins' answer; retry without each plugin that raises. Return `default` if that does not help."""
    while True:
        try:
            return question()
        except Exception as error:
            if not silence_plugin(session, error):
                report_failure(session, what, error)
                return default


def guarded(session: Session, steps: Iterable[tuple[str, Callable[[Session], object]]]) -> None:
    """Call named steps with the session; if one raises, undo its decisions and report the failure."""
    decisions = session.decisions
    for what, step in steps:
        marks = decisions.begin_turn()
        try:
            step(session)
        except Exception as error:
            decisions.undo_turn(marks)
            report_failure(session, what, error)


def silence_plugin(session: Session, error: Exception) -> bool:
    """Disable the plugin behind a failure for this cycle; return whether there is one that can be skipped."""
    plugin, point = culprit(session, error)
    if plugin is None or point not in OPINIONS:
        return False
    plugins = session.plugin_runtime.plugins(point)
    place = next((place for place, candidate in enumerate(plugins) if candidate is plugin), None)
    if place is None:
        return False
    session.plan.failures.append(_failure(f"plugin {plugin.name} at {point}", error, plugin=plugin.name))
    session.plugin_runtime.disable(point, place, _SILENT if point in _ORDERS else None)
    return True


def set_aside(session: Session, units: Iterable[QueuedUnit], error: Exception) -> None:
    """Set the units aside until one of their objects changes, with a verdict that names the error."""
    plugin, _ = culprit(session, error)
    name = plugin.name if plugin is not None else ""
    for unit in units:
        session.unschedulable.pop(unit.key, None)
        if unit.pod is not None:
            subject = f"pod {unit.pod.pod.key}"
            session.decisions.set_pod_verdict(unit.pod, planning_failed(subject, name, error))
            session.plan.failures.append(_failure(subject, error, plugin=name))
        for gang in unit.gangs:
            subject = f"gang {gang.title}"
            session.decisions.set_gang_verdict(gang, planning_failed(subject, name, error))
            session.plan.failures.append(_failure(subject, error, plugin=name))
        session.mark_attempted(unit)
        session.set_aside.append(unit.key)


def culprit(session: Session, error: Exception) -> tuple[Plugin | None, str]:
    """Return the plugin and extension point that the framework had called when the error was raised."""
    plugins = {
        id(entry.plugin)
        for entry in (*session.plugin_runtime.policy.standing_plugins, *session.plugin_runtime.policy.plugins)
    }
    outer: tuple[Plugin | None, str] = None, ""
    checked: tuple[Plugin | None, str] | None = None
    step = error.__traceback__
    while step is not None:
        caller = step.tb_frame.f_locals.get("self")
        if isinstance(caller, CheckedPoint | CheckedTaskBuckets):
            checked = caller.plugin, caller.point
        elif outer[0] is None and id(caller) in plugins and isinstance(caller, Plugin):
            outer = caller, _point(caller, step.tb_frame.f_code)
        step = step.tb_next
    # Plugins call each other: a checked (foreign) plugin is the last one on the stack.
    return checked or outer


def _point(plugin: Plugin, code: CodeType) -> str:
    for point in OPINIONS:
        if getattr(getattr(type(plugin), point), "__code__", None) is code:
            return point
    return code.co_name


def report_failure(session: Session, what: str, error: Exception) -> None:
    """Report a failure of a part of the cycle that belongs to no unit."""
    plugin, _ = culprit(session, error)
    session.plan.failures.append(_failure(what, error, plugin=plugin.name if plugin is not None else ""))


def _failure(what: str, error: Exception, plugin: str = "") -> Failure:
    return Failure(
        what, f"{type(error).__name__}: {error}"[:500], plugin, "".join(traceback.format_exception(error))
    )
