"""The page that goes with a model for CTranslate2: a program that uses it, and what to know."""

from collections.abc import Sequence

from seq2seq.bundle import Bundle
from seq2seq.config import Architecture, PenaltyForm, Task
from seq2seq.text.tokenizer import Tokenizer


def readme(bundle: Bundle, quantization: str, names: Sequence[str]) -> str:
    """Markdown with a Python program that uses the model with the bundle's own search options.

    Args:
        bundle: What was exported.
        quantization: How the weights are written.
        names: The target vocabulary's string for each id.
    """
    source, target = bundle.languages
    does = "goes on from a text" if bundle.task is Task.language_model else "translates"
    if source and target:
        does += f" from {source} to {target}"
    package = _LIBRARIES[bundle.source_tokenizer.format]
    return "\n".join(
        [
            "# A model for CTranslate2",
            "",
            f"It {does} and has {bundle.model.num_parameters():,} parameters, which are stored as {quantization}.",
            "",
            f"    pip install ctranslate2 {package}",
            "",
            "Run this in the folder of the model:",
            "",
            "```python",
            "import ctranslate2",
            f"import {package}",
            "",
            *_program(bundle, names),
            "```",
            "",
            *(f"- {note}" for note in _notes(bundle, names)),
            "",
        ]
    )


_LIBRARIES = {"sentencepiece": "sentencepiece", "marian": "sentencepiece", "huggingface": "tokenizers"}
"""The package that reads the tokenizer's files, by their format."""


def _program(bundle: Bundle, names: Sequence[str]) -> list[str]:
    """Lines of Python that come after the imports."""
    source, target = bundle.source_tokenizer, bundle.target_tokenizer
    bos = names[target.special.bos]
    ends = [names[target.special.eos], *(names[id_] for id_ in target.stop)]
    is_generator = bundle.model_config.architecture is Architecture.decoder_only
    is_language_model = bundle.task is Task.language_model
    program = [f"source = {_loaded(source, 'source')}"]
    if not is_language_model:
        program.append(f"target = {_loaded(target, 'target')}")
    writer = "source" if is_language_model else "target"
    pieces = _split(source)
    if is_language_model and source.prompt("a")[0] == source.special.bos:
        pieces = f"[{bos!r}] + {pieces}"
    elif is_generator and not is_language_model:
        pieces = f"{pieces} + [{bos!r}]"
    least = "min_length" if is_generator else "min_decoding_length"
    settings = f"beam_size={bundle.decode.beam_size}, length_penalty={_exponent(bundle):g}, return_end_token=True"
    settings += f", {least}={bundle.decode.min_length - 1}"
    settings += ", patience=2" if bundle.decode.beam_size > 1 else ""
    if is_language_model:
        settings = "sampling_topk=40, sampling_temperature=0.8, max_length=64, return_end_token=True"
    dropped = list(dict.fromkeys([*ends, names[target.special.unk]]))
    if len(ends) > 1:
        settings += f", end_token={ends}"
    call = (
        "model.generate_batch(pieces, include_prompt_in_result=False, "
        if is_generator
        else "model.translate_batch(pieces, "
    )
    found = "result.sequences[0]" if is_generator else "result.hypotheses[0]"
    return [
        *program,
        f'model = ctranslate2.{"Generator" if is_generator else "Translator"}(".", device="cpu")',
        "",
        f"lines = {['Once upon a time'] if is_language_model else ['First line.', 'Second line.']}",
        f"pieces = [{pieces} for line in lines]",
        f"results = {call}{settings})",
        "for result in results:",
        f"    print({_joined(target, writer, f'[piece for piece in {found} if piece not in {dropped}]')})",
    ]


def _loaded(tokenizer: Tokenizer, side: str) -> str:
    """The expression that reads the tokenizer's file."""
    ending = ".json" if tokenizer.format == "huggingface" else ".spm"
    (file,) = (name for name in tokenizer.files(side) if name.endswith(ending))
    if tokenizer.format == "huggingface":
        return f'tokenizers.Tokenizer.from_file("{file}")'
    return f'sentencepiece.SentencePieceProcessor(model_file="{file}")'


def _split(tokenizer: Tokenizer) -> str:
    """The expression for the pieces of a line."""
    if tokenizer.format == "huggingface":
        return "source.encode(line, add_special_tokens=False).tokens"
    return "source.encode(line, out_type=str)"


def _joined(tokenizer: Tokenizer, name: str, pieces: str) -> str:
    """The expression for the text of pieces."""
    if tokenizer.format == "huggingface":
        return f"{name}.decode([{name}.token_to_id(piece) for piece in {pieces}])"
    return f"{name}.decode({pieces})"


def _exponent(bundle: Bundle) -> float:
    """The length penalty: CTranslate2 divides by length^p."""
    return 0.0 if bundle.decode.penalty_form is PenaltyForm.none else bundle.decode.length_penalty


def _notes(bundle: Bundle, names: Sequence[str]) -> Sequence[str]:
    """What differs from the search of the package that the model comes from."""
    notes = []
    if any(name.startswith(">>") and name.endswith("<<") for name in names):
        notes.append(
            "The model is told the target language by a piece of its own in front of the source, which SentencePiece "
            "does not know: `['>>fra<<', *source.encode(line, out_type=str)]`."
        )
    if bundle.model_config.architecture is Architecture.encoder_decoder:
        notes.append(
            "CTranslate2 adds the closing EOS of a source by itself, cuts sources after 1024 pieces unless "
            "`max_input_length=0` is given, and translations after 256 unless told otherwise by `max_decoding_length`."
        )
    elif bundle.task is Task.translation:
        notes.append(
            "A decoder-only model reads the pieces of the source without EOS, BOS as the one separator, and then its "
            "own translation. Leave out blank lines: it would invent something."
        )
    if bundle.task is Task.translation:
        notes.append(
            "Its beam stops when `beam_size * patience` hypotheses have ended, while `seq2seq translate` stops when "
            "nothing better can come: with `patience=2` both nearly always find the same, with 1 not so often. "
            "`return_end_token=True` makes EOS count in the length, as there. A translation that reaches "
            "the limit is cut instead of closed."
        )
        if bundle.decode.penalty_form is PenaltyForm.gnmt:
            notes.append(
                "The length penalty is length^p here; the model's own search divides by ((5 + length) / 6)^p, which "
                "CTranslate2 does not have (`seq2seq translate --penalty-form power` is what it has)."
            )
    return notes
