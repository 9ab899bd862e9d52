"""seq2seq.text.hugging_face: byte-level and SentencePiece-like tokenizer.json, built here by the package itself."""

import hashlib
import json
import pickle
import sys

import pytest

from seq2seq.config import TokenizerConfig
from seq2seq.text.hugging_face import Conventions, HuggingFaceTokenizer
from seq2seq.text.special import SpecialIds

tokenizers = pytest.importorskip("tokenizers")

TEXT = ["Ein Haus am See, grün und größer.", "the little house\n\nand  two spaces", "\t0123 4567"] * 9
LINES = [
    "a\n\n  b \n",
    " ",
    "\n",
    "",
    "größer 🎉 漢字",
    "two  spaces",
    " edges ",
    "a\r\nb\u2028c",
    "</s><s><|endoftext|>",
]
END = "<|endoftext|>"


def byte_level() -> "tokenizers.Tokenizer":
    """As GPT-2's: one special id for everything."""
    tokenizer = tokenizers.Tokenizer(tokenizers.models.BPE())
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = tokenizers.decoders.ByteLevel()
    trainer = tokenizers.trainers.BpeTrainer(
        vocab_size=330,
        special_tokens=[END],
        initial_alphabet=tokenizers.pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(TEXT, trainer)
    return tokenizer


def metaspace() -> "tokenizers.Tokenizer":
    """As LLaMA 2's: ▁ for spaces, one put in front, bytes for unknown characters, <s> before each text."""
    bytes_ = [f"<0x{byte:02X}>" for byte in range(256)]
    tokenizer = tokenizers.Tokenizer(tokenizers.models.BPE(unk_token="<unk>", byte_fallback=True, fuse_unk=True))
    tokenizer.normalizer = tokenizers.normalizers.Sequence(
        [tokenizers.normalizers.Prepend("▁"), tokenizers.normalizers.Replace(" ", "▁")]
    )
    tokenizer.decoder = tokenizers.decoders.Sequence(
        [
            tokenizers.decoders.Replace("▁", " "),
            tokenizers.decoders.ByteFallback(),
            tokenizers.decoders.Fuse(),
            tokenizers.decoders.Strip(" ", 1, 0),
        ]
    )
    trainer = tokenizers.trainers.BpeTrainer(
        vocab_size=400, special_tokens=["<unk>", "<s>", "</s>", *bytes_], show_progress=False
    )
    tokenizer.train_from_iterator(TEXT, trainer)
    file = json.loads(tokenizer.to_str())
    file["added_tokens"] = file["added_tokens"][:3]  # the bytes are ordinary pieces
    tokenizer = tokenizers.Tokenizer.from_str(json.dumps(file))
    tokenizer.post_processor = tokenizers.processors.TemplateProcessing(
        single="<s> $A", pair="<s> $A <s> $B", special_tokens=[("<s>", 1)]
    )
    return tokenizer


def content(tokenizer: "tokenizers.Tokenizer") -> bytes:
    return str(tokenizer.to_str()).encode()


@pytest.fixture(scope="module")
def gpt() -> HuggingFaceTokenizer:
    return HuggingFaceTokenizer(content(byte_level()), Conventions(SpecialIds(0, 0, 0, 0)))


@pytest.fixture(scope="module")
def llama() -> HuggingFaceTokenizer:
    return HuggingFaceTokenizer(content(metaspace()), Conventions(SpecialIds(pad=2, bos=1, eos=2, unk=0)))


@pytest.fixture(params=["gpt", "llama"])
def either(request) -> HuggingFaceTokenizer:
    return request.getfixturevalue(request.param)


def test_text_comes_back_to_the_last_space_and_line_feed(either, nasty_text):
    for text in [*LINES, *nasty_text.lines, *TEXT]:
        ids = either.encode(text)
        assert either.decode_text(ids) == text
        assert either.decode(ids) == text.replace("\n", " ")
        assert either.special.eos not in ids, "the name of a special piece ended the text"
    assert either.encode_batch([*LINES, *TEXT]) == [either.encode(text) for text in [*LINES, *TEXT]]


def test_ids_are_those_of_the_package_where_no_special_piece_is_named(either):
    reference = tokenizers.Tokenizer.from_buffer(either.data)
    for text in [*LINES[:-1], *TEXT]:
        assert either.encode(text) == reference.encode(text, add_special_tokens=False).ids
        if text:
            assert either.prompt(text) == reference.encode(text, add_special_tokens=True).ids


def test_a_prompt_begins_with_bos_where_the_post_processor_says_so(gpt, llama):
    assert (gpt.adds_bos, llama.adds_bos) == (False, True)
    assert llama.prompt("Haus") == [1, *llama.encode("Haus")]
    assert gpt.prompt("Haus") == gpt.encode("Haus")
    assert (gpt.prompt(""), llama.prompt("")) == ([0], [1])


def test_special_pieces_named_in_a_prompt_are_those_pieces(gpt, llama):
    assert gpt.prompt(f"See{END}") == [*gpt.encode("See"), 0]
    assert llama.prompt("See</s>") == [1, *llama.encode("See"), 2]
    assert llama.prompt("<s>See")[:2] != [1, 1], "BOS must not be there twice"
    assert len(gpt.encode(END)) > 3


def test_conventions_overrule_the_post_processor(llama):
    without = HuggingFaceTokenizer(llama.data, Conventions(llama.special, adds_bos=False, stop=(5, 7)))
    assert without.prompt("Haus") == llama.encode("Haus")
    assert without.stop == (5, 7)
    assert without.describe()["stop_ids"] == [5, 7]
    assert (without.describe()["adds_bos"], llama.describe()["adds_bos"]) == (False, True)
    assert without.describe()["format"] == "huggingface"
    assert without.sha256 != llama.sha256
    assert without.vocabulary_sha256 == llama.vocabulary_sha256


def test_special_ids_are_dropped_from_text_and_kept_in_pieces(gpt, llama):
    assert llama.decode_text([1, *llama.encode("am See"), 2, 2]) == "am See"
    assert gpt.decode_text([*gpt.encode("am See"), 0]) == "am See"
    assert llama.pieces([0, 1, 2, 3]) == ["<unk>", "<s>", "</s>", "<0x00>"]
    assert gpt.pieces([0]) == [END]


def test_byte_level_pieces_are_readable(gpt):
    assert gpt.pieces(gpt.encode(" Haus größer\n")) == ["▁Haus", "▁größer", "\n"]
    assert gpt.pieces(gpt.encode("ä")) == ["<0xC3>", "<0xA4>"]
    assert gpt.pieces(gpt.encode("🎉")) == ["<0xF0>", "<0x9F>", "<0x8E>", "<0x89>"]
    assert "\ufffd" in gpt.decode_text(gpt.encode("ä")[:1])


def test_sentence_piece_like_pieces_are_what_they_are(llama):
    assert "".join(llama.pieces(llama.encode("Haus grün"))) == "▁Haus▁grün"
    assert llama.pieces(llama.encode("ä")) == ["▁", "<0xC3>", "<0xA4>"]


def test_byte_pieces_are_counted_where_they_stand_for_unknown_characters_only(gpt, llama):
    assert llama.byte_ids == frozenset(range(3, 259))
    assert gpt.byte_ids == frozenset()


def test_limits_of_a_past_training_are_not_kept():
    tokenizer = byte_level()
    tokenizer.enable_truncation(3)
    tokenizer.enable_padding(length=50)
    limited = HuggingFaceTokenizer(content(tokenizer), Conventions(SpecialIds(0, 0, 0, 0)))
    assert limited.decode_text(limited.encode(TEXT[0])) == TEXT[0]
    assert len(limited.encode("S")) == 1


def test_ids_without_a_piece_have_a_name_and_no_text():
    file = json.loads(content(byte_level()))
    vocabulary = file["model"]["vocab"]
    last = max(vocabulary, key=vocabulary.get)
    vocabulary[last] += 5
    holey = HuggingFaceTokenizer(json.dumps(file).encode(), Conventions(SpecialIds(0, 0, 0, 0)))
    assert holey.vocab_size == len(vocabulary) + 5
    hole = holey.vocab_size - 2
    assert holey.pieces([hole]) == [f"<unused{hole}>"]
    assert holey.decode_text([hole, *holey.encode("See")]) == "See"


def test_it_can_be_pickled_and_known_by_its_contents(either):
    copy = pickle.loads(pickle.dumps(either))
    assert (copy.sha256, copy.describe()) == (either.sha256, either.describe())
    assert copy.prompt("am See") == either.prompt("am See")
    assert either.sha256 != hashlib.sha256(either.data).hexdigest(), "the conventions count too"
    assert [*either.files("source"), *either.files("target")] == ["tokenizer.json", "target_tokenizer.json"]


@pytest.mark.parametrize("data", [b"", b"{}", b"no json", b"\xff"])
def test_a_file_of_another_kind_is_refused(data):
    with pytest.raises(ValueError, match=rf"tokenizer t is not a tokenizer\.json \({len(data)} bytes read\): Cannot"):
        HuggingFaceTokenizer(data, Conventions(SpecialIds()), "t")


def test_ids_outside_the_vocabulary_are_refused(gpt):
    size = gpt.vocab_size
    with pytest.raises(
        ValueError, match=rf"tokenizer t: special ids must be from 0 to {size - 1}, .* got pad={size}, "
    ):
        HuggingFaceTokenizer(gpt.data, Conventions(SpecialIds(pad=size)), "t")
    with pytest.raises(ValueError, match=rf"tokenizer t: stop ids \[{size}\] are outside the vocabulary of {size}"):
        HuggingFaceTokenizer(gpt.data, Conventions(gpt.special, stop=(0, size)), "t")
    for method in (gpt.decode_text, gpt.pieces):
        with pytest.raises(ValueError, match=f"id {size} is outside the vocabulary of {size} pieces"):
            method([3, size])


def test_half_a_surrogate_pair_is_refused(either):
    for encode in (either.encode, either.prompt, lambda text: either.encode_batch(["a", text])):
        with pytest.raises(ValueError, match=r"'a\\ud800' cannot be written as UTF-8"):
            encode("a\ud800")


def test_sampling_is_refused(gpt):
    with pytest.raises(ValueError, match=r"bpe_dropout=0.1 need a SentencePiece model, got .* format huggingface"):
        gpt.sample("a", config=TokenizerConfig(kind=TokenizerConfig().kind.bpe, bpe_dropout=0.1), key=(1, 2, 3))


def test_without_the_package_the_error_says_what_to_install(gpt, monkeypatch):
    monkeypatch.setitem(sys.modules, "tokenizers", None)
    with pytest.raises(
        ValueError, match=r"reading tokenizer t needs the package tokenizers; pip install 'seq2seq\[int"
    ):
        HuggingFaceTokenizer(gpt.data, Conventions(gpt.special), "t")
