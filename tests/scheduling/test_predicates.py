"""Node filters (docs/rules/kubernetes_native.md, B8), case by case and at random."""

from __future__ import annotations

import random
import re

import numpy as np
import pytest

from phalanx.cluster.state import ClusterState
from phalanx.model.events import NodeRemoved, NodeUpdated, PodRemoved, PodUpdated
from phalanx.model.node import Node
from phalanx.model.pod import Pod, PodClass
from phalanx.model.selectors import HostPort, NodeSelectorTerm, Requirement, Taint, Toleration
from phalanx.scheduling.framework.arguments import Arguments
from phalanx.scheduling.placement.placer import Placer
from phalanx.scheduling.plugins.nodes.predicates import Predicates

UNSCHEDULABLE = "node.kubernetes.io/unschedulable"


def eligible(pod: PodClass, *nodes: Node) -> list[str]:
    """Return the names of the nodes that pass all filters."""
    state = ClusterState()
    for node in nodes:
        state.apply(NodeUpdated(node))
    return names(state, pod, predicates())


def predicates(**arguments: object) -> Predicates:
    return Predicates(Arguments("predicates", {f"predicate.{key}": value for key, value in arguments.items()}))


def names(state: ClusterState, pod: PodClass, plugin: Predicates) -> list[str]:
    mask = Placer(state.nodes, [plugin], [], [], plugin.node_allocators).class_view(state.classes.record(pod)).mask
    return [state.nodes.names[row] for row in np.flatnonzero(mask)]


def labelled(name: str, **labels: str) -> Node:
    return Node(name, labels=tuple(sorted(labels.items())))


def affinity(*terms: NodeSelectorTerm) -> PodClass:
    return PodClass(affinity=terms)


def where(key: str, operator: str, *values: str) -> NodeSelectorTerm:
    return NodeSelectorTerm((Requirement(key, operator, values),))


A, B, NONE = labelled("a", disk="ssd"), labelled("b", disk="hdd"), labelled("none")


