"""The policy file: Volcano's format and keys, an error for every mistake, a report of settings without effect."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from phalanx.scheduling.framework.arguments import Arguments
from phalanx.scheduling.framework.errors import PolicyError
from phalanx.scheduling.framework.eviction_options import EvictionOptions
from phalanx.scheduling.framework.extension_points import EXTENSION_POINTS
from phalanx.scheduling.framework.plugin import Plugin
from phalanx.scheduling.framework.plugin_runtime import PluginRuntime
from phalanx.scheduling.framework.policy import Policy
from phalanx.scheduling.policy.loader import load_policy
from phalanx.scheduling.policy.registry import builtin_plugins


def mistakes(text: str) -> list[str]:
    with pytest.raises(PolicyError) as caught:
        load_policy(text, "p.yaml")
    lines = str(caught.value).splitlines()
    assert all(line.startswith("p.yaml: ") for line in lines)
    return [line.removeprefix("p.yaml: ") for line in lines]


def with_plugin(entry: str, actions: str = "allocate") -> str:
    return f"actions: {actions}\ntiers: [{{plugins: [{{name: predicates}}, {entry}]}}]"


def names(policy: Policy) -> list[str]:
    return [entry.plugin.name for entry in policy.plugins]


class TestAcceptedPolicies:
    def test_built_in_policy_is_accepted(self) -> None:
        policy = load_policy()
        assert policy.actions == ("enqueue", "allocate", "preempt", "reclaim", "reserve", "backfill")
        expected = [
            "priority",
            "gang",
            "conformance",
            "overcommit",
            "fairshare",
            "drf",
            "predicates",
            "proportion",
            "nodeorder",
        ]
        assert names(policy) == expected
        assert [entry.tier for entry in policy.plugins] == [0, 0, 0, 1, 1, 1, 1, 1, 1]
        assert policy.inactive == ()

    @pytest.mark.parametrize(
        "text",
        [
            # policy of Volcano's chart
            """
            actions: "enqueue, allocate, backfill"
            tiers:
            - plugins: [{name: priority}, {name: gang, enablePreemptable: false}, {name: conformance}]
            - plugins:
              - {name: overcommit}
              - {name: drf, enablePreemptable: false}
              - {name: predicates}
              - {name: proportion}
              - {name: nodeorder}
              - {name: binpack}
            """,
            # policy of its continuous integration
            """
            actions: "enqueue, allocate, backfill, reclaim, preempt"
            tiers:
            - plugins: [{name: priority}, {name: gang, enablePreemptable: false}, {name: conformance}, {name: sla}]
            - plugins:
              - {name: overcommit}
              - {name: drf, enablePreemptable: false}
              - {name: predicates, arguments: {predicate.DynamicResourceAllocationEnable: true}}
              - {name: proportion}
              - {name: nodeorder}
              - {name: binpack}
              - {name: network-topology-aware}
            """,
            # one example of each kind in its guides
            """
            actions: "enqueue, allocate, backfill, gangpreempt, gangreclaim, shuffle"
            tiers:
            - plugins:
              - {name: tdm, arguments: {tdm.revocable-zone.rz1: "10:00-21:00", tdm.evict.period: 1m}}
              - {name: sla, arguments: {sla-waiting-time: 1h2m3s4ms}}
              - {name: cdp}
              - {name: pdb}
            - plugins:
              - {name: capacity, enableHierarchy: true, arguments: {ancestorReclaimLevel: 1}}
              - {name: deviceshare, arguments: {deviceshare.VGPUEnable: true, deviceshare.SchedulePolicy: binpack}}
              - {name: predicates, arguments: {predicate.GPUSharingEnable: true, predicate.CacheEnable: false}}
              - name: usage
                enablePredicate: false
                arguments: {usage.weight: 5, cpu.weight: 1, memory.weight: 1, thresholds: {cpu: 80, mem: 70}}
              - name: rescheduling
                arguments: {interval: 5m, strategies: [{name: lowNodeUtilization, params: {thresholds: {cpu: 20}}}]}
              - name: resource-strategy-fit
                arguments:
                  resourceStrategyFitWeight: 10
                  resources: {nvidia.com/*: {type: MostAllocated, weight: 2}, cpu: {type: LeastAllocated}}
                  sra: {enable: true, resources: nvidia.com/gpu, weight: 10}
              - {name: nodegroup, arguments: {strict: false}}
              - {name: numa-aware, arguments: {weight: 10}}
              - {name: task-topology, arguments: {task-topology.weight: 10}}
              - {name: extender, arguments: {extender.urlPrefix: "http://127.0.0.1", extender.httpTimeout: 100ms}}
            configurations:
            - name: preempt
              arguments: {enableTopologyAwarePreemption: true, minCandidateNodesPercentage: 10}
            - name: gangreclaim
              arguments: {maxDomains: 8, allowWholeBundle: true}
            metrics: {type: prometheus, address: "http://127.0.0.1:9090", interval: 30s}
            """,
        ],
    )
    def test_existing_volcano_policies_load_unchanged(self, text: str) -> None:
        policy = load_policy(text)
        assert policy.actions[:3] == ("enqueue", "allocate", "backfill")
        assert "predicates" in names(policy)

    def test_every_plugin_of_volcano_is_known(self) -> None:
        assert {*builtin_plugins()} >= {
            *("binpack", "capacity", "cdp", "conformance", "deviceshare", "drf", "extender", "gang"),
            *("network-topology-aware", "nodegroup", "nodeorder", "numa-aware", "overcommit", "pdb"),
            *("predicates", "priority", "proportion", "rescheduling", "resource-strategy-fit"),
            *("resourcequota", "sla", "task-topology", "tdm", "usage"),
        }

    def test_numbers_and_booleans_can_be_bare_or_quoted(self) -> None:
        load_policy(with_plugin('{name: binpack, arguments: {binpack.weight: "10", binpack.cpu: 5}}'))
        for value in ("true", '"true"', "yes", '"F"', "0", '"1"'):
            load_policy(
                f"tiers: [{{plugins: [{{name: predicates, arguments: {{predicate.NodePortsEnable: {value}}}}}]}}]"
            )

    def test_policy_without_actions_runs_the_three_default_ones(self) -> None:
        assert load_policy("tiers: []").actions == ("enqueue", "allocate", "backfill")


class TestReportedSettings:
    @pytest.mark.parametrize(
        ("text", "report"),
        [
            (
                with_plugin("{name: extender}"),
                "plugin extender: extender.urlPrefix is missing: the extender is not called",
            ),
            (
                with_plugin("{name: pdb, enablePreemptable: false}", "'allocate, preempt, gangreclaim'"),
                "plugin pdb: enablePreemptable: false has no effect while gangreclaim can evict",
            ),
            (
                "actions: allocate\nconfigurations: [{name: preempt, arguments: {singleNodePreemption: true}}]",
                "action preempt: argument singleNodePreemption has no effect: the policy does not name the action",
            ),
            (
                "actions: preempt\nconfigurations: [{name: preempt, arguments: {maxCandidateNodesAbsolute: 9}}]",
                "action preempt: argument maxCandidateNodesAbsolute has no effect in this version",
            ),
            (
                with_plugin("{name: nodeorder, arguments: {selectorspread.weight: 9}}"),
                "plugin nodeorder: argument selectorspread.weight is accepted but has no effect",
            ),
            (
                with_plugin("{name: overcommit, arguments: {overcommit-factor: 0.5}}"),
                "plugin overcommit: overcommit-factor 0.5 is below 1; 1.2 is used",
            ),
            (
                "configurations: [{name: enqueue, arguments: {overcommit-factor: 2}}]",
                "action enqueue: argument overcommit-factor has no effect",
            ),
            ('actions: "enqueue, elect, allocate, reserve"', "action elect is accepted but has no effect: Volcano"),
            (
                "configurations: [{name: reserve, arguments: {depth: 2}}]",
                "action reserve: its arguments have no effect: the policy does not name the action",
            ),
            (
                with_plugin("{name: reservation}"),
                "plugin reservation is accepted but has no effect: Volcano replaced",
            ),
            ("configurations: [{name: elect, arguments: {a: b}}]", "configurations[0]: action elect has no effect"),
            ("actions: allocate", "no plugin filters nodes"),
            ("tiers: [{plugins: [{name: predicates, enablePredicate: false}]}]", "no plugin filters nodes"),
        ],
    )
    def test_accepted_setting_without_effect_is_reported(self, text: str, report: str) -> None:
        assert [line for line in load_policy(text).inactive if line.startswith(report)]

    def test_policy_without_such_settings_reports_nothing(self) -> None:
        assert load_policy(with_plugin("{name: nodeorder}")).inactive == ()


class TestMistakes:
    @pytest.mark.parametrize(
        ("text", "mistake"),
        [
            ("actions: 'allocat'", "actions: unknown action 'allocat'; did you mean 'allocate'?"),
            ("actions: [allocate]", 'actions: expected one string such as "enqueue, allocate, backfill"'),
            ("actions: ' , '", "actions: no action named"),
            ("actions: 'allocate, allocate'", "actions: an action is named twice"),
            ("action: allocate", "action: unknown key; did you mean 'actions'?"),
            ("tiers: {}", "tiers: expected a list"),
            ("tiers: [gang]", "tiers[0]: expected a mapping with plugins"),
            ("tiers: [{plugins: gang}]", "tiers[0].plugins: expected a list"),
            ("tiers: [{plugins: [gang]}]", "tiers[0].plugins[0]: expected a mapping with a name"),
            ("tiers: [{plugin: []}]", "tiers[0].plugin: unknown key; did you mean 'plugins'?"),
            (
                "tiers: [{plugins: [{name: gangs}]}]",
                "tiers[0].plugins[0]: unknown plugin 'gangs'; did you mean 'gang'?",
            ),
            (
                "tiers: [{plugins: [{name: gang}]}, {plugins: [{name: gang}]}]",
                "tiers[1].plugins[0]: plugin gang is named twice",
            ),
            (
                with_plugin("{name: binpack, arguments: {binpack.wieght: 1}}"),
                "tiers[0].plugins[1] (binpack): unknown argument 'binpack.wieght'; did you mean 'binpack.weight'?",
            ),
            (
                with_plugin("{name: binpack, arguments: {binpack.weight: heavy}}"),
                "tiers[0].plugins[1] (binpack): argument binpack.weight: 'heavy' is not a whole number",
            ),
            (
                with_plugin("{name: binpack, arguments: {binpack.cpu: -1}}"),
                "tiers[0].plugins[1] (binpack): argument binpack.cpu: -1 is not a whole number of at least 0",
            ),
            (
                with_plugin("{name: proportion, arguments: {weight: 1}}"),
                "tiers[0].plugins[1] (proportion): unknown argument 'weight'",
            ),
            (
                with_plugin("{name: overcommit, arguments: {overcommit-factor: lots}}"),
                "tiers[0].plugins[1] (overcommit): argument overcommit-factor: 'lots' is not a number",
            ),
            (
                with_plugin("{name: overcommit, arguments: {overcommit-factor: .nan}}"),
                "tiers[0].plugins[1] (overcommit): argument overcommit-factor: 'nan' is not a number",
            ),
            (
                "tiers: [{plugins: [{name: predicates, arguments: {predicate.NodePortsEnable: maybe}}]}]",
                "tiers[0].plugins[0] (predicates): argument predicate.NodePortsEnable:"
                " 'maybe' is not true or false",
            ),
            (
                with_plugin("{name: resource-strategy-fit, arguments: {resources: {cpu: {type: Best}}}}"),
                "tiers[0].plugins[1] (resource-strategy-fit): argument resources.cpu.type: 'Best' is unknown;"
                " expected MostAllocated or LeastAllocated",
            ),
            (
                with_plugin("{name: gang, arguments: [a]}"),
                "tiers[0].plugins[1] (gang).arguments: expected a mapping",
            ),
            (
                with_plugin("{name: gang, enableJobOrdr: false}"),
                "tiers[0].plugins[1] (gang).enableJobOrdr: unknown key; did you mean 'enableJobOrder'?",
            ),
            (
                with_plugin("{name: gang, enableJobOrder: 'false'}"),
                "tiers[0].plugins[1] (gang).enableJobOrder: 'false' is not true or false",
            ),
            (
                "tiers: [{plugins: [{name: drf, enableHierarchy: true}, {name: proportion}]}]",
                "tiers[0]: drf with enableHierarchy and proportion exclude each other, as in Volcano",
            ),
            ("configurations: {}", "configurations: expected a list"),
            ("configurations: [{}]", "configurations[0]: expected a mapping with the name of an action"),
            (
                "configurations: [{name: elected}]",
                "configurations[0]: unknown action 'elected'; did you mean 'elect'?",
            ),
            (
                "configurations: [{name: reclaim, arguments: {maxDomains: 1}}]",
                "configurations[0] (reclaim): unknown argument 'maxDomains'",
            ),
            (
                "actions: preempt\nconfigurations: [{name: preempt, arguments: {singleNodePreemption: 2}}]",
                "action preempt: argument singleNodePreemption: 2 is not true or false",
            ),
            ("phalanx: [1]", "phalanx: expected a mapping"),
            ("phalanx: {evictions: kill}", "phalanx.evictions: 'kill' is unknown; expected delete or eviction-api"),
            ("phalanx: {partialGang: drop}", "phalanx.partialGang: 'drop' is unknown; expected keep or release"),
            (
                "phalanx: {cycleBudgetMilliseconds: 0}",
                "phalanx.cycleBudgetMilliseconds: 0 is not a whole number of at least 1",
            ),
            ("phalanx: {dialects: x}", "phalanx.dialects: expected a mapping"),
            ("", "expected a mapping with actions and tiers"),
            ("- allocate", "expected a mapping with actions and tiers"),
        ],
    )
    def test_each_mistake_is_named_with_its_place(self, text: str, mistake: str) -> None:
        assert mistakes(text) == [mistake]

    def test_text_that_is_no_yaml_is_refused(self) -> None:
        with pytest.raises(PolicyError, match=r"^p\.yaml: not YAML: "):
            load_policy("actions: 'x", "p.yaml")

    def test_all_mistakes_are_listed_at_once(self) -> None:
        text = "actions: 'alocate'\ntiers: [{plugins: [{name: gan}, {name: binpack, arguments: {x: 1}}]}]\nmore: 1"
        assert mistakes(text) == [
            "more: unknown key",
            "actions: unknown action 'alocate'; did you mean 'allocate'?",
            "tiers[0].plugins[0]: unknown plugin 'gan'; did you mean 'gang'?",
            "tiers[0].plugins[1] (binpack): unknown argument 'x'",
        ]


def eviction(actions: str, rest: str = "", plugins: str = "{name: gang}") -> EvictionOptions:
    text = f"actions: '{actions}'\ntiers: [{{plugins: [{{name: predicates}}, {plugins}]}}]\n{rest}"
    return load_policy(text).eviction


def stating(action: str, arguments: str) -> str:
    return f"configurations: [{{name: {action}, arguments: {{{arguments}}}}}]"


class TestEvictions:
    def test_policy_without_an_evicting_action_evicts_no_pod(self) -> None:
        assert eviction("enqueue, allocate, backfill") == EvictionOptions()

    @pytest.mark.parametrize(
        ("actions", "preempt", "reclaim"),
        [
            ("allocate, preempt", True, False),
            ("allocate, reclaim", False, True),
            ("allocate, gangpreempt", True, False),
            ("allocate, gangreclaim", False, True),
            ("allocate, preempt, gangpreempt, reclaim, gangreclaim", True, True),
            ("allocate, shuffle", False, False),
        ],
    )
    def test_volcanos_two_pairs_of_eviction_actions_are_one(
        self, actions: str, preempt: bool, reclaim: bool
    ) -> None:
        options = eviction(actions)
        assert (options.preempt, options.reclaim, options.shuffle) == (preempt, reclaim, "shuffle" in actions)

    def test_restriction_applies_to_the_kind_of_action_that_states_it(self) -> None:
        options = eviction("preempt, reclaim", stating("reclaim", "singleNodePreemption: true"))
        assert (options.preempt_on_single_node, options.reclaim_on_single_node) == (False, True)
        options = eviction("preempt, gangpreempt, reclaim", stating("gangpreempt", "allowWholeBundle: false"))
        assert (options.preempt_whole_gangs, options.reclaim_whole_gangs) == (False, True)

    def test_pods_of_other_schedulers_are_evictable_only_if_the_policy_says_so(self) -> None:
        assert not eviction("preempt").foreign_victims
        assert eviction("preempt, reclaim", stating("reclaim", "phalanx.foreignVictims: true")).foreign_victims

    def test_switches_of_volcanos_plugins_extend_evictions(self) -> None:
        assert not eviction("preempt", plugins="{name: gang, enableJobStarving: true}").surplus
        assert eviction("preempt", plugins="{name: gang, enableJobStarving: false}").surplus
        for entry in ("{name: drf}", "{name: drf, enablePreemptable: false}"):
            assert not eviction("preempt", plugins=entry).levels
        assert eviction("preempt", plugins="{name: drf, enablePreemptable: true}").levels

    def test_eviction_method_is_read_from_the_policy(self) -> None:
        assert load_policy().evictions == "delete"
        assert load_policy("phalanx: {evictions: eviction-api}").evictions == "eviction-api"

    @pytest.mark.parametrize(
        ("actions", "switches", "speaks"),
        [
            ("preempt, reclaim", "", True),
            ("preempt, reclaim", ", enablePreemptable: false", True),
            ("preempt, reclaim", ", enablePreemptable: false, enableReclaimable: false", False),
            ("preempt", ", enablePreemptable: false", False),
            ("gangreclaim", ", enablePreemptable: false", True),
            ("gangreclaim, shuffle", ", enableReclaimable: false", True),
        ],
    )
    def test_veto_is_off_where_it_is_off_for_every_action(self, actions: str, switches: str, speaks: bool) -> None:
        text = with_plugin(f"{{name: conformance{switches}}}", f"'{actions}'")
        speakers = dict(PluginRuntime(load_policy(text)).describe())["evict_veto"]
        assert ("conformance" in speakers) is speaks
        assert "protection" in speakers


class TestPipeline:
    def test_switch_disables_exactly_the_points_that_it_covers(self) -> None:
        def speakers(options: str) -> dict[str, list[str]]:
            return dict(PluginRuntime(load_policy(with_plugin(f"{{name: priority{options}}}"))).describe())

        assert speakers("")["gang_order"] == speakers("")["pod_order"] == ["priority"]
        assert speakers(", enableJobOrder: false")["gang_order"] == []
        assert speakers(", enableJobOrder: false")["pod_order"] == ["priority"]
        assert speakers(", enableTaskOrder: false")["pod_order"] == []
        assert speakers(", enablePreemptable: false") == speakers("")

    def test_plugins_are_called_in_the_order_of_the_tiers(self) -> None:
        text = "tiers: [{plugins: [{name: gang}]}, {plugins: [{name: priority}, {name: predicates}]}]"
        assert dict(PluginRuntime(load_policy(text)).describe())["gang_order"] == ["gang", "priority"]


class Custom(Plugin):
    name = "custom"
    arguments = ("custom.text",)

    def __init__(self, arguments: Arguments) -> None:
        if arguments.text("custom.text") == "bad":
            raise ValueError("that one is bad")


class TestInstalledPlugins:
    def offer(self, monkeypatch: pytest.MonkeyPatch, loaded: object) -> None:
        def load() -> object:
            if isinstance(loaded, Exception):
                raise loaded
            return loaded

        entry = SimpleNamespace(name="custom", value="package:Custom", load=load)
        monkeypatch.setattr(
            "phalanx.scheduling.policy.registry.entry_points", lambda group: [entry] * (group == "phalanx.plugins")
        )

    def test_plugin_of_an_installed_package_is_used(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.offer(monkeypatch, Custom)
        assert names(load_policy(with_plugin("{name: custom, arguments: {custom.text: x}}"))) == [
            "predicates",
            "custom",
        ]

    def test_errors_of_an_installed_plugin_are_reported(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.offer(monkeypatch, Custom)
        text = with_plugin("{name: custom, arguments: {custom.text: bad}}")
        assert mistakes(text) == ["tiers[0].plugins[1] (custom): ValueError: that one is bad"]

    @pytest.mark.parametrize(
        ("loaded", "problem"),
        [
            (ImportError("no module named x"), "cannot be loaded: no module named x"),
            (dict, "is not a phalanx Plugin class"),
            (type("Impostor", (Custom,), {"name": "gang"}), "plugin 'gang' exists already"),
        ],
    )
    def test_entry_point_that_is_no_plugin_stops_the_start(
        self, monkeypatch: pytest.MonkeyPatch, loaded: object, problem: str
    ) -> None:
        self.offer(monkeypatch, loaded)
        with pytest.raises(PolicyError, match=problem):
            load_policy()

    @pytest.mark.parametrize(
        ("members", "problem"),
        [
            ({"spares": lambda self, session, record: None}, "spares was renamed to evict_veto"),
            ({"filter": 3}, "filter must be a method"),
            (
                {"pre_bind_check": lambda *asked: True},
                "pre_bind_check needs a filter, which excludes refused nodes",
            ),
            ({"disabled_points": ["score"]}, 'disabled_points must be a frozenset of strings, got ["score"]'),
            ({"disabled_points": frozenset({"scores"})}, "disabled_points: unknown extension point scores"),
            ({"inter_pod_rules": None}, "inter_pod_rules must be InterPodRules, got null"),
            ({"arguments": "custom.text"}, "arguments and without_effect must be tuples of strings"),
        ],
    )
    def test_plugin_with_an_unusable_signature_is_an_error(
        self, monkeypatch: pytest.MonkeyPatch, members: dict[str, object], problem: str
    ) -> None:
        self.offer(monkeypatch, type("Strange", (Custom,), members))
        assert mistakes(with_plugin("{name: custom}")) == [f"tiers[0].plugins[1] (custom): {problem}"]
        load_policy()  # an installed plugin that no policy names has no effect

    def test_probable_oversights_of_a_plugin_author_are_reported(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.offer(monkeypatch, type("Typo", (Custom,), {"static_scores": lambda *asked: None}))
        told = load_policy(with_plugin("{name: custom}")).inactive
        assert "plugin custom: static_scores is not an extension point; did you mean static_score?" in told
        assert "plugin custom: the plugin implements no extension point" in told


def test_policy_show_has_every_extension_point() -> None:
    points = {"admission_key", "max_admissions", "why_not_admitted", "deserved_with_request", "filter", "score"}
    shown = PluginRuntime(load_policy()).describe()
    assert tuple(point for point, _ in shown) == EXTENSION_POINTS
    assert points <= {*EXTENSION_POINTS}
    asked = {name for name, method in vars(Plugin).items() if callable(method) and name[0] != "_"}
    assert not asked, "points belong to a protocol"
