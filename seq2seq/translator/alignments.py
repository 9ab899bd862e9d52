"""Which part of the source each part of a translation goes back to, as the attention of the decoder tells it.

When translations have been found, one pass over them (forced decoding, all positions at once) gives the attention of
one decoder layer. The weights of the position that predicts a piece are that piece's soft alignment; its hard one is
the source piece with the largest weight, of equal ones the first. EOS of either side is aligned to nothing. A source
word and a target word are aligned if pieces of them are.

Attention is a guess at an alignment, not a model of it: articles and punctuation often look at a neighbour.

Source:
    Bahdanau et al. 2015, arXiv:1409.0473, section 5.2.1 (weights as a soft alignment); Garg et al. 2019,
    arXiv:1909.02074, section 3.1 (the mean over the heads of the last layer but one; words by any of their pieces).
"""

from collections.abc import Sequence
from dataclasses import replace
from itertools import accumulate

from seq2seq.bundle import Bundle
from seq2seq.config import DecodeConfig, ModelConfig, Utility
from seq2seq.models.transformer import Transformer
from seq2seq.nn.device import evaluation
from seq2seq.translator.batches import Part, SourceLine, pad, token_batches
from seq2seq.translator.results import Candidate, Links, Weights
from seq2seq.translator.word_numbers import SourceWords, is_spaced, word_numbers


def pharaoh(candidate: Candidate) -> str:
    """The aligned words as ``0-0 1-2``, source word first, counted from 0 at spaces; empty for a blank line.

    This is what fast_align writes and Moses reads. The numbers are places in ``source.split()`` and ``text.split()``.
    Of a language that is written without spaces (Chinese, Japanese) they are numbers of pieces, EOS counted too.

    Args:
        candidate: A translation made with `DecodeConfig.alignments`.

    Raises:
        ValueError: if it was made without.
    """
    if candidate.word_links is None:
        raise ValueError("the candidate has no alignment; translate with DecodeConfig.alignments=True")
    return " ".join(f"{source}-{target}" for source, target in candidate.word_links)


def check_alignment(config: ModelConfig, decode: DecodeConfig) -> None:
    """Refuse a layer or head that the model does not have.

    Raises:
        ValueError: with the numbers that it has.
    """
    for name, number, count in (
        ("alignment_layer", decode.alignment_layer, config.num_decoder_layers),
        ("alignment_head", decode.alignment_head, config.num_heads),
    ):
        if number is not None and number > count:
            what = name.removeprefix("alignment_")
            raise ValueError(
                f"{name}={number}, but the decoder has {count} {what}s; choose from 1 to {count}, or null for "
                + ("the last but one" if what == "layer" else "the mean of all")
            )


def aligned_layer(config: ModelConfig, decode: DecodeConfig) -> int:
    """The decoder layer whose attention is taken, counted from 0."""
    if decode.alignment_layer is not None:
        return decode.alignment_layer - 1
    return max(0, config.num_decoder_layers - 2)


def aligned_head(decode: DecodeConfig) -> int | None:
    """The head of it, counted from 0; None for the mean of all."""
    return None if decode.alignment_head is None else decode.alignment_head - 1


def soft_alignments(
    model: Transformer,
    bundle: Bundle,
    sources: Sequence[Sequence[int]],
    targets: Sequence[Sequence[int]],
    decode: DecodeConfig,
) -> list[Weights]:
    """For each target the weights of its pieces over the pieces of its source, EOS of both included.

    Args:
        model: Whose attention it is.
        bundle: Its special ids and sizes.
        sources: Ids with EOS.
        targets: Ids of a translation of each, as in `Candidate.ids`.
        decode: Layer, head and size of batches.
    """
    layer, head = aligned_layer(bundle.model_config, decode), aligned_head(decode)
    special, device = bundle.target_tokenizer.special, model.output.device
    found: dict[int, Weights] = {}
    lengths = [len(source) + len(target) for source, target in zip(sources, targets, strict=True)]
    for batch in token_batches(lengths, decode.batch_tokens):
        src, src_valid = pad([sources[at] for at in batch], bundle.source_tokenizer.special.pad, device)
        tgt_in, tgt_valid = pad([[special.bos, *targets[at][:-1]] for at in batch], special.pad, device)
        with evaluation(model):
            weights = model.cross_weights(src, src_valid, tgt_in, tgt_valid, layer=layer, head=head).cpu()
        for at, rows in zip(batch, weights, strict=True):
            real = rows[: len(targets[at]), : len(sources[at])].double()
            found[at] = tuple(tuple(row) for row in real.tolist())
    return [found[at] for at in range(len(targets))]


