"""Enrichers of core/v1 and related APIs; dialects add further ones."""

from __future__ import annotations

from phalanx.dialects.devices.claims import ClaimEnricher
from phalanx.dialects.enricher import PodEnricher
from phalanx.dialects.options import DialectOptions
from phalanx.dialects.pods.default_constraints import DefaultConstraints
from phalanx.dialects.pods.known_pods import KnownPods
from phalanx.dialects.pods.namespace_labels import NamespaceLabels
from phalanx.dialects.storage.volumes import Volumes


def core_enrichers(options: DialectOptions, pods: KnownPods) -> tuple[PodEnricher, ...]:
    """Create the enrichers of core/v1 and related APIs, without any objects yet. The intake updates `pods`."""
    enrichers = (Volumes(), ClaimEnricher(), NamespaceLabels())
    return (*enrichers, DefaultConstraints(pods)) if options.default_spread else enrichers
