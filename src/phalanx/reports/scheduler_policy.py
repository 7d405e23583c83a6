"""Policy and scheduler names of a dry run: those of the running scheduler, if readable."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import msgspec

from phalanx.daemon.controllers.policy_record import (
    FORMER_NAME,
    FORMER_NAMES_KEY,
    FORMER_POLICY_KEY,
    NAME,
    PublishedPolicy,
    published_policies,
)
from phalanx.daemon.policy_file import parse_policy, read_policy_text
from phalanx.kube.client import KubeClient
from phalanx.kube.core_resources import CONFIG_MAPS
from phalanx.kube.errors import ApiError, ConfigError, ConnectionLost
from phalanx.kube.own_objects import name_prefix
from phalanx.scheduling.framework.errors import PolicyError
from phalanx.scheduling.framework.policy import Policy

#: Seconds between two checks whether the scheduler changed its policy.
LOOK_PERIOD = 30.0
#: Default names of a scheduler.
DEFAULT_NAMES = ("phalanx",)


class FoundPolicy(msgspec.Struct, frozen=True):
    """Policy and the scheduler names that it serves in `spec.schedulerName`.

    `warning` states why either can differ from the scheduler's, "" if neither can.
    """

    policy: Policy
    text: str
    warning: str = ""
    scheduler_names: tuple[str, ...] = DEFAULT_NAMES


class PublicSettings(msgspec.Struct, kw_only=True):
    """Settings of the scheduler that lists of jobs need, as the page's server answers: its names, and the keys on
    pods that name their user."""

    scheduler_names: tuple[str, ...]
    user_label: str
    user_annotation: str


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
            published, several = await _published(client, namespace, names)
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


async def _published(client: KubeClient, namespace: str, names: tuple[str, ...]) -> tuple[PublishedPolicy, str]:
    """Return the policy that the scheduler with these names publishes, and a warning if several schedulers could be
    meant. Without names it is the scheduler `phalanx`, else the first one by name. Raises ApiError, but not 404."""
    policies = published_policies(await _data(client, namespace, NAME))
    prefix = name_prefix(names or DEFAULT_NAMES)
    if prefix in policies:
        return policies[prefix], ""
    # An earlier release has written another object; the roles of this one do not permit to read it.
    try:
        former = await _data(client, namespace, f"{prefix}-{FORMER_NAME}")
    except ApiError as error:
        if error.status != 403:
            raise
        former = {}
    if former:
        served = _names_in(former.get(FORMER_NAMES_KEY))
        return PublishedPolicy(served, str(former.get(FORMER_POLICY_KEY) or "")), ""
    if names or not policies:
        return PublishedPolicy(), ""
    first, *others = policies
    warning = (
        f"{len(policies)} schedulers publish a policy ({', '.join(policies)}); using that of {first}; fix: use "
        "--scheduler-name"
        if others
        else ""
    )
    return policies[first], warning


async def _data(client: KubeClient, namespace: str, name: str) -> dict[str, Any]:
    """Return the data of a ConfigMap; empty if no scheduler has written it yet."""
    try:
        return (await client.get(CONFIG_MAPS.path(namespace, name))).get("data") or {}
    except ApiError as error:
        if error.status != 404:
            raise
        return {}


def _names_in(text: object) -> tuple[str, ...]:
    try:
        return tuple(filter(None, msgspec.json.decode(str(text or "[]"), type=list[str])))
    except msgspec.DecodeError:
        return ()


def _built_in(names: tuple[str, ...], warning: str = "") -> FoundPolicy:
    text = read_policy_text("")
    return FoundPolicy(parse_policy(text, ""), text, warning, names)
