"""Labels of PodGroups that a hub dispatched to this cluster, and the lease that shows whether the hub is alive."""

from __future__ import annotations

#: Label of copies: the hub that created them, by the uid of its namespace kube-system.
ORIGIN_LABEL = "phalanx.dev/origin"
#: Annotation of copies, and of PodGroups at the hub: the action when hub and cluster lose their connection.
WHEN_LOST = "phalanx.dev/when-lost"
STOP = "Stop"

#: The hub's lease in each member cluster, in the namespace of the scheduler.
HUB_LEASE = "phalanx-hub"
#: Seconds without a renewal after which no gang from the hub is started.
LEASE_SECONDS = 60
