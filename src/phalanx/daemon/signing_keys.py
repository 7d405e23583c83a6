"""Keys with which the scheduler signs its annotations of pods, stored in a Secret beside its lease.

`phalanx install` creates the Secret without a key; the first scheduler that runs adds one. The name of a key is the
second of its creation. The newest key signs and all are accepted, so a key is replaced by adding one.
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
# Limit of keyed BLAKE2b.
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
    """Return the signing keys, the newest first; create one if there is none.

    The function retries while the API server is unreachable. Without the right to store a key it returns one for
    this process only: the next process does not accept its signatures, and the log says so.
    """
    retry, backoff, reported = retry or RetryPolicy(), Backoff(), ""
    while True:
        try:
            return await _read_or_make(client, namespace, now, entropy)
        except (ApiError, ConnectionLost) as error:
            # Another scheduler has added its key or created the Secret at the same time.
            raced = isinstance(error, ApiError) and error.status == 409
            if not raced and not retry.retryable(error, "GET"):
                log.error(
                    "secret %s/%s: %s; gangs that are partly bound when this process ends are not completed by "
                    "the next: run `phalanx install`",
                    namespace,
                    NAME,
                    error,
                )
                return (("process", entropy(KEY_BYTES)),)
            if not raced and str(error) != reported:
                reported = str(error)
                log.warning("secret %s/%s cannot be read yet: %s", namespace, NAME, reported)
            await asyncio.sleep(backoff.next())


async def known_keys(client: KubeClient, namespace: str) -> tuple[Key, ...]:
    """Return the stored signing keys, the newest first; none if they cannot be read."""
    try:
        return keys_in(await client.get(SECRETS.path(namespace, NAME)))
    except (ApiError, ConnectionLost):
        return ()


async def reading_signer(client: KubeClient, namespace: str) -> tuple[Signer, str]:
    """Return a verifier of signatures for commands that only read, and a notice.

    The signer has the stored keys. If they cannot be read, it accepts every signature, and the notice is the
    reason.
    """
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
        # The resourceVersion makes one of two concurrent schedulers fail.
        await client.replace(path, {**secret, "data": {**(secret.get("data") or {}), **entry}})
    return ((name, key),)


def keys_in(secret: Any) -> tuple[Key, ...]:
    """Return the signing keys of a Secret, the newest first, without malformed entries."""
    data = secret.get("data") if isinstance(secret, dict) else None
    keys_by_age: list[tuple[int, Key]] = []
    for name, text in data.items() if isinstance(data, dict) else ():
        try:
            key = base64.b64decode(text, validate=True)
        except (binascii.Error, ValueError, TypeError):
            key = b""
        if _KEY_NAME.fullmatch(name) and KEY_BYTES <= len(key) <= _MOST_KEY_BYTES:
            keys_by_age.append((int(name), (name, key)))
        else:
            log.warning("secret %s, key %s is ignored: it is not a signing key", NAME, name)
    return tuple(key for _, key in sorted(keys_by_age, reverse=True))
