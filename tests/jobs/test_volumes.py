"""Volumes of a job: claims that exist by name, and claims that are made for it."""

from __future__ import annotations

import re

from phalanx.jobs.volumes import missing_claim, volume_resources, volumes_of
from tests.jobs.written import OWNER, container, job, pod, task

CLAIM = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}


def test_a_claim_that_exists_is_mounted_in_all_containers_but_init_containers() -> None:
    spec = {
        "initContainers": [{"name": "first"}],
        "containers": [{"name": "a"}, {"name": "b", "volumeMounts": [{"name": "own", "mountPath": "/own"}]}],
    }
    made = pod(job(task(spec=spec), volumes=[{"mountPath": "/data", "volumeClaimName": "data"}]))
    assert made["spec"]["volumes"] == [{"name": "train-data", "persistentVolumeClaim": {"claimName": "data"}}]
    assert container(made, 0)["volumeMounts"] == [{"name": "train-data", "mountPath": "/data"}]
    assert container(made, 1)["volumeMounts"] == [
        {"name": "own", "mountPath": "/own"},
        {"name": "train-data", "mountPath": "/data"},
    ]
    assert container(made, 0, "initContainers") == {"name": "first"}


def test_a_claim_that_is_made_lives_as_long_as_the_job() -> None:
    (volume,) = volumes_of(job(volumes=[{"mountPath": "/scratch", "volumeClaim": CLAIM}]))
    assert re.fullmatch(r"train-pvc-[0-9a-f]{12}", volume.claim)
    assert volume.manifest == {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": volume.claim, "namespace": "team", "ownerReferences": [OWNER]},
        "spec": CLAIM,
    }


def test_a_second_run_makes_no_second_claim_and_another_job_another() -> None:
    volumes = [{"mountPath": "/a", "volumeClaim": CLAIM}, {"mountPath": "/b", "volumeClaim": CLAIM}]

    def names(uid: str) -> list[str]:
        return [volume.claim for volume in volumes_of(job(volumes=volumes, metadata={"uid": uid}))]

    assert names("1") == names("1")
    assert len({*names("1"), *names("2")}) == 4


def test_claims_are_listed_in_the_status() -> None:
    made = job(volumes=[{"mountPath": "/d", "volumeClaimName": "data"}, {"mountPath": "/s", "volumeClaim": CLAIM}])
    fresh = volumes_of(made)[1].claim
    assert volume_resources(made) == {"volume-pvc-data": "data", f"volume-pvc-{fresh}": fresh}


def test_missing_claim_is_reported_in_upstreams_words() -> None:
    assert missing_claim("data") == (
        "pvc data is not found, the job will be in the Pending state until the PVC is created"
    )


def test_a_path_that_a_container_uses_already_stays_its_own() -> None:
    spec = {"containers": [{"name": "a", "volumeMounts": [{"name": "own", "mountPath": "/data"}]}]}
    made = pod(job(task(spec=spec), volumes=[{"mountPath": "/data", "volumeClaimName": "data"}]))
    assert container(made)["volumeMounts"] == [{"name": "own", "mountPath": "/data"}]


def test_one_claim_at_two_paths_is_one_volume() -> None:
    both = [{"mountPath": "/a", "volumeClaimName": "data"}, {"mountPath": "/b", "volumeClaimName": "data"}]
    made = pod(job(volumes=both))
    assert len(made["spec"]["volumes"]) == 1
    assert [mount["mountPath"] for mount in container(made)["volumeMounts"]] == ["/a", "/b"]


def test_a_volume_that_names_and_describes_no_claim_is_left_out() -> None:
    assert volumes_of(job(volumes=[{"mountPath": "/a"}])) == ()


def test_names_that_are_too_long_or_have_dots_are_still_names_of_volumes_and_claims() -> None:
    name = "a" * 240 + ".job"
    made = job(volumes=[{"mountPath": "/s", "volumeClaim": CLAIM}], metadata={"name": name}, plugins={"svc": []})
    (volume,) = volumes_of(made)
    assert len(volume.claim) <= 253
    for each in pod(made)["spec"]["volumes"]:
        assert re.fullmatch(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?", each["name"])
    assert pod(made)["spec"]["volumes"][1]["configMap"] == {"name": f"{name}-svc"}
