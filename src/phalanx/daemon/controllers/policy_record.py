"""The policy in force and the names that the scheduler serves, kept in a ConfigMap: commands that rehearse the
scheduler go by them."""

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
#: The names in `spec.schedulerName` that it serves, as a JSON list; the first one names its objects.
NAMES_KEY = "scheduler-names"
_KEYS = (DATA_KEY, NAMES_KEY)
# (Characters; a ConfigMap holds a megabyte.)
MOST_CHARACTERS = 200_000
# Seconds after which it is looked whether it still says so: a backup that is put back may say something else.
_LOOK_PERIOD = 60.0


class PolicyRecord:
    """Reads now and then what is written down, and writes the policy wherever it is another. Nothing is decided by
    it here: where it cannot be written, commands have to be told the policy."""

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
        """`policy` gives the text of the policy in force; `clock` is in seconds."""
        name = f"{name_prefix(scheduler_names)}-{NAME}"
        self._object = OwnConfigMap(client, namespace, name, "it is written anew", retry)
        self._names = msgspec.json.encode(list(scheduler_names)).decode()
        self._pool = pool
        self._policy = policy
        self._clock = clock
        self._written: Mapping[str, str] = {}
        self._refused = False
        self._busy = False
        self._looked = clock()

    async def load(self) -> None:
        """Returns when the object has been read."""
        data = await self._object.read()
        self._written = {key: data[key] for key in _KEYS if key in data}

    def save(self) -> None:
        """Asks for it to be written if it has changed; to be called about once a second."""
        text = self._policy()
        if self._busy:
            return
        told = {DATA_KEY: text, NAMES_KEY: self._names}
        if told == self._written:
            if not self._refused and self._clock() - self._looked >= _LOOK_PERIOD:
                self._look()
            return
        if len(text) > MOST_CHARACTERS:
            self._object.complain(f"is not written: the policy is longer than {MOST_CHARACTERS} characters")
            return
        self._busy, self._refused = True, False

        async def write() -> None:
            try:
                await self._object.put(told, told)
            except ApiError as error:
                # It would be refused again; the next policy is another matter.
                self._object.complain(f"is not written, commands need --config and --scheduler-name: {error}")
                self._written, self._refused = told, True
            except ConnectionLost as error:
                self._object.complain(f"is not written yet: {error}")
            else:
                self._written = told
            finally:
                self._busy = False

        self._pool.submit(Urgency.STATUS, write)

    def _look(self) -> None:
        self._busy, self._looked = True, self._clock()

        async def look() -> None:
            try:
                await self.load()
            finally:
                self._busy = False

        self._pool.submit(Urgency.STATUS, look)
