"""What each attention head does over a whole test set, in a few numbers, each beside a head that looks everywhere.

For every head the mean over all queries of all sentences of

    entropy      of its weights, over the entropy of a uniform head over the same keys, log n: 1 looks everywhere alike,
                 0 at one piece
    first        the weight on the first piece (in a decoder: BOS)
    previous     the weight on the piece before the query, ...
    same         ... at its own place, ...
    next         ... and after it; in cross-attention places of the target are compared with those of the source
    punctuation  the weight on pieces of nothing but punctuation, ...
    eos          ... on EOS, ...
    separator    ... on the piece between source and target of a decoder-only model; in self-attention all three without
                 the query's own place, as a focus column is what others look at
    agreement    how often the source piece that it looks at most is the one that the mean of all heads looks at most

Padding is neither counted as a query nor seen as a key. A query with a single key has no choice (the first one of a
causal head) and is left out; so is, for each of the weights, a query that has no such key.

Agreement is of queries that predict a word, over the words of the source: punctuation and EOS draw many heads that
align nothing. In a decoder-only model it is of the target's part of self-attention.

Source:
    Entropy, and weights on relative places, punctuation and EOS: Clark et al. 2019, arXiv:1906.04341, sections 3.1 to
    3.3 (there entropies are not divided by that of the uniform head). Heads that do one thing, and pruning the others:
    Voita et al. 2019, arXiv:1905.09418, sections 5 and 6.
"""

import unicodedata
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

import torch

from seq2seq.bundle import Bundle
from seq2seq.config import Task
from seq2seq.corpus.batching import lengths_mask, pad
from seq2seq.inspection.attention import Kind, maps_of_texts
from seq2seq.models.transformer import AttentionMaps
from seq2seq.nn.masks import causal_mask, prefix_mask
from seq2seq.shapes import Bool, Float, Int, Tensor
from seq2seq.text.tokenizer import Tokenizer

PLACES = {"previous": -1, "same": 0, "next": 1}
"""Measures of the weight on a neighbour, with where it stands."""

MEASURES = ("entropy", "first", *PLACES, "punctuation", "eos", "separator", "agreement")

WEIGHTS_AT_ONCE = 20_000_000
"""Attention weights that one batch may have over all layers: 80 megabytes."""

Pair = tuple[Sequence[int], Sequence[int]]
"""Source ids and target ids, EOS included. Of a language model: no source, and the text."""


@dataclass(frozen=True)
class HeadProfile:
    """The numbers of one head. Layer and head are counted from 1; None: there was no query to measure it of."""

    kind: Kind
    layer: int
    head: int
    measures: dict[str, float | None]


@dataclass(frozen=True)
class HeadReport:
    """The numbers of all heads.

    Attributes:
        profiles: One for each head, layer by layer.
        uniform: For each kind of attention what a head that looks everywhere alike has in the same place.
        num_sentences: Sentences measured.
        num_queries: For each kind the queries that had a choice.
    """

    profiles: list[HeadProfile]
    uniform: dict[Kind, dict[str, float | None]]
    num_sentences: int
    num_queries: dict[Kind, int]


def measure_heads(
    bundle: Bundle, pairs: Sequence[Pair], on_batch: Callable[[int], None] = lambda count: None
) -> HeadReport:
    """The numbers of every head over all sentences, which are run through the model in batches.

    Args:
        bundle: The model with its tokenizers.
        pairs: What it reads, and what it writes or is made to write.
        on_batch: Told how many sentences have been measured since the last time.

    Raises:
        ValueError: if there is no sentence.
    """
    if not pairs:
        raise ValueError("there is no sentence to measure heads on; give text with at least one line that is not blank")
    sums: dict[Kind, _Sums] = {}
    reader = _Reader(bundle)
    for batch in _batches(bundle, pairs):
        for kind, maps, keys in reader.read(batch):
            sums.setdefault(kind, _Sums()).add(maps, keys)
        on_batch(len(batch))
    return HeadReport(
        profiles=[profile for kind, own in sums.items() for profile in own.profiles(kind)],
        uniform={kind: own.uniform() for kind, own in sums.items()},
        num_sentences=len(pairs),
        num_queries={kind: own.num_queries for kind, own in sums.items()},
    )


def is_punctuation(piece: str) -> bool:
    """Whether a piece has punctuation and nothing else beside the mark of a space."""
    text = piece.replace("▁", "").strip()
    return bool(text) and all(unicodedata.category(character).startswith("P") for character in text)


def _batches(bundle: Bundle, pairs: Sequence[Pair]) -> Iterator[list[Pair]]:
    """The pairs, sorted by length so that there is little padding, as many at once as their weights have room for."""
    config = bundle.model_config
    heads = config.num_heads * (config.num_encoder_layers + 2 * config.num_decoder_layers)
    batch: list[Pair] = []
    for pair in sorted(pairs, key=lambda pair: len(pair[0]) + len(pair[1]), reverse=True):
        # The first pair of a batch is its longest.
        longest = sum(map(len, batch[0])) if batch else 0
        if batch and (len(batch) + 1) * heads * longest**2 > WEIGHTS_AT_ONCE:
            yield batch
            batch = []
        batch.append(pair)
    yield batch


