"""The policy that a command goes by, and whose pods it is about."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from phalanx.kube.client import KubeClient
    from phalanx.scheduling.framework.policy import Policy

    ReadPolicy = Callable[[KubeClient], Awaitable[tuple[Policy, tuple[str, ...]]]]


def policy_reader(
    config: str, lease_namespace: str, scheduler_names: tuple[str, ...], *, names_only: bool = False
) -> ReadPolicy:
    """Reads the policy of `--config`, else the scheduler's as it is now, and the scheduler's names: those of
    `--scheduler-name`, else those that it says it serves. Whoever gets another is warned, once.
    Lists that only ask how users and the like are called (`names_only`) go without a word where it may not be read.

    Raises click.ClickException for a file that holds none.
    """
    from phalanx.reports.scheduler_policy import SchedulerPolicy
    from phalanx.scheduling.framework.errors import PolicyError

    try:
        source = SchedulerPolicy(config)
    except PolicyError as error:
        raise click.ClickException(str(error)) from error
    warned = set[str]()

    async def read(client: KubeClient) -> tuple[Policy, tuple[str, ...]]:
        found = await source.read(client, lease_namespace, scheduler_names)
        if found.warning and not names_only and found.warning not in warned:
            warned.add(found.warning)
            click.echo(f"warning: {found.warning}", err=True)
        return found.policy, found.scheduler_names

    return read
