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

NAME = "policy-in-force"
DATA_KEY = "policy.yaml"
#: Key of the served `spec.schedulerName` values, a JSON list; the first one names the scheduler's objects.
NAMES_KEY = "scheduler-names"
_KEYS = (DATA_KEY, NAMES_KEY)
# Limit in characters; a ConfigMap holds 1 MB.
MOST_CHARACTERS = 200_000
# Seconds between two checks of the stored policy: a restored backup could hold another one.
_LOOK_PERIOD = 60.0


class PolicyRecord:
    """Storage of the scheduling policy in force in a ConfigMap.

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
        name = f"{name_prefix(scheduler_names)}-{NAME}"
        self._object = OwnConfigMap(client, namespace, name, "it is written again", retry)
        self._names = msgspec.json.encode(list(scheduler_names)).decode()
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
        self._written = {key: data[key] for key in _KEYS if key in data}

    def save(self) -> None:
        """Submit a write of a changed policy; call it about once a second."""
        text = self._policy()
        if self._busy:
            return
        current = {DATA_KEY: text, NAMES_KEY: self._names}
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
