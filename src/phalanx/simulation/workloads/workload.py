"""What every workload can do, wherever it comes from."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from phalanx.dialects.intake import Intake
    from phalanx.simulation.cluster import SimulatedCluster
    from phalanx.simulation.job import SimulatedJob
    from phalanx.simulation.world import World


class Workload(Protocol):
    """Jobs, and what else happens. The same seed gives the same, whatever the policy does with it."""

    @property
    def name(self) -> str: ...

    @property
    def start(self) -> int:
        """When it begins, in seconds since the epoch; 0 where it does not say."""

    def jobs(self, seed: int, cluster: SimulatedCluster) -> list[SimulatedJob]:
        """In order of their submission where that matters. Raises InputError."""

    def schedule(self, world: World, intake: Intake, seed: int) -> None:
        """Has everything else happen in time: failing nodes, changed quotas. Raises InputError."""
