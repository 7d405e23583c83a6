"""Test tools for plugins and actions: a cluster in a few lines, the real scheduler, and its results.

`ClusterScenario` declares nodes, queues, gangs and pods, runs cycles, and acts as API server and kubelets.
`installed` registers the entry points of a project that is not installed. No test framework is required.
docs/plugins.md shows examples.
"""

from __future__ import annotations

from phalanx.testing.amounts import amounts, limits
from phalanx.testing.declared_cluster import NAMESPACE, DeclaredCluster
from phalanx.testing.installed import installed
from phalanx.testing.scenario import ClusterScenario

__all__ = ["NAMESPACE", "ClusterScenario", "DeclaredCluster", "amounts", "installed", "limits"]
