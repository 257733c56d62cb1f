"""Chakra's protobuf schema (MLCommons, et_def.proto of mlc-chakra 1.0.0), built from its field numbers at import.

mlc-chakra itself is no dependency of ours: its package wants the whole of Jupyter and Plotly for its viewers.  The
descriptors live in a pool of their own, so that both can be loaded in one process.
"""

from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

PACKAGE = "ChakraProtoMsg"
SCALARS = (
    *("double", "float", "int32", "int64", "uint32", "uint64", "sint32", "sint64"),
    *("fixed32", "fixed64", "sfixed32", "sfixed64", "bool", "string", "bytes"),
)
"""The types of an attribute, in the order of their field numbers: X_val is 3 + 2 i, X_list is 4 + 2 i."""
ENUMS: dict[str, tuple[str, ...]] = {
    "NodeType": (
        *("INVALID_NODE", "METADATA_NODE", "MEM_LOAD_NODE", "MEM_STORE_NODE"),
        *("COMP_NODE", "COMM_SEND_NODE", "COMM_RECV_NODE", "COMM_COLL_NODE"),
    ),
    "CollectiveCommType": (
        *("ALL_REDUCE", "REDUCE", "ALL_GATHER", "GATHER", "SCATTER"),
        *("BROADCAST", "ALL_TO_ALL", "REDUCE_SCATTER", "REDUCE_SCATTER_BLOCK", "BARRIER"),
    ),
}
"""Values count from 0."""
MESSAGES: dict[str, tuple[str, ...]] = {
    **{f"{scalar.capitalize()}List": (f"repeated {scalar} values",) for scalar in SCALARS},
    "AttributeProto": (
        *("string name", "string doc_string"),
        *(f"oneof {kind}" for s in SCALARS for kind in (f"{s} {s}_val", f"{s.capitalize()}List {s}_list")),
    ),
    "IOInfo": ("string values", "string shapes", "string types"),
    "GlobalMetadata": ("string version", "repeated AttributeProto attr"),
    "Node": (
        *("uint64 id", "string name", "NodeType type", "repeated uint64 ctrl_deps", "repeated uint64 data_deps"),
        *("uint64 start_time_micros", "uint64 duration_micros", "IOInfo inputs", "IOInfo outputs"),
        "repeated AttributeProto attr",
    ),
}
"""Fields in the order of their numbers, which count from 1 in every message."""


def _file() -> descriptor_pb2.FileDescriptorProto:
    file = descriptor_pb2.FileDescriptorProto(name="et_def.proto", package=PACKAGE, syntax="proto3")
    for name, values in ENUMS.items():
        enum = file.enum_type.add(name=name)
        for number, value in enumerate(values):
            enum.value.add(name=value, number=number)
    for name, fields in MESSAGES.items():
        message = file.message_type.add(name=name)
        for number, field in enumerate(fields, start=1):
            _add_field(message, number, field)
    return file


def _add_field(message: descriptor_pb2.DescriptorProto, number: int, declared: str) -> None:
    *words, kind, name = declared.split()
    field = message.field.add(name=name, number=number)
    kinds = descriptor_pb2.FieldDescriptorProto
    field.label = kinds.LABEL_REPEATED if "repeated" in words else kinds.LABEL_OPTIONAL
    if kind in SCALARS:
        field.type = kinds.Type.Value(f"TYPE_{kind.upper()}")
    else:
        field.type = kinds.TYPE_ENUM if kind in ENUMS else kinds.TYPE_MESSAGE
        field.type_name = f".{PACKAGE}.{kind}"
    if "oneof" in words:
        if not message.oneof_decl:
            message.oneof_decl.add(name="value")
        field.oneof_index = 0


_POOL = descriptor_pool.DescriptorPool()
_POOL.Add(_file())


def _class(name: str) -> Any:
    return message_factory.GetMessageClass(_POOL.FindMessageTypeByName(f"{PACKAGE}.{name}"))


NodeMessage: Any = _class("Node")
"""Generated classes have no static type: this module and file.py keep them to themselves."""
MetadataMessage: Any = _class("GlobalMetadata")
AttributeMessage: Any = _class("AttributeProto")
InfoMessage: Any = _class("IOInfo")
