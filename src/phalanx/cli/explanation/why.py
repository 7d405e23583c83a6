"""`phalanx why`: the verdict, from the live cluster."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import click

from phalanx.cli.connection import (
    connection_options,
    lease_namespace_option,
    namespace_option,
    output_option,
    policy_option,
    scheduler_names_option,
    time_limit,
)
from phalanx.cli.explanation.dispatched_lines import dispatch_answer, dispatch_lines, dispatch_of
from phalanx.cli.explanation.eviction_lines import eviction_lines
from phalanx.cli.jobs.starts import start_lines

if TYPE_CHECKING:
    from phalanx.kube.client import KubeClient
    from phalanx.reports.why import GangSize, WhyAnswer

_POD_WORDS = frozenset({"pod", "pods", "po"})
_GANG_WORDS = frozenset({"podgroup", "podgroups", "pg", "pgs", "gang", "gangs", "group", "workload", "workloads"})
_OWNER_WORDS = {
    "job": "job",
    "jobs": "job",
    "vcjob": "vcjob",
    "vcjobs": "vcjob",
    "vj": "vcjob",
    "replicaset": "replicaset",
    "replicasets": "replicaset",
    "rs": "replicaset",
    "statefulset": "statefulset",
    "statefulsets": "statefulset",
    "sts": "statefulset",
}
# Of these the name is that of the object itself; the others have ways of their own to what they own.
_NO_OWNERS = frozenset({"pod", "gang", "composite", *_OWNER_WORDS.values()})
_COMPOSITE_WORDS = frozenset({"compositepodgroup", "compositepodgroups", "cpg", "composite"})


_OTHERS_NAMED = 5
_NOUNS = {
    "": "gang, job or pod",
    "pod": "pod",
    "gang": "group object or pod that declares a gang",
    "composite": "CompositePodGroup",
    **{kind: kind for kind in _OWNER_WORDS.values()},
}


@click.command()
@click.argument("target", metavar="[KIND/]NAME", nargs=-1, required=True)
@namespace_option
@connection_options
@scheduler_names_option("to judge")
@policy_option
@lease_namespace_option
@output_option
def why(
    target: tuple[str, ...],
    namespace: str | None,
    kubeconfig: str | None,
    scheduler_names: tuple[str, ...],
    config: str,
    lease_namespace: str,
    output: str,
) -> None:
    """Say why a pod or a group waits, and the smallest change that would help.

    KIND is pod, podgroup or compositepodgroup (short: po, pg, cpg); a gang that only labels declare is a podgroup
    too. Of a job (Kubernetes' or Volcano's; vcjob only the latter), replicaset or statefulset it says why its pods
    do not exist or wait; a jobset, pytorchjob, rayjob, trainjob or whatever else has pods that start together is
    asked about in the same way, also where its operator makes the PodGroup, whatever that is called. NAME alone is
    a gang as `phalanx jobs` shows it, or else a job or a pod.

    The answer comes from a dry run over the live cluster, so it is current even while no scheduler runs. Nothing is
    changed.

    Of a podgroup that was left to a hub it says, at the hub, which clusters were asked, what each answered,
    where it is and why.

    Of what waits for room it also says who leaves or would be evicted for it, or who would have to go and may not.
    Of a pod or a group that was evicted it says for whom, also after it is gone (as long as its events are kept).

    \b
    phalanx why pod/worker-0 -n training
    phalanx why podgroup/tf-smoke-gpu
    phalanx why job/train
    phalanx why train
    """
    import msgspec

    from phalanx.cli.connection import print_structured, run_connected
    from phalanx.cli.listing.harmless import harmless_lines
    from phalanx.cli.scheduler_policy import policy_reader

    kind, name = parse_target(target)
    read_policy = policy_reader(config, lease_namespace, scheduler_names)

    async def work(client: KubeClient) -> WhyAnswer | dict[str, Any]:
        from phalanx.daemon.policy_file import dialect_options
        from phalanx.model.gang import GangKey, shown_name
        from phalanx.reports.gang_names import AmbiguousGangError
        from phalanx.reports.missing_pods import add_missing_pods, why_owner
        from phalanx.reports.owners import OwnerReader, add_suspended_job, below, without_pods
        from phalanx.reports.past_evictions import add_past_eviction, add_past_gang_eviction
        from phalanx.reports.promised_starts import read_plan
        from phalanx.reports.snapshot import read_cluster
        from phalanx.reports.stored_usage import read_usage
        from phalanx.reports.why import WhyReport

        if kind in ("gang", ""):
            sent = await dispatch_of(client, namespace or client.namespace, name)
            if sent is not None:
                return dispatch_answer(sent)
        policy, names = await read_policy(client)
        snapshot = await read_cluster(client, names, dialect_options(policy), lease_namespace)
        await read_usage(client, snapshot, policy, lease_namespace, names)
        for text in snapshot.missing:
            click.echo(f"warning: not read: {text}", err=True)
        stored = await read_plan(client, lease_namespace, names)
        report = WhyReport(snapshot, policy, time.time(), stored)
        where = namespace or client.namespace
        answer = None
        owners = OwnerReader(client, where)
        try:
            gangs = report.gangs_called(where, name, "" if kind in ("gang", "") else kind)
            owned = await below(owners, name, kind) if not gangs and kind not in _NO_OWNERS else set()
            gangs = gangs or report.gangs_below(owned)
        except AmbiguousGangError as error:
            raise click.ClickException(str(error)) from error
        if kind == "pod":
            answer = await add_past_eviction(client, where, name, report.pod(where, name))
        elif kind == "composite":
            answer = report.composite(GangKey(where, name))
        elif kind in _OWNER_WORDS:
            answer = await why_owner(client, report, kind, where, name)
        elif gangs or kind == "gang":
            key = gangs[0] if gangs else GangKey(where, name)
            answer = await add_past_gang_eviction(client, where, key.name, report.gang(key))
            answer = await add_missing_pods(client, answer, report.object_path(key), report.member_uids(key))
            answer = await add_suspended_job(owners, answer)
            if answer is not None and len(gangs) > 1:
                others = ", ".join(shown_name(each.name) for each in gangs[1:_OTHERS_NAMED])
                answer.warnings.append(f"it is one of {len(gangs)} gangs of {name}: {others}")
        elif owned:
            answer = report.pods_below(kind, where, name, owned)
        if answer is None and kind in ("gang", ""):
            # It is a job without a gang, or one whose pods are another scheduler's.
            answer = await why_owner(client, report, "job", where, name)
        if answer is None and not kind:
            answer = report.pod(where, name)
        if answer is None:
            what = _NOUNS.get(kind, kind)
            told = await without_pods(owners, name, kind) if kind not in _NO_OWNERS else ""
            raise click.ClickException(told or f"no {what} {name!r} in namespace {where!r}")
        if answer.waits:
            namespace_of, _, gang = answer.gang.partition("/")
            who = GangKey(namespace_of, gang) if gang else answer.uid
            if stored.warning:
                click.echo(f"warning: {stored.warning}", err=True)
            answer.start = report.start(who, time_limit())
        return answer

    answer = run_connected(work, kubeconfig)
    if isinstance(answer, dict):
        # It was left to a hub, and this is its cluster.
        if output == "table":
            click.echo(harmless_lines("\n".join(dispatch_lines(answer))))
        else:
            print_structured(answer, output)
        return
    if output == "table":
        click.echo(harmless_lines(render(answer)))
    else:
        print_structured(msgspec.to_builtins(answer), output)


def render(answer: WhyAnswer) -> str:
    """The answer as people read it: the sentence first, then the counts, then what would help."""
    lines = [
        f"{answer.kind} {answer.name}: {answer.state}"
        + (f", {answer.forecast.words}" if answer.forecast else "")
        + (f" ({answer.reason})" if answer.reason not in ("", answer.state) else "")
    ]
    lines.append(f"  {answer.message}")
    if answer.nodes:
        lines.append("  Nodes:")
        width = len(str(max(part.count for part in answer.nodes)))
        lines.extend(f"    {part.count:>{width}}  {part.reason}" for part in answer.nodes)
    if answer.members is not None:
        counts = answer.members
        parts = [
            f"{value} {word}"
            for word, value in (
                ("pending", counts.pending),
                ("gated", counts.gated),
                ("of another scheduler", counts.other_scheduler),
                ("being bound", counts.assumed),
                ("bound", counts.bound),
                ("running", counts.running),
                ("succeeded", counts.succeeded),
                ("failed", counts.failed),
                ("terminating", counts.terminating),
            )
            if value
        ]
        from phalanx.model.gang import GangKey

        gang = GangKey(*answer.gang.split("/", 1))
        minimum = answer.minimum if answer.reason != "PodGroupNotFound" else "unknown"
        lines.append(f"  Gang {gang}: minimum {minimum}; members: {', '.join(parts) or 'none'}")
        # A member above the minimum, or a pod on its own, keeps nobody from starting.
        if answer.missing and answer.state.waits and answer.members.active < answer.minimum:
            lines.append(f"  Missing: {answer.missing} of the members that must start together")
    if answer.start is not None:
        from phalanx.cli.listing.ages import age

        old = age(answer.start.planned_at, time.time())
        lines.extend(f"  {line}" for line in start_lines(answer.start, old))
    if answer.size is not None:
        lines.extend(_size_lines(answer.size))
    if answer.run_time is not None:
        lines.extend(f"  {line}" for line in answer.run_time.lines())
    if answer.domain:
        lines.append(f"  Domain: {answer.domain}")
    if answer.composite:
        lines.append(f"  Part of CompositePodGroup {answer.composite}")
    lines.extend(f"  Group {group.name}: {group.state}; {group.message}" for group in answer.groups)
    if answer.loss is not None and answer.loss.message not in answer.message:
        loss = answer.loss
        lines.append(f"  {loss.told if loss.pods else f'Lost members at {loss.since}'}: {loss.message}")
    if answer.evictions is not None:
        lines.extend(f"  {line}" for line in eviction_lines(answer.evictions))
    lines.extend(f"  Warning: {warning}" for warning in answer.warnings)
    if answer.change:
        lines.append(f"  What would help: {answer.change}")
    return "\n".join(lines)


def _size_lines(size: GangSize) -> list[str]:
    most = f", at most {size.maximum}" if size.maximum else ""
    since = f"; the last got its node at {size.changed}" if size.changed else ""
    lines = [f"  Size: {size.placed} of {size.desired} members have nodes (minimum {size.minimum}{most}){since}"]
    if size.expected:
        until = f" until {size.expected_until}" if size.expected_until else ""
        lines.append(f"  Held: room for {size.expected} members that its leader is going to make{until}")
    return lines


def parse_target(target: tuple[str, ...]) -> tuple[str, str]:
    """NAME, KIND/NAME or KIND NAME; ("" | pod | gang | composite | the kind of an owner, name)."""
    from phalanx.reports.owner_kinds import job_words

    words = target[0].split("/", 1) if len(target) == 1 else list(target)
    if len(words) > 2 or not all(words):
        raise click.UsageError("expected NAME or KIND/NAME, such as pod/worker-0 or podgroup/tf-smoke-gpu")
    if len(words) == 1:
        return "", words[0]
    kind, _, group = words[0].lower().partition(".")
    if kind in _POD_WORDS:
        return "pod", words[1]
    if kind in _GANG_WORDS:
        return "gang", words[1]
    if kind in _COMPOSITE_WORDS:
        return "composite", words[1]
    if kind in _OWNER_WORDS:
        return "vcjob" if group.endswith("batch.volcano.sh") else _OWNER_WORDS[kind], words[1]
    owners = job_words()
    if kind in owners:
        return owners[kind], words[1]
    if "/" in words[1]:
        return "", "/".join(words)
    expected = "pod, podgroup, compositepodgroup, job, vcjob, replicaset, statefulset"
    others = ", ".join(sorted(set(owners.values()) - {"job"}))
    raise click.UsageError(f"unknown kind {words[0]!r}: expected {expected}, or one of {others}")
