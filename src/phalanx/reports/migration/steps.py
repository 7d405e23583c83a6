"""What to do in which order to move in, and what to apply for it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import msgspec

from phalanx.admission.fields import mapping, text
from phalanx.kube.own_objects import LABELS
from phalanx.reports.migration.findings import MigrationVerdict, ObjectFinding
from phalanx.reports.migration.foreign import (
    KAI,
    KOORDINATOR,
    KUEUE,
    SCHEDULER_NAMES,
    SCHEDULER_PLUGINS,
    SYSTEMS,
    VOLCANO,
    system_of,
)

_NAME_LABEL = "app.kubernetes.io/name"
_OUR_WEBHOOKS = ".webhook.phalanx.dev"
# Webhooks of these groups speak about what we and our users write.
_STAYS: Mapping[str, str] = {
    VOLCANO: (
        "Volcano: stop volcano-scheduler; volcano-controllers and its webhooks may stay "
        "(or run `phalanx controllers` and `phalanx webhook` in their place, never both)"
    ),
    SCHEDULER_PLUGINS: "scheduler-plugins: stop its scheduler; its controller may stay",
    KOORDINATOR: "Koordinator: stop koord-scheduler; koordlet, koord-manager and their webhooks may stay",
    KAI: "KAI: stop its operator, scheduler, binder, podgrouper and admission: nothing here reads their objects",
    KUEUE: "Kueue: nothing to stop; it admits, Phalanx places",
}


class Webhook(msgspec.Struct, frozen=True):
    """A webhook configuration that is in the cluster; `ours` is what `phalanx webhook` has made."""

    name: str
    groups: tuple[str, ...]
    mutating: bool = False
    ours: bool = False


class Steps(msgspec.Struct, frozen=True):
    """`counts` are objects by system and verdict, those alike included."""

    counts: Mapping[str, Mapping[str, int]]
    steps: tuple[str, ...]


def summary(found: Iterable[ObjectFinding], webhooks: Iterable[Webhook] = (), written: str = "") -> Steps:
    """`written` is the directory to which what to apply was written, "" if it was not."""
    findings = list(found)
    counts = {
        system: {
            verdict.value: sum(
                1 + each.alike for each in findings if (each.system, each.verdict) == (system, verdict)
            )
            for verdict in MigrationVerdict
        }
        for system in SYSTEMS
        if any(each.system == system for each in findings)
    }
    return Steps(counts, tuple(_steps(findings, list(webhooks), set(counts), written)))


def _steps(
    findings: list[ObjectFinding], webhooks: list[Webhook], systems: set[str], written: str
) -> Iterator[str]:
    if not systems:
        return
    place = f"{written.rstrip('/')}/" if written else ""
    if not written and any(each.manifests or each.patch or _is_policy(each) for each in findings):
        yield "phalanx migrate --write DIR: policy.yaml, objects/ and patches/ of the steps below"
    yield "phalanx install: definitions that are there stay as they are"
    policies = [each for each in findings if _is_policy(each)]
    config = f" --config {place}policy.yaml" if policies else ""
    if policies:
        yield f"phalanx policy lint {place}policy.yaml: the policy that Volcano's ConfigMap holds"
    if any(each.manifests for each in findings):
        yield f"kubectl apply -f {place}objects/: queues and groups in the place of those that are not read"
    names = _scheduler_names(findings)
    running = "".join(f" --scheduler-name {name}" for name in ("phalanx", *names))
    for system in SYSTEMS:
        if system in systems:
            yield _STAYS[system]
    clashing = sorted({hook.name for hook in webhooks if _clashes(hook)})
    if clashing:
        yield (
            f"webhooks {', '.join(clashing)}: they need their own controller; "
            "delete them once it is gone, or what they speak about is refused"
        )
    yield f"phalanx scheduler{config}{running if names else ''}"
    kept = any(field.kept for each in findings for field in each.fields)
    if any(each.patch for each in findings):
        patches = f"{place}patches/"
        enough = "" if kept else " (then --scheduler-name phalanx is enough)"
        yield f"kubectl patch with {patches}: schedulerName in templates{enough}"
    elif names:
        yield "write schedulerName: phalanx into what makes pods, whenever it suits"


def _is_policy(finding: ObjectFinding) -> bool:
    return any(each.field.startswith("data.") for each in finding.fields)


def _scheduler_names(findings: list[ObjectFinding]) -> list[str]:
    """Under which names pods wait now."""
    found = {field.served for each in findings for field in each.fields} - {""}
    return sorted(found, key=lambda name: (name not in SCHEDULER_NAMES, name))


def _clashes(webhook: Webhook) -> bool:
    if webhook.ours:
        return False
    return any(system_of(group) for group in webhook.groups) or any(
        word in webhook.name for word in ("volcano", "koord", "kai-", "kueue")
    )


def read_webhook(document: Mapping[str, Any], mutating: bool) -> Webhook:
    metadata, groups = mapping(document.get("metadata")), []
    hooks = [mapping(each) for each in document.get("webhooks") or ()]
    for hook in hooks:
        for rule in hook.get("rules") or ():
            groups += [str(group) for group in rule.get("apiGroups") or ()]
    return Webhook(str(metadata.get("name")), tuple(dict.fromkeys(groups)), mutating, _is_ours(metadata, hooks))


def _is_ours(metadata: Mapping[str, Any], hooks: Sequence[Mapping[str, Any]]) -> bool:
    """By the label that our installer and the chart write, whatever the release is called; else by the names of all
    webhooks, which carry our domain. The name of the object says nothing."""
    if mapping(metadata.get("labels")).get(_NAME_LABEL) == LABELS[_NAME_LABEL]:
        return True
    return bool(hooks) and all(text(hook.get("name")).endswith(_OUR_WEBHOOKS) for hook in hooks)
