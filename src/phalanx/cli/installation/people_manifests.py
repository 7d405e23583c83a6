"""ClusterRoles for users, bound by the cluster administrator: view, submit jobs, manage queues."""

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
from phalanx.jobs.spec import BUS

PEOPLE = ("phalanx-viewer", "phalanx-user", "phalanx-queue-editor")
_WRITE = ("create", "delete", "deletecollection", "patch", "update")
#: Quota kinds, which limit the usage of whole namespaces.
_QUOTAS = ("elasticquotas", "elasticquotatrees", "elasticquotaprofiles")


def people_roles(scheduler_rules: Iterable[Manifest]) -> list[Manifest]:
    """Return the ClusterRoles for users: viewer, job submitter, queue manager.

    `phalanx-viewer` is aggregated into the cluster role `view`; the administrator binds the others.
    `scheduler_rules` are the rules of the scheduler's ClusterRole.
    """
    viewer_name, user_name, editor_name = PEOPLE
    known_definitions = definitions()
    read = list(_kinds(known_definitions, READ))
    viewer = _role(viewer_name, [*read, *_dry_run_rules(read, scheduler_rules), records_rule()])
    viewer["metadata"]["labels"][f"{RBAC}/aggregate-to-view"] = "true"
    return [
        viewer,
        _role(
            user_name,
            [
                *job_rules(list(_WRITE)),
                *read,
                make_rule([""], ["pods", "pods/log", "events"], READ),
                make_rule(["events.k8s.io"], ["events"], READ),
                make_rule(["scheduling.k8s.io"], ["priorityclasses"], READ),
            ],
        ),
        # Not aggregated into `edit`: quotas are namespaced, so an editor could raise the own quota. (The
        # admission policy of
        # quotas checks the verb `manage`.)
        _role(
            editor_name,
            [
                *read,
                *_kinds(known_definitions, _WRITE, ("queues",)),
                *_kinds(known_definitions, (*_WRITE, "manage"), _QUOTAS),
                # `phalanx queue open|close` orders a state by a Command.
                make_rule([BUS], ["commands"], ["create"]),
            ],
        ),
    ]


def _dry_run_rules(read: Iterable[Manifest], rules: Iterable[Manifest]) -> Iterator[Manifest]:
    """Yield the scheduler's read rules that `read` does not cover; a dry run (`phalanx why`) needs them."""
    covered = {(group, name) for rule in read for group in rule["apiGroups"] for name in rule["resources"]}
    for rule in rules:
        verbs = [verb for verb in rule["verbs"] if verb in READ]
        resources = [(group, name) for group in rule["apiGroups"] for name in rule["resources"]]
        if verbs and not covered.issuperset(resources):
            yield make_rule(rule["apiGroups"], rule["resources"], verbs)


def _kinds(known: Iterable[Manifest], verbs: Iterable[str], only: tuple[str, ...] = ()) -> Iterator[Manifest]:
    """Yield access rules for the installed kinds, per API group; with status subresources if `verbs` are
    read-only."""
    groups: dict[str, list[str]] = {}
    for definition in known:
        name = definition["spec"]["names"]["plural"]
        if not only or name in only:
            groups.setdefault(definition["spec"]["group"], []).append(name)
    verb_list = list(verbs)
    for group, names in groups.items():
        statuses = [f"{name}/status" for name in names] if verb_list == list(READ) else []
        yield make_rule([group], [*names, *statuses], verb_list)


def _role(name: str, rules: list[Manifest]) -> Manifest:
    return make_object(f"{RBAC}/v1", "ClusterRole", name, rules=rules)
