"""Signatures for our annotations on objects that other users can write too.

A user with patch permission on a pod can write any annotation, or copy one from another pod or a backup. So each
annotation that we trust later is signed together with everything that it refers to, with a key that tenants cannot
read (RFC 7693, keyed BLAKE2b: a third of the cost of HMAC-SHA-256 for texts as short as these).
"""

from __future__ import annotations

import hmac
from hashlib import blake2b

import msgspec

# Long enough against guessing, and short enough for an annotation on every pod.
_SIGNATURE_BYTES = 16
# Nearly every signature comes back once, with the event that confirms its binding; more are verified again.
_MOST_MADE = 10_000

Key = tuple[str, bytes]


class Signer:
    """Signs our annotations with the first of its keys and verifies them with all keys.

    A key is a name and a secret. Signatures contain the name, so that keys can be rotated while signatures of
    former keys still exist. Without a key, nothing is signed and no signature is valid. An `unchecked` signer
    accepts every signature: for read-only commands that have no access to the keys.
    """

    def __init__(self, keys: tuple[Key, ...] = (), *, unchecked: bool = False) -> None:
        self._unchecked = unchecked
        self._encoder = msgspec.json.Encoder()
        self.use(keys)

    def use(self, keys: tuple[Key, ...]) -> None:
        """Replace the signing keys."""
        self._keys = keys
        self._secrets = dict(keys)
        # Signatures that this process has made and not verified yet, with the parts that they cover.
        self._made: dict[str, tuple[str | int, ...]] = {}

    def sign(self, *parts: str | int) -> str:
        """Return the signature of the annotation's parts in their order; "" without a key."""
        if not self._keys:
            return ""
        name, secret = self._keys[0]
        signature = f"{name}.{self._digest(secret, parts)}"
        if len(self._made) >= _MOST_MADE:
            self._made.clear()
        self._made[signature] = parts
        return signature

    def believes(self, signature: str, *parts: str | int) -> bool:
        """Return whether the signature is ours and covers exactly these parts of an annotation."""
        if self._unchecked or (self._made and self._made.pop(signature, None) == parts):
            return True
        name, _, digest = signature.partition(".")
        secret = self._secrets.get(name)
        return secret is not None and hmac.compare_digest(
            digest.encode("utf-8", "surrogatepass"), self._digest(secret, parts).encode()
        )

    def _digest(self, secret: bytes, parts: tuple[str | int, ...]) -> str:
        # JSON encoding delimits the parts unambiguously.
        return blake2b(self._encoder.encode(parts), digest_size=_SIGNATURE_BYTES, key=secret).hexdigest()
