"""A training step of a large model spread over a grid: sizes of what is exchanged, and how long devices compute.  Pure.

    tp   4 all-reduces of b s h values per layer and micro-batch, and one at each end: the embedding's forward, the
         head's backward (Shoeybi et al. 2019, section 3; the vocabulary is cut up too)
    pp   b s h values per boundary and micro-batch, each way (Narayanan et al. 2021, section 2.2)
    dp   one all-reduce of a rank's gradients: 2 (d-1)/d of them sent by each (Patarasuk and Yuan 2009)

`scale` divides every array and every computing time: a step then takes 1/scale of the real one, as far as bytes and
FLOP decide; latencies do not shrink, and weigh `scale` times as much.  Left out: tied embeddings' all-reduce between
the ends of a pipeline, the few bytes of the loss, the optimiser's own time.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

from experiments.training.grid import Grid
from experiments.training.large_models import LargeModel
from experiments.workloads import messages
from experiments.workloads.messages import Message
from topologies.errors import UserError

HALVES = ("attention", "feed")


@dataclass(frozen=True, kw_only=True)
class LargePlan:
    """What every rank must know."""

    model: LargeModel
    grid: Grid
    layers: int
    """Of them, so many are run."""
    scale: int
    microbatches: int
    """Per step."""
    sequences: int
    """Per micro-batch, b of the formulas."""
    value_bytes: int
    """Of an activation and its gradient: 2 or 4."""
    gradient_bytes: int
    """Of a parameter's gradient: 2 or 4."""
    flop_per_s: float
    schedule: str
    steps: int
    warmup: int

    def __post_init__(self) -> None:
        """Raises UserError in the words of the settings that plans are made of."""
        tensor, stages = self.grid.sizes["tp"], self.grid.sizes["pp"]
        if self.model.heads % tensor or self.model.kv_heads % tensor:
            raise UserError(
                f"--set tp={tensor}: does not divide the {self.model.heads} heads and {self.model.kv_heads} key-value "
                f"heads of {self.model.name}"
            )
        if not 1 <= self.layers <= self.model.layers or self.layers % stages:
            raise UserError(
                f"--set layers={self.layers}: {self.model.name} has {self.model.layers}; write a multiple of "
                f"pp={stages} up to that"
            )
        for key, value in (("value_bytes", self.value_bytes), ("gradient_bytes", self.gradient_bytes)):
            if value not in (2, 4):
                raise UserError(f"--set {key}={value}: write 2 (bfloat16) or 4 (float32)")

    @property
    def tokens(self) -> int:
        """Of a micro-batch."""
        return self.sequences * self.model.context

    @property
    def activation_elements(self) -> int:
        """b s h, scaled."""
        return self.tokens * self.model.width // self.scale

    @property
    def activation_bytes(self) -> int:
        """Of what layers hand on, and ranks add up."""
        return self.activation_elements * self.value_bytes

    def is_first(self, stage: int) -> bool:
        """It holds the embedding."""
        return stage == 0

    def is_last(self, stage: int) -> bool:
        """It holds the head."""
        return stage == self.grid.sizes["pp"] - 1

    @property
    def layers_per_stage(self) -> int:
        """Equally many in each."""
        return self.layers // self.grid.sizes["pp"]

    def stage_parameters(self, stage: int) -> int:
        """Of all its ranks together, before scaling."""
        model = self.model
        found = self.layers_per_stage * model.layer_parameters
        found += model.embedding_parameters if self.is_first(stage) else 0
        return found + (model.head_parameters if self.is_last(stage) else 0)

    def gradient_elements(self, stage: int) -> int:
        """Of one rank of the stage, scaled."""
        return self.stage_parameters(stage) // self.grid.sizes["tp"] // self.scale

    def forward_ns(self, part: str) -> int:
        """Of a micro-batch on one rank, scaled: `attention` or `feed` of a layer, or the `head`."""
        flop = {
            "attention": self.model.attention_flop(tokens=self.tokens, context=self.model.context),
            "feed": self.model.feed_flop(tokens=self.tokens),
            "head": self.model.head_flop(tokens=self.tokens),
        }[part]
        return round(flop * 1e9 / self.flop_per_s / self.grid.sizes["tp"] / self.scale)

    def compute_ns(self, stage: int) -> int:
        """Of a step on one rank: forward and twice that backward, every micro-batch."""
        forward_ns = self.layers_per_stage * sum(self.forward_ns(half) for half in HALVES)
        forward_ns += self.forward_ns("head") if self.is_last(stage) else 0
        return 3 * forward_ns * self.microbatches

    def reductions(self, stage: int) -> int:
        """Tensor-parallel all-reduces of a rank in a step."""
        ends = self.is_first(stage) + self.is_last(stage)
        return (4 * self.layers_per_stage + ends) * self.microbatches

    def exchanges(self, stage: int) -> int:
        """Arrays that a rank of the stage is brought in a step, each checked: sums, and what neighbours hand on."""
        sizes = self.grid.sizes
        found = self.reductions(stage) if sizes["tp"] > 1 else 0
        found += 1 if sizes["dp"] > 1 else 0
        return found + ((not self.is_first(stage)) + (not self.is_last(stage))) * self.microbatches

    def messages(self, dimension: str) -> Iterator[Message]:
        """What gloo sends along one dimension in one step, of all ranks."""
        for group in self.grid.groups(dimension):
            if dimension == "pp":
                for one, other in pairwise(group):
                    for pair in ((one, other), (other, one)):
                        yield from [Message(*pair, self.activation_bytes)] * self.microbatches
                continue
            stage = self.grid.place(group[0])["pp"]
            if dimension == "tp":
                size_bytes, element_bytes, times = self.activation_bytes, self.value_bytes, self.reductions(stage)
            else:
                size_bytes, element_bytes, times = (
                    self.gradient_elements(stage) * self.gradient_bytes,
                    self.gradient_bytes,
                    1,
                )
            once = list(messages.all_reduce(len(group), size_bytes, element_bytes=element_bytes))
            yield from (Message(group[it.src], group[it.dst], it.size_bytes) for it in once * times)

    def formula_bytes(self, dimension: str, rank: int) -> float:
        """What the papers say that a rank sends along one dimension in one step, scaled."""
        size, place = self.grid.sizes[dimension], self.grid.place(rank)
        stage = place["pp"]
        if dimension == "pp":
            neighbours = (not self.is_first(stage)) + (not self.is_last(stage))
            return float(neighbours * self.microbatches * self.activation_bytes)
        ring = 2 * (size - 1) / size
        if dimension == "tp":
            return ring * self.reductions(stage) * self.activation_bytes
        return ring * self.gradient_elements(stage) * self.gradient_bytes
