"""Real text to learn from, that every Python brings along: the language reference's topics, 466 kB of English."""

import hashlib
import pydoc_data.topics

import torch


def corpus() -> torch.Tensor:
    """The text as bytes, in a fixed order."""
    topics = pydoc_data.topics.topics
    text = "\n".join(topics[name] for name in sorted(topics))
    return torch.frombuffer(bytearray(text.encode("utf-8")), dtype=torch.uint8).long()


def batch(text: torch.Tensor, *, seed: int, step: int, rank: int, sequences: int, context: int) -> torch.Tensor:
    """(sequences, context + 1) bytes: one rank's share of one step, the same whenever it is asked for."""
    digest = hashlib.sha256(f"{seed}/{step}/{rank}".encode()).digest()
    source = torch.Generator().manual_seed(int.from_bytes(digest[:6], "little"))
    starts = torch.randint(0, text.numel() - context - 1, (sequences,), generator=source)
    return torch.stack([text[start : start + context + 1] for start in starts.tolist()])
