"""The policy in force, kept in a ConfigMap: commands that rehearse the scheduler go by it."""

from __future__ import annotations

from collections.abc import Callable

from phalanx.daemon.controllers.own_config_map import OwnConfigMap
from phalanx.execution.writes import Urgency, WritePool
from phalanx.kube.client import KubeClient
from phalanx.kube.errors import ApiError, ConnectionLost
from phalanx.kube.retry import RetryPolicy

NAME = "policy-in-force"
DATA_KEY = "policy.yaml"
# (Characters; a ConfigMap holds a megabyte.)
MOST_CHARACTERS = 200_000


class PolicyRecord:
    """Reads once what is written down, and writes the policy wherever it is another. Nothing is decided by it here:
    where it cannot be written, commands have to be told the policy."""

    def __init__(
        self,
        client: KubeClient,
        pool: WritePool,
        namespace: str,
        policy: Callable[[], str],
        *,
        prefix: str = "phalanx",
        retry: RetryPolicy | None = None,
    ) -> None:
        """`policy` gives the text of the policy in force."""
        self._object = OwnConfigMap(client, namespace, f"{prefix}-{NAME}", "it is written anew", retry)
        self._pool = pool
        self._policy = policy
        self._written = ""
        self._writing = False

    async def load(self) -> None:
        """Returns when the object has been read."""
        self._written = (await self._object.read()).get(DATA_KEY, "")

    def save(self) -> None:
        """Asks for it to be written if it has changed."""
        text = self._policy()
        if text == self._written or self._writing:
            return
        if len(text) > MOST_CHARACTERS:
            self._object.complain(f"is not written: the policy is longer than {MOST_CHARACTERS} characters")
            return
        self._writing = True

        async def write() -> None:
            try:
                await self._object.put({DATA_KEY: text}, {DATA_KEY: text})
            except ApiError as error:
                # It would be refused again; the next policy is another matter.
                self._object.complain(f"is not written, commands need --config: {error}")
                self._written = text
            except ConnectionLost as error:
                self._object.complain(f"is not written yet: {error}")
            else:
                self._written = text
            finally:
                self._writing = False

        self._pool.submit(Urgency.STATUS, write)
