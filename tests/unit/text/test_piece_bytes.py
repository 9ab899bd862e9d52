"""What pieces spell, joined, is what the tokenizer decodes: for every kind of tokenizer."""

import json
import random
import re

import pytest

from seq2seq.config import TokenizerConfig, TokenizerKind
from seq2seq.text.hugging_face import Conventions, HuggingFaceTokenizer
from seq2seq.text.marian import MarianTokenizer
from seq2seq.text.piece_bytes import BROKEN, piece_bytes
from seq2seq.text.special import SpecialIds
from seq2seq.text.tokenizer import Tokenizer
from seq2seq.text.tokenizer_training import train_tokenizer

LINES = [
    "der Hund läuft, die Katze schläft",
    "a dog runs; 3 cats sleep?",
    "我们看见猫。你好！",
    "ein Häuschen am See",
] * 9


def assert_joined_is_decoded(tokenizer: Tokenizer, *, broken: bool = True) -> None:
    """For random pieces and for lines; `broken`: also where bytes are no character, however many marks tell of that."""
    spelled = piece_bytes(tokenizer)
    assert len(spelled) == tokenizer.vocab_size
    source = random.Random(5)
    drawn = [[source.randrange(tokenizer.vocab_size) for _ in range(source.randrange(1, 9))] for _ in range(300)]
    for ids in [*drawn, *map(tokenizer.encode, [*LINES, "Äpfel, übergroße 🐦 und \u010desky"])]:
        joined, text = b"".join(spelled[id_] for id_ in ids).decode(errors="replace"), tokenizer.decode_text(ids)
        if broken or BROKEN not in text:
            plain = [re.sub(f"{BROKEN}+", BROKEN, one).strip() for one in (joined, text)]
            assert plain[0] == plain[1], tokenizer.pieces(ids)


@pytest.mark.parametrize("kind", list(TokenizerKind))
@pytest.mark.parametrize("byte_fallback", [False, True])
def test_what_sentencepiece_pieces_spell_is_the_decoded_text(kind: TokenizerKind, byte_fallback: bool) -> None:
    size = 300 if byte_fallback else 44
    tokenizer, _ = train_tokenizer(LINES, TokenizerConfig(kind=kind, vocab_size=size, byte_fallback=byte_fallback))
    assert_joined_is_decoded(tokenizer)
    spelled = piece_bytes(tokenizer)
    special = tokenizer.special
    assert [spelled[id_] for id_ in (special.pad, special.bos, special.eos, special.unk)] == [b""] * 4
    assert sorted(spelled[id_] for id_ in tokenizer.byte_ids) == [
        bytes([n]) for n in range(256 if byte_fallback else 0)
    ]


def test_what_the_pieces_of_a_marian_table_spell_is_the_decoded_text() -> None:
    plain, _ = train_tokenizer(LINES, TokenizerConfig(vocab_size=44, byte_fallback=False))
    pieces = ["</s>", "<unk>", ">>fra<<", *plain.pieces(range(4, 44)), "<pad>"]
    table = json.dumps({piece: id_ for id_, piece in enumerate(pieces)})
    assert_joined_is_decoded(MarianTokenizer(plain.model, table.encode(), bos=len(pieces) - 1))


def test_what_byte_level_pieces_spell_is_the_decoded_text() -> None:
    tokenizers = pytest.importorskip("tokenizers")
    tokenizer = tokenizers.Tokenizer(tokenizers.models.BPE())
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = tokenizers.decoders.ByteLevel()
    alphabet = tokenizers.pre_tokenizers.ByteLevel.alphabet()
    trainer = tokenizers.trainers.BpeTrainer(
        vocab_size=330, special_tokens=["<end>"], initial_alphabet=alphabet, show_progress=False
    )
    tokenizer.train_from_iterator(LINES, trainer)
    assert_joined_is_decoded(HuggingFaceTokenizer(tokenizer.to_str().encode(), Conventions(SpecialIds(0, 0, 0, 0))))


def test_what_the_pieces_of_a_llama_file_spell_is_the_decoded_text() -> None:
    tokenizers = pytest.importorskip("tokenizers")
    bytes_ = {f"<0x{byte:02X}>": 3 + byte for byte in range(256)}
    letters = {piece: 259 + at for at, piece in enumerate("▁ abcé猫")}
    vocabulary = {"<unk>": 0, "<s>": 1, "</s>": 2} | bytes_ | letters
    tokenizer = tokenizers.Tokenizer(tokenizers.models.BPE(vocabulary, [], unk_token="<unk>", byte_fallback=True))
    tokenizer.decoder = tokenizers.decoders.Sequence(
        [
            tokenizers.decoders.Replace("▁", " "),
            tokenizers.decoders.ByteFallback(),
            tokenizers.decoders.Fuse(),
            tokenizers.decoders.Strip(" ", 1, 0),
        ]
    )
    assert_joined_is_decoded(
        HuggingFaceTokenizer(tokenizer.to_str().encode(), Conventions(SpecialIds(1, 1, 2, 0))), broken=False
    )


def test_a_vocabulary_without_letters_is_refused() -> None:
    digits = [" ".join(str(number * 7 % 10) for number in range(row)) for row in range(1, 40)]
    tokenizer, _ = train_tokenizer(digits, TokenizerConfig(vocab_size=20, byte_fallback=False))
    with pytest.raises(ValueError, match=r"the target tokenizer's \d+ pieces have no letters; expected some"):
        piece_bytes(tokenizer)
