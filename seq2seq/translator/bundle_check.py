"""Which bundles can translate, and which can do so together."""

from collections.abc import Sequence

from seq2seq.bundle import Bundle
from seq2seq.config import Architecture, Task, Tying
from seq2seq.models.build import embedding_rows


def check_bundle(bundle: Bundle) -> None:
    """Refuse a model that does not translate, or was not built for these tokenizers.

    Raises:
        ValueError: with the task, the sizes, or the checksums.
    """
    if bundle.task is not Task.translation:
        raise ValueError(
            "this bundle is a language model, which goes on from a text and does not translate; use "
            "`seq2seq generate`, or a bundle of a model that was trained on parallel text"
        )
    source, target, config = bundle.source_tokenizer, bundle.target_tokenizer, bundle.model_config
    tables = (
        ("source", source, bundle.model.source_rows),
        ("target", target, bundle.model.output.shape[0]),
    )
    for side, tokenizer, rows in tables:
        expected = embedding_rows(tokenizer.vocab_size, config.vocab_multiple)
        if rows != expected:
            raise ValueError(
                f"the {side} tokenizer has {tokenizer.vocab_size} pieces, which takes {expected} rows, but the model "
                f"has {rows} on that side; use the tokenizer that it was trained with"
            )
    one_table = config.tying is Tying.three_way or config.architecture is Architecture.decoder_only
    if one_table and source.vocabulary_sha256 != target.vocabulary_sha256:
        what = "tying=three_way" if config.tying is Tying.three_way else "architecture=decoder_only"
        raise ValueError(
            f"a model with {what} needs one vocabulary for both sides, got two: SHA-256 of the tables of pieces "
            f"{source.vocabulary_sha256[:12]} and {target.vocabulary_sha256[:12]}; use the tokenizer that it was "
            "trained with"
        )


def check_ensemble(bundles: Sequence[Bundle]) -> None:
    """Refuse bundles that do not translate, or whose pieces mean different things.

    Raises:
        ValueError: with the checksums of tokenizers that differ, or what `check_bundle` says.
    """
    if not bundles:
        raise ValueError("got no bundle, expected at least one")
    for bundle in bundles:
        check_bundle(bundle)
    first = bundles[0]
    for number, bundle in enumerate(bundles[1:], start=2):
        for side, own, expected in (
            ("source", bundle.source_tokenizer, first.source_tokenizer),
            ("target", bundle.target_tokenizer, first.target_tokenizer),
        ):
            if own.sha256 != expected.sha256:
                raise ValueError(
                    f"bundle {number} of the ensemble has another {side} tokenizer (SHA-256 {own.sha256}) than the "
                    f"first one ({expected.sha256}); models predict together only if their pieces are the same, so "
                    "give models that were trained with one tokenizer"
                )
