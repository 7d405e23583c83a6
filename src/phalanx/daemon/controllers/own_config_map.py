"""A ConfigMap that only the scheduler writes: what must outlive its process."""

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


class LeftAlone(Exception):  # noqa: N818 - what was done, not what went wrong
    """It is not written, as a newer Phalanx keeps in it what we could not write down again."""


class OwnConfigMap:
    """Read once and then written, one write at a time, by whoever owns this. `without` says what becomes of it
    where it may not be read.

    Texts are JSON and name the version of their form. One of a later version than `version` is not read, and then
    nothing is written either, so that whoever goes back to an older Phalanx, or has both during an upgrade, loses
    nothing. Fields that we do not know do not make a later version: they are passed over.
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
        self._later = ""
        self._said = ""

    @property
    def exists(self) -> bool:
        """Whether there is such an object, as far as we have seen."""
        return self._exists

    @property
    def left_alone(self) -> bool:
        """Whether a newer Phalanx wrote it."""
        return bool(self._later)

    async def read(self) -> dict[str, str]:
        """Its texts, however long the API server keeps us waiting for them; none if there is no such object, or we
        may not know."""
        document = await self._read()
        if document is None:
            return {}
        self._exists = True
        data = document.get("data") if isinstance(document, dict) else None
        given = data if isinstance(data, dict) else {}
        texts = {key: text for key, text in given.items() if isinstance(key, str) and isinstance(text, str)}
        later = {key: number for key, text in texts.items() if (number := version_of(text)) > self._version}
        if later:
            keys = ", ".join(f"key {key} of version {number}" for key, number in sorted(later.items()))
            self._later = f"has {keys}, which a newer Phalanx wrote: it is neither read nor written"
            self.complain(self._later)
        return {key: text for key, text in texts.items() if key not in later}

    async def put(self, news: dict[str, str], data: dict[str, str]) -> None:
        """Writes what is new of the data; raises LeftAlone for what is not ours to write. Whether the object exists
        may have changed since we last saw it: then the other way serves."""
        if self._later:
            raise LeftAlone(self._later)
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
                self._said = ""
                return
        raise ConnectionLost(f"{self._name} comes and goes")

    def complain(self, what: str) -> None:
        """Says it once until something else is wrong."""
        if self._said != what:
            self._said = what
            log.warning("configmap %s/%s %s", self._namespace, self._name, what)

    async def _read(self) -> Any:
        path, backoff = CONFIG_MAPS.path(self._namespace, self._name), Backoff()
        while True:
            try:
                return await self._client.get(path)
            except (ApiError, ConnectionLost) as error:
                if isinstance(error, ApiError) and error.status == 404:
                    return None
                if not self._retry.retryable(error, "GET"):
                    self.complain(f"is not read, {self._without}: {error}")
                    return None
                self.complain(f"is not read yet: {error}")
                await asyncio.sleep(backoff.next())


def version_of(text: str) -> int:
    """The version that a text names; 0 for none, or where it cannot be read."""
    try:
        document = decode_json(text.encode("utf-8", "surrogatepass"))
    except msgspec.DecodeError:
        return 0
    version = document.get("version") if isinstance(document, dict) else 0
    return version if isinstance(version, int) else 0
