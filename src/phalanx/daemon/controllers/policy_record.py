"""Policy in force and scheduler names, stored in a ConfigMap for commands that simulate the scheduler."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence

import msgspec

from phalanx.daemon.controllers.own_config_map import OwnConfigMap
from phalanx.execution.writes import Urgency, WritePool
from phalanx.kube.client import KubeClient
from phalanx.kube.errors import ApiError, ConnectionLost
from phalanx.kube.own_objects import name_prefix
from phalanx.kube.retry import RetryPolicy

#: Name of the one object with the policies of all schedulers of the cluster, so that roles can name it.
NAME = "phalanx-policies-in-force"
#: Last part of the name of the object that each scheduler wrote before 0.1.0, and its keys: still read by commands.
FORMER_NAME = "policy-in-force"
FORMER_POLICY_KEY, FORMER_NAMES_KEY = "policy.yaml", "scheduler-names"
# Limit in characters; a ConfigMap holds 1 MB.
MOST_CHARACTERS = 200_000
# Seconds between two checks of the stored policy: a restored backup could hold another one.
_LOOK_PERIOD = 60.0


class PublishedPolicy(msgspec.Struct, frozen=True, rename="camel"):
    """Policy in force, and the served `spec.schedulerName` values; the first one names the scheduler's objects."""

    scheduler_names: tuple[str, ...] = ()
    policy: str = ""


def published_policies(data: Mapping[str, object]) -> dict[str, PublishedPolicy]:
    """Return the policies in the data of the object by key, the `name_prefix` of a scheduler. Unreadable ones are
    left out."""
    policies = {}
    for key, text in sorted(data.items()):
        try:
            policies[key] = msgspec.json.decode(str(text), type=PublishedPolicy)
        except (msgspec.DecodeError, UnicodeError):
            continue
    return policies


class PolicyRecord:
    """Storage of the scheduling policy in force in a ConfigMap, under a key of this scheduler's own.

    The object is read periodically and written when it differs. The scheduler does not depend on it: without it,
    commands need the policy as an option.
    """

    def __init__(
        self,
        client: KubeClient,
        pool: WritePool,
        namespace: str,
        policy: Callable[[], str],
        *,
        scheduler_names: Sequence[str] = ("phalanx",),
        retry: RetryPolicy | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Create the storage of the policy text that `policy` returns; `clock` is in seconds."""
        self._key = name_prefix(scheduler_names)
        self._object = OwnConfigMap(client, namespace, NAME, "it is written again", retry)
        self._names = tuple(scheduler_names)
        self._pool = pool
        self._policy = policy
        self._clock = clock
        self._written: Mapping[str, str] = {}
        self._refused = False
        self._busy = False
        self._loaded_at = clock()

    async def load(self) -> None:
        """Load the stored policy from the ConfigMap."""
        data = await self._object.read()
        self._written = {self._key: data[self._key]} if self._key in data else {}

    def save(self) -> None:
        """Submit a write of a changed policy; call it about once a second."""
        text = self._policy()
        if self._busy:
            return
        current = {self._key: msgspec.json.encode(PublishedPolicy(self._names, text)).decode()}
        if current == self._written:
            if not self._refused and self._clock() - self._loaded_at >= _LOOK_PERIOD:
                self._reload()
            return
        if len(text) > MOST_CHARACTERS:
            self._object.complain(f"is not written: the policy is longer than {MOST_CHARACTERS} characters")
            return
        self._busy, self._refused = True, False

        async def write() -> None:
            try:
                await self._object.put(current, current)
            except ApiError as error:
                # The same text would be rejected again; a new policy is tried.
                self._object.complain(f"is not written, commands need --config and --scheduler-name: {error}")
                self._written, self._refused = current, True
            except ConnectionLost as error:
                self._object.complain(f"is not written yet: {error}")
            else:
                self._written = current
            finally:
                self._busy = False

        self._pool.submit(Urgency.STATUS, write)

    def _reload(self) -> None:
        self._busy, self._loaded_at = True, self._clock()

        async def reload() -> None:
            try:
                await self.load()
            finally:
                self._busy = False

        self._pool.submit(Urgency.STATUS, reload)
