"""The tokenizer that sacreBLEU applies to both sides before counting n-grams, chosen by language.

It has nothing to do with a model's subword tokenizer: it makes BLEU scores of different systems comparable, and the
signature names it.
"""

from sacrebleu.metrics.bleu import BLEU

from seq2seq.config import nearest

TOKENIZER_OF_LANGUAGE = {
    "zh": "zh",
    "zho": "zh",
    "cmn": "zh",
    "yue": "zh",
    "ja": "ja-mecab",
    "jpn": "ja-mecab",
    "ko": "ko-mecab",
    "kor": "ko-mecab",
}
"""sacreBLEU's own choice, for ISO 639 codes of two and of three letters; every language not named has 13a."""

_EXTRA = {"ja-mecab": "ja", "ko-mecab": "ko"}


def bleu_tokenizer(target_lang: str | None = None, tokenize: str | None = None) -> str:
    """sacreBLEU's name of the tokenizer: `tokenize` if given, else the one of the language, else 13a.

    Args:
        target_lang: Language code, with or without script or region (zh, zh-CN, zho_Hans).
        tokenize: A name that wins over the language.

    Raises:
        ValueError: for a name that sacreBLEU does not have.
    """
    if tokenize is not None:
        if tokenize not in BLEU.TOKENIZERS:
            raise ValueError(f"unknown BLEU tokenizer {tokenize!r}{nearest(tokenize, BLEU.TOKENIZERS)}")
        return tokenize
    language = (target_lang or "").replace("_", "-").split("-")[0].lower()
    return TOKENIZER_OF_LANGUAGE.get(language, BLEU.TOKENIZER_DEFAULT)


def instantiate_bleu(tokenizer: str, *, lowercase: bool = False, effective_order: bool = False) -> BLEU:
    """sacreBLEU's BLEU with this tokenizer.

    Raises:
        ValueError: when the tokenizer needs a package or a file that is not there.
    """
    try:
        # force: sacreBLEU's own warning about tokenised text is off, because `looks_tokenized` says more.
        return BLEU(tokenize=tokenizer, lowercase=lowercase, effective_order=effective_order, force=True)
    except RuntimeError as error:
        extra = _EXTRA.get(tokenizer)
        if extra is None:
            raise
        raise ValueError(
            f"BLEU's tokenizer {tokenizer!r} (the right one for language {extra!r}) needs a morphological analyser "
            f"that is not installed; run `pip install 'sacrebleu[{extra}]'`, or choose the tokenizer 'char' "
            "(--tokenize char), which gives other numbers and says so in the signature"
        ) from error
    except OSError as error:
        raise ValueError(
            f"BLEU's tokenizer {tokenizer!r} needs a file that sacreBLEU fetches once, and this failed ({error}); "
            "go online for the first use, or choose another tokenizer"
        ) from error
