"""Names in the policy file that more than one layer reads."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

#: Former names of keys in phalanx.dialects, which are accepted until a later release.
FORMER_DIALECT_KEYS: Mapping[str, str] = MappingProxyType({"bundleNamespaces": "gangGroupNamespaces"})
