"""Verdict of `phalanx why`, from a dry run over the live cluster."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import click

from phalanx.cli.connection import time_limit
from phalanx.daemon.policy_file import dialect_options
from phalanx.model.gang import GangKey
from phalanx.reports.read_promises import read_promises
from phalanx.reports.snapshot import read_cluster
from phalanx.reports.stored_usage import read_usage
from phalanx.reports.why import WhyReport
from phalanx.reports.why_answer import WhyAnswer
from phalanx.reports.why_target import DryRunAnswers, TargetError, WhyTarget

if TYPE_CHECKING:
    from phalanx.kube.client import KubeClient
    from phalanx.scheduling.framework.policy import Policy


async def read_verdict(
    client: KubeClient,
    policy: Policy,
    names: tuple[str, ...],
    lease_namespace: str,
    target: tuple[str, str, str],
) -> WhyAnswer:
    """Return the verdict of a gang, job or pod by a dry run: `target` is (namespace, kind as `parse_target` returns
    it, name).

    Raises click.ClickException if the object does not exist.
    """
    snapshot = await read_cluster(client, names, dialect_options(policy), lease_namespace)
    await read_usage(client, snapshot, policy, lease_namespace, names)
    for text in snapshot.missing:
        click.echo(f"warning: cannot read {text}", err=True)
    promises, now = await read_promises(client, lease_namespace, names), time.time()
    report = WhyReport(snapshot, policy, now, promises)
    try:
        answer = await WhyTarget(client, DryRunAnswers(report), *target).answer()
    except TargetError as error:
        raise click.ClickException(str(error)) from error
    if answer.waits:
        namespace_of, _, gang = answer.gang.partition("/")
        unit = GangKey(namespace_of, gang) if gang else answer.uid
        for text in promises.warnings(now):
            click.echo(f"warning: {text}", err=True)
        answer.start = report.start(unit, time_limit())
    return answer
