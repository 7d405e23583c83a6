"""Names of the API groups of all dialects."""

NATIVE = "scheduling.k8s.io"
X_K8S = "scheduling.x-k8s.io"
SIGS = "scheduling.sigs.k8s.io"
VOLCANO = "scheduling.volcano.sh"
KUBE_BATCH = "scheduling.incubator.k8s.io"
KUBE_BATCH_DESIGN = "incubator.scheduling.k8s.io"
KUBE_BATCH_LAST = "scheduling.sigs.dev"
KUBE_BATCH_GROUPS = (KUBE_BATCH, KUBE_BATCH_DESIGN, KUBE_BATCH_LAST)
KOORDINATOR = "scheduling.koordinator.sh"
KOORDINATOR_QUOTA = "quota.koordinator.sh"
KUEUE = "kueue.x-k8s.io"
PHALANX = "phalanx.dev"
