"""Mistakes and doubtful settings of a policy file, each with its line and a fix."""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Iterable, Iterator, Mapping

import msgspec
import yaml

from phalanx.model.text.yaml_text import decode_yaml, repeated_keys
from phalanx.scheduling.framework.errors import PolicyError
from phalanx.scheduling.framework.extension_points import EXTENSION_POINTS
from phalanx.scheduling.framework.plugin import overrides
from phalanx.scheduling.framework.policy import Policy
from phalanx.scheduling.framework.vocabulary import ACTION_ARGUMENTS, RESERVE, RETIRED_ACTIONS, RETIRED_PLUGINS
from phalanx.scheduling.policy.loader import NO_FILTER, NO_MAPPING, draft_policy
from phalanx.scheduling.policy.registry import available_plugins, offered_actions

ERROR, WARNING = "error", "warning"
UNKNOWN = "?"
_EMPTY_CONFIG_MAP = "ConfigMap: none of its data is a policy; write one with actions and tiers"
_SPELLINGS = {"gangpreempt": "preempt", "gangreclaim": "reclaim"}
_PLACE = re.compile(r"(?:actions|tiers|configurations|metrics|phalanx)\b[\w.\[\]-]*")
_WORDS = re.compile(r"(?:argument '?([^\s':]+)'?|^\S* ?(?:\([^)]*\))?\.?([\w.-]+): (?:unknown key|'|\d|expected))")
_OWNER = re.compile(r"(plugin|action) ([\w-]+)(?=[: ])")


class Mistake(msgspec.Struct, frozen=True):
    """Mistake in a policy file. `line` counts from 1; `severity` is error (a scheduler does not start with it) or
    warning."""

    line: int
    severity: str
    message: str


def accept(policy: Policy) -> None:
    """Default of `check`: accept every policy."""


def lint_policy(text: str, check: Callable[[Policy], None] = accept, lines_before: int = 0) -> list[Mistake]:
    """Return the mistakes of a policy or ConfigMap, sorted by line.

    `check` can raise PolicyError for a policy that loads. `lines_before` is the number of lines above the text in
    its file.
    """
    try:
        document = decode_yaml(text)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        line = lines_before + (mark.line + 1 if mark else 1)
        return [Mistake(line, ERROR, f"not YAML: {getattr(error, 'problem', None) or error}")]
    kind = document.get("kind") if isinstance(document, Mapping) else None
    if kind == "ConfigMap":
        return _config_map(text, document, check)
    if kind == "KubeSchedulerConfiguration":
        advice = "`phalanx migrate --from FILE` lists the replacement of each of its plugins"
        return [
            Mistake(
                1,
                ERROR,
                f"kind: KubeSchedulerConfiguration is a configuration of kube-scheduler, not a policy; {advice}",
            )
        ]
    if not isinstance(document, Mapping):
        return [Mistake(lines_before + 1, ERROR, NO_MAPPING)]
    lines = _Lines(text)
    mistakes = [
        Mistake(problem.again + lines_before, ERROR, problem.told(lines_before)) for problem in repeated_keys(text)
    ]
    policy, errors = draft_policy(document)
    try:
        check(policy)
    except PolicyError as error:
        errors.append(str(error))
    mistakes += [Mistake(lines.of(problem) + lines_before, ERROR, problem) for problem in errors]
    filtered = {"predicates", UNKNOWN} & set(_named_plugins(document))
    doubts = [problem for problem in policy.inactive if not (errors and filtered and problem == NO_FILTER)]
    doubts += _doubts(policy, document)
    mistakes += [Mistake(lines.of(problem) + lines_before, WARNING, problem) for problem in doubts]
    return sorted(mistakes, key=_order)


def policies_in(config_map: Mapping[str, object]) -> dict[str, str]:
    """Return the policies in Volcano's format among a ConfigMap's entries, by key."""
    data = config_map.get("data")
    texts = (
        {str(key): text for key, text in data.items() if isinstance(text, str)} if isinstance(data, Mapping) else {}
    )
    return {key: text for key, text in texts.items() if re.search(r"^(actions|tiers):", text, re.MULTILINE)}


