import sys

import pytest
from sacrebleu.metrics.bleu import BLEU

from seq2seq.text import bleu_tokenizer as module
from seq2seq.text.bleu_tokenizer import TOKENIZER_OF_LANGUAGE, bleu_tokenizer, instantiate_bleu


@pytest.mark.parametrize(
    ("target_lang", "expected"),
    [
        (None, "13a"),
        ("de", "13a"),
        ("", "13a"),
        ("zh", "zh"),
        ("zh_TW", "zh"),
        ("zho_Hans", "zh"),
        ("ZH-cn", "zh"),
        ("ja", "ja-mecab"),
        ("jpn", "ja-mecab"),
        ("ko", "ko-mecab"),
        ("jam", "13a"),
    ],
)
def test_the_language_chooses_the_tokenizer(target_lang: str | None, expected: str) -> None:
    assert bleu_tokenizer(target_lang) == expected


def test_the_choice_for_two_letter_codes_is_that_of_sacrebleu() -> None:
    ours = {language: name for language, name in TOKENIZER_OF_LANGUAGE.items() if len(language) == 2}
    assert ours == BLEU._TOKENIZER_MAP


def test_a_tokenizer_that_is_named_wins_over_the_language() -> None:
    assert bleu_tokenizer("zh", "char") == "char"


def test_an_unknown_tokenizer_is_refused_with_the_nearest_name() -> None:
    with pytest.raises(ValueError, match="unknown BLEU tokenizer 'intll'; did you mean 'intl'"):
        bleu_tokenizer(None, "intll")


def test_a_missing_analyser_is_an_error_that_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "MeCab", None)
    monkeypatch.delitem(sys.modules, "sacrebleu.tokenizers.tokenizer_ja_mecab", raising=False)
    with pytest.raises(ValueError, match=r"'ja-mecab' .*language 'ja'.*pip install 'sacrebleu\[ja\]'"):
        instantiate_bleu("ja-mecab")


def test_a_tokenizer_file_that_cannot_be_fetched_is_an_error_that_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    def unreachable(*arguments: object, **options: object) -> BLEU:
        raise OSError("no route to host")

    monkeypatch.setattr(module, "BLEU", unreachable)
    with pytest.raises(ValueError, match=r"'flores200' needs a file .*no route to host.*go online for the first use"):
        instantiate_bleu("flores200")


def test_an_unexpected_runtime_error_is_not_hidden(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*arguments: object, **options: object) -> BLEU:
        raise RuntimeError("something else")

    monkeypatch.setattr(module, "BLEU", broken)
    with pytest.raises(RuntimeError, match="something else"):
        instantiate_bleu("13a")
