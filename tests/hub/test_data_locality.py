"""A gang is sent to the clusters of its data, and not before the data have arrived."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
import pytest_asyncio

from phalanx.hub.choice.assignment import Candidate, best
from phalanx.hub.data_objects import (
    DATA_LOADS,
    DATA_SOURCE_CLAIMS,
    DATA_SOURCES,
    DataNeeds,
    DataObjects,
    bytes_to_move,
    held_data,
)
from phalanx.hub.objects import Json, StoredObject
from phalanx.kube.changes import Upsert
from phalanx.kube.client import PatchType
from tests.hub.federation import NAMESPACE, Federation, federation
from tests.hub.test_multikueue_over_http import definition

GROUP = ("scheduling.x-k8s.io/v1alpha1", "PodGroup")
TABLE = {"system": "hive", "type": "table", "name": "clicks"}
ON_TABLE = {"system": "hive", "dataSourceType": "table", "dataSourceName": "clicks"}
ON_TRAIN = {"apiVersion": GROUP[0], "kind": GROUP[1], "name": "train"}


def stored(name: str, namespace: str = "team", **content: Any) -> StoredObject:
    metadata = {"name": name, "namespace": namespace, "uid": f"uid-{name}", "resourceVersion": "1"}
    return StoredObject({"metadata": {**metadata, **content.pop("metadata", {})}, **content})


def gang(**annotations: str) -> StoredObject:
    keys = {f"phalanx.dev/{key.replace('_', '-')}": value for key, value in annotations.items()}
    return stored("train", metadata={"annotations": keys})


class Api:
    """The hub's view of data."""

    def __init__(self) -> None:
        self._version = 0
        self.jobs: dict[tuple[str, str], StoredObject] = {}
        self.data = DataObjects(lambda namespace, name: self.jobs.get((namespace, name)))

    def job(self, name: str, *conditions: Json, namespace: str = "team") -> None:
        self.jobs[namespace, name] = stored(name, namespace, status={"conditions": list(conditions)})

    def source(self, name: str, spec: Json, *clusters: str) -> None:
        self._put(self.data.sources, stored(name, "", spec={**spec, "locality": {"clusterNames": list(clusters)}}))

    def claim(self, name: str, spec: Json, /, namespace: str = "team", bound: str = "", **workload: str) -> None:
        there = {"namespace": workload.pop("workload_namespace")} if "workload_namespace" in workload else {}
        content = {**spec, "workload": {**ON_TRAIN, **workload, **there}}
        self._put(
            self.data.claims,
            stored(name, namespace, spec=content, status={"boundDataSource": bound} if bound else {}),
        )

    def needs(self, group: StoredObject) -> DataNeeds:
        return self.data.needs(*GROUP, group)

    def _put(self, store: Any, entry: StoredObject) -> None:
        self._version += 1
        entry.document["metadata"]["resourceVersion"] = str(self._version)
        raw = msgspec.json.encode(entry.document)
        store.sink(Upsert(raw, raw, (entry.namespace, entry.name), entry.uid, self._version))


@pytest.fixture
def api() -> Api:
    return Api()