def sole_policy(text: str, source: str = "policy") -> str:
    """Return the only policy of a ConfigMap, or the text itself if it is none. Raises PolicyError."""
    try:
        document = decode_yaml(text)
    except yaml.YAMLError:
        return text
    if not isinstance(document, Mapping) or document.get("kind") != "ConfigMap":
        return text
    policies = policies_in(document)
    if len(policies) != 1:
        which = f"it holds {', '.join(policies)}; write one of them to a file" if policies else _EMPTY_CONFIG_MAP
        raise PolicyError(f"{source}: {which}")
    return next(iter(policies.values()))


def _order(mistake: Mistake) -> tuple[int, str, str]:
    return mistake.line, mistake.severity, mistake.message


def _config_map(text: str, document: Mapping[str, object], check: Callable[[Policy], None]) -> list[Mistake]:
    nodes = _Lines(text)
    mistakes = [Mistake(repeated.again, ERROR, repeated.told()) for repeated in repeated_keys(text)]
    for key, inner in policies_in(document).items():
        first = nodes.block(f"data.{key}")
        mistakes += lint_policy(inner, check, first)
    if not policies_in(document):
        return [Mistake(1, ERROR, _EMPTY_CONFIG_MAP)]
    return mistakes


def _doubts(policy: Policy, document: Mapping[str, object]) -> Iterator[str]:
    """Yield warnings about valid settings that are probably not intended."""
    names, actions = _named_plugins(document), _named_actions(document, policy)
    if UNKNOWN in actions or UNKNOWN in names:
        # The unknown name can be the missing plugin or action.
        return
    for old, new in _SPELLINGS.items():
        if old in actions and new in actions:
            yield f"actions: {old} and {new} are one action here; write {new} alone"
    sharing = {"capacity", "proportion"} & set(names)
    if actions & {"reclaim", "gangreclaim"} and not sharing:
        yield (
            "actions: reclaim has no effect between queues: no plugin defines their deserved amounts; "
            "name proportion or capacity (elastic quotas are reclaimed without them)"
        )
    if RESERVE in actions and "allocate" not in actions:
        yield "actions: reserve has no effect without allocate; name allocate before it"
    reservations = policy.reservations
    if reservations is not None and not reservations.reserves_starts and not reservations.collects:
        yield "actions: reserve has no effect: depth is none and collectAfter is never; remove one of them"
    promises = reservations is not None and reservations.reserves_starts
    if promises and "sla" not in names and policy.exceeded_run_times == "report":
        yield (
            "actions: promised starts of reserve rely on declared run times, and no gang is evicted that runs "
            "longer; write phalanx.exceededRunTimes: kill or evict-when-needed"
        )
    if "enqueue" not in actions and {"overcommit", "sla", "resourcequota"} & set(names):
        which = ", ".join(name for name in names if name in ("overcommit", "sla", "resourcequota"))
        yield f"actions: without enqueue every group is admitted: {which} has no effect on it; name enqueue first"
    if policy.requests_nodes and "enqueue" not in actions:
        yield (
            "phalanx.autoscaler: without action enqueue every group has its pods at once, so the autoscaler sees "
            "all of them; name enqueue to request nodes for one gang per queue at a time"
        )
    if not actions & {"preempt", "reclaim", "gangpreempt", "gangreclaim", "shuffle", "defragment"}:
        idle = [name for name in names if name in ("cdp", "pdb", "conformance")]
        if idle:
            yield f"plugin {idle[0]}: protects pods from eviction, and no action of the policy evicts"
    if "shuffle" in actions and not {"tdm", "rescheduling"} & set(names):
        yield "actions: shuffle moves no pods: no plugin selects them; name rescheduling or tdm"
    if {"tdm", "rescheduling"} & set(names) and "shuffle" not in actions:
        which = next(name for name in names if name in ("tdm", "rescheduling"))
        yield f"plugin {which}: evicts only in action shuffle; name shuffle in actions"
    for entry in policy.plugins:
        points = [point for point in EXTENSION_POINTS if overrides(entry.plugin, point)]
        if points and entry.disabled_points and set(points) <= set(entry.disabled_points):
            yield f"plugin {entry.plugin.name}: all its extension points are disabled; remove it"
    first = next((name for name in names if name in sharing), None)
    if first and "fairshare" in names and names.index("fairshare") > names.index(first) and _half_life(document):
        yield f"plugin fairshare: behind {first}, past use does not order queues; name it before {first}"


