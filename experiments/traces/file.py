"""Trace files: length-delimited protobuf messages, one GlobalMetadata and then the nodes; one file per rank.

DIR/NAME.0.et, DIR/NAME.1.et, ...; a file may be compressed with gzip, as mlc-chakra's reader allows.
"""

import gzip
import io
import re
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from google.protobuf import proto
from google.protobuf.message import DecodeError

from experiments.traces.node import Attribute, Node, NodeType, Tensors, Trace
from experiments.traces.schema import AttributeMessage, InfoMessage, MetadataMessage, NodeMessage
from topologies.errors import UserError

_FILE_NAME = re.compile(r"(.+)\.(\d+)\.et")
_GZIP = b"\x1f\x8b"


def read_folder(folder: Path) -> tuple[Trace, ...]:
    """The traces of all ranks in rank order.  Raises UserError for a folder without them, or with a rank missing."""
    if not folder.is_dir():
        raise UserError(f"{folder} is not a folder; a trace is a folder with NAME.0.et, NAME.1.et and so on")
    found: dict[int, Path] = {}
    names: set[str] = set()
    for path in sorted(folder.iterdir()):
        if match := _FILE_NAME.fullmatch(path.name):
            names.add(match[1])
            found[int(match[2])] = path
    if not found:
        raise UserError(f"{folder} has no trace; it needs NAME.0.et, NAME.1.et and so on, one for each rank")
    if len(names) > 1:
        raise UserError(f"{folder} has more than one trace ({', '.join(sorted(names))}); keep one in a folder")
    if missing := [rank for rank in range(max(found)) if rank not in found]:
        raise UserError(f"{folder} has no {names.pop()}.{missing[0]}.et, but that of rank {max(found)}")
    return tuple(read(found[rank]) for rank in sorted(found))


def read(path: Path) -> Trace:
    """One rank's trace.  Raises UserError."""
    try:
        data = path.read_bytes()
        stream = io.BytesIO(gzip.decompress(data) if data.startswith(_GZIP) else data)
        metadata = proto.parse_length_prefixed(MetadataMessage, stream)
        if metadata is None:
            raise UserError(f"{path} is empty")
        nodes = []
        while (message := proto.parse_length_prefixed(NodeMessage, stream)) is not None:
            nodes.append(_node(message))
    except (OSError, EOFError, ValueError, DecodeError, zlib.error) as error:
        raise UserError(f"{path} is not a Chakra trace: {error}") from None
    return Trace(version=metadata.version, attributes=_attributes(metadata.attr), nodes=tuple(nodes))


def write_folder(folder: Path, traces: Sequence[Trace], *, name: str = "trace") -> None:
    """One file per rank; the folder is made."""
    folder.mkdir(parents=True, exist_ok=True)
    for rank, trace in enumerate(traces):
        write(folder / f"{name}.{rank}.et", trace)


def write(path: Path, trace: Trace) -> None:
    """One rank's trace.  Equal traces give equal bytes."""
    stream = io.BytesIO()
    metadata = MetadataMessage(version=trace.version, attr=[_attribute_message(each) for each in trace.attributes])
    proto.serialize_length_prefixed(metadata, stream)
    for node in trace:
        proto.serialize_length_prefixed(_node_message(node), stream)
    path.write_bytes(stream.getvalue())


def _node(message: Any) -> Node:
    return Node(
        id=message.id,
        name=message.name,
        type=NodeType(message.type),
        ctrl_deps=tuple(message.ctrl_deps),
        data_deps=tuple(message.data_deps),
        start_us=message.start_time_micros,
        duration_us=message.duration_micros,
        inputs=_tensors(message.inputs) if message.HasField("inputs") else None,
        outputs=_tensors(message.outputs) if message.HasField("outputs") else None,
        attributes=_attributes(message.attr),
    )


def _node_message(node: Node) -> Any:
    message = NodeMessage(
        id=node.id,
        name=node.name,
        type=int(node.type),
        ctrl_deps=node.ctrl_deps,
        data_deps=node.data_deps,
        start_time_micros=node.start_us,
        duration_micros=node.duration_us,
        attr=[_attribute_message(each) for each in node.attributes],
    )
    for tensors, field in ((node.inputs, message.inputs), (node.outputs, message.outputs)):
        if tensors is not None:
            field.CopyFrom(InfoMessage(values=tensors.values, shapes=tensors.shapes, types=tensors.types))
    return message


def _tensors(message: Any) -> Tensors:
    return Tensors(values=message.values, shapes=message.shapes, types=message.types)


def _attributes(messages: Any) -> tuple[Attribute, ...]:
    return tuple(_attribute(each) for each in messages)


def _attribute(message: Any) -> Attribute:
    field = message.WhichOneof("value") or ""
    value: Any = getattr(message, field) if field else None
    return Attribute(
        name=message.name,
        field=field,
        value=tuple(value.values) if field.endswith("_list") else value,
        doc=message.doc_string,
    )


def _attribute_message(attribute: Attribute) -> Any:
    message = AttributeMessage(name=attribute.name, doc_string=attribute.doc)
    if attribute.field.endswith("_list"):
        chosen = getattr(message, attribute.field)
        chosen.SetInParent()  # an empty list is a value too
        chosen.values.extend(attribute.value)
    elif attribute.field:
        setattr(message, attribute.field, attribute.value)
    return message
