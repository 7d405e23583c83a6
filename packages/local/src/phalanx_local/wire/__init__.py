"""Decoder of requests in Kubernetes protobuf, which kubectl's imperative commands and Go's typed clients send.

Responses are JSON, which every such client accepts as its second choice.
"""

from phalanx_local.wire.protobuf import CONTENT_TYPE, ProtobufError, read_protobuf

__all__ = ["CONTENT_TYPE", "ProtobufError", "read_protobuf"]
