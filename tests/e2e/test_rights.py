"""The granted rights of the scheduler are those that tests have used, except the ones listed here with a
reason.
"""

from __future__ import annotations

import fnmatch
from pathlib import Path

from tests.e2e.rights import Rights

#: Rights that no end-to-end test uses with its scheduler, as patterns, and why the scheduler has them all the same.
UNUSED: dict[str, str] = {
    "get *": "what may be listed may be read one by one: rules that read name get, list and watch together",
    "* leases.coordination.k8s.io": "leases of these tests are taken through a client of their own (kube/lease.py)",
    "create pods/eviction": "only where the policy says `evictions: eviction-api`",
    "create tokenreviews.authentication.k8s.io": "/configz and /debug (test_inspection)",
    "create subjectaccessreviews.authorization.k8s.io": "the same",
    "write schedulingresults.phalanx.dev": "no request: admission policies ask for it (tests/attacks)",
    "* podgroups.scheduling.sigs.k8s.io": "made of the kind that is served (test_generated_pod_groups)",
    "* compositepodgroups.scheduling.k8s.io": "v1alpha3 of the native API",
    "* compositepodgroups/status.scheduling.k8s.io": "the same",
    "* workloads.scheduling.k8s.io": "v1alpha1 of the native API, of Kubernetes 1.35",
    "* resourceclaims*.resource.k8s.io": "depends on the server.s version and gates",
    "list nodes.metrics.k8s.io": "only where a plugin minds the load, and metrics-server runs",
    # The embedded server does not serve these foreign definitions; tests/dialects read their objects.
    "* *.kubeflow.org": "training operators",
    "* trainjobs.trainer.kubeflow.org": "Kubeflow Trainer",
    "* *.ray.io": "KubeRay",
    "* sparkapplications.sparkoperator.k8s.io": "Spark operator",
    "* jobsets.jobset.x-k8s.io": "JobSet",
    "* leaderworkersets.leaderworkerset.x-k8s.io": "LeaderWorkerSet",
    "* workloads.kueue.x-k8s.io": "Kueue",
    "* podgangs.scheduler.grove.io": "Grove",
    "* nodeclaims.karpenter.sh": "Karpenter",
    "* reservations*.scheduling.koordinator.sh": "Koordinator",
    # Statuses of kube-batch's groups, whose three spellings share one implementation.
    "patch *.incubator.scheduling.k8s.io": "kube-batch",
    "patch *.scheduling.incubator.k8s.io": "kube-batch",
    "patch *.scheduling.sigs.dev": "kube-batch",
}
RECORD = Path(__file__).parent / "rights_used.txt"


def _used() -> set[str]:
    return set(RECORD.read_text("utf-8").split("\n")) - {""}


def _granted() -> set[str]:
    return Rights("kube-system", "phalanx", "phalanx-scheduler").granted


def _listed(rights: set[str]) -> dict[str, list[str]]:
    return {pattern: sorted(fnmatch.filter(rights, pattern)) for pattern in UNUSED}


def test_every_right_is_used_by_a_test_or_listed_with_a_reason() -> None:
    """Else: use it in a test and record that (tests/e2e/rights.py), or take it away."""
    unused = _granted() - _used()
    listed = {right for rights in _listed(unused).values() for right in rights}
    assert sorted(unused - listed) == []


def test_no_exception_is_listed_for_a_used_or_removed_right() -> None:
    assert [pattern for pattern, rights in _listed(_granted() - _used()).items() if not rights] == []
    assert all(UNUSED.values())


def test_the_record_is_of_rights_that_are_granted() -> None:
    """Otherwise a used right was revoked; PHALANX_RIGHTS_REPORT rewrites the record."""
    assert sorted(_used() - _granted()) == []
    assert len(_used()) > 100
    text = RECORD.read_text("utf-8")
    assert text == "\n".join([*sorted(_used()), ""])
