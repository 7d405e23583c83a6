"""Names of the aggregated API, its objects and its resource; commands and the installer use them too."""

from __future__ import annotations

from phalanx.dialects.api_groups import PHALANX
from phalanx.kube.paths import Resource

GROUP, VERSION = f"visibility.{PHALANX}", "v1alpha1"
GROUP_VERSION = f"{GROUP}/{VERSION}"
#: The one resource: `namespaces/NAMESPACE/answers/COMMAND`.
RESOURCE, KIND = "answers", "Answer"
API_SERVICE = f"{VERSION}.{GROUP}"
API_SERVICES = Resource("apiregistration.k8s.io", "v1", "apiservices", "APIService", namespaced=False)
#: Name of the Service, and common name of the certificates.
SERVICE = "phalanx-visibility"
#: Secret with the certificates of the server.
CERTIFICATES = "phalanx-visibility-certificates"
#: ConfigMap in kube-system with the configuration of the front proxy, written by the API server.
CONFIG_MAP = "extension-apiserver-authentication"
#: Query parameter that extends a list to all namespaces in which the user can list pods.
EVERYWHERE = "all-namespaces"
