"""Promised starts that have become later: read from the scheduler's record for notifications."""

from __future__ import annotations

import msgspec

from phalanx.daemon.controllers.policy_record import NAME as POLICIES
from phalanx.daemon.controllers.policy_record import published_policies
from phalanx.kube.client import KubeClient
from phalanx.kube.core_resources import CONFIG_MAPS
from phalanx.kube.errors import ApiError
from phalanx.model.gang import GangKey
from phalanx.views import promise_record

#: Seconds by which a start can be later than promised (a cycle, the binding) without a notice.
_GRACE = 60


class LatePromise(msgspec.Struct, frozen=True):
    """Promised start that is not met. `key` is that of the gang, or of a single pod as in `key_of`. `promised` is
    the first published start, `cause` a code, "" if unknown."""

    key: GangKey
    promised: int
    cause: str


async def late_promises(client: KubeClient, namespace: str, now: int) -> list[LatePromise]:
    """Return the promises whose present start is later than the promised one, or has passed, of all schedulers that
    publish a policy in `namespace`. Records without read access are skipped. Raises ApiError."""
    late = []
    policies = published_policies(await _data(client, namespace, POLICIES))
    for prefix in policies:
        document = {"metadata": {}, "data": await _data(client, namespace, f"{prefix}-{promise_record.NAME}")}
        for promise in promise_record.promises_of(document).promises:
            if promise.told <= promise.promised + _GRACE and now <= promise.told + _GRACE:
                continue
            causes = [slip.cause.value for slip in promise.slips if slip.when >= promise.made]
            keys = [GangKey(gang[0], gang[1]) for gang in promise.gangs]
            if promise.pod:
                keys.append(GangKey(promise.name.partition("/")[0], f"/{promise.pod}"))
            late += [LatePromise(key, promise.promised, causes[-1] if causes else "") for key in keys]
    return late


async def _data(client: KubeClient, namespace: str, name: str) -> dict[str, object]:
    try:
        return (await client.get(CONFIG_MAPS.path(namespace, name))).get("data") or {}
    except ApiError as error:
        if error.status not in (403, 404):
            raise
        return {}
