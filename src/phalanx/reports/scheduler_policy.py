"""Policy and scheduler names of a dry run: those of the running scheduler, if readable."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import msgspec

from phalanx.daemon.controllers.policy_record import NAME
from phalanx.daemon.policy_file import parse_policy, read_policy_text
from phalanx.kube.client import KubeClient
from phalanx.kube.errors import ApiError, ConfigError, ConnectionLost
from phalanx.reports.published_policy import DEFAULT_NAMES, published_policy
from phalanx.scheduling.framework.errors import PolicyError
from phalanx.scheduling.framework.policy import Policy

#: Seconds between two checks whether the scheduler changed its policy.
LOOK_PERIOD = 30.0


class FoundPolicy(msgspec.Struct, frozen=True):
    """Policy and the scheduler names that it serves in `spec.schedulerName`.

    `warning` states why either can differ from the scheduler's, "" if neither can.
    """

    policy: Policy
    text: str
    warning: str = ""
    scheduler_names: tuple[str, ...] = DEFAULT_NAMES


class SchedulerPolicy:
    """Source of the policy: a file, which is read at once; without a file the scheduler's record; without a record
    the built-in policy.
    """

    def __init__(self, path: str) -> None:
        """Read the policy file at `path`. Raises PolicyError."""
        self._given: FoundPolicy | None = None
        if path:
            text = read_policy_text(path)
            self._given = FoundPolicy(parse_policy(text, path), text)

    async def read(self, client: KubeClient, namespace: str, scheduler_names: Sequence[str] = ()) -> FoundPolicy:
        """Return the policy and the scheduler names.

        `namespace` is that of the scheduler's lease. Without given names, all names that the scheduler `phalanx`
        publishes count.
        """
        names = tuple(scheduler_names)
        if self._given is not None and names:
            return msgspec.structs.replace(self._given, scheduler_names=names)
        where = f"configmap {namespace}/{NAME}, the policies of the schedulers"
        try:
            published, several = await published_policy(client, namespace, names)
        except ApiError as error:
            if error.status != 403:
                raise
            return self._without_record(f"not read: {where}: {error.message}", names)
        names = names or tuple(filter(None, published.scheduler_names)) or DEFAULT_NAMES
        if self._given is not None:
            return msgspec.structs.replace(self._given, scheduler_names=names, warning=several)
        if not published.policy:
            return _built_in(names)
        try:
            return FoundPolicy(parse_policy(published.policy, where), published.policy, several, names)
        except PolicyError as error:
            return _built_in(names, f"not used: {error}; using the built-in policy. Fix: use --config")

    def _without_record(self, failure: str, names: tuple[str, ...]) -> FoundPolicy:
        """Return the given names and policy, else the built-in ones, because the scheduler's record is
        unreadable."""
        unknown = "" if names else f"assuming schedulerName {DEFAULT_NAMES[0]}; fix: use --scheduler-name"
        names = names or DEFAULT_NAMES
        if self._given is not None:
            return msgspec.structs.replace(self._given, warning=f"{failure}; {unknown}", scheduler_names=names)
        words = filter(None, (failure, "using the built-in policy; fix: use --config", unknown))
        return _built_in(names, "; ".join(words))

    async def until_another(
        self, found: FoundPolicy, client: KubeClient, namespace: str, scheduler_names: Sequence[str]
    ) -> None:
        """Return when the scheduler's policy or names differ from `found`.

        An unreadable record counts as unchanged.
        """
        while True:
            await asyncio.sleep(LOOK_PERIOD)
            try:
                now = await self.read(client, namespace, scheduler_names)
            except (ApiError, ConnectionLost, ConfigError):
                continue
            if (now.text, now.scheduler_names) != (found.text, found.scheduler_names) and not now.warning:
                return


def _built_in(names: tuple[str, ...], warning: str = "") -> FoundPolicy:
    text = read_policy_text("")
    return FoundPolicy(parse_policy(text, ""), text, warning, names)
