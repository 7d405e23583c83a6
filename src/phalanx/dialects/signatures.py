"""Signatures on what we write onto objects that others may write as well, and read back as our own.

Whoever may patch a pod may write any annotation, or copy one from another pod or a backup. So what we believe later
is signed over everything that it is about, with a key that tenants cannot read (RFC 7693, keyed BLAKE2b: a third of
what HMAC-SHA-256 costs for texts as short as these).
"""

from __future__ import annotations

import hmac
from hashlib import blake2b

import msgspec

# Far beyond guessing, and short enough for an annotation on every pod.
_SIGNATURE_BYTES = 16

Key = tuple[str, bytes]


class Signer:
    """Signs with the first of its keys and believes what any of them has signed.

    A key is a name and a secret; signatures tell the names, so that keys can be exchanged while signatures of the
    former ones are still about. Without a key nothing is signed and nothing believed. One that is `unchecked`
    believes every signature: for commands that answer questions and may not read the keys.
    """

    def __init__(self, keys: tuple[Key, ...] = (), *, unchecked: bool = False) -> None:
        self._unchecked = unchecked
        self._encoder = msgspec.json.Encoder()
        self.use(keys)

    def use(self, keys: tuple[Key, ...]) -> None:
        """From now on these are the keys."""
        self._keys = keys
        self._secrets = dict(keys)

    def sign(self, *parts: str | int) -> str:
        """The signature of the parts in their order; "" where there is no key."""
        if not self._keys:
            return ""
        name, secret = self._keys[0]
        return f"{name}.{self._digest(secret, parts)}"

    def believes(self, signature: str, *parts: str | int) -> bool:
        """Whether we have signed just these parts."""
        if self._unchecked:
            return True
        name, _, digest = signature.partition(".")
        secret = self._secrets.get(name)
        return secret is not None and hmac.compare_digest(
            digest.encode("utf-8", "surrogatepass"), self._digest(secret, parts).encode()
        )

    def _digest(self, secret: bytes, parts: tuple[str | int, ...]) -> str:
        # JSON tells where a part ends, whatever is in it.
        return blake2b(self._encoder.encode(parts), digest_size=_SIGNATURE_BYTES, key=secret).hexdigest()
