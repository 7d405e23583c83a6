"""The facets that a pod has, each kind once."""

from __future__ import annotations

from phalanx.dialects.claims import ClaimFacet
from phalanx.dialects.device_objects import DeviceObjects
from phalanx.dialects.facets import Facet
from phalanx.dialects.namespace_labels import NamespaceLabels
from phalanx.dialects.numa import NumaFacet
from phalanx.dialects.options import DialectOptions
from phalanx.dialects.usual_spread import UsualSpread
from phalanx.dialects.volumes import Volumes


def known_facets(options: DialectOptions) -> tuple[Facet, ...]:
    """New ones, that know nothing yet."""
    facets = (Volumes(), DeviceObjects(), NumaFacet(), ClaimFacet(), NamespaceLabels())
    return (*facets, UsualSpread()) if options.default_spread else facets
