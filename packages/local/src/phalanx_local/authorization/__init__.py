"""Authorization of requests: role-based access control of rbac.authorization.k8s.io/v1."""

from phalanx_local.authorization.attributes import SUPERUSERS, Attributes, Decision, forbidden_request
from phalanx_local.authorization.rbac import Rbac
from phalanx_local.authorization.requester import Requester

__all__ = ["SUPERUSERS", "Attributes", "Decision", "Rbac", "Requester", "forbidden_request"]
