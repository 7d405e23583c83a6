"""Loader of the policy file: Volcano's format, parsed strictly, with all errors reported."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import yaml

from phalanx.model.text.decoding import quoted
from phalanx.model.text.yaml_text import decode_yaml, repeated_keys
from phalanx.scheduling.framework.action import Action
from phalanx.scheduling.framework.arguments import Arguments
from phalanx.scheduling.framework.defragment_settings import defragment_settings
from phalanx.scheduling.framework.errors import PolicyError
from phalanx.scheduling.framework.eviction_options import (
    EvictionOptions,
    eviction_options,
    silences_vetoes,
    without_effect,
)
from phalanx.scheduling.framework.plugin import Plugin, overrides
from phalanx.scheduling.framework.policy import ConfiguredPlugin, Policy
from phalanx.scheduling.framework.reservation_settings import reservation_settings
from phalanx.scheduling.framework.unknown_keys import check_keys, suggestion
from phalanx.scheduling.framework.vocabulary import (
    ACTION_ARGUMENTS,
    FOREIGN_VICTIMS,
    RETIRED_ACTIONS,
    RETIRED_PLUGINS,
    SWITCHES,
)
from phalanx.scheduling.policy.own_settings import own_settings
from phalanx.scheduling.policy.plugin_checks import class_faults, remarks, setting_faults
from phalanx.scheduling.policy.registry import available_plugins, offered_actions, standing

DEFAULT_POLICY = """\
actions: "enqueue, allocate, preempt, reclaim, reserve, backfill"
configurations:
- name: reserve
  arguments: {depth: none}
tiers:
- plugins:
  - name: priority
  - name: gang
  - name: conformance
- plugins:
  - name: overcommit
  - name: fairshare
  - name: drf
  - name: predicates
  - name: proportion
  - name: nodeorder
