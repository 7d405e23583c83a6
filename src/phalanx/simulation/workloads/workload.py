"""Interface of a workload."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from phalanx.dialects.intake import Intake
    from phalanx.simulation.cluster import SimulatedCluster
    from phalanx.simulation.job import SimulatedJob
    from phalanx.simulation.workloads.changes import InputChange
    from phalanx.simulation.world import World


class Workload(Protocol):
    """Jobs and other events. For one seed they are identical under every policy."""

    @property
    def name(self) -> str: ...

    @property
    def start(self) -> int:
        """Beginning in seconds since the epoch; 0 if unknown."""

    def jobs(self, seed: int, cluster: SimulatedCluster) -> list[SimulatedJob]:
        """Return the jobs, ordered by submission if the order matters. Raises InputError."""

    def changes(self, cluster: SimulatedCluster) -> list[InputChange]:
        """Return the lines of the file that are skipped or changed."""

    def schedule(self, world: World, intake: Intake, seed: int) -> None:
        """Schedule all other events: failing nodes, changed quotas. Raises InputError."""
