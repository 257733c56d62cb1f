"""Large models by their shapes: parameters, floating-point operations and sizes of what is exchanged.  Pure.

parameters   counted matrix by matrix; the unit test holds them against the published totals
FLOP         2 per parameter of a matrix and token, and 4 x context x width per token for attention's two products,
             causal or not; backward twice that (Narayanan et al. 2021, Megatron-LM, appendix)
"""

from collections.abc import Mapping
from dataclasses import dataclass

from topologies.errors import UnknownName


@dataclass(frozen=True, kw_only=True)
class LargeModel:
    """A decoder-only transformer."""

    name: str
    source: str
    layers: int
    width: int
    """Of its vectors, h of Megatron-LM's formulas."""
    feed_width: int
    """Inside the feed-forward layer."""
    heads: int
    kv_heads: int
    """Less than `heads` where several queries share keys and values."""
    vocabulary: int
    context: int
    """Tokens per sequence in pre-training, s of the formulas."""
    gated: bool
    """SwiGLU: a third matrix in the feed-forward layer (Shazeer 2020), RMSNorm, no biases, no learned positions."""
    tied: bool
    """The head is the embedding's matrix."""

    @property
    def attention_matrices(self) -> int:
        """Parameters of a layer's four projections, biases apart."""
        kv_width = self.kv_heads * self.width // self.heads
        return 2 * self.width**2 + 2 * self.width * kv_width

    @property
    def feed_matrices(self) -> int:
        """Parameters of a layer's feed-forward matrices, biases apart."""
        return (3 if self.gated else 2) * self.width * self.feed_width

    @property
    def layer_parameters(self) -> int:
        """With norms and, in models of GPT's kind, biases."""
        if self.gated:
            return self.attention_matrices + self.feed_matrices + 2 * self.width
        biases = 4 * self.width + self.feed_width + self.width
        return self.attention_matrices + self.feed_matrices + biases + 4 * self.width

    @property
    def embedding_parameters(self) -> int:
        """Before the first layer: a vector per token and, in models of GPT's kind, per place."""
        return self.width * (self.vocabulary + (0 if self.gated else self.context))

    @property
    def head_parameters(self) -> int:
        """After the last layer: the norm, and a matrix of its own unless it is the embedding's."""
        return self.width * ((1 if self.gated else 2) + (0 if self.tied else self.vocabulary))

    @property
    def parameters(self) -> int:
        """Of the whole model."""
        return self.embedding_parameters + self.layers * self.layer_parameters + self.head_parameters

    def attention_flop(self, *, tokens: int, context: int) -> int:
        """Forward, of one layer."""
        return tokens * (2 * self.attention_matrices + 4 * context * self.width)

    def feed_flop(self, *, tokens: int) -> int:
        """Forward, of one layer."""
        return tokens * 2 * self.feed_matrices

    def head_flop(self, *, tokens: int) -> int:
        """Forward, of the scores over the vocabulary."""
        return tokens * 2 * self.width * self.vocabulary


def _gpt(name: str, source: str, *, layers: int, width: int, heads: int, vocabulary: int) -> LargeModel:
    """The kind of GPT-2 and 3: four times the width inside, every head with keys of its own, 2,048 places."""
    return LargeModel(
        name=name,
        source=source,
        layers=layers,
        width=width,
        feed_width=4 * width,
        heads=heads,
        kv_heads=heads,
        vocabulary=vocabulary,
        context=2048,
        gated=False,
        tied=True,
    )


def _llama3(name: str, *, layers: int, width: int, feed_width: int, heads: int) -> LargeModel:
    """Table 3 of Dubey et al. 2024; the vocabulary with its 256 special tokens, as released."""
    return LargeModel(
        name=name,
        source="Dubey et al. 2024, The Llama 3 Herd of Models, table 3",
        layers=layers,
        width=width,
        feed_width=feed_width,
        heads=heads,
        kv_heads=8,
        vocabulary=128_256,
        context=8192,
        gated=True,
        tied=False,
    )


_MEGATRON = "Narayanan et al. 2021, Efficient Large-Scale Language Model Training, table 1"

MODELS: Mapping[str, LargeModel] = {
    model.name: model
    for model in (
        _gpt(
            "gpt3_175b",
            "Brown et al. 2020, Language Models are Few-Shot Learners, table 2.1",
            layers=96,
            width=12_288,
            heads=96,
            vocabulary=50_257,
        ),
        _gpt("megatron_1t", _MEGATRON, layers=128, width=25_600, heads=160, vocabulary=51_200),
        _llama3("llama3_8b", layers=32, width=4096, feed_width=14_336, heads=32),
        _llama3("llama3_70b", layers=80, width=8192, feed_width=28_672, heads=64),
        _llama3("llama3_405b", layers=126, width=16_384, feed_width=53_248, heads=128),
    )
}


def model_named(name: str) -> LargeModel:
    """Raises UnknownName."""
    if name not in MODELS:
        raise UnknownName("model", name, MODELS)
    return MODELS[name]
