"""What marks the copies of gangs that a hub has sent here, and the lease by which it says that it is there."""

from __future__ import annotations

#: Label of copies: whose they are (the uid of the hub's namespace kube-system).
ORIGIN_LABEL = "phalanx.dev/origin"
#: Annotation of copies, and of PodGroups at the hub: what becomes of them when hub and cluster lose each other.
WHEN_LOST = "phalanx.dev/when-lost"
STOP = "Stop"

#: The hub's lease in each member cluster, in the namespace of the scheduler's own.
HUB_LEASE = "phalanx-hub"
#: Without a renewal for so long nothing is started that a hub has sent.
LEASE_SECONDS = 60