def _named_actions(document: Mapping[str, object], policy: Policy) -> set[str]:
    """Return the policy's actions, with corrections of misspelt names."""
    stated = document.get("actions")
    named = [name.strip() for name in stated.split(",")] if isinstance(stated, str) else []
    known = {*ACTION_ARGUMENTS, *offered_actions(), *RETIRED_ACTIONS}
    return {*policy.actions, *(_correct_name(name, known) for name in named if name)}


def _named_plugins(document: Mapping[str, object]) -> list[str]:
    """Return the names of the plugins in the policy, in order, including faulty entries and corrections of misspelt
    names."""
    known, names = {*available_plugins(), *RETIRED_PLUGINS}, []
    tiers = document.get("tiers")
    for tier in tiers if isinstance(tiers, list) else ():
        plugins = tier.get("plugins") if isinstance(tier, Mapping) else None
        entries = [entry for entry in plugins if isinstance(entry, Mapping)] if isinstance(plugins, list) else []
        names += [_correct_name(entry["name"], known) for entry in entries if isinstance(entry.get("name"), str)]
    return names


def _correct_name(name: str, known: Iterable[str]) -> str:
    known = list(known)
    return name if name in known else next(iter(difflib.get_close_matches(name, known, n=1)), UNKNOWN)


def _half_life(document: object) -> bool:
    return "fairshare.half-life" in msgspec.json.encode(document).decode()


class _Lines:
    """Line numbers of the places and names in a policy file, for messages."""

    def __init__(self, text: str) -> None:
        self._lines: dict[str, int] = {}
        self._blocks: dict[str, int] = {}
        self._owners: dict[tuple[str, str], str] = {}
        self._lines[""] = 1
        root = yaml.compose(text, Loader=yaml.SafeLoader)
        if root is not None:
            self._walk(root, "")

    def of(self, message: str) -> int:
        place = ""
        if owner := _OWNER.match(message):
            place = self._owners.get((owner[1], owner[2]), "actions" if owner[1] == "action" else "")
        elif found := _PLACE.match(message):
            place = found[0]
        words = _WORDS.search(message)
        word = next(filter(None, words.groups()), "") if words else ""
        for candidate in (f"{place}.arguments.{word}", f"{place}.{word}"):
            if word and candidate in self._lines:
                return self._lines[candidate]
        while place and place not in self._lines:
            place = re.sub(r"(\.[^.\[]*|\[[^\[]*|^[^.\[]*)$", "", place)
        return self._lines[place]

    def block(self, place: str) -> int:
        """Return the number of lines in a policy's file before a nested text."""
        return self._blocks.get(place, 0)

    def _walk(self, node: yaml.Node, place: str) -> None:
        self._lines.setdefault(place, node.start_mark.line + 1)
        if isinstance(node, yaml.MappingNode):
            for key, value in node.value:
                here = f"{place}.{key.value}" if place else str(key.value)
                self._lines.setdefault(here, key.start_mark.line + 1)
                if key.value == "name" and isinstance(value, yaml.ScalarNode):
                    kind = "action" if place.startswith("configurations") else "plugin"
                    self._owners.setdefault((kind, value.value), place)
                self._walk(value, here)
        elif isinstance(node, yaml.SequenceNode):
            for at, value in enumerate(node.value):
                self._walk(value, f"{place}[{at}]")
        elif isinstance(node, yaml.ScalarNode):
            self._blocks[place] = node.start_mark.line + (1 if node.style in ("|", ">") else 0)
