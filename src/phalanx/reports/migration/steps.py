"""Ordered steps of a migration from another scheduler, and the files to apply."""

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
# Webhooks of these groups check objects that users still create for Phalanx.
_STAYS: Mapping[str, str] = {
    VOLCANO: (
        "Volcano: stop volcano-scheduler; volcano-controllers and its webhooks can stay "
        "(or run `phalanx controllers` and `phalanx webhook` in their place, never both)"
    ),
    SCHEDULER_PLUGINS: "scheduler-plugins: stop its scheduler; its controller can stay",
    KOORDINATOR: "Koordinator: stop koord-scheduler; koordlet, koord-manager and their webhooks can stay",
    KAI: "KAI: stop its operator, scheduler, binder, podgrouper and admission: Phalanx does not read their objects",
    KUEUE: "Kueue: nothing to stop; it admits, Phalanx places",
}


class Webhook(msgspec.Struct, frozen=True):
    """Webhook configuration in the cluster; `ours` marks that of `phalanx webhook`."""

    name: str
    groups: tuple[str, ...]
    mutating: bool = False
    ours: bool = False


class Steps(msgspec.Struct, frozen=True):
    """Steps of a migration. `counts` are numbers of objects by system and verdict, including equal ones."""

    counts: Mapping[str, Mapping[str, int]]
    steps: tuple[str, ...]


def summary(object_findings: Iterable[ObjectFinding], webhooks: Iterable[Webhook] = (), written: str = "") -> Steps:
    """Return the migration steps for all findings. `written` is the directory of the written files, "" for none."""
    findings = list(object_findings)
    counts = {
        system: {
            verdict.value: sum(
                1 + finding.alike for finding in findings if (finding.system, finding.verdict) == (system, verdict)
            )
            for verdict in MigrationVerdict
        }
        for system in SYSTEMS
        if any(finding.system == system for finding in findings)
    }
    return Steps(counts, tuple(_steps(findings, list(webhooks), set(counts), written)))


def _steps(
    findings: list[ObjectFinding], webhooks: list[Webhook], systems: set[str], written: str
) -> Iterator[str]:
    if not systems:
        return
    place = f"{written.rstrip('/')}/" if written else ""
    if not written and any(finding.manifests or finding.patch or _is_policy(finding) for finding in findings):
        yield "phalanx migrate --write DIR: policy.yaml, objects/ and patches/ of the steps below"
    yield "phalanx install: existing definitions are not changed"
    policies = [finding for finding in findings if _is_policy(finding)]
    config = f" --config {place}policy.yaml" if policies else ""
    if policies:
        yield f"phalanx policy lint {place}policy.yaml: the policy that Volcano's ConfigMap holds"
    if any(finding.manifests for finding in findings):
        yield f"kubectl apply -f {place}objects/: queues and groups that replace unreadable ones"
    names = _scheduler_names(findings)
    running = "".join(f" --scheduler-name {name}" for name in ("phalanx", *names))
    for system in SYSTEMS:
        if system in systems:
            yield _STAYS[system]
    clashing = sorted({hook.name for hook in webhooks if _clashes(hook)})
    if clashing:
        yield (
            f"webhooks {', '.join(clashing)}: they need their own controller; "
            "delete them with it, otherwise their objects are refused"
        )
    yield f"phalanx scheduler{config}{running if names else ''}"
    kept = any(field.kept for finding in findings for field in finding.fields)
    if any(finding.patch for finding in findings):
        patches = f"{place}patches/"
        enough = "" if kept else " (then --scheduler-name phalanx is enough)"
        yield f"kubectl patch with {patches}: schedulerName in templates{enough}"
    elif names:
        yield "write schedulerName: phalanx into workloads at any time"


def _is_policy(finding: ObjectFinding) -> bool:
    return any(field.field.startswith("data.") for field in finding.fields)


def _scheduler_names(findings: list[ObjectFinding]) -> list[str]:
    """Return the scheduler names that existing pods have."""
    served = {field.served for finding in findings for field in finding.fields} - {""}
    return sorted(served, key=lambda name: (name not in SCHEDULER_NAMES, name))


def _clashes(webhook: Webhook) -> bool:
    if webhook.ours:
        return False
    return any(system_of(group) for group in webhook.groups) or any(
        word in webhook.name for word in ("volcano", "koord", "kai-", "kueue")
    )


def read_webhook(document: Mapping[str, Any], mutating: bool) -> Webhook:
    metadata, groups = mapping(document.get("metadata")), []
    hooks = [mapping(item) for item in document.get("webhooks") or ()]
    for hook in hooks:
        for rule in hook.get("rules") or ():
            groups += [str(group) for group in rule.get("apiGroups") or ()]
    return Webhook(str(metadata.get("name")), tuple(dict.fromkeys(groups)), mutating, _is_ours(metadata, hooks))


def _is_ours(metadata: Mapping[str, Any], hooks: Sequence[Mapping[str, Any]]) -> bool:
    """Return whether the webhook configuration belongs to Phalanx: by the label of the installer and the chart,
    else by the domain in all webhook names.

    The object's name is not significant.
    """
    if mapping(metadata.get("labels")).get(_NAME_LABEL) == LABELS[_NAME_LABEL]:
        return True
    return bool(hooks) and all(text(hook.get("name")).endswith(_OUR_WEBHOOKS) for hook in hooks)
