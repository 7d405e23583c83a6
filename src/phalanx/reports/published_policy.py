"""Published policy of the running scheduler, and the few settings of it that lists need.

Lists import no scheduler: they would take longer to start than to answer.
"""

from __future__ import annotations

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
from phalanx.dialects.options import DialectOptions, options_in_policy
from phalanx.kube.client import KubeClient
from phalanx.kube.core_resources import CONFIG_MAPS
from phalanx.kube.errors import ApiError
from phalanx.kube.own_objects import name_prefix

#: Default names of a scheduler.
DEFAULT_NAMES = ("phalanx",)


class ListSettings(msgspec.Struct, frozen=True):
    """Options for reading API objects, and the scheduler names. `readable` is False for the built-in ones, because
    the user cannot read the scheduler's policy."""

    dialects: DialectOptions
    scheduler_names: tuple[str, ...]
    readable: bool = True


class PublicSettings(msgspec.Struct, kw_only=True):
    """Settings of the scheduler that lists of jobs need, as the page's server answers: its names, and the keys on
    pods that name their user."""

    scheduler_names: tuple[str, ...]
    user_label: str
    user_annotation: str


async def read_list_settings(client: KubeClient, namespace: str, names: tuple[str, ...]) -> ListSettings:
    """Return the settings of the scheduler with these names (none: the default one). `namespace` is that of its
    lease."""
    try:
        published, _ = await published_policy(client, namespace, names)
    except ApiError as error:
        if error.status != 403:
            raise
        return ListSettings(DialectOptions(), names or DEFAULT_NAMES, readable=False)
    names = names or tuple(filter(None, published.scheduler_names)) or DEFAULT_NAMES
    return ListSettings(options_in_policy(published.policy), names)


async def served_scheduler_names(client: KubeClient, namespace: str) -> frozenset[str] | None:
    """Return the names that the schedulers of the cluster publish; None if none publishes. Raises ApiError, but not
    404."""
    policies = published_policies(await _data(client, namespace, NAME)).values()
    return frozenset(name for policy in policies for name in policy.scheduler_names if name) or None


async def published_policy(
    client: KubeClient, namespace: str, names: tuple[str, ...]
) -> tuple[PublishedPolicy, str]:
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
