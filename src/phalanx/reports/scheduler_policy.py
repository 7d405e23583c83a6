"""The policy that a dry run goes by, and the names of the scheduler: its own, as far as they can be known."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import msgspec

from phalanx.daemon.controllers.policy_record import DATA_KEY, NAME, NAMES_KEY
from phalanx.daemon.policy_file import parse_policy, read_policy_text
from phalanx.kube.client import KubeClient
from phalanx.kube.core_resources import CONFIG_MAPS
from phalanx.kube.errors import ApiError, ConfigError, ConnectionLost
from phalanx.kube.own_objects import name_prefix
from phalanx.scheduling.framework.errors import PolicyError
from phalanx.scheduling.framework.policy import Policy

#: Seconds between two looks whether the scheduler goes by another policy.
LOOK_PERIOD = 30.0
#: The names of a scheduler that says nothing else.
DEFAULT_NAMES = ("phalanx",)


class FoundPolicy(msgspec.Struct, frozen=True):
    """With the names that the scheduler serves in `spec.schedulerName`. `warning` says why either may be another
    than the scheduler's, "" where it is not."""

    policy: Policy
    text: str
    warning: str = ""
    scheduler_names: tuple[str, ...] = DEFAULT_NAMES


class SchedulerPolicy:
    """That of a file, which is read at once, else (`path` is "") what the scheduler says it goes by, else the
    built-in one."""

    def __init__(self, path: str) -> None:
        """Raises PolicyError."""
        self._given: FoundPolicy | None = None
        if path:
            text = read_policy_text(path)
            self._given = FoundPolicy(parse_policy(text, path), text)

    async def read(self, client: KubeClient, namespace: str, scheduler_names: Sequence[str] = ()) -> FoundPolicy:
        """`namespace` is that of the lease of the scheduler. The names are those that are given; where none are,
        all that the scheduler called `phalanx` says it serves."""
        names = tuple(scheduler_names)
        if self._given is not None and names:
            return msgspec.structs.replace(self._given, scheduler_names=names)
        name = f"{name_prefix(names or DEFAULT_NAMES)}-{NAME}"
        where = f"configmap {namespace}/{name}, the scheduler's policy"
        data: dict[str, Any] = {}
        try:
            data = (await client.get(CONFIG_MAPS.path(namespace, name))).get("data") or {}
        except ApiError as error:
            if error.status == 403:
                told = f"not read: {where}: {error.message}"
                return self._without_record(told, names)
            if error.status != 404:  # else no scheduler has run here yet, or an older one
                raise
        names = names or _published_names(data)
        if self._given is not None:
            return msgspec.structs.replace(self._given, scheduler_names=names)
        text = data.get(DATA_KEY)
        if not isinstance(text, str) or not text:
            return _built_in(names)
        try:
            return FoundPolicy(parse_policy(text, where), text, scheduler_names=names)
        except PolicyError as error:
            return _built_in(names, f"not used: {error}; the built-in one is used, or give --config")

    def _without_record(self, told: str, names: tuple[str, ...]) -> FoundPolicy:
        """What is left to whoever may not read the record: what was given, else what is built in."""
        unknown = "" if names else f"pods with schedulerName {DEFAULT_NAMES[0]} are meant, or give --scheduler-name"
        names = names or DEFAULT_NAMES
        if self._given is not None:
            return msgspec.structs.replace(self._given, warning=f"{told}; {unknown}", scheduler_names=names)
        words = filter(None, (told, "the built-in one is used, or give --config", unknown))
        return _built_in(names, "; ".join(words))

    async def until_another(
        self, found: FoundPolicy, client: KubeClient, namespace: str, scheduler_names: Sequence[str]
    ) -> None:
        """Returns when `read` gives another policy, or other names, than `found`. Where nothing can be read that
        one stands."""
        while True:
            await asyncio.sleep(LOOK_PERIOD)
            try:
                now = await self.read(client, namespace, scheduler_names)
            except (ApiError, ConnectionLost, ConfigError):
                continue
            if (now.text, now.scheduler_names) != (found.text, found.scheduler_names) and not now.warning:
                return


def _published_names(data: dict[str, Any]) -> tuple[str, ...]:
    """Those of an older scheduler, which tells none, are the default."""
    try:
        names = msgspec.json.decode(data.get(NAMES_KEY) or "[]", type=list[str])
    except (msgspec.DecodeError, TypeError):
        names = []
    return tuple(filter(None, names)) or DEFAULT_NAMES


def _built_in(names: tuple[str, ...], warning: str = "") -> FoundPolicy:
    text = read_policy_text("")
    return FoundPolicy(parse_policy(text, ""), text, warning, names)