class TestNodeAffinity:
    def test_node_selector_requires_every_label_with_its_value(self) -> None:
        both = labelled("both", disk="ssd", zone="z1")
        pod = PodClass(node_selector=(("disk", "ssd"), ("zone", "z1")))
        assert eligible(pod, A, both, NONE) == ["both"]

    def test_selected_empty_value_is_not_an_absent_key(self) -> None:
        assert eligible(PodClass(node_selector=(("disk", ""),)), labelled("empty", disk=""), NONE) == ["empty"]

    @pytest.mark.parametrize(
        ("operator", "values", "expected"),
        [
            ("In", ("ssd", "nvme"), ["a"]),
            ("In", (), []),
            ("NotIn", ("ssd",), ["b", "none"]),  # an absent key is not in any list
            ("NotIn", ("unknown",), ["a", "b", "none"]),
            ("Exists", (), ["a", "b"]),
            ("DoesNotExist", (), ["none"]),
        ],
    )
    def test_operators_of_node_affinity_match_as_documented(
        self, operator: str, values: tuple[str, ...], expected: list[str]
    ) -> None:
        assert eligible(affinity(where("disk", operator, *values)), A, B, NONE) == expected

    @pytest.mark.parametrize(
        ("operator", "bound", "expected"),
        [
            ("Gt", "4", ["five", "plus"]),
            ("Lt", "5", ["four", "minus"]),
            ("Gt", "-3", ["four", "five", "plus"]),
            ("Gt", "4.5", []),  # the bound must be an integer
            ("Gt", "", []),
            ("Lt", "9223372036854775808", []),  # beyond int64
            ("Lt", "9223372036854775807", ["four", "five", "minus", "plus"]),
        ],
    )
    def test_gt_and_lt_compare_integers_and_other_values_match_nothing(
        self, operator: str, bound: str, expected: list[str]
    ) -> None:
        values = {
            "four": "4",
            "five": "5",
            "minus": "-3",
            "plus": "+7",
            "word": "many",
            "fraction": "4.5",
            "padded": " 6",
            "underscore": "1_0",
            "digit": "٦",
            "huge": "99999999999999999999",
        }
        nodes = [labelled(name, cores=value) for name, value in values.items()]
        assert eligible(affinity(where("cores", operator, bound)), *nodes, NONE) == expected

    def test_gt_with_two_bounds_matches_nothing(self) -> None:
        assert eligible(affinity(where("cores", "Gt", "1", "2")), labelled("n", cores="9")) == []

    def test_terms_are_alternatives_and_expressions_of_a_term_must_all_match(self) -> None:
        pair = NodeSelectorTerm((Requirement("disk", "In", ("ssd",)), Requirement("zone", "Exists")))
        both = labelled("both", disk="ssd", zone="z")
        assert eligible(affinity(pair, where("disk", "In", "hdd")), A, B, both, NONE) == ["b", "both"]

    def test_empty_term_matches_nothing_and_does_not_affect_other_terms(self) -> None:
        assert eligible(affinity(NodeSelectorTerm()), A, B) == []
        assert eligible(affinity(NodeSelectorTerm(), where("disk", "Exists")), A, B, NONE) == ["a", "b"]

    def test_affinity_without_terms_matches_nothing(self) -> None:
        assert eligible(affinity(), A, B) == []

    def test_invalid_term_matches_nothing_and_its_siblings_count(self) -> None:
        broken = NodeSelectorTerm((Requirement("disk", "Exists"),), invalid="unknown operator")
        assert eligible(affinity(broken), A) == []
        assert eligible(affinity(broken, where("disk", "In", "hdd")), A, B) == ["b"]

    def test_unknown_operator_matches_nothing(self) -> None:
        assert eligible(affinity(where("disk", "Like", "s*")), A, B, NONE) == []

    def test_selector_and_affinity_must_both_match(self) -> None:
        pod = PodClass(node_selector=(("zone", "z"),), affinity=(where("disk", "Exists"),))
        assert eligible(pod, A, labelled("z", zone="z"), labelled("both", zone="z", disk="x")) == ["both"]

    @pytest.mark.parametrize(
        ("operator", "value", "expected"), [("In", "b", ["b"]), ("NotIn", "b", ["a", "none"]), ("In", "x", [])]
    )
    def test_match_fields_support_the_node_name(self, operator: str, value: str, expected: list[str]) -> None:
        term = NodeSelectorTerm(fields=(Requirement("metadata.name", operator, (value,)),))
        assert eligible(affinity(term), A, B, NONE) == expected

    def test_match_fields_support_only_the_node_name(self) -> None:
        term = NodeSelectorTerm(fields=(Requirement("spec.x", "NotIn", ("b",)),))
        assert eligible(affinity(term), A, B) == []

    def test_label_column_follows_changed_labels_and_removed_nodes(self) -> None:
        state = ClusterState()
        pod, plugin = affinity(where("disk", "In", "ssd")), predicates()
        for node in (A, B, NONE):
            state.apply(NodeUpdated(node))
        assert names(state, pod, plugin) == ["a"]
        state.apply(NodeUpdated(labelled("none", disk="ssd")))
        state.apply(NodeUpdated(labelled("a")))
        assert names(state, pod, plugin) == ["none"]
        state.apply(NodeRemoved("none"))
        state.apply(NodeUpdated(labelled("new")))
        assert names(state, pod, plugin) == []

    def test_label_values_without_a_node_are_forgotten(self) -> None:
        state = ClusterState()
        plugin = predicates()
        state.apply(NodeUpdated(labelled("stays", host="stays")))
        assert names(state, PodClass(node_selector=(("host", "stays"),)), plugin) == ["stays"]
        for number in range(500):
            state.apply(NodeUpdated(labelled(f"n{number}", host=f"h{number}")))
            assert names(state, PodClass(node_selector=(("host", f"h{number}"),)), plugin) == [f"n{number}"]
            state.apply(NodeRemoved(f"n{number}"))
        assert names(state, PodClass(node_selector=(("host", "stays"),)), plugin) == ["stays"]
        assert len(state.nodes.labels.column("host").values) < 3 * state.nodes.capacity
        assert len(state.nodes.name_column.values) < 3 * state.nodes.capacity


