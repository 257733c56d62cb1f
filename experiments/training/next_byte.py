"""A language model small enough for sixteen replicas on one processor: the next byte from those before it.

    last bytes -> an embedding each -> one hidden layer -> scores of the next byte        (Bengio et al. 2003)

The text is real (text.py).  A partition says which of its places each worker may learn from:
`iid` deals them out at random; `shards` sorts them by the byte to be guessed, cuts them into two shards per worker and
gives every worker two: each then knows a few bytes only (McMahan et al. 2017, section 3, the non-IID split).
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch
from torch import nn
from torch.nn import functional
from torch.nn.utils import parameters_to_vector, vector_to_parameters

from experiments.training.shape import VOCABULARY
from experiments.training.text import corpus
from topologies.errors import UnknownName

CONTEXT, EMBEDDING = 8, 16
"""Bytes that the model sees, and the length of each one's vector."""
SHARDS = 2
"""Per worker."""
HELD_OUT = 4096
"""Places at the text's end that nobody learns from: the loss and accuracy of a model are theirs."""
STRIDE = 7
"""Between places that are learnt from: all of them would be more than a short run can look at."""


class NextByte(nn.Module):
    """The model."""

    def __init__(self, *, width: int, seed: int) -> None:
        """The same seed gives the same weights everywhere."""
        super().__init__()
        torch.manual_seed(seed)
        self.vectors = nn.Embedding(VOCABULARY, EMBEDDING)
        self.hidden = nn.Linear(CONTEXT * EMBEDDING, width)
        self.scores = nn.Linear(width, VOCABULARY)

    def forward(self, contexts: torch.Tensor) -> torch.Tensor:
        """(batch, CONTEXT) bytes -> scores of the byte after each."""
        found: torch.Tensor = self.scores(torch.tanh(self.hidden(self.vectors(contexts).flatten(1))))
        return found


def parameters(width: int) -> int:
    """How many the model has."""
    return VOCABULARY * EMBEDDING + (CONTEXT * EMBEDDING + 1) * width + (width + 1) * VOCABULARY


@dataclass(frozen=True, kw_only=True)
class Places:
    """A text and the places in it at which a byte is to be guessed."""

    text: torch.Tensor
    places: torch.Tensor

    def examples(self, chosen: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """(contexts, bytes to be guessed) at these of the places, given by number."""
        at = self.places[chosen]
        return self.text[at.unsqueeze(1) - torch.arange(CONTEXT, 0, -1)], self.text[at]

    @property
    def labels(self) -> torch.Tensor:
        """The bytes to be guessed."""
        return self.text[self.places]


def learning_places() -> Places:
    """What workers may learn from."""
    text = corpus()
    return Places(text=text, places=torch.arange(CONTEXT, text.numel() - HELD_OUT, STRIDE))


def held_out() -> Places:
    """What models are judged by."""
    text = corpus()
    return Places(text=text, places=torch.arange(text.numel() - HELD_OUT, text.numel()))


def _iid(labels: torch.Tensor, workers: int, seed: int) -> list[torch.Tensor]:
    """Dealt out at random, the same number each."""
    order = torch.randperm(labels.numel(), generator=torch.Generator().manual_seed(seed))
    return list(order[: labels.numel() // workers * workers].chunk(workers))


def _shards(labels: torch.Tensor, workers: int, seed: int) -> list[torch.Tensor]:
    """SHARDS pieces of equal length each, of the places in the order of their labels."""
    count = SHARDS * workers
    order = torch.argsort(labels, stable=True)
    pieces = order[: labels.numel() // count * count].chunk(count)
    dealt = torch.randperm(count, generator=torch.Generator().manual_seed(seed)).tolist()
    return [
        torch.cat([pieces[number] for number in dealt[worker * SHARDS : (worker + 1) * SHARDS]])
        for worker in range(workers)
    ]


_PARTITIONS: Mapping[str, Callable[[torch.Tensor, int, int], list[torch.Tensor]]] = {"iid": _iid, "shards": _shards}


def partition(name: str, labels: torch.Tensor, *, workers: int, seed: int) -> list[torch.Tensor]:
    """Per worker: numbers of the places that it learns from, disjoint and equally many.  Raises UnknownName."""
    if name not in _PARTITIONS:
        raise UnknownName("partition", name, _PARTITIONS)
    return _PARTITIONS[name](labels, workers, seed)


class Learner:
    """One worker: a model, its own places, and plain gradient descent on batches drawn from them."""

    def __init__(self, *, width: int, seed: int, worker: int, workers: int, partition_name: str, batch: int) -> None:
        """Workers of one seed start from one model."""
        self.model = NextByte(width=width, seed=seed)
        self._places = learning_places()
        self._own = partition(partition_name, self._places.labels, workers=workers, seed=seed)[worker]
        self._lots = torch.Generator().manual_seed(seed * 1_000_003 + worker)
        self._batch = batch

    @property
    def weights(self) -> torch.Tensor:
        """All of them, in one vector of its own."""
        return parameters_to_vector(self.model.parameters()).detach().clone()

    def load(self, weights: torch.Tensor) -> None:
        """Takes over somebody's weights."""
        with torch.no_grad():
            vector_to_parameters(weights.clone(), self.model.parameters())

    def gradient(self) -> tuple[torch.Tensor, float]:
        """Of the loss on the next batch, in one vector; and that loss in nats per byte."""
        drawn = torch.randint(0, self._own.numel(), (self._batch,), generator=self._lots)
        contexts, wanted = self._places.examples(self._own[drawn])
        self.model.zero_grad()
        loss = functional.cross_entropy(self.model(contexts), wanted)
        torch.autograd.backward(loss)
        return parameters_to_vector([each.grad for each in self.model.parameters() if each.grad is not None]), float(
            loss.item()
        )

    def step(self, rate: float) -> float:
        """One step of gradient descent; the batch's loss before it."""
        gradient, loss = self.gradient()
        self.load(self.weights.sub_(gradient, alpha=rate))
        return loss


@dataclass(frozen=True, kw_only=True)
class Judgement:
    """What a model is worth on the places that nobody learnt from."""

    loss: float
    """Nats per byte."""
    accuracy: float
    """Share of bytes guessed right."""


class Judge:
    """Knows the held-out places."""

    def __init__(self, *, width: int) -> None:
        """`width` is that of the models to come."""
        self._model = NextByte(width=width, seed=0)
        places = held_out()
        self._contexts, self._wanted = places.examples(torch.arange(places.places.numel()))

    def judge(self, weights: torch.Tensor) -> Judgement:
        """A model given by its weights."""
        with torch.no_grad():
            vector_to_parameters(weights, self._model.parameters())
            scores = self._model(self._contexts)
        return Judgement(
            loss=float(functional.cross_entropy(scores, self._wanted).item()),
            accuracy=float((scores.argmax(dim=1) == self._wanted).double().mean().item()),
        )
