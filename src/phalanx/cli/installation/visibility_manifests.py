"""Objects of the aggregated API (`phalanx dashboard --aggregated-api`), with minimal rights."""

from __future__ import annotations

from phalanx.cli.installation.dashboard_manifests import ACCOUNT
from phalanx.cli.installation.manifests import RBAC, Manifest, make_binding, make_object, make_rule
from phalanx.kube.own_objects import LABELS
from phalanx.reports.aggregated_names import (
    API_SERVICE,
    CERTIFICATES,
    CONFIG_MAP,
    GROUP,
    RESOURCE,
    SERVICE,
    VERSION,
)

USERS = "phalanx-visibility"
_RIGHTS = f"{ACCOUNT}-visibility"


def visibility_access(namespace: str) -> list[Manifest]:
    """Return the rights of the page's account for the aggregated API, its empty Secret, and the right of all
    authenticated users to ask.

    The account cannot create or delete an APIService: it writes the `caBundle` of one. The right to ask reveals
    nothing: the data of an answer need the rights that docs/tenants.md lists.
    """
    subject = {"kind": "ServiceAccount", "name": ACCOUNT, "namespace": namespace}
    everybody = {"kind": "Group", "name": "system:authenticated", "apiGroup": RBAC}
    registration = make_rule(["apiregistration.k8s.io"], ["apiservices"], ["get", "patch"])
    certificates = make_rule([""], ["secrets"], ["get", "update"])
    reader = make_binding("Role", _RIGHTS, subject, "kube-system")
    # Every cluster with an aggregation layer has this role.
    reader["roleRef"]["name"] = f"{CONFIG_MAP}-reader"
    return [
        make_object(f"{RBAC}/v1", "ClusterRole", _RIGHTS, rules=[{**registration, "resourceNames": [API_SERVICE]}]),
        make_binding("ClusterRole", _RIGHTS, subject),
        make_object(
            f"{RBAC}/v1", "Role", _RIGHTS, namespace, rules=[{**certificates, "resourceNames": [CERTIFICATES]}]
        ),
        make_binding("Role", _RIGHTS, subject, namespace),
        reader,
        make_object(f"{RBAC}/v1", "ClusterRole", USERS, rules=[make_rule([GROUP], [RESOURCE], ["create", "get"])]),
        make_binding("ClusterRole", USERS, everybody),
        # The Secret is empty: the first replica adds certificates, and a repeated installation does not change
        # them.
        make_object("v1", "Secret", CERTIFICATES, namespace, type="Opaque"),
    ]


def visibility_service(namespace: str, address: str = "") -> list[Manifest]:
    """Return the Service and the APIService. With an `address` (HOST:PORT) the server runs outside of the cluster,
    else in the pods of the page.

    The server writes its authorities into the APIService, which therefore has no `caBundle` here.
    """
    host, _, port = address.rpartition(":")
    spec: Manifest
    if address:
        spec = {"type": "ExternalName", "externalName": host.strip("[]")}
    else:
        selector = {"app.kubernetes.io/name": LABELS["app.kubernetes.io/name"]}
        selector["app.kubernetes.io/component"] = "dashboard"
        ports = [{"name": "aggregated", "port": 443, "targetPort": "aggregated"}]
        # Discovery is answered while the page still reads the cluster, so that the deletion of namespaces does not
        # wait for it.
        spec = {"selector": selector, "ports": ports, "publishNotReadyAddresses": True}
    return [
        make_object("v1", "Service", SERVICE, namespace, spec=spec),
        make_object(
            "apiregistration.k8s.io/v1",
            "APIService",
            API_SERVICE,
            spec={
                "group": GROUP,
                "version": VERSION,
                "groupPriorityMinimum": 100,
                "versionPriority": 10,
                "service": {"namespace": namespace, "name": SERVICE, "port": int(port) if address else 443},
            },
        ),
    ]
