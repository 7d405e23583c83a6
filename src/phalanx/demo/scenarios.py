"""Scenarios of `phalanx demo`, the main one first."""

from __future__ import annotations

from phalanx.demo.deadlock import Deadlock
from phalanx.demo.elasticquota import ElasticQuota1, ElasticQuota2, ElasticQuota3, ElasticQuota4
from phalanx.demo.fairturns import FairShare
from phalanx.demo.ganggroups import GangGroups
from phalanx.demo.gangpreemption import GangPreemption
from phalanx.demo.jobready import JobReady
from phalanx.demo.lastgroup import LastPodGroup
from phalanx.demo.manyclusters import ManyClusters
from phalanx.demo.queues import Queues
from phalanx.demo.ranks import PyTorch, RestartScenario
from phalanx.demo.reclaim import Reclaim
from phalanx.demo.spark import Spark
from phalanx.demo.stage import Scenario
from phalanx.demo.tensorflow import TensorFlow
from phalanx.demo.topology import TopologyDemo

SCENARIOS: tuple[type[Scenario], ...] = (
    TensorFlow,
    Deadlock,
    LastPodGroup,
    GangGroups,
    JobReady,
    GangPreemption,
    ElasticQuota1,
    ElasticQuota2,
    ElasticQuota3,
    ElasticQuota4,
    Queues,
    Reclaim,
    FairShare,
    TopologyDemo,
    PyTorch,
    RestartScenario,
    Spark,
    ManyClusters,
)
