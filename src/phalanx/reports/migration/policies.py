"""Scheduling policies of other schedulers: Volcano's ConfigMap and kube-scheduler's configuration file."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from fnmatch import fnmatchcase

import msgspec
import yaml

from phalanx.dialects.reader import Document
from phalanx.model.text.yaml_text import decode_yaml
from phalanx.reports.migration.findings import FieldFinding, MigrationVerdict, ObjectFinding
from phalanx.reports.migration.foreign import DEFAULT_SCHEDULER, Said
from phalanx.scheduling.framework.vocabulary import ACTION_ARGUMENTS, RETIRED_ACTIONS, RETIRED_PLUGINS
from phalanx.scheduling.policy.lint import ERROR, lint_policy
from phalanx.scheduling.policy.registry import available_plugins, offered_actions

_W, _C, _N = MigrationVerdict.WORKS, MigrationVerdict.CHANGE, MigrationVerdict.NOT_HONOURED

# Plugins of scheduler-plugins by their names in a KubeSchedulerConfiguration.
_PLUGINS: Mapping[str, Said] = {
    "Coscheduling": (_W, "gangs need no plugin; the plugin gang orders them"),
    "CapacityScheduling": (
        _C,
        "quotas apply under every policy; for evictions name the actions preempt and reclaim",
    ),
    "NodeResourceTopologyMatch": (_N, "NodeResourceTopology is not read; numa-aware reads Volcano's NumaTopology"),
    "NodeResourcesAllocatable": (_C, "name the plugin nodeorder or binpack"),
    "NetworkOverhead": (_N, "AppGroup and NetworkTopology are not read; write HyperNodes (docs/topology.md)"),
    "TopologicalSort": (_N, "AppGroup is not read; write spec.dependsOn of a Job's tasks"),
    "LoadVariationRiskBalancing": (_C, "name the plugin usage"),
    "TargetLoadPacking": (_C, "name the plugin usage"),
    "Trimaran": (_C, "name the plugin usage"),
    "LowRiskOverCommitment": (_C, "name the plugin usage"),
    "PreemptionToleration": (_N, "write phalanx.dev/min-run-time on queues and quotas (docs/quotas.md)"),
    "SySched": (_N, "Phalanx has no equivalent"),
    "PodState": (_N, "Phalanx has no equivalent"),
    "QOSSort": (_N, "priorities order pods; QoS classes do not"),
    "CrossNodePreemption": (_W, "preemption searches victims on several nodes by default"),
    "NodeResourcesFit": (
        _C,
        "nodeorder spreads (leastrequested.weight) and packs GPUs (gpupacking.weight); binpack packs all pods",
    ),
}
_ARGUMENTS: Mapping[str, Said] = {
    "permitWaitingTimeSeconds": (_N, "waiting gangs reserve nothing: a gang is bound as a whole or not at all"),
    "podGroupBackoffSeconds": (_N, "a gang is retried after each helpful change"),
    "apiVersion": (_W, ""),
    "kind": (_W, ""),
}


def examine_policy(head: ObjectFinding, field: str, text: str) -> ObjectFinding:
    """Return the policy linter's findings about a Volcano policy: errors prevent its use, warnings do not."""
    fields = [
        FieldFinding(
            f"{field}:{problem.line}",
            MigrationVerdict.NOT_HONOURED if _idle(problem.severity, problem.message) else _W,
            problem.message,
        )
        for problem in lint_policy(text)
    ]
    fields.insert(0, FieldFinding(field, MigrationVerdict.WORKS, "the policy file of `phalanx scheduler --config`"))
    return msgspec.structs.replace(head, fields=tuple(fields))


def usable_policy(text: str) -> str:
    """Return the text of a Volcano policy if it loads, else the text without unknown actions, plugins and
    arguments; "" if that does not load either."""
    if not _errors(text):
        return text
    try:
        document = decode_yaml(text)
        actions, plugins = {*ACTION_ARGUMENTS, *offered_actions(), *RETIRED_ACTIONS}, available_plugins()
        named = [name.strip() for name in str(document.get("actions", "")).split(",")]
        document["actions"] = ", ".join(name for name in named if name in actions)
        for tier in document.get("tiers") or ():
            tier["plugins"] = [
                configuration
                for configuration in tier["plugins"]
                if configuration["name"] in {*plugins, *RETIRED_PLUGINS}
            ]
            for configuration in tier["plugins"]:
                kind = plugins.get(configuration["name"])
                stated = configuration.get("arguments") or {}
                if kind is not None and stated:
                    configuration["arguments"] = {
                        key: value
                        for key, value in stated.items()
                        if any(fnmatchcase(key, known) for known in kind.arguments)
                    }
        for configuration in document.get("configurations") or ():
            known = ACTION_ARGUMENTS.get(configuration["name"], ())
            configuration["arguments"] = {
                k: v for k, v in (configuration.get("arguments") or {}).items() if k in known
            }
    except (AttributeError, KeyError, TypeError, yaml.YAMLError):
        return ""
    cleaned: str = yaml.safe_dump(document, sort_keys=False)
    return "" if _errors(cleaned) else cleaned


def _errors(text: str) -> bool:
    return any(problem.severity == ERROR for problem in lint_policy(text))


def _idle(severity: str, message: str) -> bool:
    return severity == ERROR or "no effect" in message


def examine_configuration(head: ObjectFinding, document: Document) -> ObjectFinding:
    return msgspec.structs.replace(head, name=head.name or "-", fields=tuple(_configuration(document)))


def _configuration(document: Document) -> Iterator[FieldFinding]:
    profiles = document.get("profiles")
    for at, profile in enumerate(profiles if isinstance(profiles, list) else ()):
        if not isinstance(profile, Mapping):
            continue
        place = f"profiles[{at}]"
        if profile.get("schedulerName"):
            name = profile["schedulerName"]
            advice = f"or run `phalanx scheduler --scheduler-name {name}` after the other scheduler is stopped"
            served = str(name)
            if name == DEFAULT_SCHEDULER:
                advice, served = "this is kube-scheduler's own name", ""
            yield FieldFinding(f"{place}.schedulerName", _C, f"write phalanx into pods; {advice}", served=served)
        enabled = _enabled(profile.get("plugins"))
        for name in dict.fromkeys(enabled):
            verdict, message = _PLUGINS.get(name, (_N, "no plugin of Phalanx is equivalent (docs/policy.md)"))
            yield FieldFinding(f"{place}.plugins[{name}]", verdict, message)
        configs = profile.get("pluginConfig")
        for config in configs if isinstance(configs, list) else ():
            if not isinstance(config, Mapping) or not isinstance(config.get("args"), Mapping):
                continue
            for key in config["args"]:
                verdict, message = _ARGUMENTS.get(key, (_N, "use the arguments of docs/policy.md"))
                if message:
                    yield FieldFinding(f"{place}.pluginConfig[{config.get('name')}].args.{key}", verdict, message)


def _enabled(plugins: object) -> Iterator[str]:
    for point in plugins.values() if isinstance(plugins, Mapping) else ():
        entries = point.get("enabled") if isinstance(point, Mapping) else None
        for entry in entries if isinstance(entries, list) else ():
            if isinstance(entry, Mapping) and isinstance(entry.get("name"), str):
                yield entry["name"]
