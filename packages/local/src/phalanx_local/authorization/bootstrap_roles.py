"""Default roles and bindings of every cluster, for the served kinds.

https://kubernetes.io/docs/reference/access-authn-authz/rbac/#default-roles-and-role-bindings (1.36)
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from phalanx_local.authorization.aggregation import aggregate
from phalanx_local.authorization.rbac import CLUSTER_ROLES, GROUP
from phalanx_local.authorization.rules import compact, missing, parse_rules
from phalanx_local.objects import Json, mapping, metadata
from phalanx_local.registry.api import Api

_READ: Final = ("get", "list", "watch")
_WRITE: Final = ("create", "delete", "deletecollection", "patch", "update")
_AUTO_UPDATE: Final = "rbac.authorization.kubernetes.io/autoupdate"
_LABELS: Final = {"kubernetes.io/bootstrapping": "rbac-defaults"}
_AGGREGATE: Final = "rbac.authorization.k8s.io/aggregate-to-"
_SHELLS: Final = "pods/attach pods/exec pods/portforward pods/proxy"

#: verbs, API group, resources
_Row = tuple[tuple[str, ...], str, str]

_ADMIN: Final[tuple[_Row, ...]] = (
    (("create",), "authorization.k8s.io", "localsubjectaccessreviews"),
    ((*_WRITE, *_READ), GROUP, "rolebindings roles"),
)
_EDIT: Final[tuple[_Row, ...]] = (
    (_READ, "", f"{_SHELLS} secrets services/proxy"),
    (("impersonate",), "", "serviceaccounts"),
    (_WRITE, "", f"pods {_SHELLS}"),
    (("create",), "", "pods/eviction"),
    (
        _WRITE,
        "",
        "configmaps events persistentvolumeclaims replicationcontrollers replicationcontrollers/scale secrets "
        "serviceaccounts services services/proxy",
    ),
    (("create",), "", "serviceaccounts/token"),
    (
        _WRITE,
        "apps",
        "daemonsets deployments deployments/rollback deployments/scale replicasets replicasets/scale statefulsets "
        "statefulsets/scale",
    ),
    (_WRITE, "autoscaling", "horizontalpodautoscalers"),
    (_WRITE, "batch", "cronjobs jobs"),
    (_WRITE, "policy", "poddisruptionbudgets"),
    (_WRITE, "networking.k8s.io", "ingresses networkpolicies"),
    ((*_WRITE, *_READ), "coordination.k8s.io", "leases"),
    (_WRITE, "resource.k8s.io", "resourceclaims resourceclaimtemplates"),
    (_WRITE, "scheduling.k8s.io", "compositepodgroups podgroups workloads"),
)
_VIEW: Final[tuple[_Row, ...]] = (
    (
        _READ,
        "",
        "configmaps endpoints persistentvolumeclaims persistentvolumeclaims/status pods replicationcontrollers "
        "replicationcontrollers/scale serviceaccounts services services/status",
    ),
    (
        _READ,
        "",
        "bindings events limitranges namespaces/status pods/log pods/status replicationcontrollers/status "
        "resourcequotas resourcequotas/status",
    ),
    # Within a namespace, this is the right to read the namespace itself.
    (_READ, "", "namespaces"),
    (_READ, "discovery.k8s.io", "endpointslices"),
    (
        _READ,
        "apps",
        "controllerrevisions daemonsets daemonsets/status deployments deployments/scale deployments/status "
        "replicasets replicasets/scale replicasets/status statefulsets statefulsets/scale statefulsets/status",
    ),
    (_READ, "autoscaling", "horizontalpodautoscalers horizontalpodautoscalers/status"),
    (_READ, "batch", "cronjobs cronjobs/status jobs jobs/status"),
    (_READ, "policy", "poddisruptionbudgets poddisruptionbudgets/status"),
    (_READ, "networking.k8s.io", "ingresses ingresses/status networkpolicies"),
    (_READ, "resource.k8s.io", "resourceclaims resourceclaims/status resourceclaimtemplates"),
    (_READ, "scheduling.k8s.io", "compositepodgroups podgroups workloads"),
)
_HEALTH: Final = ["/healthz", "/livez", "/readyz", "/version", "/version/"]
_DISCOVERY: Final = ["/api", "/api/*", "/apis", "/apis/*", "/openapi", "/openapi/*", *_HEALTH]
_ALL_USERS: Final = ("system:authenticated", "system:unauthenticated")

#: ClusterRole -> groups in its binding
_BOUND: Final = {
    "cluster-admin": ("system:masters",),
    "system:basic-user": ("system:authenticated",),
    "system:discovery": ("system:authenticated",),
    "system:public-info-viewer": _ALL_USERS,
}


def fill(api: Api) -> None:
    """Create missing default roles and bindings, and add missing rules to existing default roles with the
    autoupdate annotation."""
    roles = api.type(GROUP, "clusterroles").preferred
    for role in _roles():
        name = role["metadata"]["name"]
        stored = api.find(GROUP, "clusterroles", "", name)
        if stored is None:
            api.create(roles, "", role, api.write())
        elif mapping(metadata(stored).get("annotations")).get(_AUTO_UPDATE) == "true":
            lacking = missing(parse_rules(stored.get("rules")), parse_rules(role["rules"]))
            if lacking:
                stored["rules"] = [*(stored.get("rules") or []), *(rule.as_json() for rule in compact(lacking))]
                record = api.record(roles.type, "", name)
                api.save(roles.type, record, stored, record.load(), api.write())
    for name in ("view", "edit", "admin"):
        aggregate(api, api.store.collections[CLUSTER_ROLES].records[("", name)])
    bindings = api.type(GROUP, "clusterrolebindings").preferred
    for name, groups in _BOUND.items():
        if not api.exists(GROUP, "clusterrolebindings", "", name):
            subjects = [{"kind": "Group", "apiGroup": GROUP, "name": group} for group in groups]
            reference = {"apiGroup": GROUP, "kind": "ClusterRole", "name": name}
            body = {"metadata": _meta(name), "subjects": subjects, "roleRef": reference}
            api.create(bindings, "", body, api.write())


def _roles() -> Iterator[Json]:
    everything = [
        {"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]},
        {"verbs": ["*"], "nonResourceURLs": ["*"]},
    ]
    yield {"metadata": _meta("cluster-admin"), "rules": everything}
    yield {"metadata": _meta("system:discovery"), "rules": [{"verbs": ["get"], "nonResourceURLs": _DISCOVERY}]}
    yield {
        "metadata": _meta("system:public-info-viewer"),
        "rules": [{"verbs": ["get"], "nonResourceURLs": _HEALTH}],
    }
    yield _role(
        "system:basic-user",
        (("create",), "authorization.k8s.io", "selfsubjectaccessreviews selfsubjectrulesreviews"),
        (("create",), "authentication.k8s.io", "selfsubjectreviews"),
    )
    yield _role(
        "system:auth-delegator",
        (("create",), "authentication.k8s.io", "tokenreviews"),
        (("create",), "authorization.k8s.io", "subjectaccessreviews"),
    )
    for name, rows, above in (("view", _VIEW, "edit"), ("edit", _EDIT, "admin"), ("admin", _ADMIN, "")):
        yield _role(f"system:aggregate-to-{name}", *rows, into=name)
        selector = {"matchLabels": {f"{_AGGREGATE}{name}": "true"}}
        aggregation = {"clusterRoleSelectors": [selector]}
        yield {"metadata": _meta(name, above), "aggregationRule": aggregation, "rules": []}


def _role(name: str, *rows: _Row, into: str = "") -> Json:
    rules = [
        {"verbs": list(verbs), "apiGroups": [group], "resources": resources.split()}
        for verbs, group, resources in rows
    ]
    return {"metadata": _meta(name, into), "rules": rules}


def _meta(name: str, into: str = "") -> Json:
    labels = {**_LABELS, **({f"{_AGGREGATE}{into}": "true"} if into else {})}
    return {"name": name, "labels": labels, "annotations": {_AUTO_UPDATE: "true"}}
