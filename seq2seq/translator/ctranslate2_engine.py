"""A bundle translated by CTranslate2: lines of text in, lines of text out, as `Translator` does it."""

import math
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from seq2seq.bundle import load_tokenizers, read_config
from seq2seq.config import DecodeConfig, ModelConfig, Utility, from_dict
from seq2seq.interop.ctranslate2 import vocabulary
from seq2seq.nn.device import threads_wanted
from seq2seq.search.length_penalty import LengthPenalty
from seq2seq.text.tokenizer import Tokenizer
from seq2seq.translator.batches import Part, length_limits
from seq2seq.translator.ctranslate2_conversion import converted, library
from seq2seq.translator.ctranslate2_options import check_options, check_part, search_options
from seq2seq.translator.line_translator import LineTranslator
from seq2seq.translator.mbr import by_utility
from seq2seq.translator.preparing import Preparation
from seq2seq.translator.results import Candidate
from seq2seq.translator.utility import measure

MOST_AT_ONCE = 1024
"""Source pieces of a batch, more than which makes CTranslate2 slower on CPUs (measured with 25 million parameters)."""


class CTranslate2Engine(LineTranslator):
    """Translates lines with CTranslate2, by the same options, as far as it has them.

    In float32 the text is that of `Translator`, but where two translations are equally good up to rounding, where one
    is ended at its maximum length, for a search that would go on for long (see `ctranslate2_options.PATIENCE`), and for
    a model that gives probability to pieces which are never produced, such as padding: the conversion leaves those out.

    Args:
        engine: A `ctranslate2.Translator`.
        tokenizers: Of source and target.
        model_config: Of the bundle's model.
        decode: Search options.
        language: Code of the target language, if it is known.
        details: Whether translations come with the log-probability of each piece, which takes another pass.

    Raises:
        ValueError: for options that CTranslate2 does not have.
    """

    def __init__(
        self,
        engine: Any,
        tokenizers: tuple[Tokenizer, Tokenizer],
        model_config: ModelConfig,
        decode: DecodeConfig,
        language: str | None,
        *,
        details: bool = True,
    ) -> None:
        super().__init__(Preparation(*tokenizers, (model_config,)), decode, language)
        check_options(decode)
        self._engine, self._details = engine, details
        source, target = tokenizers
        self._names = vocabulary(target)
        self._ids = {name: id_ for id_, name in enumerate(self._names)}
        special = target.special
        shared = {source.special.eos: self._names[special.eos], source.special.unk: self._names[special.unk]}
        self._source_names = vocabulary(source, shared)
        self._target, self._language = target, language

    @classmethod
    def load(
        cls,
        path: str | Path,
        decode: DecodeConfig | None = None,
        *,
        compute: str = "float32",
        device: str = "auto",
        threads: int | None = None,
        one_by_one: bool = False,
        details: bool = True,
    ) -> "CTranslate2Engine":
        """The engine of the bundle at `path`, which is converted unless that has been done before.

        Args:
            path: A folder as `seq2seq train` writes it.
            decode: Search options; None takes the bundle's.
            compute: Numbers of the weights: float32, float16, bfloat16, int16 or int8.
            device: "cpu", "cuda", "cuda:1", or "auto" for a GPU when there is one.
            threads: CPU threads; None takes OMP_NUM_THREADS, or all.
            one_by_one: Whether lines are to be answered one after another: all threads then work on the same line.
            details: Whether translations come with the log-probability of each piece.

        Raises:
            FileNotFoundError: if `path` is not a bundle.
            ValueError: if CTranslate2 is not installed, or has not what the model or the options ask for.
        """
        package = library()
        config = read_config(path)
        decode = decode or from_dict(DecodeConfig, config["decode"], where="decode.")
        check_options(decode)
        kind, _, number = device.partition(":")
        if kind not in ("auto", "cpu", "cuda") or (number and not number.isdigit()):
            raise ValueError(f"device={device} is not one that CTranslate2 has; give auto, cpu, cuda or cuda:1")
        total = threads or threads_wanted() or os.cpu_count() or 1
        at_once = 1 if one_by_one or decode.draws else total  # draws come in the order of one generator
        folder = converted(path, compute)
        package.set_random_seed(decode.seed)
        try:
            engine = package.Translator(
                str(folder),
                device=kind,
                device_index=int(number or 0),
                compute_type=compute,
                inter_threads=at_once,
                intra_threads=total if at_once == 1 else 1,
                max_queued_batches=-1,
            )
        except (RuntimeError, ValueError) as error:
            raise ValueError(f"CTranslate2 cannot translate with {compute} on {device}: {error}") from error
        model_config = from_dict(ModelConfig, config["model"], where="model.")
        return cls(engine, load_tokenizers(path), model_config, decode, config["target_lang"], details=details)

    def _check(self, decode: DecodeConfig) -> None:
        check_options(decode)

    def _search(self, parts: Sequence[Part], decode: DecodeConfig) -> list[list[Candidate]]:
        """The candidates of a batch, best first."""
        return next(self._search_all([parts], decode))

    def _search_all(self, batches: Sequence[Sequence[Part]], decode: DecodeConfig) -> Iterator[list[list[Candidate]]]:
        """The candidates of batches that are translated at the same time, as far as there are threads."""
        for part in (part for batch in batches for part in batch):
            check_part(part, decode)
        waiting = [self._begin(batch, decode) for batch in batches]
        for batch, begun in zip(batches, waiting, strict=True):
            found = [self._pieces(part, result, decode) for part, result in zip(batch, begun, strict=True)]
            yield self._candidates(batch, found, decode)

    def _begin(self, parts: Sequence[Part], decode: DecodeConfig) -> list[list[Any]]:
        """Results to come: one for each part, of drawn translations one for each; none where the translation is given.

        CTranslate2 would give several samples of one line the best first, as if they had been searched for.
        """
        found: list[list[Any]] = [[] for _ in parts]
        samples = decode.num_found if decode.draws else 1
        groups: dict[int, list[int]] = {}
        for place, part in enumerate(parts):
            if not part.forced:
                groups.setdefault(_limits(part, decode)[0], []).append(place)
        for shortest, places in groups.items():
            longest = max(_limits(parts[place], decode)[1] for place in places)
            places = [place for place in places for _ in range(samples)]
            results = self._translate_batch([parts[place] for place in places], decode, shortest, longest, wait=False)
            for place, result in zip(places, results, strict=True):
                found[place].append(result)
        return found

    def _translate_batch(
        self, parts: Sequence[Part], decode: DecodeConfig, shortest: int, longest: int, *, wait: bool
    ) -> list[Any]:
        """CTranslate2's answers for parts with one minimum length, none of them longer than `longest`."""
        prefixes = [[self._names[id_] for id_ in part.prefix] for part in parts]
        results: list[Any] = self._engine.translate_batch(
            [[self._source_names[id_] for id_ in part.source[:-1]] for part in parts],
            target_prefix=prefixes if any(prefixes) else None,
            max_batch_size=min(decode.batch_tokens, MOST_AT_ONCE),
            batch_type="tokens",
            max_input_length=0,
            max_decoding_length=longest,
            min_decoding_length=shortest - 1,  # EOS is not counted there
            return_scores=True,
            return_end_token=True,
            asynchronous=not wait,
            **search_options(decode),
        )
        return results

    def _pieces(
        self, part: Part, results: Sequence[Any], decode: DecodeConfig
    ) -> list[tuple[tuple[int, ...], float | None]]:
        """Ids, closed by EOS, and scores; no score for what CTranslate2 has not ended by itself."""
        eos = self._target.special.eos
        if part.forced:
            return [((*part.prefix, eos), None)]
        shortest, longest = _limits(part, decode)
        found = [result.result() for result in results]
        # the limit of the batch is that of its longest; what is drawn piece by piece can be cut there, a beam cannot
        if not decode.draws and any(len(names) > longest for one in found for names in one.hypotheses):
            found = self._translate_batch([part], decode, shortest, longest, wait=True)
        pieces: list[tuple[tuple[int, ...], float | None]] = []
        for names, score in (pair for one in found for pair in zip(one.hypotheses, one.scores, strict=True)):
            ids = tuple(self._ids[name] for name in names)
            ended = ids[-1:] == (eos,) and len(ids) <= longest
            pieces.append((ids, score) if ended else ((*ids[: longest - 1], eos), None))
        return pieces

    def _candidates(
        self,
        parts: Sequence[Part],
        found: Sequence[Sequence[tuple[tuple[int, ...], float | None]]],
        decode: DecodeConfig,
    ) -> list[list[Candidate]]:
        """What was found, with log-probabilities."""
        changed = decode.draws or decode.repetition_penalty != 1  # scores are of other probabilities than the model's

        def unknown(part: Part, score: float | None) -> bool:
            return self._details or changed or score is None or part.prefix != ()

        scored = self._scored(
            [
                (part, ids)
                for part, pieces in zip(parts, found, strict=True)
                for ids, score in pieces
                if unknown(part, score)
            ]
        )
        remaining = iter(scored)
        penalty = LengthPenalty(decode.penalty_form, decode.length_penalty)
        answers = []
        for part, pieces in zip(parts, found, strict=True):
            own: list[Candidate] = []
            for ids, score in pieces:
                tokens = next(remaining) if unknown(part, score) else ()
                log_prob = math.fsum(tokens) if score is None or tokens else score * _divisor(penalty, decode, ids)
                cut = score is None and not part.forced
                own.append(self._candidate(ids, log_prob, tokens, penalty, hit_limit=cut))
            answers.append(self._best(own, decode))
        return answers

    def _best(self, candidates: Sequence[Candidate], decode: DecodeConfig) -> list[Candidate]:
        """Each text once, the best first; what was drawn as it was drawn."""
        if decode.mbr is not Utility.none:
            return by_utility(candidates, measure(decode.mbr, self._language), drawn=decode.draws)[: decode.n_best]
        if decode.draws:
            return list(candidates)
        distinct: dict[str, Candidate] = {}
        for candidate in sorted(candidates, key=lambda candidate: -candidate.score):
            distinct.setdefault(candidate.text, candidate)
        return list(distinct.values())

    def _scored(self, pairs: Sequence[tuple[Part, tuple[int, ...]]]) -> list[tuple[float, ...]]:
        """The log-probability of each piece of given translations."""
        if not pairs:
            return []
        results = self._engine.score_batch(
            [[self._source_names[id_] for id_ in part.source[:-1]] for part, _ in pairs],
            [[self._names[id_] for id_ in ids[:-1]] for _, ids in pairs],  # EOS comes by itself
            max_batch_size=MOST_AT_ONCE,
            batch_type="tokens",
            max_input_length=0,
        )
        return [tuple(result.log_probs) for result in results]

    def _candidate(
        self,
        ids: tuple[int, ...],
        log_prob: float,
        token_log_probs: tuple[float, ...],
        penalty: LengthPenalty,
        *,
        hit_limit: bool,
    ) -> Candidate:
        return Candidate(
            text=self._target.decode(ids).replace("\n", " ").replace("\r", " "),
            score=log_prob / penalty(len(ids)),
            log_prob=log_prob,
            tokens=tuple(self._target.pieces(ids)),
            ids=ids,
            token_log_probs=token_log_probs,
            hit_limit=hit_limit,
        )


def _limits(part: Part, decode: DecodeConfig) -> tuple[int, int]:
    return length_limits(decode, len(part.source), len(part.prefix), part.positions)


def _divisor(penalty: LengthPenalty, decode: DecodeConfig, ids: Sequence[int]) -> float:
    """What CTranslate2 has divided a log-probability by."""
    return penalty(len(ids)) if decode.beam_size > 1 else 1.0
