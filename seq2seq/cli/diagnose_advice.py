"""What follows from a diagnosis, in plain words: which options to try, and what no option mends."""

from collections.abc import Iterator

from seq2seq.cli.diagnose_report import Diagnosis, Swept

WORTH = 0.1
"""BLEU that a setting must gain to be recommended."""

FALL = 0.3
"""BLEU lost by larger beams from which on they are warned against."""

SHORT, LONG = 0.97, 1.03
"""Length ratios outside of which translations are called short or long."""

FEW = 0.05
"""Share of search errors below which the search is not to blame."""


def advice(found: Diagnosis) -> list[str]:
    """Sentences, the most useful first; at least one."""
    sentences = [*_options(found), *_large_beams(found), *_search(found), *_faults(found)]
    return sentences or ["nothing stands out"]


def _options(found: Diagnosis) -> Iterator[str]:
    """The best setting of the sweep, if it is better than the one in use."""
    assert found.bleu.bleu is not None
    ratio, brevity = found.bleu.bleu.length_ratio, found.bleu.bleu.brevity_penalty
    length = ""
    if ratio < SHORT:
        length = f"translations are short (length ratio {ratio:.2f}, brevity penalty {brevity:.2f}): "
    elif ratio > LONG:
        length = f"translations are long (length ratio {ratio:.2f}): "
    best = max(found.sweep, key=lambda one: one.bleu.score)
    gain = best.bleu.score - found.bleu.score
    if gain < WORTH:
        yield (
            f"{length}no beam size and length penalty of the sweep gains {WORTH:g} BLEU or more on these lines"
            if length
            else "no beam size and length penalty of the sweep is better on these lines than those in use by "
            f"{WORTH:g} BLEU or more"
        )
        return
    yield (
        f"{length}{_changes(found, best)}: BLEU {gain:+.2f} on these lines ({found.bleu.score:.2f} to "
        f"{best.bleu.score:.2f}), length ratio {best.length_ratio:.2f}; it is the best of {len(found.sweep)} settings, "
        "so see whether it holds on other lines"
    )


def _changes(found: Diagnosis, best: Swept) -> str:
    """The options to give for a setting of the sweep."""
    options = []
    if best.beam_size != found.decode.beam_size:
        options.append(f"--beam-size {best.beam_size}")
    if best.beam_size > 1 and found.penalty_form != found.decode.penalty_form.name:
        options.append(f"--penalty-form {found.penalty_form}")
    if best.beam_size > 1 and best.length_penalty != found.decode.length_penalty:
        options.append(f"--length-penalty {best.length_penalty:g}")
    return "give " + " ".join(options)


def _large_beams(found: Diagnosis) -> Iterator[str]:
    """A warning where BLEU falls as the beam grows, under the penalty in use."""
    own = [one for one in found.sweep if one.length_penalty == found.decode.length_penalty]
    best, largest = max(own, key=lambda one: one.bleu.score), max(own, key=lambda one: one.beam_size)
    fall = best.bleu.score - largest.bleu.score
    if best.beam_size < largest.beam_size and fall >= FALL:
        shorter = largest.length_ratio < best.length_ratio - 0.01
        why = " and translations get shorter, which a higher length penalty counters" if shorter else ""
        yield (
            f"larger beams do not help: BLEU falls by {fall:.2f} from beam {best.beam_size} to beam "
            f"{largest.beam_size}{why}; the model gives worse translations higher scores"
        )


def _search(found: Diagnosis) -> Iterator[str]:
    """Whether the search or the model is to blame."""
    errors = found.errors.get("reference")
    if errors is None or not errors.num_compared:
        return
    count, total = len(errors.rivals), errors.num_compared
    if count >= FEW * total:
        yield (
            f"in {count} of {total} lines the search has missed the reference, which scores higher: a larger beam may "
            "find what scores higher there"
        )
    else:
        yield (
            f"in {total - count} of {total} lines the model scores the reference no higher than what was found: no "
            "search mends what is wrong there, only another model does"
        )


def _faults(found: Diagnosis) -> Iterator[str]:
    """What is done about each kind of fault that there is."""
    for fault, places in found.faults.items():
        if places and fault.name in _REMEDIES:
            yield f"{len(places)} {_lines(len(places))}: {fault.value}: {_REMEDIES[fault.name]}"


def _lines(count: int) -> str:
    return "line" if count == 1 else "lines"


_REMEDIES = {
    "empty": "--min-length 2 forbids empty translations, a higher length penalty makes them less likely",
    "loop": "--no-repeat-ngram 4 forbids them",
    "copy": "they come from training pairs whose sides are the same text; `seq2seq data check` counts those",
    "hit_limit": "raise --max-length-factor or --max-length-offset, unless they are loops",
    "unknown_output": "--forbid-unknown forbids it, --replace-unknown writes the source word in its place",
    "unknown_source": "the vocabulary lacks a character; a tokenizer with byte_fallback=true knows all of them",
}
"""By the name of the fault."""