@dataclass(frozen=True)
class _Keys:
    """What the queries of a batch may look at, and what stands there."""

    allowed: Bool[Tensor, "B Q K"]
    """True where a real query may look at a key."""
    query_places: Int[Tensor, "B Q"]
    key_places: Int[Tensor, "B K"]
    """Places among the real pieces, counted from 0."""
    marked: dict[str, Bool[Tensor, "B K"]]
    """Keys of a certain sort, by the measure that they are for."""
    aligned: Bool[Tensor, "B Q K"] | None = None
    """The words of the source, for queries that predict a word."""
    crossed: bool = False
    """Whether queries and keys are of two sequences."""

    def groups(self) -> Iterator[tuple[str, Bool[Tensor, "B Q K"]]]:
        """For each measure of weight the keys that it is the weight on."""
        yield "first", self.allowed & (self.key_places == 0)[:, None, :]
        for name, step in PLACES.items():
            yield name, self.allowed & (self.key_places[:, None, :] == self.query_places[:, :, None] + step)
        elsewhere = self.allowed
        if not self.crossed:
            elsewhere = elsewhere & (self.key_places[:, None, :] != self.query_places[:, :, None])
        for name, keys in self.marked.items():
            yield name, elsewhere & keys[:, None, :]


@dataclass
class _Sums:
    """Sums over all queries so far, of one kind of attention."""

    heads: dict[str, Float[Tensor, "N H"]] = field(default_factory=dict)
    even: dict[str, float] = field(default_factory=dict)
    """The same of the uniform head."""
    counts: dict[str, int] = field(default_factory=dict)
    num_queries: int = 0

    def add(self, maps: list[Tensor], keys: _Keys) -> None:
        """Add a batch: weights of every layer, [B, H, Q, K] each."""
        num_keys = keys.allowed.sum(-1)
        choice = num_keys > 1
        self.num_queries += int(choice.sum())
        weights = [layer.cpu().double() for layer in maps]  # not every device has float64
        most = num_keys.clamp(min=2).double().log()
        entropy = [torch.special.entr(layer).sum(-1) / most[:, None] for layer in weights]
        by_head = [torch.einsum("bhq,bq->h", layer, choice.double()) for layer in entropy]
        self._add("entropy", by_head, float(choice.sum()), choice)
        for name, group in keys.groups():
            group = group & choice[:, :, None]
            by_head = [torch.einsum("bhqk,bqk->h", layer, group.double()) for layer in weights]
            even = (group.sum(-1).double() / num_keys.clamp(min=1)).sum()
            self._add(name, by_head, float(even), group.any(-1))
        if keys.aligned is not None:
            self._add_agreement(weights, keys.aligned)

    def _add_agreement(self, weights: list[Tensor], aligned: Bool[Tensor, "B Q K"]) -> None:
        num_keys = aligned.sum(-1)
        choice = num_keys > 1
        mean = torch.stack([layer.mean(1) for layer in weights]).mean(0)
        best = mean.masked_fill(~aligned, -1.0).argmax(-1)
        by_head = []
        for layer in weights:
            own = layer.masked_fill(~aligned[:, None], -1.0).argmax(-1)
            by_head.append(((own == best[:, None]) & choice[:, None]).sum((0, 2)).double())
        self._add("agreement", by_head, float((choice.double() / num_keys.clamp(min=1)).sum()), choice)

    def _add(self, name: str, by_head: list[Tensor], even: float, counted: Bool[Tensor, "B Q"]) -> None:
        found = torch.stack(by_head)
        self.heads[name] = self.heads[name] + found if name in self.heads else found
        self.even[name] = self.even.get(name, 0.0) + even
        self.counts[name] = self.counts.get(name, 0) + int(counted.sum())

    def profiles(self, kind: Kind) -> Iterator[HeadProfile]:
        """The means of each head."""
        means = {name: self.heads[name] / self.counts[name] for name in self.heads if self.counts[name]}
        for layer, row in enumerate(self.heads["entropy"], start=1):
            for head in range(1, len(row) + 1):
                values = {name: float(means[name][layer - 1, head - 1]) if name in means else None for name in MEASURES}
                yield HeadProfile(kind, layer, head, values)

    def uniform(self) -> dict[str, float | None]:
        """The means of the uniform head."""
        return {name: self.even[name] / self.counts[name] if self.counts.get(name) else None for name in MEASURES}