class TestWhereItMayGo:
    def test_a_cluster_that_lacks_a_set_is_not_a_candidate_and_says_which(self) -> None:
        there = held_data({"dataSets": [{"name": "a"}]})
        assert there.refusal("west", DataNeeds(required=("a",))) == ""
        assert there.refusal("west", DataNeeds(required=("a", "b", "c"))) == "does not hold data set b, c"

    def test_nothing_is_held_by_a_cluster_of_which_nothing_can_be_read(self) -> None:
        for odd in ({}, {"dataSets": None}, {"dataSets": [None, 1, {"name": 2}]}):
            assert held_data(odd).refusal("west", DataNeeds(required=("a",)))

    def test_fewest_bytes_to_move_win_before_cost_among_equal_starts(self) -> None:
        west, east = (
            held_data({"dataSets": [{"name": "a", "size": "2Ti"}]}),
            held_data({"dataSets": [{"name": "b"}]}),
        )
        needs = DataNeeds(preferred=("a", "b", "nobody-has-it"))
        assert bytes_to_move(west, [west, east], needs) == 2
        assert bytes_to_move(east, [west, east], needs) == 2 * 2**40 + 1
        found = best([Candidate("east", 0, bytes_to_move=9), Candidate("west", 0, cost=5, bytes_to_move=2)], 0)
        assert found is not None
        assert found.name == "west"

    def test_an_earlier_start_is_worth_more_than_data_that_are_there(self) -> None:
        found = best([Candidate("east", 0, bytes_to_move=2**50), Candidate("west", 3600)], 0)
        assert found is not None
        assert found.name == "east"

    def test_a_size_that_cannot_be_read_counts_as_little(self) -> None:
        assert held_data({"dataSets": [{"name": "a", "size": "much"}]}).sizes == {"a": 1}


class TestClaims:
    def test_gang_is_allowed_in_the_clusters_of_its_claims_source(self, api: Api) -> None:
        api.source("clicks-1", TABLE, "west", "north")
        api.claim("mine", ON_TABLE)
        needs = api.needs(gang())
        assert needs.claimed == (("table clicks", ("north", "west")),)
        assert held_data({}).refusal("west", needs) == ""
        assert held_data({}).refusal("east", needs) == "does not hold table clicks"

    def test_a_claim_that_no_source_matches_holds_it_back(self, api: Api) -> None:
        api.source("views", {**TABLE, "type": "view"}, "west")
        api.source("parts", {**TABLE, "attributes": {"part": "1"}}, "west")
        api.claim("mine", ON_TABLE)
        needs = api.needs(gang())
        assert (needs.reason, needs.waits_for) == (
            "DataSourceClaim",
            "DataSourceClaim mine: no DataSource has table clicks",
        )

    def test_bound_source_counts_only_if_it_matches_the_request(self, api: Api) -> None:
        """A user who may write a claim's status may not send a gang to foreign data."""
        api.source("a", TABLE, "west")
        api.source("b", TABLE, "north")
        api.source("other", {**TABLE, "name": "salaries"}, "east")
        api.claim("mine", ON_TABLE, bound="b")
        assert api.needs(gang()).claimed == (("table clicks", ("north",)),)
        api.claim("mine", ON_TABLE, bound="other")
        assert api.needs(gang()).claimed == (("table clicks", ("west",)),)

    def test_claims_of_other_namespaces_mean_nothing_here(self, api: Api) -> None:
        api.source("clicks-1", TABLE, "west")
        api.claim("theirs", ON_TABLE, namespace="other")
        api.claim("across", ON_TABLE, namespace="other", workload_namespace="team")
        assert api.needs(gang()) == DataNeeds()

    def test_a_claim_for_the_job_that_made_the_group_is_for_the_group(self, api: Api) -> None:
        api.source("clicks-1", TABLE, "west")
        api.claim("mine", ON_TABLE, apiVersion="batch.volcano.sh/v1alpha1", kind="Job", name="vj")
        owner = {"apiVersion": "batch.volcano.sh/v1alpha1", "kind": "Job", "name": "vj", "controller": True}
        assert api.needs(gang()) == DataNeeds()
        made = stored("train", metadata={"ownerReferences": [owner]})
        assert api.needs(made).claimed == (("table clicks", ("west",)),)