class TestTaints:
    @pytest.mark.parametrize(
        ("toleration", "tolerated"),
        [
            (Toleration("gpu", "Equal", "yes", "NoSchedule"), True),
            (Toleration("gpu", "Equal", "no", "NoSchedule"), False),
            (Toleration("gpu", "Equal", "yes", "NoExecute"), False),
            (Toleration("gpu", "Equal", "yes"), True),  # an empty effect means all effects
            (Toleration("gpu", "", "yes"), True),  # the operator defaults to Equal
            (Toleration("gpu", "Exists"), True),
            (Toleration("gpu", "Exists", "ignored"), True),
            (Toleration("other", "Exists"), False),
            (Toleration("", "Exists"), True),  # everything
            (Toleration("", "Equal", "yes"), False),  # an empty key needs Exists
            (Toleration("", "Exists", effect="NoExecute"), False),
            (Toleration("gpu", "Like", "yes"), False),
        ],
    )
    def test_tolerations_match_taints_as_documented(self, toleration: Toleration, tolerated: bool) -> None:
        node = Node("n", taints=(Taint("gpu", "yes", "NoSchedule"),))
        assert eligible(PodClass(tolerations=(toleration,)), node) == (["n"] if tolerated else [])

    @pytest.mark.parametrize(
        ("operator", "limit", "tolerated"),
        [
            ("Lt", "6", True),
            ("Lt", "5", False),
            ("Gt", "4", True),
            ("Gt", "5", False),
            ("Lt", "x", False),
            ("Lt", " 6", False),
            ("Lt", "1_0", False),
            ("Lt", "+6", True),
            ("Lt", "9223372036854775808", False),
        ],
    )
    def test_numeric_tolerations_compare_the_taint_with_the_limit(
        self, operator: str, limit: str, tolerated: bool
    ) -> None:
        node = Node("n", taints=(Taint("age", "5", "NoSchedule"),))
        assert eligible(PodClass(tolerations=(Toleration("age", operator, limit),)), node) == ["n"] * tolerated

    @pytest.mark.parametrize(("effect", "blocks"), [("NoSchedule", 1), ("NoExecute", 1), ("PreferNoSchedule", 0)])
    def test_only_hard_taint_effects_exclude_nodes(self, effect: str, blocks: int) -> None:
        assert len(eligible(PodClass(), Node("n", taints=(Taint("k", effect=effect),)))) == 1 - blocks

    def test_every_hard_taint_needs_its_toleration(self) -> None:
        node = Node("n", taints=(Taint("a"), Taint("b", effect="NoExecute"), Taint("c", effect="PreferNoSchedule")))
        one = (Toleration("a", "Exists"),)
        assert eligible(PodClass(tolerations=one), node) == []
        assert eligible(PodClass(tolerations=(*one, Toleration("b", "Exists"))), node) == ["n"]

    def test_cordoned_node_accepts_pods_that_tolerate_the_cordon(self) -> None:
        node = Node("n", unschedulable=True)
        assert eligible(PodClass(), node) == []
        for toleration in (Toleration(UNSCHEDULABLE, "Exists", effect="NoSchedule"), Toleration("", "Exists")):
            assert eligible(PodClass(tolerations=(toleration,)), node) == ["n"]
        assert eligible(PodClass(tolerations=(Toleration(UNSCHEDULABLE, "Exists", "", "NoExecute"),)), node) == []

    def test_sets_of_taints_without_a_node_are_forgotten(self) -> None:
        state = ClusterState()
        for number in range(500):
            state.apply(NodeUpdated(Node("n", taints=(Taint("job", str(number)),))))
        assert len(state.nodes.taints.sets) < 3 * state.nodes.capacity
        pod = PodClass(tolerations=(Toleration("job", "Equal", "499"),))
        assert names(state, pod, predicates()) == ["n"]


