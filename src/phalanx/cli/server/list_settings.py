"""Settings of the scheduler for lists of jobs: read with the user's own rights, else answered by the server."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click
import msgspec

if TYPE_CHECKING:
    from phalanx.cli.invocation import Invocation
    from phalanx.kube.client import KubeClient
    from phalanx.reports.published_policy import ListSettings


async def list_settings(
    invocation: Invocation, client: KubeClient, *, required: bool = False
) -> tuple[ListSettings, str]:
    """Return the settings, and a warning if a published server failed to answer for a user who cannot read them.

    With `required` such a server raises click.ClickException.
    """
    settings = await invocation.list_settings(client)
    if settings.readable:
        return settings, ""
    try:
        return await _published_settings(invocation, client, settings) or settings, ""
    except click.ClickException as error:
        if required:
            raise
        names = ", ".join(settings.scheduler_names)
        fix = "" if invocation.scheduler_names else "; fix: use --scheduler-name"
        warning = f"not read: the scheduler's policy; {error.message}"
        return settings, f"{warning}; assuming schedulerName {names}, users are unknown{fix}"


async def served_scheduler_names(invocation: Invocation, client: KubeClient) -> frozenset[str] | None:
    """Return the names that schedulers serve, read with the user's own rights, else as the published server
    answers; None if neither is known."""
    from phalanx.kube.errors import ApiError
    from phalanx.reports import published_policy

    try:
        return await published_policy.served_scheduler_names(client, invocation.lease_namespace)
    except ApiError as error:
        if error.status != 403:
            raise
    try:
        unread = await invocation.list_settings(client)
        answered = await _published_settings(invocation, client, unread)
    except click.ClickException:
        return None
    return frozenset(answered.scheduler_names) if answered is not None else None


async def _published_settings(
    invocation: Invocation, client: KubeClient, settings: ListSettings
) -> ListSettings | None:
    """Return `settings` with the values that the server answers; None without a published server. Raises
    click.ClickException."""
    from phalanx.cli.server.choice import find_server
    from phalanx.cli.server.requests import ServerUnavailable
    from phalanx.reports.published_policy import PublicSettings

    server = await find_server(client, invocation.client)
    if server is None:
        return None
    question = {"own": client.namespace}
    try:
        answer = await server.get("commands/settings", PublicSettings, question)
    except ServerUnavailable as error:
        raise click.ClickException(str(error)) from error
    dialects = msgspec.structs.replace(
        settings.dialects, user_label=answer.user_label, user_annotation=answer.user_annotation
    )
    names = invocation.scheduler_names or answer.scheduler_names or settings.scheduler_names
    return msgspec.structs.replace(settings, dialects=dialects, scheduler_names=names, readable=True)
