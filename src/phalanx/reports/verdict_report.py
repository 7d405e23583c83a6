"""Verdict of `phalanx why`, from a dry run over the live cluster."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from phalanx.daemon.policy_file import dialect_options
from phalanx.model.gang import GangKey
from phalanx.reports.read_promises import read_promises
from phalanx.reports.snapshot import read_cluster
from phalanx.reports.stored_usage import read_usage
from phalanx.reports.why import WhyReport
from phalanx.reports.why_answer import WhyAnswer
from phalanx.reports.why_target import DryRunAnswers, WhyTarget

if TYPE_CHECKING:
    from phalanx.kube.client import KubeClient
    from phalanx.scheduling.framework.policy import Policy


async def read_verdict(
    client: KubeClient,
    policy: Policy,
    names: tuple[str, ...],
    lease_namespace: str,
    target: tuple[str, str, str],
    *,
    warn: Callable[[str], object] = lambda warning: None,
    seconds: float = 30.0,
) -> WhyAnswer:
    """Return the verdict of a gang, job or pod by a dry run: `target` is (namespace, kind, name).

    The kind is "" if it is unknown. `warn` receives a line per object that could not be read. A start is searched
    for at most `seconds`. Raises TargetError if the object does not exist.
    """
    snapshot = await read_cluster(client, names, dialect_options(policy), lease_namespace)
    await read_usage(client, snapshot, policy, lease_namespace, names)
    for text in snapshot.missing:
        warn(f"cannot read {text}")
    promises, now = await read_promises(client, lease_namespace, names), time.time()
    report = WhyReport(snapshot, policy, now, promises)
    answer = await WhyTarget(client, DryRunAnswers(report), *target).answer()
    if answer.waits:
        namespace_of, _, gang = answer.gang.partition("/")
        unit = GangKey(namespace_of, gang) if gang else answer.uid
        for text in promises.warnings(now):
            warn(text)
        deadline = time.monotonic() + seconds
        answer.start = report.start(unit, lambda: time.monotonic() >= deadline)
    return answer