class TestHostPorts:
    @pytest.mark.parametrize(
        ("taken", "wanted", "conflict"),
        [
            (HostPort(80), HostPort(80), True),
            (HostPort(80), HostPort(81), False),
            (HostPort(80), HostPort(80, "UDP"), False),
            (HostPort(80, ip="10.0.0.1"), HostPort(80, ip="10.0.0.2"), False),
            (HostPort(80, ip="10.0.0.1"), HostPort(80, ip="10.0.0.1"), True),
            (HostPort(80, ip="0.0.0.0"), HostPort(80, ip="10.0.0.1"), True),
            (HostPort(80, ip="10.0.0.1"), HostPort(80, ip=""), True),
        ],
    )
    def test_wildcard_address_conflicts_with_every_address(
        self, taken: HostPort, wanted: HostPort, conflict: bool
    ) -> None:
        state = ClusterState()
        state.apply(NodeUpdated(Node("n")))
        other = Pod("ns", "other", "u", PodClass(host_ports=(taken,)), scheduler="default-scheduler", node="n")
        state.apply(PodUpdated(other))
        assert names(state, PodClass(host_ports=(wanted,)), predicates()) == ([] if conflict else ["n"])
        state.apply(PodRemoved("u"))
        assert names(state, PodClass(host_ports=(wanted,)), predicates()) == ["n"]

    def test_port_held_by_two_pods_is_free_when_both_are_gone(self) -> None:
        """Another scheduler bound two pods with the same port to one node."""
        state = ClusterState()
        state.apply(NodeUpdated(Node("n")))
        holder = PodClass(host_ports=(HostPort(80),))
        for uid in ("u1", "u2"):
            state.apply(PodUpdated(Pod("ns", uid, uid, holder, node="n")))
        state.apply(PodRemoved("u1"))
        assert names(state, holder, predicates()) == []
        state.apply(PodRemoved("u2"))
        assert names(state, holder, predicates()) == ["n"]


class TestSwitches:
    def test_each_filter_can_be_switched_off(self) -> None:
        state = ClusterState()
        state.apply(NodeUpdated(Node("n", taints=(Taint("k"),))))
        state.apply(PodUpdated(Pod("ns", "p", "u", PodClass(host_ports=(HostPort(80),)), node="n")))
        for pod, switch in [
            (PodClass(), "TaintTolerationEnable"),
            (PodClass(tolerations=(Toleration("k", "Exists"),), node_selector=(("a", "b"),)), "NodeAffinityEnable"),
            (PodClass(tolerations=(Toleration("k", "Exists"),), host_ports=(HostPort(80),)), "NodePortsEnable"),
        ]:
            assert names(state, pod, predicates()) == []
            assert names(state, pod, predicates(**{switch: False})) == ["n"]

    def test_unsupported_arguments_are_named_and_refused(self) -> None:
        pod = PodClass(unsupported=("spec.volumes[0].persistentVolumeClaim", "spec.topologySpreadConstraints"))
        assert eligible(pod, A, B) == []
        refusal = predicates().pre_filter(ClusterState().classes.record(pod))
        assert refusal is not None
        assert "persistentVolumeClaim" in refusal
        assert "topologySpreadConstraints" in refusal


# the same rules once more, one pod and one node at a time


def allowed(pod: PodClass, node: Node, ports: list[HostPort]) -> bool:
    labels = dict(node.labels)
    if node.unschedulable and not endures(pod, Taint(UNSCHEDULABLE, "", "NoSchedule")):
        return False
    if any(taint.effect != "PreferNoSchedule" and not endures(pod, taint) for taint in node.taints):
        return False
    if any(labels.get(key) != value for key, value in pod.node_selector):
        return False
    if pod.affinity is not None and not any(matches(term, labels, node.name) for term in pod.affinity):
        return False
    for wanted in pod.host_ports:
        for port in ports:
            same = (wanted.port, wanted.protocol) == (port.port, port.protocol)
            if same and (wanted.ip == port.ip or {wanted.ip, port.ip} & {"", "0.0.0.0"}):
                return False
    return True


def endures(pod: PodClass, taint: Taint) -> bool:
    for toleration in pod.tolerations:
        if toleration.effect not in ("", taint.effect):
            continue
        if toleration.operator == "Exists" and toleration.key in ("", taint.key):
            return True
        if toleration.operator == "Equal" and (toleration.key, toleration.value) == (taint.key, taint.value):
            return True
    return False


def matches(term: NodeSelectorTerm, labels: dict[str, str], name: str) -> bool:
    if term.invalid or (not term.expressions and not term.fields):
        return False
    names = [holds(requirement, {"metadata.name": name}) for requirement in term.fields]
    return all(names) and all(holds(requirement, labels) for requirement in term.expressions)


def holds(requirement: Requirement, labels: dict[str, str]) -> bool:
    value = labels.get(requirement.key)
    match requirement.operator:
        case "In":
            return value in requirement.values if value is not None else False
        case "NotIn":
            return value is None or value not in requirement.values
        case "Exists":
            return value is not None
        case "DoesNotExist":
            return value is None
    (bound,) = requirement.values
    if value is None or not all(re.fullmatch(r"[+-]?\d+", text, re.ASCII) for text in (value, bound)):
        return False
    return int(value) > int(bound) if requirement.operator == "Gt" else int(value) < int(bound)