"""

_TOP = ("actions", "tiers", "configurations", "metrics", "phalanx")
_OWN_TIER = -1
NO_FILTER = "no plugin filters nodes: selectors, taints and ports are ignored; name predicates"
NO_MAPPING = "expected a mapping with actions and tiers"
_Options = Mapping[str, object]


def load_policy(text: str = DEFAULT_POLICY, source: str = "policy") -> Policy:
    """Parse a policy. Raises PolicyError with every mistake, one per line."""
    try:
        document = decode_yaml(text)
    except yaml.YAMLError as error:
        raise PolicyError(f"{source}: not YAML: {error}") from error
    if not isinstance(document, Mapping):
        raise PolicyError(f"{source}: {NO_MAPPING}")
    policy, errors = draft_policy(document)
    errors = [*(each.told() for each in repeated_keys(text)), *errors]
    if errors:
        raise PolicyError("\n".join(f"{source}: {error}" for error in errors))
    return policy


def draft_policy(document: Mapping[str, object]) -> tuple[Policy, list[str]]:
    """Return the policy as far as it can be parsed, and every mistake; a policy with mistakes must not be used."""
    errors: list[str] = []
    inactive: list[str] = []
    check_keys(document, _TOP, "", errors)
    offered = offered_actions()
    known = {**ACTION_ARGUMENTS, **{name: action.arguments for name, action in offered.items()}}
    actions = _actions(document.get("actions", "enqueue, allocate, backfill"), known, errors, inactive)
    plugins, options = _tiers(document.get("tiers"), actions, errors, inactive)
    arguments = _configurations(document.get("configurations"), actions, known, errors, inactive)
    custom = _custom_actions(actions, offered, arguments, errors)
    eviction = eviction_options(actions, arguments, options, errors)
    reservations = reservation_settings(actions, arguments, errors)
    defragmentation = defragment_settings(actions, arguments, errors)
    own = own_settings(document.get("phalanx") or {}, errors, inactive)
    if not any(overrides(entry.plugin, "filter") and "filter" not in entry.disabled_points for entry in plugins):
        inactive.append(NO_FILTER)
    always = standing_plugins(eviction)
    policy = Policy(
        actions,
        plugins,
        always,
        tuple(inactive),
        eviction=eviction,
        custom_actions=custom,
        reservations=reservations,
        defragmentation=defragmentation,
        **own,
    )
    return policy, errors


def standing_plugins(eviction: EvictionOptions) -> tuple[ConfiguredPlugin, ...]:
    """Return the plugins of every policy, in a tier before all other tiers."""
    stated = {FOREIGN_VICTIMS: eviction.foreign_victims}
    return tuple(
        ConfiguredPlugin(plugin(Arguments(plugin.name, {key: stated[key] for key in plugin.arguments})), _OWN_TIER)
        for plugin in standing()
    )


def _actions(
    value: object, known: Mapping[str, Sequence[str]], errors: list[str], inactive: list[str]
) -> tuple[str, ...]:
    if not isinstance(value, str):
        errors.append('actions: expected one string such as "enqueue, allocate, backfill"')
        return ()
    named = [name.strip() for name in value.split(",") if name.strip()]
    inactive.extend(
        f"action {name} is accepted but has no effect: {RETIRED_ACTIONS[name]}"
        for name in named
        if name in RETIRED_ACTIONS
    )
    names = [name for name in named if name not in RETIRED_ACTIONS]
    unknown = [name for name in names if name not in known]
    errors.extend(f"actions: unknown action {quoted(name)}{suggestion(name, known)}" for name in unknown)
    if not names:
        errors.append("actions: no action named")
    if len(set(named)) != len(named):
        errors.append("actions: an action is named twice")
    return tuple(name for name in names if name in known)


def _custom_actions(
    actions: Sequence[str],
    offered: Mapping[str, type[Action]],
    arguments: Mapping[str, _Options],
    errors: list[str],
) -> dict[str, Action]:
    """Return the actions of installed packages by name."""
    custom_actions: dict[str, Action] = {}
    for name in actions:
        if name not in offered:
            continue
        try:
            custom_actions[name] = offered[name](Arguments(f"action {name}", arguments.get(name, {})))
        except PolicyError as error:
            errors.append(str(error))
        except Exception as error:
            # a constructor that does not use `Arguments`
            errors.append(f"action {name}: {type(error).__name__}: {error}")
    return custom_actions


def _tiers(
    value: object, actions: Sequence[str], errors: list[str], inactive: list[str]
) -> tuple[tuple[ConfiguredPlugin, ...], Mapping[str, _Options]]:
    """Return the plugins in order, and the entries by plugin name."""
    known = available_plugins()
    configured: list[ConfiguredPlugin] = []
    seen: dict[str, _Options] = {}
    for tier, entry in enumerate(_list(value, "tiers", errors)):
        where = f"tiers[{tier}]"
        if not isinstance(entry, Mapping):
            errors.append(f"{where}: expected a mapping with plugins")
            continue
        check_keys(entry, ("plugins",), f"{where}.", errors)
        names: set[str] = set()
        for position, option in enumerate(_list(entry.get("plugins"), f"{where}.plugins", errors)):
            place = f"{where}.plugins[{position}]"
            if not isinstance(option, Mapping) or not isinstance(option.get("name"), str):
                errors.append(f"{place}: expected a mapping with a name")
                continue
            name = option["name"]
            if name in seen:
                errors.append(f"{place}: plugin {name} is named twice")
                continue
            seen[name] = option
            names.add(name if option.get("enableHierarchy") is not True else f"hierarchical {name}")
            check_keys(option, ("name", "arguments", *SWITCHES), f"{place} ({name}).", errors)
            if name in RETIRED_PLUGINS:
                inactive.append(f"plugin {name} is accepted but has no effect: {RETIRED_PLUGINS[name]}")
                continue
            plugin = _plugin(name, option, known, place, errors, inactive)
            disabled = _disabled(option, f"{place} ({name})", errors)
            if plugin is not None:
                if overrides(plugin, "evict_veto"):
                    disabled |= _disabled_vetoes(name, option, actions, inactive)
                configured.append(ConfiguredPlugin(plugin, tier, disabled))
        if "capacity" in seen and "proportion" in seen and {"capacity", "proportion"} & names:
            inactive.append("capacity and proportion are both named (Volcano allows one): the limits of both apply")
        if {"hierarchical drf", "proportion"} <= names:
            errors.append(f"{where}: drf with enableHierarchy and proportion exclude each other, as in Volcano")
    return tuple(configured), seen


def _list(value: object, place: str, errors: list[str]) -> Sequence[object]:
    if value is None:
        return ()
    if not isinstance(value, Sequence) or isinstance(value, str):
        errors.append(f"{place}: expected a list")
        return ()
    return value


def _plugin(
    name: str,
    option: Mapping[str, object],
    known: Mapping[str, type[Plugin]],
    place: str,
    errors: list[str],
    inactive: list[str],
) -> Plugin | None:
    arguments = option.get("arguments") or {}
    if not isinstance(arguments, Mapping):
        errors.append(f"{place} ({name}).arguments: expected a mapping")
        return None
    kind = known.get(name)
    if kind is None:
        errors.append(f"{place}: unknown plugin {quoted(name)}{suggestion(name, known)}")
        return None
    if faults := [f"{place} ({name}): {fault}" for fault in class_faults(kind)]:
        errors.extend(faults)
        return None
    _check_arguments(arguments, kind.arguments, f"{place} ({name})", errors)
    try:
        hierarchical = option.get("enableHierarchy") is True
        plugin = kind(Arguments(f"{place} ({name})", arguments, hierarchical=hierarchical))
    except PolicyError as error:
        errors.append(str(error))
        return None
    except Exception as error:
        # a third-party constructor that does not use `Arguments`
        errors.append(f"{place} ({name}): {type(error).__name__}: {error}")
        return None
    if faults := [f"{place} ({name}): {fault}" for fault in setting_faults(plugin)]:
        errors.extend(faults)
        return None
    inactive.extend(
        f"plugin {name}: argument {key} is accepted but has no effect in this version"
        for key in arguments
        if _known_argument(str(key), kind.without_effect)
    )
    inactive.extend(f"plugin {name}: {remark}" for remark in (*plugin.remarks, *remarks(plugin)))
    return plugin


def _disabled(option: Mapping[str, object], place: str, errors: list[str]) -> frozenset[str]:
    disabled: set[str] = set()
    for switch, points in SWITCHES.items():
        if switch in option:
            value = option[switch]
            if not isinstance(value, bool):
                errors.append(f"{place}.{switch}: {quoted(value)} is not true or false")
            elif not value:
                disabled.update(points)
    return frozenset(disabled)


def _disabled_vetoes(name: str, option: _Options, actions: Sequence[str], inactive: list[str]) -> frozenset[str]:
    disabled, remark = silences_vetoes(option, actions)
    if remark is not None:
        inactive.append(f"plugin {name}: {remark}")
    return frozenset({"evict_veto"}) if disabled else frozenset()


def _configurations(
    value: object,
    actions: Sequence[str],
    known: Mapping[str, Sequence[str]],
    errors: list[str],
    inactive: list[str],
) -> dict[str, _Options]:
    """Return the arguments by action."""
    by_action: dict[str, _Options] = {}
    for position, entry in enumerate(_list(value, "configurations", errors)):
        place = f"configurations[{position}]"
        if not isinstance(entry, Mapping) or not isinstance(entry.get("name"), str):
            errors.append(f"{place}: expected a mapping with the name of an action")
            continue
        name = entry["name"]
        check_keys(entry, ("name", "arguments"), f"{place} ({name}).", errors)
        if name in RETIRED_ACTIONS:
            inactive.append(f"configurations[{position}]: action {name} has no effect")
            continue
        if name not in known:
            errors.append(f"{place}: unknown action {quoted(name)}{suggestion(name, (*known, *RETIRED_ACTIONS))}")
            continue
        arguments = entry.get("arguments") or {}
        if not isinstance(arguments, Mapping):
            errors.append(f"{place} ({name}).arguments: expected a mapping")
            continue
        _check_arguments(arguments, known[name], f"{place} ({name})", errors)
        if name in ACTION_ARGUMENTS:
            inactive.extend(without_effect(name, [str(key) for key in arguments], actions))
        by_action[name] = {**by_action.get(name, {}), **arguments}
    return by_action


def _check_arguments(arguments: Iterable[object], known: Sequence[str], place: str, errors: list[str]) -> None:
    errors.extend(
        f"{place}: unknown argument {quoted(key)}{suggestion(str(key), known)}"
        for key in arguments
        if not _known_argument(str(key), known)
    )


def _known_argument(key: str, known: Sequence[str]) -> bool:
    return any(key.startswith(name[:-1]) if name.endswith("*") else key == name for name in known)
