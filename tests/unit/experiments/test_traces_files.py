"""Chakra trace files: read as mlc-chakra writes them, written as it reads them, and what is wrong with a bad one."""

import gzip
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from experiments.traces import file
from experiments.traces.node import Attribute, Node, NodeType, Tensors, Trace
from experiments.traces.schema import SCALARS
from topologies.errors import UserError

GOLDEN = Path(__file__).parents[2] / "golden" / "chakra"
"""Written by the generator of mlc-chakra 1.0.0 (its et_def_pb2 under protobuf 7.36.2)."""

_SIGNED32, _SIGNED64 = st.integers(-(2**31), 2**31 - 1), st.integers(-(2**63), 2**63 - 1)
_UNSIGNED32, _UNSIGNED64 = st.integers(0, 2**32 - 1), st.integers(0, 2**64 - 1)
SCALAR_VALUES: dict[str, st.SearchStrategy[object]] = {
    "double": st.floats(allow_nan=False),
    "float": st.floats(allow_nan=False, width=32),
    **dict.fromkeys(("int32", "sint32", "sfixed32"), _SIGNED32),
    **dict.fromkeys(("int64", "sint64", "sfixed64"), _SIGNED64),
    **dict.fromkeys(("uint32", "fixed32"), _UNSIGNED32),
    **dict.fromkeys(("uint64", "fixed64"), _UNSIGNED64),
    "bool": st.booleans(),
    "string": st.text(),
    "bytes": st.binary(),
}


@st.composite
def attributes(draw: st.DrawFn) -> Attribute:
    scalar = draw(st.sampled_from(SCALARS))
    many = draw(st.booleans())
    values = SCALAR_VALUES[scalar]
    value = draw(st.lists(values, max_size=3).map(tuple) if many else values)
    field = f"{scalar}_{'list' if many else 'val'}"
    return Attribute(name=draw(st.text()), field=field, value=value, doc=draw(st.text()))  # type: ignore[arg-type]


TENSORS = st.none() | st.builds(Tensors, values=st.text(), shapes=st.text(), types=st.text())
IDS = st.lists(_UNSIGNED64, max_size=3).map(tuple)
NODES = st.builds(
    Node,
    id=_UNSIGNED64,
    name=st.text(),
    type=st.sampled_from(NodeType),
    ctrl_deps=IDS,
    data_deps=IDS,
    start_us=_UNSIGNED64,
    duration_us=_UNSIGNED64,
    inputs=TENSORS,
    outputs=TENSORS,
    attributes=st.lists(attributes(), max_size=3).map(tuple),
)
TRACES = st.builds(
    Trace, nodes=st.lists(NODES, max_size=4).map(tuple), version=st.text(), attributes=st.lists(attributes()).map(tuple)
)


@given(trace=TRACES)
def test_a_trace_that_is_written_is_read_as_it_was(trace: Trace, tmp_path_factory: pytest.TempPathFactory) -> None:
    path = tmp_path_factory.mktemp("trace") / "x.0.et"
    file.write(path, trace)
    assert file.read(path) == trace


@pytest.mark.parametrize("path", sorted(GOLDEN.glob("*.et")), ids=lambda path: path.name)
def test_a_file_of_mlc_chakra_is_read_and_written_byte_for_byte(path: Path, tmp_path: Path) -> None:
    file.write(tmp_path / path.name, file.read(path))
    assert (tmp_path / path.name).read_bytes() == path.read_bytes()


def test_the_attributes_that_mlc_chakra_writes_have_their_types_and_values() -> None:
    (node,) = file.read(GOLDEN / "one_metadata_node_all_types.0.et").nodes
    found = {each.field: each.value for each in node.attributes}
    assert set(found) == {f"{scalar}_{kind}" for scalar in SCALARS for kind in ("val", "list")}
    assert (found["int64_val"], found["sint32_val"], found["double_val"]) == (9876543210, -12345, 1.2345)
    assert (found["string_list"], found["bool_list"]) == (
        tuple(str(12345 + i) for i in range(10)),
        tuple(i % 2 == 0 for i in range(10)),
    )


def test_dependencies_durations_and_collectives_of_mlc_chakra_are_understood() -> None:
    parent, child = file.read(GOLDEN / "two_comp_nodes_dependent.0.et").nodes
    assert (child.parents, child.duration_us, child.type) == ((parent.id,), 5, NodeType.COMP_NODE)
    (collective,) = file.read(GOLDEN / "ALL_REDUCE.0.et").nodes
    assert (collective.integer("comm_type"), collective.integer("comm_size")) == (0, 65536)


def test_a_compressed_file_is_read(tmp_path: Path) -> None:
    plain = GOLDEN / "ALL_REDUCE.0.et"
    (tmp_path / "x.0.et").write_bytes(gzip.compress(plain.read_bytes()))
    assert file.read(tmp_path / "x.0.et") == file.read(plain)


@pytest.mark.parametrize("data", [b"", b"\x80", b"not a trace at all", b"\x1f\x8bgarbage"])
def test_what_is_not_a_trace_is_refused_by_name(tmp_path: Path, data: bytes) -> None:
    (tmp_path / "x.0.et").write_bytes(data)
    with pytest.raises(UserError, match=r"x\.0\.et is"):
        file.read(tmp_path / "x.0.et")


def test_a_file_that_was_cut_off_is_refused_but_between_two_messages(tmp_path: Path) -> None:
    whole = (GOLDEN / "ALL_REDUCE.0.et").read_bytes()
    path = tmp_path / "x.0.et"
    metadata_bytes = 1 + whole[0]
    for cut in set(range(len(whole))) - {metadata_bytes}:
        path.write_bytes(whole[:cut])
        with pytest.raises(UserError, match=r"x\.0\.et is"):
            file.read(path)
    path.write_bytes(whole[:metadata_bytes])
    assert file.read(path).nodes == ()


def test_a_folder_holds_one_file_for_each_rank(tmp_path: Path) -> None:
    traces = [Trace(nodes=(Node(id=rank, name="n", type=NodeType.COMP_NODE),)) for rank in range(11)]
    file.write_folder(tmp_path / "t", traces)
    assert file.read_folder(tmp_path / "t") == tuple(traces)  # rank 10 after rank 9, not after rank 1


@pytest.mark.parametrize(
    ("names", "words"),
    [
        ([], "has no trace"),
        (["a.0.et", "a.2.et"], r"has no a\.1\.et"),
        (["a.0.et", "b.1.et"], r"more than one trace \(a, b\)"),
    ],
)
def test_a_folder_that_lacks_something_says_what(tmp_path: Path, names: list[str], words: str) -> None:
    for name in names:
        (tmp_path / name).write_bytes((GOLDEN / "ALL_REDUCE.0.et").read_bytes())
    with pytest.raises(UserError, match=words):
        file.read_folder(tmp_path)
