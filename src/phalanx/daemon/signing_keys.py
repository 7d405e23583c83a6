"""The keys with which the scheduler signs what it writes onto pods, kept in a Secret beside its lease.

`phalanx install` makes the Secret without a key; the first scheduler that runs puts one in. A key is named by the
second in which it was made: the newest signs, all are believed, so a key is exchanged by adding one.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import logging
import re
from collections.abc import Callable
from typing import Any

from phalanx.dialects.signatures import Key, Signer
from phalanx.kube.client import KubeClient
from phalanx.kube.core_resources import SECRETS
from phalanx.kube.errors import ApiError, ConnectionLost
from phalanx.kube.own_objects import LABELS
from phalanx.kube.retry import Backoff, RetryPolicy

log = logging.getLogger(__name__)

NAME = "phalanx-signing-keys"
KEY_BYTES = 32
# Keyed BLAKE2b takes no more.
_MOST_KEY_BYTES = 64

_KEY_NAME = re.compile(r"[0-9]{1,12}")


async def load_keys(
    client: KubeClient,
    namespace: str,
    now: Callable[[], float],
    entropy: Callable[[int], bytes],
    *,
    retry: RetryPolicy | None = None,
) -> tuple[Key, ...]:
    """The keys, the newest first; one is made where there is none yet.

    Returns when they are known, however long the API server keeps us waiting. Where we may not keep a key, one for
    this process alone: what it signs is not believed by the next, and the log says so.
    """
    retry, backoff, said = retry or RetryPolicy(), Backoff(), ""
    while True:
        try:
            return await _read_or_make(client, namespace, now, entropy)
        except (ApiError, ConnectionLost) as error:
            # Another scheduler may have put its key in meanwhile, or made the Secret.
            raced = isinstance(error, ApiError) and error.status == 409
            if not raced and not retry.retryable(error, "GET"):
                log.error(
                    "secret %s/%s: %s; gangs that are half bound when this process ends will not be finished by "
                    "the next: run `phalanx install`",
                    namespace,
                    NAME,
                    error,
                )
                return (("process", entropy(KEY_BYTES)),)
            if not raced and str(error) != said:
                said = str(error)
                log.warning("secret %s/%s is not read yet: %s", namespace, NAME, said)
            await asyncio.sleep(backoff.next())


async def known_keys(client: KubeClient, namespace: str) -> tuple[Key, ...]:
    """The keys that are there, the newest first; none where they cannot be read now."""
    try:
        return keys_in(await client.get(SECRETS.path(namespace, NAME)))
    except (ApiError, ConnectionLost):
        return ()


async def reading_signer(client: KubeClient, namespace: str) -> tuple[Signer, str]:
    """For commands that answer questions: a signer with the keys that are there, or one that believes everything
    where they cannot be read, with the reason."""
    try:
        keys = keys_in(await client.get(SECRETS.path(namespace, NAME)))
    except ApiError as error:
        if error.status == 404:
            return Signer(), ""
        return Signer(unchecked=True), f"secret {namespace}/{NAME}: {error.message}; plan marks are not verified"
    return Signer(keys), ""


async def _read_or_make(
    client: KubeClient, namespace: str, now: Callable[[], float], entropy: Callable[[int], bytes]
) -> tuple[Key, ...]:
    path = SECRETS.path(namespace, NAME)
    try:
        secret = await client.get(path)
    except ApiError as error:
        if error.status != 404:
            raise
        secret = None
    keys = keys_in(secret) if secret is not None else ()
    if keys:
        return keys
    name, key = str(int(now())), entropy(KEY_BYTES)
    entry = {name: base64.b64encode(key).decode()}
    if secret is None:
        metadata = {"name": NAME, "namespace": namespace, "labels": dict(LABELS)}
        body = {"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "type": "Opaque", "data": entry}
        await client.create(SECRETS.path(namespace), body)
    else:
        # With its resourceVersion: of two schedulers that start together one has the last word.
        await client.replace(path, {**secret, "data": {**(secret.get("data") or {}), **entry}})
    return ((name, key),)


def keys_in(secret: Any) -> tuple[Key, ...]:
    """The keys of a Secret, the newest first; what is none is passed over."""
    data = secret.get("data") if isinstance(secret, dict) else None
    found: list[tuple[int, Key]] = []
    for name, text in data.items() if isinstance(data, dict) else ():
        try:
            key = base64.b64decode(text, validate=True)
        except (binascii.Error, ValueError, TypeError):
            key = b""
        if _KEY_NAME.fullmatch(name) and KEY_BYTES <= len(key) <= _MOST_KEY_BYTES:
            found.append((int(name), (name, key)))
        else:
            log.warning("secret %s, key %s is no signing key and passed over", NAME, name)
    return tuple(key for _, key in sorted(found, reverse=True))
