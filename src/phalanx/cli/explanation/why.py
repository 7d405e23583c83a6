"""Command `phalanx why`: verdict of a waiting pod or gang, from the live cluster."""

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
from phalanx.cli.server.options import server_options
from phalanx.cli.server.rights import by_rights
from phalanx.model.text.decoding import quoted

if TYPE_CHECKING:
    from phalanx.cli.server.requests import Server
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
    """Arguments of `phalanx why`; `target` are the words that `parse_target` parses."""

    target: tuple[str, ...]
    namespace: str | None


@click.command()
@click.argument("target", metavar="[KIND/]NAME", nargs=-1, required=True)
@namespace_option
@pass_invocation(WhyArguments, connection_options, server_options, scheduler_options("are judged"), output_option)
def why(invocation: Invocation, arguments: WhyArguments) -> None:
    """Explain why a pod or gang waits, with the smallest change that would start it.

    KIND is pod, podgroup or compositepodgroup (short: po, pg, cpg); a gang that is declared by labels is a
    podgroup too. For a job (native or Volcano; vcjob: only Volcano), replicaset or statefulset the answer is
    about its missing or waiting pods. Jobsets, pytorchjobs, rayjobs, trainjobs and other owners of gangs work
    too, whatever the name of their PodGroup. NAME alone is a gang as in `phalanx jobs`, else a job or pod.

    The answer comes from a dry run over the live cluster, so it is current even if no scheduler runs. Nothing
    is changed.

    At a hub, a dispatched podgroup is explained by the answers of the member clusters and the selected cluster.

    If room is missing, the answer lists the pods that are or would be evicted, or the protected pods that block
    it. For an evicted pod or gang it names the preemptor, also after its deletion (while its events exist).

    \b
    phalanx why pod/worker-0 -n training
    phalanx why podgroup/tf-smoke-gpu
    phalanx why job/train
    phalanx why train
    """
    import msgspec

    from phalanx.cli.explanation.conditions import condition_lines
    from phalanx.cli.listing.harmless import harmless_lines

    kind, name = parse_target(arguments.target)

    def warn(warning: str) -> None:
        click.echo(f"warning: {warning}", err=True)

    async def dry_run(client: KubeClient) -> WhyAnswer | dict[str, Any]:
        from phalanx.reports.verdict_report import read_verdict
        from phalanx.reports.why_target import TargetError

        target = (arguments.namespace or client.namespace, kind, name)
        try:
            return await read_verdict(
                client, *await invocation.read_policy(client), invocation.lease_namespace, target, warn=warn
            )
        except TargetError as error:
            raise click.ClickException(str(error)) from error

    async def work(client: KubeClient) -> WhyAnswer | dict[str, Any]:
        namespace = arguments.namespace or client.namespace
        dispatch = await dispatch_of(client, namespace, name) if kind in ("gang", "") else None
        if dispatch is not None:
            return dispatch_answer(dispatch)

        async def ask(server: Server) -> WhyAnswer | dict[str, Any]:
            from phalanx.reports.why_answer import WhyAnswer

            return await server.get("commands/why", WhyAnswer, {"namespace": namespace, "kind": kind, "name": name})

        async def conditions(client: KubeClient, line: str) -> dict[str, Any]:
            from phalanx.cli.explanation.conditions import read_conditions

            document = await read_conditions(client, namespace, kind, name)
            click.echo(f"warning: {harmless_lines(line)}; these are the last written conditions", err=True)
            return document

        return await by_rights(invocation, dry_run, ask, conditions)(client)

    answer = invocation.run(work)
    # A document is the answer of a hub about a dispatched gang, or has the conditions of the PodGroup.
    if not invocation.prints_table:
        invocation.print_document(answer if isinstance(answer, dict) else msgspec.to_builtins(answer))
    elif isinstance(answer, dict):
        lines = condition_lines(answer) if "objects" in answer else dispatch_lines(answer)
        click.echo(harmless_lines("\n".join(lines)))
    else:
        click.echo(harmless_lines(render(answer)))


def render(answer: WhyAnswer) -> str:
    """Format the answer of `phalanx why` as text: state and message, counts, then the fix."""
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
        if answer.object:
            lines.append(f"  Object: {answer.object}")
        # Members above the minimum do not keep the gang from starting, so their absence is not reported.
        if answer.missing and answer.state.waits and answer.members.active < answer.minimum:
            lines.append(f"  Missing: {answer.missing} of {answer.minimum} required members")
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
        lines.append(f"  Fix: {answer.change}")
    return "\n".join(lines)


def _size_lines(size: GangSize) -> list[str]:
    limit = f", at limit {size.maximum}" if size.maximum else ""
    since = f"; last change at {size.changed}" if size.changed else ""
    lines = [f"  Size: {size.placed} of {size.desired} members have nodes (minimum {size.minimum}{limit}){since}"]
    if size.expected:
        until = f" until {size.expected_until}" if size.expected_until else ""
        lines.append(f"  Reserved: room for {size.expected} members that its leader will create{until}")
    return lines


def parse_target(target: tuple[str, ...]) -> tuple[str, str]:
    """Parse the target of `phalanx why`, which is NAME, KIND/NAME or KIND NAME, to (kind, name).

    The kind is "", pod, gang, composite, or an owner's kind. Raises click.UsageError.
    """
    from phalanx.reports.owner_kinds import job_words

    words = target[0].split("/", 1) if len(target) == 1 else list(target)
    if len(words) > 2 or not all(words):
        raise click.UsageError(
            "invalid target; write NAME or KIND/NAME, such as pod/worker-0 or podgroup/tf-smoke-gpu"
        )
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
    raise click.UsageError(f"unknown kind {quoted(words[0])}; expected {expected}, or one of {others}")
