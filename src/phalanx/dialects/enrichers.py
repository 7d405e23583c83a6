"""The facets that a pod has, each kind once."""

from __future__ import annotations

from phalanx.dialects.devices.claims import ClaimFacet
from phalanx.dialects.enricher import Facet
from phalanx.dialects.options import DialectOptions
from phalanx.dialects.pods.default_constraints import UsualSpread
from phalanx.dialects.pods.namespace_labels import NamespaceLabels
from phalanx.dialects.storage.volumes import Volumes


def known_facets(options: DialectOptions) -> tuple[Facet, ...]:
    """New ones, that know nothing yet."""
    facets = (Volumes(), ClaimFacet(), NamespaceLabels())
    return (*facets, UsualSpread()) if options.default_spread else facets
