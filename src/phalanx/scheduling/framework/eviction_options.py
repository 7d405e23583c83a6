"""Eviction options of a policy: which actions evict pods for waiting ones, and by which rules."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec

from phalanx.scheduling.framework.arguments import Arguments
from phalanx.scheduling.framework.errors import PolicyError
from phalanx.scheduling.framework.vocabulary import (
    ACTION_ARGUMENTS,
    BEST_EFFORT,
    DEFRAGMENT,
    EVICTION_ARGUMENTS,
    FOREIGN_VICTIMS,
    RESERVE,
    SINGLE_NODE,
    VETO_SWITCHES,
    WHOLE_GANGS,
)

_PREEMPTING = ("preempt", "gangpreempt")
_RECLAIMING = ("reclaim", "gangreclaim")


class EvictionOptions(msgspec.Struct, frozen=True):
    """`preempt`, `reclaim` and `shuffle` tell whether the policy has such an action. `gangpreempt` counts as
    `preempt`, `gangreclaim` as `reclaim`.

    On a single node: all victims for a pod of the preemptor run on one node, as in scheduler-plugins and Volcano.
    Whole gangs: a gang can be evicted as a whole; otherwise only its surplus. With `foreign_victims`, pods of other
    schedulers can be evicted. With `surplus`, a gang at its minimum preempts for its surplus members too. With
    `levels`, a gang can preempt gangs of the same priority in its queue that have a larger dominant share. With
    `best_effort`, pods without resource requests can preempt pods with requests; otherwise only each other.
    """

    preempt: bool = False
    reclaim: bool = False
    shuffle: bool = False
    preempt_on_single_node: bool = False
    reclaim_on_single_node: bool = False
    preempt_whole_gangs: bool = True
    reclaim_whole_gangs: bool = True
    foreign_victims: bool = False
    surplus: bool = False
    levels: bool = False
    best_effort: bool = False

    @property
    def active(self) -> bool:
        """True if the policy can evict pods for a waiting gang or pod."""
        return self.preempt or self.reclaim


def eviction_options(
    actions: Iterable[str],
    arguments: Mapping[str, Mapping[str, object]],
    plugins: Mapping[str, Mapping[str, object]],
    errors: list[str],
) -> EvictionOptions:
    """Return the options of the actions, their arguments, and the plugins' entries by name.

    Mistakes are appended to `errors`. A restriction in the arguments of one of two actions of a kind applies to
    both.
    """
    active = set(actions)
    stated = {name: Arguments(f"action {name}", arguments.get(name, {})) for name in active & VETO_SWITCHES.keys()}

    def truth(key: str, names: Iterable[str], default: bool) -> bool:
        """Return the boolean argument's value that differs from the default in any of the eviction actions, else
        the default."""
        result = default
        for name in names:
            if name in stated:
                try:
                    value = stated[name].boolean(key, default)
                except PolicyError as error:
                    errors.append(str(error))
                else:
                    result = value if value is not default else result
        return result

    return EvictionOptions(
        preempt=not active.isdisjoint(_PREEMPTING),
        reclaim=not active.isdisjoint(_RECLAIMING),
        shuffle="shuffle" in active,
        preempt_on_single_node=truth(SINGLE_NODE, _PREEMPTING, False),
        reclaim_on_single_node=truth(SINGLE_NODE, _RECLAIMING, False),
        preempt_whole_gangs=truth(WHOLE_GANGS, _PREEMPTING, True),
        reclaim_whole_gangs=truth(WHOLE_GANGS, _RECLAIMING, True),
        foreign_victims=truth(FOREIGN_VICTIMS, (*_PREEMPTING, *_RECLAIMING), False),
        surplus=plugins.get("gang", {}).get("enableJobStarving") is False,
        levels=plugins.get("drf", {}).get("enablePreemptable") is True,
        best_effort=truth(BEST_EFFORT, (*_PREEMPTING, *_RECLAIMING), False),
    )


def describe(options: EvictionOptions, way: str) -> list[str]:
    """Return a phrase for users per eviction option; `way` is the way in which pods are evicted."""
    kinds = (
        ("preempt", options.preempt, options.preempt_on_single_node, options.preempt_whole_gangs),
        ("reclaim", options.reclaim, options.reclaim_on_single_node, options.reclaim_whole_gangs),
    )
    rules = [
        f"{kind}: {'all victims of a pod on one node' if single else 'victims on any nodes'}; "
        f"{'whole gangs, or' if whole else 'only'} surplus members"
        for kind, active, single, whole in kinds
        if active
    ]
    if options.shuffle:
        rules.append("shuffle: pods that plugins select")
    if not rules:
        return ["none"]
    if options.foreign_victims:
        rules.append("includes pods of other schedulers")
    if options.surplus:
        rules.append("also for surplus members of a gang")
    if options.best_effort:
        rules.append("also for pods without resource requests")
    if options.levels:
        rules.append("also from gangs of the same priority with a larger dominant share")
    return [*rules, "through the Eviction API" if way == "eviction-api" else "by deleting the pod"]


def without_effect(action: str, arguments: Iterable[str], actions: Iterable[str]) -> list[str]:
    """Return a warning for each argument in an eviction action's configuration that has no effect in the present
    policy."""
    if action in VETO_SWITCHES and action not in actions:
        return [
            f"action {action}: argument {key} has no effect: the policy does not name the action"
            for key in arguments
        ]
    if action in (RESERVE, DEFRAGMENT):
        return (
            []
            if action in actions
            else [f"action {action}: its arguments have no effect: the policy does not name the action"]
        )
    effective = EVICTION_ARGUMENTS if EVICTION_ARGUMENTS[0] in ACTION_ARGUMENTS[action] else ()
    idle = [key for key in arguments if key not in effective]
    return [f"action {action}: argument {key} has no effect in this version" for key in idle]


def silences_vetoes(option: Mapping[str, object], actions: Iterable[str]) -> tuple[bool, str | None]:
    """Return (whether a plugin's entry in the policy disables its vetoes, message if it does so for some of the
    actions only).

    Volcano has one switch per action. Here a veto applies to all evicting actions, so it is disabled only if all of
    them disable it.
    """
    evicting = [action for action in actions if action in VETO_SWITCHES]
    off = [action for action in evicting if option.get(VETO_SWITCHES[action]) is False]
    if not off or len(off) == len(evicting):
        return bool(off), None
    remaining = ", ".join(action for action in evicting if action not in off)
    return False, f"{VETO_SWITCHES[off[0]]}: false has no effect while {remaining} can evict: a veto applies to all"
