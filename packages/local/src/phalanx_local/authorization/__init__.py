"""What a request may do: role-based access control, as rbac.authorization.k8s.io/v1 defines it."""

from phalanx_local.authorization.attributes import SUPERUSERS, Attributes, Decision, forbidden_request
from phalanx_local.authorization.rbac import Rbac
from phalanx_local.authorization.requester import Requester

__all__ = ["SUPERUSERS", "Attributes", "Decision", "Rbac", "Requester", "forbidden_request"]
