"""The committed message code is what the compiler makes of the .proto files."""

from pathlib import Path
from typing import Any

import pytest
from google.protobuf.descriptor_pb2 import DescriptorProto, FileDescriptorProto, FileDescriptorSet
from grpc_tools import protoc

from labeler.allocator.wire import deviceplugin_pb2, podresources_pb2

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize(
    ("name", "module"), [("deviceplugin", deviceplugin_pb2), ("podresources", podresources_pb2)]
)
def test_the_message_code_is_up_to_date(
    name: str, module: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(ROOT)
    out = tmp_path / "set"
    source = f"labeler/allocator/wire/{name}.proto"
    assert protoc.main(["protoc", "-I.", f"--descriptor_set_out={out}", source]) == 0
    (compiled,) = FileDescriptorSet.FromString(out.read_bytes()).file
    for message in compiled.message_type:
        _forget_json_names(message)
    assert compiled == FileDescriptorProto.FromString(module.DESCRIPTOR.serialized_pb)


def _forget_json_names(message: DescriptorProto) -> None:
    """A descriptor set spells them out, generated code leaves them to its reader."""
    for field in message.field:
        field.ClearField("json_name")
    for nested in message.nested_type:
        _forget_json_names(nested)
