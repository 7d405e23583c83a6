"""Tests of plugins and actions: a cluster in a few lines, the real scheduler, and the outcome.

`ClusterScenario` declares nodes, queues, gangs and pods, runs cycles and answers them as an API server and kubelets
would. `installed` offers the entry points of a project that is not installed. Nothing here needs a test framework.
docs/plugins.md shows both.
"""

from __future__ import annotations

from phalanx.testing.amounts import amounts, limits
from phalanx.testing.declared_cluster import NAMESPACE, DeclaredCluster
from phalanx.testing.installed import installed
from phalanx.testing.scenario import ClusterScenario

__all__ = ["NAMESPACE", "ClusterScenario", "DeclaredCluster", "amounts", "installed", "limits"]
