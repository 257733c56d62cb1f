"""What a small transformer is like; known without torch."""

from dataclasses import dataclass

from topologies.errors import UserError

VOCABULARY = 256
"""Bytes are the tokens."""


@dataclass(frozen=True, kw_only=True)
class Shape:
    """What a transformer is like."""

    layers: int
    width: int
    heads: int
    context: int

    def __post_init__(self) -> None:
        """Raises UserError in the words of the settings that shapes are made of."""
        if self.width % self.heads:
            raise UserError(f"--set heads={self.heads} does not divide width={self.width}")

    @property
    def parameters(self) -> int:
        """Of the whole model: 12 width^2 + 13 width per block, embeddings, last norm and head (all with biases)."""
        block = 12 * self.width**2 + 13 * self.width
        ends = (VOCABULARY + self.context) * self.width + 2 * self.width + VOCABULARY * (self.width + 1)
        return self.layers * block + ends
