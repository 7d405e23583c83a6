"""ConfigMap that only the scheduler writes, with state that has to survive a restart."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import msgspec

from phalanx.kube.client import KubeClient, PatchType
from phalanx.kube.core_resources import CONFIG_MAPS
from phalanx.kube.errors import ApiError, ConnectionLost
from phalanx.kube.own_objects import LABELS
from phalanx.kube.retry import Backoff, RetryPolicy
from phalanx.model.text.decoding import decode_json

log = logging.getLogger(__name__)


class LeftAlone(Exception):  # noqa: N818 - names the outcome, not an error
    """Refusal to write a ConfigMap whose version is newer than this process knows."""


class OwnConfigMap:
    """ConfigMap of the scheduler that is read once and then written, one write at a time.

    `without` is the consequence if it is unreadable.

    Texts are JSON and have a version. A text of a later version than `version` is not read, and then nothing is
    written, so that a downgrade, or two versions during an upgrade, lose no data. Unknown fields are no new
    version: they are ignored.
    """

    def __init__(
        self,
        client: KubeClient,
        namespace: str,
        name: str,
        without: str,
        retry: RetryPolicy | None = None,
        *,
        version: int = 1,
    ) -> None:
        self._client = client
        self._namespace = namespace
        self._name = name
        self._without = without
        self._retry = retry or RetryPolicy()
        self._exists = False
        self._version = version
        self._newer = ""
        self._logged = ""

    @property
    def exists(self) -> bool:
        """Whether the ConfigMap existed at the last read or write."""
        return self._exists

    @property
    def left_alone(self) -> bool:
        """Whether a newer version of Phalanx wrote the ConfigMap."""
        return bool(self._newer)

    async def read(self) -> dict[str, str]:
        """Return the texts in the ConfigMap by key; none if it does not exist or is not readable.

        The function retries while the API server is unreachable.
        """
        document = await self._read()
        if document is None:
            return {}
        self._exists = True
        data = document.get("data") if isinstance(document, dict) else None
        entries = data if isinstance(data, dict) else {}
        texts = {key: text for key, text in entries.items() if isinstance(key, str) and isinstance(text, str)}
        newer = {key: number for key, text in texts.items() if (number := version_of(text)) > self._version}
        if newer:
            keys = ", ".join(f"key {key} of version {number}" for key, number in sorted(newer.items()))
            self._newer = f"has {keys}, written by a newer Phalanx: it is neither read nor written"
            self.complain(self._newer)
        return {key: text for key, text in texts.items() if key not in newer}

    async def put(self, news: dict[str, str], data: dict[str, str]) -> None:
        """Write the changed texts `news`, or all `data` in a new ConfigMap. Raises LeftAlone for a newer version.

        If the object was created or deleted since the last access, the other request is used.
        """
        if self._newer:
            raise LeftAlone(self._newer)
        body: dict[str, Any] = {"metadata": {"labels": dict(LABELS)}, "data": news}
        for _ in range(2):
            exists = self._exists
            try:
                if exists:
                    path = CONFIG_MAPS.path(self._namespace, self._name)
                    await self._retry.run(
                        lambda path=path: self._client.patch(path, body, PatchType.MERGE),  # type: ignore[misc]
                        "PATCH",
                        guarded=True,
                    )
                else:
                    path = CONFIG_MAPS.path(self._namespace)
                    named = {"apiVersion": CONFIG_MAPS.api_version, "kind": CONFIG_MAPS.kind, "data": data}
                    named["metadata"] = {"name": self._name, **body["metadata"]}
                    await self._retry.run(
                        lambda path=path, named=named: self._client.create(path, named),  # type: ignore[misc]
                        "POST",
                    )
            except ApiError as error:
                if error.status != (404 if exists else 409):
                    raise
                self._exists = not exists
            else:
                self._exists = True
                self._logged = ""
                return
        raise ConnectionLost(f"{self._name} is created and deleted repeatedly")

    def complain(self, problem: str) -> None:
        """Log a problem of the ConfigMap once, until another one occurs."""
        if self._logged != problem:
            self._logged = problem
            log.warning("configmap %s/%s %s", self._namespace, self._name, problem)

    async def _read(self) -> Any:
        path, backoff = CONFIG_MAPS.path(self._namespace, self._name), Backoff()
        while True:
            try:
                return await self._client.get(path)
            except (ApiError, ConnectionLost) as error:
                if isinstance(error, ApiError) and error.status == 404:
                    return None
                if not self._retry.retryable(error, "GET"):
                    self.complain(f"cannot be read, {self._without}: {error}")
                    return None
                self.complain(f"cannot be read yet: {error}")
                await asyncio.sleep(backoff.next())


def version_of(text: str) -> int:
    """Return the version of a stored text; 0 without a version or for an unreadable text."""
    try:
        document = decode_json(text.encode("utf-8", "surrogatepass"))
    except msgspec.DecodeError:
        return 0
    version = document.get("version") if isinstance(document, dict) else 0
    return version if isinstance(version, int) else 0
