"""Constraints on the node of a pod, from the objects as kubectl shows them. `test_NN_...` proves duty NN."""

from __future__ import annotations

import copy
import random

import pytest

from tests.differential.ours import Ours
from tests.differential.tables.notation import Case, one

ZONES = "node a zone=1\nnode b zone=1\nnode c zone=2\n"


def room(text: str) -> str:
    """The nodes that the new pod may go to."""
    return open_to_new(one(text))


def open_to_new(case: Case) -> str:
    return allowed(Ours.of(case.world), case)


def allowed(ours: Ours, case: Case) -> str:
    kept_out = ours.verdicts()["new"]
    return " ".join(
        node["metadata"]["name"] for node in case.world.nodes if node["metadata"]["name"] not in kept_out
    )


@pytest.mark.parametrize(
    ("asks", "needed"),
    [
        ("asks cpu=1 ; asks cpu=1", 2000),
        ("asks cpu=1 ; init-asks cpu=3", 3000),  # the peak before it starts
        ("asks cpu=1 ; init-asks cpu=3 ; sidecar-asks cpu=1", 3000),  # a sidecar that starts later is not there yet
        ("asks cpu=1 ; sidecar-asks cpu=1 ; init-asks cpu=3", 4000),  # one that is there already is
        ("asks cpu=2 ; sidecar-asks cpu=1 ; overhead cpu=1", 4000),
        ("asks cpu=1 ; asks cpu=1 ; level-asks cpu=3", 3000),  # the pod's own word replaces the sum
        ("asks cpu=1100u ; asks cpu=1100u", 4),  # the API server rounds each one up
    ],
)
def test_03_sidecars_init_containers_overhead_and_the_pods_own_requests(asks: str, needed: int) -> None:
    text = "node n ; offers cpu={}m memory=1Gi pods=9\nnew ; {}"
    assert room(text.format(needed, asks)) == "n"
    assert room(text.format(needed - 1, asks)) == ""


def test_04_a_resize_of_a_running_pod_is_counted_when_it_is_seen() -> None:
    case = one("node n ; offers cpu=4 memory=1Gi pods=9\npod there on=n ; asks cpu=1\nnew ; asks cpu=2")
    ours = Ours.of(case.world)
    assert allowed(ours, case) == "n"
    grown = copy.deepcopy(case.world.pods[0])
    grown["status"]["containerStatuses"] = [{"name": "c0", "resources": {"requests": {"cpu": "3"}}}]
    ours.take("pods", grown)
    assert allowed(ours, case) == ""
    ours.take("pods", case.world.pods[0])
    assert allowed(ours, case) == "n"


def test_05_a_terminating_pod_holds_its_room_and_is_not_spread_away_from() -> None:
    assert (
        room("node n ; offers cpu=1 memory=1Gi pods=9\npod there on=n ; asks cpu=1 ; gone\nnew ; asks cpu=1") == ""
    )
    text = ZONES + "pod there on=a app=web{}\nnew app=web ; spread 1 zone app=web"
    assert room(text.format("")) == "c"
    assert room(text.format(" ; gone")) == "a b c"


def test_06_anti_affinity_of_running_pods_counts_for_pods_of_any_scheduler() -> None:
    case = one(ZONES + "pod there on=a ; apart zone app=web\nnew app=web")
    case.world.pods[0]["spec"]["schedulerName"] = "default-scheduler"
    assert open_to_new(case) == "c"


@pytest.mark.parametrize(
    ("taken", "wanted", "fits"),
    [
        ("TCP/10.0.0.1/80", "TCP/10.0.0.2/80", True),
        ("TCP/10.0.0.1/80", "UDP/10.0.0.1/80", True),
        ("TCP/0.0.0.0/80", "TCP/10.0.0.2/80", False),
        ("TCP//80", "TCP/10.0.0.2/80", False),
        ("TCP/10.0.0.1/80", "TCP/0.0.0.0/80", False),
        ("TCP/127.0.0.1/80", "TCP/127.0.0.1/80", False),
    ],
)
def test_07_every_address_conflicts_with_each(taken: str, wanted: str, fits: bool) -> None:
    assert room(f"node n\npod there on=n ; port {taken}\nnew ; port {wanted}") == ("n" if fits else "")


_BOUND = '{"name": "NAME", "namespace": "default", "annotations": {"pv.kubernetes.io/bind-completed": "yes"}}'


def bound_claim(name: str, mode: str = "ReadWriteOnce") -> str:
    metadata = _BOUND.replace("NAME", name)
    handle = f'{{"driver": "csi.example.com", "volumeHandle": "{name}"}}'
    return (
        f'claim {{"metadata": {metadata}, "spec": {{"volumeName": "pv-{name}", "accessModes": ["{mode}"]}}}}\n'
        f'volume {{"metadata": {{"name": "pv-{name}"}}, "spec": {{"csi": {handle}, "accessModes": ["{mode}"]}}}}\n'
    )


def test_09_a_claim_for_one_pod_is_in_use_wherever_that_pod_is() -> None:
    text = "node a\nnode b\n" + bound_claim("c", "ReadWriteOncePod") + "{}new ; uses c"
    assert room(text.replace("{}", "")) == "a b"
    assert room(text.replace("{}", "pod there on=a ; uses c\n")) == ""


