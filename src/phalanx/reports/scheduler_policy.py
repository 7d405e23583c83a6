"""The policy that a dry run goes by: the scheduler's own, as far as that can be known."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import msgspec

from phalanx.daemon.controllers.policy_record import DATA_KEY, NAME
from phalanx.daemon.policy_file import parse_policy, read_policy_text
from phalanx.kube.client import KubeClient
from phalanx.kube.core_resources import CONFIG_MAPS
from phalanx.kube.errors import ApiError, ConfigError, ConnectionLost
from phalanx.kube.own_objects import name_prefix
from phalanx.scheduling.framework.errors import PolicyError
from phalanx.scheduling.framework.policy import Policy

#: Seconds between two looks whether the scheduler goes by another policy.
LOOK_PERIOD = 30.0


class FoundPolicy(msgspec.Struct, frozen=True):
    """`warning` says why it may be another than the scheduler's, "" where it is not."""

    policy: Policy
    text: str
    warning: str = ""


class SchedulerPolicy:
    """That of a file, which is read at once, else (`path` is "") what the scheduler says it goes by, else the
    built-in one."""

    def __init__(self, path: str) -> None:
        """Raises PolicyError."""
        self._given: FoundPolicy | None = None
        if path:
            text = read_policy_text(path)
            self._given = FoundPolicy(parse_policy(text, path), text)

    async def read(
        self, client: KubeClient, namespace: str, scheduler_names: Sequence[str] = ("phalanx",)
    ) -> FoundPolicy:
        """`namespace` is that of the lease of the scheduler, whose names are given."""
        if self._given is not None:
            return self._given
        name = f"{name_prefix(scheduler_names)}-{NAME}"
        where = f"configmap {namespace}/{name}, the scheduler's policy"
        try:
            document = await client.get(CONFIG_MAPS.path(namespace, name))
        except ApiError as error:
            if error.status == 404:  # no scheduler has run here yet, or an older one
                return _built_in()
            if error.status == 403:
                return _built_in(f"not read: {where}: {error.message}; the built-in one is used, or give --config")
            raise
        text = (document.get("data") or {}).get(DATA_KEY)
        if not isinstance(text, str) or not text:
            return _built_in()
        try:
            return FoundPolicy(parse_policy(text, where), text)
        except PolicyError as error:
            return _built_in(f"not used: {error}; the built-in one is used, or give --config")

    async def until_another(
        self, found: FoundPolicy, client: KubeClient, namespace: str, scheduler_names: Sequence[str]
    ) -> None:
        """Returns when `read` gives another policy than `found`. Where nothing can be read that one stands."""
        while True:
            await asyncio.sleep(LOOK_PERIOD)
            try:
                now = await self.read(client, namespace, scheduler_names)
            except (ApiError, ConnectionLost, ConfigError):
                continue
            if now.text != found.text and not now.warning:
                return


def _built_in(warning: str = "") -> FoundPolicy:
    text = read_policy_text("")
    return FoundPolicy(parse_policy(text, ""), text, warning)
