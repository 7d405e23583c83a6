"""`phalanx why`: the verdict, from the live cluster."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click

from phalanx.cli.connection import connection_options, namespace_option, output_option, scheduler_options
from phalanx.cli.explanation.dispatched_lines import dispatch_answer, dispatch_lines, dispatch_of
from phalanx.cli.explanation.eviction_lines import eviction_lines
from phalanx.cli.invocation import Invocation, pass_invocation
from phalanx.cli.jobs.starts import start_lines

if TYPE_CHECKING:
    from phalanx.kube.client import KubeClient
    from phalanx.reports.why_answer import GangSize, WhyAnswer

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
_COMPOSITE_WORDS = frozenset({"compositepodgroup", "compositepodgroups", "cpg", "composite"})


@dataclass(frozen=True, kw_only=True)
class WhyArguments:
    """Arguments of `phalanx why`; `target` are the words that `parse_target` reads."""

    target: tuple[str, ...]
    namespace: str | None


@click.command()
@click.argument("target", metavar="[KIND/]NAME", nargs=-1, required=True)
@namespace_option
@pass_invocation(WhyArguments, connection_options, scheduler_options("to judge"), output_option)
def why(invocation: Invocation, arguments: WhyArguments) -> None:
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

    from phalanx.cli.listing.harmless import harmless_lines

    kind, name = parse_target(arguments.target)
    read_policy = invocation.policy_reader()

    async def work(client: KubeClient) -> WhyAnswer | dict[str, Any]:
        from phalanx.cli.explanation.verdict import read_verdict

        where = arguments.namespace or client.namespace
        sent = await dispatch_of(client, where, name) if kind in ("gang", "") else None
        if sent is not None:
            return dispatch_answer(sent)
        return await read_verdict(
            client, *await read_policy(client), invocation.lease_namespace, (where, kind, name)
        )

    answer = invocation.run(work)
    # The answer is a dict for a gang that was left to a hub, when this is the hub's cluster.
    if invocation.prints_table:
        lines = "\n".join(dispatch_lines(answer)) if isinstance(answer, dict) else render(answer)
        click.echo(harmless_lines(lines))
    else:
        invocation.print_document(answer if isinstance(answer, dict) else msgspec.to_builtins(answer))


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
        minimum = answer.minimum if answer.reason != "PodGroupNotFound" else "unknown"
        lines.append(
            f"  Gang {answer.gang_name or answer.gang}: minimum {minimum}; members: {', '.join(parts) or 'none'}"
        )
        # A member above the minimum, or a pod on its own, keeps nobody from starting.
        if answer.missing and answer.state.waits and answer.members.active < answer.minimum:
            lines.append(f"  Missing: {answer.missing} of the members that must start together")
    if answer.start is not None:
        lines.extend(f"  {line}" for line in start_lines(answer.start, time.time()))
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