class TestStageIn:
    def test_a_job_has_to_be_complete(self, api: Api) -> None:
        waiting = gang(stage_in="job/load")
        assert api.needs(waiting).waits_for == "Job load, which loads data for the gang, does not exist"
        api.job("load")
        assert api.needs(waiting).waits_for == "Job load has not loaded its data yet"
        api.job("load", {"type": "Failed", "status": "True", "message": "no space\x1b[31m"})
        assert api.needs(waiting).waits_for == "Job load has failed to load its data: no space [31m"
        api.job("load", {"type": "Complete", "status": "True"})
        assert api.needs(waiting) == DataNeeds()

    def test_a_job_of_another_namespace_is_not_the_one(self, api: Api) -> None:
        api.job("load", {"type": "Complete", "status": "True"}, namespace="other")
        assert api.needs(gang(stage_in="job/load")).reason == "StageIn"

    @pytest.mark.parametrize("text", ["load", "pod/load", "job/", "/"])
    def test_unsupported_claim_holds_the_gang_back_and_names_supported_forms(self, api: Api, text: str) -> None:
        assert "expected job/NAME, dataload/NAME, dataset/NAME" in api.needs(gang(stage_in=text)).waits_for

    def test_all_of_several_have_to_be(self, api: Api) -> None:
        api.job("one", {"type": "Complete", "status": "True"})
        assert "Job two" in api.needs(gang(stage_in="job/one, job/two")).waits_for


@pytest_asyncio.fixture
async def two(tmp_path: Path) -> AsyncIterator[Federation]:
    kinds = [definition(each) for each in (DATA_SOURCES, DATA_SOURCE_CLAIMS, DATA_LOADS)]
    async with federation(tmp_path, definitions=kinds) as made:
        for name in ("east", "west"):
            await made.members[name].node("n1", "8")
        await made.join("east", cost=5, dataSets=[{"name": "imagenet", "size": "150Gi"}])
        await made.join("west")
        yield made


@pytest.mark.slow
@pytest.mark.e2e
@pytest.mark.asyncio
async def test_gangs_are_sent_to_the_clusters_of_their_data_once_these_arrive(two: Federation) -> None:
    client = two.hub.client
    await two.start_hub()
    await two.gang("anywhere", 1)
    await two.until_record("anywhere", phase="Granted", cluster="west")
    await two.gang("bound", 1, data_sets="imagenet")
    record = await two.until_record("bound", phase="Granted", cluster="east")
    assert {"cluster": "west", "message": "does not hold data set imagenet"} in record["answers"]
    await two.gang("rather", 1, preferred_data_sets="imagenet")
    await two.until_record("rather", phase="Granted", cluster="east")
    await two.gang("nowhere", 1, data_sets="imagenet,salaries")
    await two.until_record("nowhere", reason="NoCluster")

    load = {
        "apiVersion": DATA_LOADS.api_version,
        "kind": "DataLoad",
        "metadata": {"name": "warm"},
        "status": {"phase": "Executing"},
    }
    await two.gang("staged", 1, stage_in="dataload/warm")
    await two.until_record(
        "staged", reason="StageIn", message="DataLoad warm, which loads data for the gang, does not exist"
    )
    await client.create(DATA_LOADS.path(NAMESPACE), load)
    done = {"status": {"phase": "Complete"}}
    await client.patch(DATA_LOADS.path(NAMESPACE, "warm", "status"), done, PatchType.MERGE)
    await two.until_record("staged", phase="Granted", cluster="west")

    claim = {
        "apiVersion": DATA_SOURCE_CLAIMS.api_version,
        "kind": "DataSourceClaim",
        "metadata": {"name": "clicks"},
        "spec": {**ON_TABLE, "workload": {**ON_TRAIN, "name": "claiming"}},
    }
    await client.create(DATA_SOURCE_CLAIMS.path(NAMESPACE), claim)
    await two.gang("claiming", 1)
    await two.until_record("claiming", reason="DataSourceClaim")
    source = {
        "apiVersion": DATA_SOURCES.api_version,
        "kind": "DataSource",
        "metadata": {"name": "clicks-1"},
        "spec": {**TABLE, "locality": {"clusterNames": ["east"]}},
    }
    await client.create(DATA_SOURCES.path(), source)
    await two.until_record("claiming", phase="Granted", cluster="east")
