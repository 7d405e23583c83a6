"""Scheduler's policy and names that a command uses."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from phalanx.kube.client import KubeClient
    from phalanx.reports.scheduler_policy import FoundPolicy
    from phalanx.scheduling.framework.policy import Policy

    ReadPolicy = Callable[[KubeClient], Awaitable[tuple[Policy, tuple[str, ...]]]]
    FindPolicy = Callable[[KubeClient], Awaitable[FoundPolicy]]


def policy_reader(config: str, lease_namespace: str, scheduler_names: tuple[str, ...]) -> ReadPolicy:
    """Return a function that reads the scheduler's policy and names.

    The policy is the file `config`, else the scheduler's current policy. The names are `scheduler_names`, else
    those that the scheduler publishes. A differing policy prints a warning once.

    Raises click.ClickException for an invalid policy file.
    """
    find = policy_finder(config, lease_namespace, scheduler_names)

    async def read(client: KubeClient) -> tuple[Policy, tuple[str, ...]]:
        scheduler_policy = await find(client)
        return scheduler_policy.policy, scheduler_policy.scheduler_names

    return read


def policy_finder(config: str, lease_namespace: str, scheduler_names: tuple[str, ...]) -> FindPolicy:
    """Return a function that reads the policy with its text and the scheduler names; see `policy_reader`."""
    from phalanx.reports.scheduler_policy import SchedulerPolicy
    from phalanx.scheduling.framework.errors import PolicyError

    try:
        source = SchedulerPolicy(config)
    except PolicyError as error:
        raise click.ClickException(str(error)) from error
    warned = set[str]()

    async def find(client: KubeClient) -> FoundPolicy:
        scheduler_policy = await source.read(client, lease_namespace, scheduler_names)
        if scheduler_policy.warning and scheduler_policy.warning not in warned:
            warned.add(scheduler_policy.warning)
            click.echo(f"warning: {scheduler_policy.warning}", err=True)
        return scheduler_policy

    return find