class Dice:
    def __init__(self, seed: int) -> None:
        self.draw = random.Random(seed)

    def node(self, name: str) -> Node:
        draw = self.draw
        labels = {key: draw.choice(["", "a", "b", "3", "-7", "x1"]) for key in "klm" if draw.random() < 0.6}
        effects = ["NoSchedule", "NoExecute", "PreferNoSchedule"]
        taints = tuple(Taint(draw.choice("tu"), draw.choice(["", "v"]), draw.choice(effects)) for _ in range(2))
        return Node(
            name,
            labels=tuple(sorted(labels.items())),
            taints=taints[: draw.choice([0, 0, 1, 2])],
            unschedulable=draw.random() < 0.15,
        )

    def requirement(self) -> Requirement:
        draw = self.draw
        operator = draw.choice(["In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt"])
        if operator in ("Gt", "Lt"):
            return Requirement(draw.choice("klm"), operator, (draw.choice(["0", "-9", "x"]),))
        values = tuple(draw.sample(["", "a", "b", "3"], draw.randint(1, 3))) if "In" in operator else ()
        return Requirement(draw.choice("klm"), operator, values)

    def term(self) -> NodeSelectorTerm:
        draw = self.draw
        field = Requirement("metadata.name", draw.choice(["In", "NotIn"]), (f"n{draw.randrange(12)}",))
        return NodeSelectorTerm(
            tuple(self.requirement() for _ in range(draw.choice([0, 1, 1, 2]))),
            (field,) if draw.random() < 0.2 else (),
            invalid=draw.choice(["", "", "", "bad"]),
        )

    def port(self) -> HostPort:
        draw = self.draw
        return HostPort(
            draw.choice([80, 81]), draw.choice(["TCP", "UDP"]), draw.choice(["", "0.0.0.0", "1.1.1.1", "2.2.2.2"])
        )

    def pod(self) -> PodClass:
        draw = self.draw
        tolerations = tuple(
            Toleration(
                draw.choice(["", "t", "u"]), draw.choice(["Exists", "Equal"]), draw.choice(["", "v"]), effect
            )
            for effect in draw.sample(["", "NoSchedule", "NoExecute"], draw.choice([0, 0, 1, 2]))
        )
        return PodClass(
            node_selector=draw.choice([(), (), (("k", "a"),), (("k", "a"), ("l", ""))]),
            affinity=draw.choice([None, tuple(self.term() for _ in range(draw.randint(0, 3)))]),
            tolerations=tolerations,
            host_ports=tuple(self.port() for _ in range(draw.choice([0, 0, 1, 2]))),
        )


@pytest.mark.parametrize("seed", range(8))
def test_vectorised_filters_equal_the_rules_applied_node_by_node(seed: int) -> None:
    dice, plugin, state = Dice(seed), predicates(), ClusterState()
    nodes: dict[str, Node] = {}
    for number in range(12):
        nodes[f"n{number}"] = dice.node(f"n{number}")
        state.apply(NodeUpdated(nodes[f"n{number}"]))
    ports: dict[str, list[HostPort]] = {name: [] for name in nodes}
    for number in range(10):
        name, port = f"n{dice.draw.randrange(12)}", dice.port()
        ports[name].append(port)
        state.apply(PodUpdated(Pod("ns", f"p{number}", f"p{number}", PodClass(host_ports=(port,)), node=name)))
    for _ in range(60):
        name = f"n{dice.draw.randrange(12)}"
        nodes[name] = dice.node(name)
        state.apply(NodeUpdated(nodes[name]))
        pod = dice.pod()
        cls = state.classes.record(pod)
        expected = {name for name, node in nodes.items() if allowed(pod, node, ports[name])}
        assert set(names(state, pod, plugin)) == expected
        some = np.array(sorted(dice.draw.sample(range(12), 5)), dtype=np.intp)
        mask = plugin.filter(cls, state.nodes, slice(None))
        assert plugin.filter(cls, state.nodes, some).tolist() == mask[some].tolist()
        out = np.zeros(state.nodes.capacity, dtype=np.bool_)
        for _, part in plugin.explain(cls, state.nodes, slice(None)):
            out |= part
        assert (out & state.nodes.alive).tolist() == (~mask & state.nodes.alive).tolist()