class _Reader:
    """Runs batches through the model, and says of each map what its keys are; all but the model is on the CPU."""

    def __init__(self, bundle: Bundle) -> None:
        self.bundle = bundle
        self.source_punctuation = self._punctuation(bundle.source_tokenizer)
        self.target_punctuation = (
            self.source_punctuation if bundle.joint else self._punctuation(bundle.target_tokenizer)
        )

    def _punctuation(self, tokenizer: Tokenizer) -> Bool[Tensor, " V"]:
        """For every id whether its piece is punctuation."""
        pieces = tokenizer.pieces(range(tokenizer.vocab_size))
        return torch.tensor([is_punctuation(piece) for piece in pieces])

    def read(self, batch: Sequence[Pair]) -> Iterator[tuple[Kind, list[Tensor], _Keys]]:
        """Each kind of attention with its weights."""
        if self.bundle.task is Task.language_model:
            yield self._read_texts([target for _, target in batch])
            return
        special = self.bundle.target_tokenizer.special
        src, src_valid = self._padded([source for source, _ in batch], self.bundle.source_tokenizer)
        tgt_in, tgt_valid = self._padded([[special.bos, *target[:-1]] for _, target in batch])
        tgt_out, _ = self._padded([target for _, target in batch])
        device = self.bundle.model.output.device
        maps = self.bundle.model.attention_maps(*(part.to(device) for part in (src, src_valid, tgt_in, tgt_valid)))
        predicts_word = tgt_valid & ~self.target_punctuation[tgt_out] & (tgt_out != special.eos)
        if not maps.encoder:
            yield self._one_row(maps, src[:, :-1], src_valid[:, 1:], tgt_in, tgt_valid, predicts_word)
            return
        source_places, target_places = src_valid.cumsum(1) - 1, tgt_valid.cumsum(1) - 1
        eos = src == self.bundle.source_tokenizer.special.eos
        punctuation = self.source_punctuation[src] & src_valid
        marked = {"punctuation": punctuation, "eos": eos & src_valid}
        seen = src_valid[:, :, None] & src_valid[:, None, :]
        yield Kind.encoder, maps.encoder, _Keys(seen, source_places, source_places, marked)
        causal = causal_mask(tgt_in.shape[1])[0]
        seen = tgt_valid[:, :, None] & tgt_valid[:, None, :] & causal
        keys = _Keys(seen, target_places, target_places, {"punctuation": self.target_punctuation[tgt_in] & tgt_valid})
        yield Kind.decoder, maps.decoder, keys
        seen = tgt_valid[:, :, None] & src_valid[:, None, :]
        words = predicts_word[:, :, None] & (src_valid & ~punctuation & ~eos)[:, None, :]
        yield Kind.cross, maps.cross, _Keys(seen, target_places, source_places, marked, words, crossed=True)

    def _one_row(
        self,
        maps: AttentionMaps,
        prompt: Int[Tensor, "B P"],
        prompt_valid: Bool[Tensor, "B P"],
        tgt_in: Int[Tensor, "B T"],
        tgt_valid: Bool[Tensor, "B T"],
        predicts_word: Bool[Tensor, "B T"],
    ) -> tuple[Kind, list[Tensor], _Keys]:
        """A decoder-only model's attention over source, separator and target."""
        valid = torch.cat([prompt_valid, tgt_valid], 1)
        seen = prefix_mask(valid, prompt.shape[1], self.bundle.model_config.prefix_lm)[:, 0] & valid[:, :, None]
        places = valid.cumsum(1) - 1
        in_source = torch.cat([prompt_valid, torch.zeros_like(tgt_valid)], 1)
        separator = torch.zeros_like(valid)
        separator[:, prompt.shape[1]] = True
        punctuation = self.target_punctuation[torch.cat([prompt, tgt_in], 1)] & valid
        predicts = torch.cat([torch.zeros_like(prompt_valid), predicts_word], 1)
        words = predicts[:, :, None] & (in_source & ~punctuation)[:, None, :]
        marked = {"punctuation": punctuation, "separator": separator}
        return Kind.decoder, maps.decoder, _Keys(seen, places, places, marked, words)

    def _read_texts(self, texts: Sequence[Sequence[int]]) -> tuple[Kind, list[Tensor], _Keys]:
        """A language model's attention over its text."""
        ids, valid = self._padded(texts)
        places = valid.cumsum(1) - 1
        seen = valid[:, :, None] & valid[:, None, :] & causal_mask(ids.shape[1])[0]
        eos = (ids == self.bundle.target_tokenizer.special.eos) & valid
        marked = {"punctuation": self.target_punctuation[ids] & valid, "eos": eos}
        return Kind.decoder, maps_of_texts(self.bundle, ids).decoder, _Keys(seen, places, places, marked)

    def _padded(
        self, sequences: Sequence[Sequence[int]], tokenizer: Tokenizer | None = None
    ) -> tuple[Int[Tensor, "B L"], Bool[Tensor, "B L"]]:
        filler = (tokenizer or self.bundle.target_tokenizer).special.pad
        valid = lengths_mask([len(sequence) for sequence in sequences])
        return pad(sequences, filler), valid
