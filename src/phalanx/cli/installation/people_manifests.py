"""ClusterRoles for people, to be bound by whoever runs the cluster: to look, to submit jobs, to give out queues."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from phalanx.cli.installation.manifests import (
    RBAC,
    Manifest,
    definitions,
    job_rules,
    make_object,
    make_rule,
    records_rule,
)
from phalanx.dialects.dialect import READ

PEOPLE = ("phalanx-viewer", "phalanx-user", "phalanx-queue-editor")
_WRITE = ("create", "delete", "deletecollection", "patch", "update")
#: What says who may have how much.
_QUOTAS = ("elasticquotas", "elasticquotatrees", "elasticquotaprofiles")


def people_roles(scheduler_rules: Iterable[Manifest]) -> list[Manifest]:
    """`phalanx-viewer` is gathered by the cluster's role `view`; the others have to be bound. `scheduler_rules` are
    those of the scheduler's ClusterRole."""
    looks, submits, gives = PEOPLE
    known = definitions()
    read = list(_kinds(known, READ))
    viewer = _role(looks, [*read, *_seen(read, scheduler_rules), records_rule()])
    viewer["metadata"]["labels"][f"{RBAC}/aggregate-to-view"] = "true"
    return [
        viewer,
        _role(
            submits,
            [
                *job_rules(list(_WRITE)),
                *read,
                make_rule([""], ["pods", "pods/log", "events"], READ),
                make_rule(["events.k8s.io"], ["events"], READ),
                make_rule(["scheduling.k8s.io"], ["priorityclasses"], READ),
            ],
        ),
        # Not gathered by `edit`: quotas are in namespaces, and who may edit one could raise his own. (The admission
        # policy about quotas asks for `manage`.)
        _role(
            gives,
            [*read, *_kinds(known, _WRITE, ("queues",)), *_kinds(known, (*_WRITE, "manage"), _QUOTAS)],
        ),
    ]


def _seen(read: Iterable[Manifest], rules: Iterable[Manifest]) -> Iterator[Manifest]:
    """What a dry run reads (`phalanx why`, `phalanx queue`, `phalanx what-if`) is what the scheduler reads, beside
    what everybody may read."""
    ours = {(group, name) for rule in read for group in rule["apiGroups"] for name in rule["resources"]}
    for rule in rules:
        verbs = [verb for verb in rule["verbs"] if verb in READ]
        named = [(group, name) for group in rule["apiGroups"] for name in rule["resources"]]
        if verbs and not ours.issuperset(named):
            yield make_rule(rule["apiGroups"], rule["resources"], verbs)


def _kinds(known: Iterable[Manifest], verbs: Iterable[str], only: tuple[str, ...] = ()) -> Iterator[Manifest]:
    """Of the kinds whose definitions we bring (`known`), by group; with their statuses where they are read."""
    groups: dict[str, list[str]] = {}
    for each in known:
        name = each["spec"]["names"]["plural"]
        if not only or name in only:
            groups.setdefault(each["spec"]["group"], []).append(name)
    wanted = list(verbs)
    for group, names in groups.items():
        statuses = [f"{name}/status" for name in names] if wanted == list(READ) else []
        yield make_rule([group], [*names, *statuses], wanted)


def _role(name: str, rules: list[Manifest]) -> Manifest:
    return make_object(f"{RBAC}/v1", "ClusterRole", name, rules=rules)
