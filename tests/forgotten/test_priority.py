"""Requests that the API server delays under load."""

from __future__ import annotations

from phalanx.cli.installation.manifests import flow_schemas

# The API server's own rules for service accounts begin here; of two that match the lower number decides.
FOR_ALL_SERVICE_ACCOUNTS = 9000


def test_25_our_requests_precede_those_of_other_service_accounts_and_the_lease_precedes_all() -> None:
    schemas = {
        tuple(
            sorted(
                {
                    name
                    for rule in schema["spec"]["rules"]
                    for each in rule["resourceRules"]
                    for name in each["resources"]
                }
            )
        ): schema["spec"]
        for schema in flow_schemas("phalanx", "phalanx-system")
    }
    assert set(schemas) == {("leases",), ("*",)}
    lease, rest = schemas["leases",], schemas["*",]
    assert lease["priorityLevelConfiguration"]["name"] == "leader-election"
    assert rest["priorityLevelConfiguration"]["name"] == "workload-high"
    assert lease["matchingPrecedence"] < rest["matchingPrecedence"] < FOR_ALL_SERVICE_ACCOUNTS
    for spec in schemas.values():
        (rule,) = spec["rules"]
        (subject,) = rule["subjects"]
        assert subject["serviceAccount"] == {"name": "phalanx", "namespace": "phalanx-system"}
