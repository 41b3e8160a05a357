"""Messages of the kubelet's two interfaces, made from the .proto files beside this one.

The ``_pb2`` modules are generated and committed, so that installing needs no compiler. After a change of a
.proto file, from the repository's root::

    python -m grpc_tools.protoc -I. --python_out=. --pyi_out=. labeler/allocator/wire/*.proto
"""
