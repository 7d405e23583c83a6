"""The aggregated API is installed only where it is switched on, with the rights that it needs and no more."""

from __future__ import annotations

from typing import Any

import pytest
import yaml
from charts.generate import CHART
from click.testing import CliRunner

from phalanx.cli.installation.visibility_manifests import visibility_access, visibility_service
from phalanx.cli.main import cli
from phalanx.reports.aggregated_names import API_SERVICE
from tests.install.helm import run

MAJORS = pytest.mark.parametrize("major", ["3", "4"])
NAMESPACE = "phalanx-system"
ON = ("--set=dashboard.enabled=true", "--set=dashboard.aggregatedApi=true")


async def chart(major: str, *flags: str, namespace: str = NAMESPACE) -> list[dict[str, Any]]:
    text = await run(major, "template", "phalanx", CHART, "-n", namespace, *flags)
    return [document for document in yaml.safe_load_all(text) if document]


def visible(documents: list[dict[str, Any]]) -> dict[tuple[str, str, str], dict[str, Any]]:
    """Return the objects of the aggregated API by kind, namespace and name."""
    return {
        (item["kind"], item["metadata"].get("namespace", ""), item["metadata"]["name"]): item
        for item in documents
        if "visibility" in item["metadata"]["name"]
    }


def installed(*words: str) -> list[dict[str, Any]]:
    result = CliRunner().invoke(cli, ["install", "--print", *words])
    assert result.exit_code == 0, result.output
    return [document for document in yaml.safe_load_all(result.output) if document]


@MAJORS
@pytest.mark.slow
async def test_chart_has_no_api_service_unless_it_is_switched_on(major: str) -> None:
    assert visible(await chart(major, "--set=dashboard.enabled=true")) == {}
    message = "dashboard.aggregatedApi: the page serves it, so it needs dashboard.enabled"
    flags = ("--set=dashboard.aggregatedApi=true",)
    assert message in await run(major, "template", "phalanx", CHART, *flags, fails=True)


@MAJORS
@pytest.mark.slow
async def test_chart_has_the_objects_of_install(major: str) -> None:
    documents = await chart(major, *ON)
    made = visible(documents)
    expected = visible([*visibility_access(NAMESPACE), *visibility_service(NAMESPACE)])
    assert made.keys() == expected.keys()
    for key, item in expected.items():
        for field in item.keys() - {"metadata"}:
            if key[0] != "Service":
                assert made[key][field] == item[field], key
    (deployment,) = (
        item
        for item in documents
        if (item["kind"], item["metadata"]["name"]) == ("Deployment", "phalanx-dashboard")
    )
    template = deployment["spec"]["template"]
    (container,) = template["spec"]["containers"]
    service = made[("Service", NAMESPACE, "phalanx-visibility")]["spec"]
    assert service["selector"].items() <= template["metadata"]["labels"].items()
    ports = {port["name"]: port["containerPort"] for port in container["ports"]}
    assert [port["targetPort"] for port in service["ports"]] == ["aggregated"]
    assert service["publishNotReadyAddresses"] is True
    assert f"--aggregated-api=0.0.0.0:{ports['aggregated']}" in container["args"]
    assert f"--aggregated-service={NAMESPACE}/phalanx-visibility" in container["args"]


@MAJORS
@pytest.mark.slow
async def test_network_policy_admits_the_api_server(major: str) -> None:
    def ports(documents: list[dict[str, Any]]) -> set[int]:
        (policy,) = (item for item in documents if item["kind"] == "NetworkPolicy")
        return {port["port"] for rule in policy["spec"]["ingress"] for port in rule["ports"]}

    guarded = "--set=networkPolicy.enabled=true"
    assert ports(await chart(major, guarded, *ON)) - ports(await chart(major, guarded, ON[0])) == {8444}


@MAJORS
@pytest.mark.slow
async def test_release_in_another_namespace_names_its_own_service(major: str) -> None:
    made = visible(await chart(major, *ON, namespace="tools"))
    assert made[("APIService", "", API_SERVICE)]["spec"]["service"]["namespace"] == "tools"
    assert ("Secret", "tools", "phalanx-visibility-certificates") in made


@pytest.mark.slow
def test_install_prints_the_api_service_only_on_request() -> None:
    assert visible(installed()) == {}
    inside = visible(installed("--aggregated-api"))
    assert inside.keys() == visible([*visibility_access(NAMESPACE), *visibility_service(NAMESPACE)]).keys()
    outside = visible(installed("--aggregated-api", "--aggregated-address", "page.example:8444"))
    service = outside[("Service", NAMESPACE, "phalanx-visibility")]["spec"]
    assert service == {"type": "ExternalName", "externalName": "page.example"}
    assert outside[("APIService", "", API_SERVICE)]["spec"]["service"]["port"] == 8444


@pytest.mark.parametrize(
    "words",
    [
        ["--aggregated-address", "page.example:8444"],
        ["--aggregated-api", "--aggregated-address", "page.example"],
        ["--aggregated-api", "--aggregated-address", ":8444"],
        ["--aggregated-api", "--aggregated-address", "page.example:0"],
        ["--aggregated-api", "--aggregated-address", "page.example:70000"],
    ],
)
def test_address_that_cannot_be_used_is_refused(words: list[str]) -> None:
    result = CliRunner().invoke(cli, ["install", "--print", *words])
    assert result.exit_code == 2, result.output
    assert "--aggregated-address" in result.output


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--aggregated-api", "0.0.0.0:8444"], "--aggregated-api needs --login token"),
        (["--login", "token", "--aggregated-api", "0.0.0.0:0"], "--aggregated-api needs a fixed port"),
        (["--login", "token", "--aggregated-api", "8444x"], "invalid --aggregated-api '8444x'"),
        (
            ["--login", "token", "--aggregated-api", ":8444", "--aggregated-service", "name"],
            "invalid --aggregated-service 'name'",
        ),
    ],
)
def test_page_refuses_options_with_which_no_rights_would_be_reviewed(words: list[str], message: str) -> None:
    result = CliRunner().invoke(cli, ["dashboard", *words])
    assert result.exit_code == 2, result.output
    assert message in result.output


def test_account_of_the_page_gets_no_right_to_create_or_to_impersonate() -> None:
    rules = [
        (item["metadata"]["name"], rule)
        for item in visibility_access(NAMESPACE)
        if item["kind"] in ("Role", "ClusterRole")
        for rule in item["rules"]
    ]
    own = [rule for name, rule in rules if name == "phalanx-dashboard-visibility"]
    assert all(rule["resourceNames"] for rule in own)
    assert {verb for rule in own for verb in rule["verbs"]} == {"get", "patch", "update"}
    assert [rule["apiGroups"] for name, rule in rules if name == "phalanx-visibility"] == [
        ["visibility.phalanx.dev"]
    ]


def test_api_service_has_low_priority_and_no_authority_before_its_server_runs() -> None:
    (item,) = (item for item in visibility_service(NAMESPACE) if item["kind"] == "APIService")
    assert item["spec"]["groupPriorityMinimum"] < 1000
    assert not {"caBundle", "insecureSkipTLSVerify"} & item["spec"].keys()


def test_files_of_the_chart_name_no_account_but_the_page() -> None:
    text = (CHART / "files" / "visibility-rights.yaml").read_text("utf-8")
    subjects = [subject for item in yaml.safe_load_all(text) for subject in item.get("subjects", ())]
    assert {subject["name"] for subject in subjects} == {"phalanx-dashboard", "system:authenticated"}
