"""Small traces of well-known jobs, for any number of ranks.

ring       an all-reduce spelled out: P - 1 steps of reduce-scatter, P - 1 of all-gather, as sends and receives
ddp        forward, backward, and an all-reduce for each layer as soon as its gradients exist; two steps
pipeline   GPipe: micro-batches forward through one stage per rank, then backward
moe        experts: compute, all-to-all to the experts, compute, all-to-all back, for each layer
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from experiments.traces.builder import Builder
from experiments.traces.node import CommType, Trace
from topologies.errors import UnknownName


@dataclass(frozen=True, kw_only=True)
class Size:
    """How large an example is."""

    ranks: int
    layers: int
    """Or micro-batches, of the pipeline."""
    size_bytes: int
    """Per collective or message."""
    compute_ns: int
    """Forward, per layer; backward takes twice that."""


def ring(size: Size) -> list[Trace]:
    """A chunk goes on when it has come in."""
    found = []
    chunk_bytes = max(4, size.size_bytes // size.ranks // 4 * 4)
    for rank in range(size.ranks):
        builder = Builder()
        after: list[int] = []
        for step in range(2 * (size.ranks - 1)):
            phase = "reduce" if step < size.ranks - 1 else "gather"
            builder.send(f"{phase} {step} out", chunk_bytes, to=(rank - 1) % size.ranks, tag=step, after=after)
            source = (rank + 1) % size.ranks
            after = [builder.receive(f"{phase} {step} in", chunk_bytes, source=source, tag=step, after=after)]
        found.append(builder.trace())
    return found


def ddp(size: Size) -> list[Trace]:
    """The optimizer waits for all gradients, the next step for the optimizer."""
    builder = Builder()
    done: list[int] = []
    for step in range(2):
        last = done
        for layer in range(size.layers):
            last = [builder.compute(f"step {step} forward {layer}", size.compute_ns, after=last)]
        sent = []
        for layer in reversed(range(size.layers)):
            last = [builder.compute(f"step {step} backward {layer}", 2 * size.compute_ns, after=last)]
            name = f"step {step} gradients {layer}"
            sent.append(builder.collective(name, CommType.ALL_REDUCE, size.size_bytes, after=last))
        done = [builder.compute(f"step {step} optimizer", size.compute_ns, after=[*last, *sent])]
    return [builder.trace()] * size.ranks


def pipeline(size: Size) -> list[Trace]:
    """All micro-batches forward, then all backward."""
    found = []
    for rank in range(size.ranks):
        builder, forward = Builder(), []
        for batch in range(size.layers):
            forward.append(_stage(builder, size, "forward", batch, [], rank - 1, rank + 1, size.compute_ns))
        for batch in range(size.layers):
            # the last stage turns back by itself
            after = [forward[batch]]
            _stage(builder, size, "backward", batch, after, rank + 1, rank - 1, 2 * size.compute_ns)
        found.append(builder.trace())
    return found


def _stage(
    builder: Builder, size: Size, way: str, batch: int, after: list[int], source: int, target: int, compute_ns: int
) -> int:
    """Receive, compute, send, where there is a neighbour; the id of the compute node."""
    tag = 2 * batch + (way == "backward")
    ranks, name = range(size.ranks), f"{way} {batch}"
    if source in ranks:
        after = [*after, builder.receive(f"{name} in", size.size_bytes, source=source, tag=tag)]
    done = builder.compute(name, compute_ns, after=after)
    if target in ranks:
        builder.send(f"{name} out", size.size_bytes, to=target, tag=tag, after=[done])
    return done


def moe(size: Size) -> list[Trace]:
    """Tokens go to their experts and come back, and nothing can hide it."""
    builder = Builder()
    last: list[int] = []
    part_bytes = max(4 * size.ranks, size.size_bytes // (4 * size.ranks) * 4 * size.ranks)
    for layer in range(size.layers):
        for name in ("attention", "experts"):
            last = [builder.compute(f"{name} {layer}", size.compute_ns, after=last)]
            way = "dispatch" if name == "attention" else "combine"
            last = [builder.collective(f"{way} {layer}", CommType.ALL_TO_ALL, part_bytes, after=last)]
    return [builder.trace()] * size.ranks


EXAMPLES: Mapping[str, Callable[[Size], list[Trace]]] = {"ring": ring, "ddp": ddp, "pipeline": pipeline, "moe": moe}


def example(name: str, size: Size) -> list[Trace]:
    """Raises UnknownName."""
    if name not in EXAMPLES:
        raise UnknownName("example", name, EXAMPLES)
    return EXAMPLES[name](size)