def test_10_a_driver_attaches_so_many_volumes_to_a_node() -> None:
    limit = '{"name": "csi.example.com", "nodeID": "a", "allocatable": {"count": 1}}'
    text = "node a\nnode b\n" + bound_claim("c") + bound_claim("d") + "pod there on=a ; uses c\nnew ; uses d\n"
    assert room(text) == "a b"
    assert room(text + f'csinode {{"metadata": {{"name": "a"}}, "spec": {{"drivers": [{limit}]}}}}') == "b"


def test_11_nominated_pod_counts_on_its_node() -> None:
    case = one("node n ; offers cpu=1 memory=1Gi pods=9\npod soon ; asks cpu=1\nnew ; asks cpu=1")
    soon = case.world.pods[0]
    soon["spec"]["schedulerName"] = "default-scheduler"
    assert open_to_new(case) == "n"
    soon["status"]["nominatedNodeName"] = "n"
    assert open_to_new(case) == ""


def test_15_messages_do_not_depend_on_the_order_of_nodes() -> None:
    case = one(
        "node a ; offers cpu=1 memory=1Gi pods=9\nnode b ; taint x=1:NoSchedule\nnode c ; cordoned\n"
        "node d ; offers cpu=9 memory=1Gi pods=0\nnew ; asks cpu=2"
    )
    said = set()
    for seed in range(8):
        random.Random(seed).shuffle(case.world.nodes)
        (verdict,) = Ours.of(case.world).scheduler.cycle(1_800_000_000.0).pods
        assert verdict.verdict is not None
        said.add(verdict.verdict.message)
    (text,) = said
    assert all(part in text for part in ("4 nodes", "Insufficient cpu", "Too many pods", "unschedulable"))


def test_27_pods_on_a_node_that_is_not_known_yet_count_once_it_is() -> None:
    case = one("node late ; offers cpu=1 memory=1Gi pods=9\npod there on=late ; asks cpu=1\nnew ; asks cpu=1")
    ours = Ours()
    for pod in case.world.pods:
        ours.take("pods", pod)
    ours.take("nodes", case.world.nodes[0])
    assert allowed(ours, case) == ""


def test_28_a_node_that_offers_less_than_is_used_has_no_room_at_all() -> None:
    text = (
        "node n ; offers cpu=4 memory=1Gi pods=9 example.com/gpu=0\npod there on=n ; asks example.com/gpu=2\nnew ; "
    )
    assert room(text + "asks example.com/gpu=1") == ""
    assert room(text + "asks cpu=1") == "n"


def test_29_a_node_offers_nothing_before_its_cloud_has_initialised_it() -> None:
    text = "node n ; offers cpu=4 memory=1Gi pods=9{}\nnew ; asks cpu=1"
    assert room(text.format(" ; taint node.cloudprovider.kubernetes.io/uninitialized=true:NoSchedule")) == ""
    assert room(text.format("")) == "n"


def test_33_a_field_selects_nodes_by_their_name() -> None:
    assert room("node a\nnode b\nnew ; needs @name:in:b") == "b"
    assert room("node a\nnode b\nnew ; needs @name:notin:b") == "a"


def test_34_a_key_that_is_absent_is_not_in_any_list() -> None:
    assert room("node a disk=ssd\nnode b disk=hdd\nnode c\nnew ; needs disk:notin:ssd") == "b c"


def test_35_a_term_that_asks_for_nothing_matches_nothing() -> None:
    assert room("node a\nnew ; needs {}") == ""
    assert room("node a\nnode b x=1\nnew ; needs {} ; needs x?") == "b"


def test_36_the_first_of_its_kind_needs_no_company() -> None:
    company = "new app=web ; near zone app=web"
    assert room(ZONES + "node d\n" + company) == "a b c"  # where the label is missing it would be in no domain
    assert room(ZONES + "pod there on=c app=web\n" + company) == "c"
    assert room(ZONES + "pod there on=c app=db\nnew app=web ; near zone app=db") == "c"
    assert room(ZONES + "new app=web ; near zone app=db") == ""  # it is no company for itself


def test_37_fewer_domains_than_demanded_count_as_an_empty_one() -> None:
    text = ZONES + "pod x on=a app=web\npod y on=c app=web\nnew app=web ; spread 1 zone app=web{}"
    assert room(text.format("")) == "a b c"
    assert room(text.format(" min=3")) == ""


def test_38_tainted_nodes_are_no_empty_domains_where_the_pod_says_so() -> None:
    text = ZONES + "node d zone=3 ; taint x=1:NoSchedule\npod x on=a app=web\npod y on=c app=web\n"
    text += "new app=web ; spread 1 zone app=web{}"
    assert room(text.format("")) == ""
    assert room(text.format(" taints=Honor")) == "a b c"


def test_39_the_claim_of_an_ephemeral_volume_must_be_the_pods_own() -> None:
    case = one(
        "node n\n" + bound_claim("new-scratch") + 'new ; with {"volumes": [{"name": "scratch", "ephemeral": {}}]}'
    )
    assert open_to_new(case) == ""
    owner = {"kind": "Pod", "name": "new", "uid": "new", "controller": True}
    case.world.claims[0]["metadata"]["ownerReferences"] = [owner]
    assert open_to_new(case) == "n"
