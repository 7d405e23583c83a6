"""Reading Kubernetes protobuf: kubectl's imperative commands and Go's typed clients send it.

Only requests are read; answers are JSON, which every such client accepts as its second choice.
"""

from phalanx_local.wire.protobuf import CONTENT_TYPE, ProtobufError, read_protobuf

__all__ = ["CONTENT_TYPE", "ProtobufError", "read_protobuf"]