def hard_alignment(weights: Weights, ids: Sequence[int], eos: int) -> Links:
    """Source piece and target piece of each target piece but EOS: the largest weight but that of the source's EOS.

    Args:
        weights: Of one part: its source ends in EOS.
        ids: The target pieces.
        eos: Ends them.
    """
    links = []
    for target, (row, id_) in enumerate(zip(weights, ids, strict=True)):
        if id_ != eos and len(row) > 1:
            links.append((max(range(len(row) - 1), key=row.__getitem__), target))
    return tuple(sorted(links))


class Aligner:
    """Adds alignments to candidates, and replaces their unknown pieces.

    Args:
        bundle: The model and its tokenizers; of an ensemble the first one.
    """

    def __init__(self, bundle: Bundle) -> None:
        self._bundle = bundle
        self._special = bundle.target_tokenizer.special
        self._source_spaced, self._target_spaced = map(is_spaced, bundle.languages)

    def with_alignments(
        self, parts: Sequence[Part], found: Sequence[Sequence[Candidate]], decode: DecodeConfig
    ) -> list[list[Candidate]]:
        """The candidates of each part with their soft alignments, and hard ones between pieces.

        Args:
            parts: Sentences of a search.
            found: The candidates of each.
            decode: Layer and head.
        """
        weights = iter(self._weights(parts, found, decode))
        return [[self._aligned(candidate, next(weights)) for candidate in candidates] for candidates in found]

    def _aligned(self, candidate: Candidate, weights: Weights) -> Candidate:
        links = hard_alignment(weights, candidate.ids, self._special.eos)
        return replace(candidate, alignment=weights, piece_links=links)

    def with_unknown_replaced(
        self, parts: Sequence[Part], found: Sequence[Sequence[Candidate]], decode: DecodeConfig
    ) -> list[list[Candidate]]:
        """The candidates of each part, in their texts the source words that their unknown pieces are aligned to.

        Of candidates whose texts become equal the best one is kept, unless they were drawn, or minimum Bayes risk,
        to which each of them counts, is to choose.

        Args:
            parts: Sentences of a search.
            found: The candidates of each, best first.
            decode: Layer and head.
        """
        unknowing = [[one for one in candidates if self._unknown(one.ids)] for candidates in found]
        weights = iter(self._weights(parts, unknowing, decode))
        all_count = decode.draws or decode.mbr is not Utility.none
        answers = []
        for part, candidates in zip(parts, found, strict=True):
            replaced = [
                replace(one, text=self._replaced(part, one.ids, next(weights))) if self._unknown(one.ids) else one
                for one in candidates
            ]
            answers.append(replaced if all_count else _distinct(replaced))
        return answers

    def _weights(
        self, parts: Sequence[Part], found: Sequence[Sequence[Candidate]], decode: DecodeConfig
    ) -> list[Weights]:
        """The soft alignments of all candidates, one after another."""
        pairs = [(part.source, one.ids) for part, own in zip(parts, found, strict=True) for one in own]
        sources, targets = [source for source, _ in pairs], [ids for _, ids in pairs]
        return soft_alignments(self._bundle.model, self._bundle, sources, targets, decode)

    def _unknown(self, ids: Sequence[int]) -> list[int]:
        """Places of unknown pieces. Imported models may have one id for EOS and the unknown piece."""
        unknown = self._special.unk
        return [] if unknown == self._special.eos else [place for place, id_ in enumerate(ids) if id_ == unknown]

    def _replaced(self, part: Part, ids: Sequence[int], weights: Weights) -> str:
        """The text of the pieces, with what unknown ones are aligned to in their places.

        Source:
            Jean et al. 2015, arXiv:1412.2007, section 3.3, and Luong et al. 2015, arXiv:1410.8206, section 3.3: the
            source word that an unknown word is aligned to takes its place. Deviations: there is no dictionary that
            translates it first; punctuation around it is left out; and where pieces of the source are unknown too, it
            is of these that the one with the largest weight is taken, and alone, since it may be a part of a word.
        """
        words = SourceWords.of(self._bundle.source_tokenizer, part.text, spaced=self._source_spaced)
        special = self._bundle.source_tokenizer.special
        own = range(part.repeated, len(part.source) - 1)
        unknown = [at for at in own if part.source[at] == special.unk != special.eos]
        surfaces = self._bundle.target_tokenizer.surfaces(ids)
        for place in self._unknown(ids):
            source = max(unknown or own, key=weights[place].__getitem__)
            surfaces[place] = words.copied(part.first + source - part.repeated, part=bool(unknown))
        return "".join(surfaces).strip().replace("\n", " ").replace("\r", " ")

    def of_line(self, line: SourceLine, candidates: Sequence[Candidate], decode: DecodeConfig) -> tuple[Candidate, ...]:
        """The candidates of a whole line, its parts together, with the links between words.

        Args:
            line: As it was read.
            candidates: As `with_alignments` and `join` gave them.
            decode: Whether alignments are wanted, and unknown pieces replaced.
        """
        if not decode.alignments:
            return tuple(candidates)
        words = SourceWords.of(self._bundle.source_tokenizer, line.text, spaced=self._source_spaced)
        numbers: list[tuple[int, ...]] = []  # of the words of each source piece, EOS of each part included
        for part in line.parts:
            places = range(part.first, part.first + len(part.source) - 1 - part.repeated)
            if self._source_spaced:
                numbers += [*[()] * part.repeated, *(words.numbers[place] for place in places), ()]
            else:
                numbers += [(len(numbers) + at,) for at in range(len(part.source))]
        return tuple(self._with_words(candidate, numbers, decode) for candidate in candidates)

    def _with_words(self, candidate: Candidate, sources: list[tuple[int, ...]], decode: DecodeConfig) -> Candidate:
        if not candidate.ids:
            return replace(candidate, alignment=(), piece_links=(), word_links=())
        assert candidate.piece_links is not None
        targets = self._target_numbers(candidate.ids, decode)
        links = {
            (source, target)
            for source_piece, target_piece in candidate.piece_links
            for source in sources[source_piece]
            for target in targets[target_piece]
        }
        return replace(candidate, word_links=tuple(sorted(links)))

    def _target_numbers(self, ids: Sequence[int], decode: DecodeConfig) -> list[tuple[int, ...]]:
        """For each piece of a translation the numbers of its words; none for a piece that its text has nothing of."""
        if not self._target_spaced:
            return [(place,) for place in range(len(ids))]
        surfaces = self._bundle.target_tokenizer.surfaces(ids)
        hidden = self._unknown(ids)
        for place in hidden if decode.replace_unknown else ():
            surfaces[place] = "?"  # any word will do for counting
        for place, id_ in enumerate(ids):
            if id_ == self._special.eos:
                surfaces[place] = " "
        ends = list(accumulate(map(len, surfaces)))
        numbers = word_numbers("".join(surfaces), list(zip([0, *ends], ends, strict=False)))
        for place in () if decode.replace_unknown else hidden:
            numbers[place] = ()
        return numbers


def _distinct(candidates: Sequence[Candidate]) -> list[Candidate]:
    """The first candidate of each text."""
    found: dict[str, Candidate] = {}
    for candidate in candidates:
        found.setdefault(candidate.text, candidate)
    return list(found.values())
