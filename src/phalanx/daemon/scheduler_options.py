"""Options of a scheduler process."""

from __future__ import annotations

import msgspec

from phalanx.kube.own_objects import default_lease
from phalanx.status.verdict_publisher import PublishingPace


class SchedulerOptions(msgspec.Struct, frozen=True):
    """Options of a scheduler process.

    `config` is the path of a policy file, "" for the built-in policy. `pace` limits how soon verdicts are
    published. With `self_check` every account is recomputed from its pods once a second after changes.

    Lease and ConfigMaps belong to the first scheduler name (own_objects); an empty `lease_name` is set to that
    lease. A lease is valid for `lease_seconds`, trusted by its holder for `renew_seconds`, and renewed or requested
    every `retry_seconds`. The defaults are kube-scheduler's.
    """

    scheduler_names: tuple[str, ...] = ("phalanx",)
    config: str = ""
    concurrency: int = 64
    leader_elect: bool = False
    lease_namespace: str = "kube-system"
    lease_name: str = ""
    lease_seconds: float = 15.0
    renew_seconds: float = 10.0
    retry_seconds: float = 2.0
    drain_seconds: float = 10.0
    self_check: bool = False
    pace: PublishingPace = PublishingPace()

    def __post_init__(self) -> None:
        if not self.lease_name:
            msgspec.structs.force_setattr(self, "lease_name", default_lease(self.scheduler_names))
