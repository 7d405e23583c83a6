"""Names of the API groups of all dialects."""

NATIVE = "scheduling.k8s.io"
# Versions of its PodGroup, newest first: 1.38 (planned, KEP-4671), 1.37, 1.37 with alpha gates, 1.36.
NATIVE_VERSIONS = ("v1", "v1beta1", "v1alpha3", "v1alpha2")
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
