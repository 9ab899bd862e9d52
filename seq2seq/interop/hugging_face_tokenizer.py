"""The tokenizers of Hugging Face folders, in and out."""

import json
from pathlib import Path

from seq2seq.bundle import Bundle
from seq2seq.interop.families import MARIAN, Family
from seq2seq.interop.families_options import Options
from seq2seq.interop.hugging_face_files import as_json, read_json
from seq2seq.interop.hugging_face_tokenizer_json import byte_level_json, sentence_piece_json
from seq2seq.text.hugging_face import Conventions, HuggingFaceTokenizer
from seq2seq.text.marian import MarianTokenizer
from seq2seq.text.sentence_piece import SentencePieceTokenizer
from seq2seq.text.special import SpecialIds
from seq2seq.text.tokenizer import Tokenizer

TOKENIZER_CONFIG = "tokenizer_config.json"


def read_tokenizers(
    folder: Path, family: Family, options: Options, generation: Options
) -> tuple[Tokenizer, Tokenizer, Options | None]:
    """The tokenizers of both sides, one object where they are one, and what tokenizer_config.json says, if it is there.

    Args:
        folder: Where the files are.
        family: Of the model.
        options: Contents of config.json.
        generation: Contents of generation_config.json; empty without.

    Raises:
        FileNotFoundError: if a file is missing.
        ValueError: if one is damaged, or contradicts config.json.
    """
    file = folder / TOKENIZER_CONFIG
    own = read_json(file) if file.is_file() else None
    if family is MARIAN:
        return *_read_marian(folder, options, own or {}), own
    tokenizer = _read_decoder_only(folder, family, options, generation, own or {})
    return tokenizer, tokenizer, own


def _read_marian(folder: Path, options: Options, own: Options) -> tuple[Tokenizer, Tokenizer]:
    """source.spm, target.spm and the tables."""
    tables = ["vocab.json", "target_vocab.json" if own.get("separate_vocabs") else "vocab.json"]
    models = [_content(folder / name) for name in ("source.spm", "target.spm")]
    start = options.get("decoder_start_token_id", options.get("pad_token_id"))
    if not isinstance(start, int):
        raise ValueError(
            f"config.json has decoder_start_token_id={start!r}; expected the id that a translation starts from"
        )
    sides = [
        MarianTokenizer(model, _content(folder / table), start, str(folder / table))
        for model, table in zip(models, tables, strict=True)
    ]
    special = sides[1].special
    for key, id_ in (("pad_token_id", special.pad), ("eos_token_id", special.eos)):
        if options.get(key, id_) != id_:
            raise ValueError(
                f"config.json has {key}={options[key]!r}, but in {folder / tables[1]} that piece has the id {id_}; "
                "expected files of one model"
            )
    if sides[0].sha256 != sides[1].sha256:
        return sides[0], sides[1]
    plain = _as_sentence_piece(sides[0])
    return plain, plain


def _as_sentence_piece(tokenizer: MarianTokenizer) -> Tokenizer:
    """The SentencePiece model alone where it has the same ids: it can sample, too. Else the tokenizer as it is."""
    try:
        plain = SentencePieceTokenizer(tokenizer.model)
    except ValueError:  # a special piece is missing there
        return tokenizer
    codes = any(piece.startswith(">>") for piece in tokenizer.pieces(range(tokenizer.vocab_size)))
    same = plain.special == tokenizer.special and plain.vocabulary_sha256 == tokenizer.vocabulary_sha256
    return plain if same and not codes else tokenizer


def _read_decoder_only(
    folder: Path, family: Family, options: Options, generation: Options, own: Options
) -> HuggingFaceTokenizer:
    """tokenizer.json, or what older folders have in its place."""
    if (folder / "tokenizer.json").is_file():
        file = folder / "tokenizer.json"
        data = _content(file)
    elif (folder / "tokenizer.model").is_file():
        file = folder / "tokenizer.model"
        data = sentence_piece_json(_content(file), bos_in_front=bool(own.get("add_bos_token", True)), name=str(file))
    elif family.model_type == "gpt2" and (folder / "vocab.json").is_file():
        file = folder / "vocab.json"
        data = byte_level_json(_content(file), _content(folder / "merges.txt"), special=("<|endoftext|>",))
    else:
        raise FileNotFoundError(
            f"{folder} has no tokenizer.json; make it with the package transformers: "
            f'AutoTokenizer.from_pretrained("{folder}").save_pretrained("{folder}")'
        )
    return HuggingFaceTokenizer(data, _conventions(options, generation, own, _ids_by_piece(data, file)), str(file))


def _conventions(options: Options, generation: Options, own: Options, ids: dict[str, int]) -> Conventions:
    """What tokenizer.json does not say: the special ids, and whether BOS is put in front of every text."""

    def named(role: str) -> int | None:
        """The id of the piece that tokenizer_config.json gives this role."""
        piece = own.get(f"{role}_token")
        return ids.get(piece["content"] if isinstance(piece, dict) else piece) if piece else None

    def numbered(role: str) -> list[int]:
        """The ids that config.json and generation_config.json give this role; older files write -1 for none."""
        found: list[int | None] = []
        for said in (options.get(f"{role}_token_id"), generation.get(f"{role}_token_id")):
            found += said if isinstance(said, list) else [said]
        return [id_ for id_ in dict.fromkeys(found) if id_ is not None and id_ >= 0]

    ends = numbered("eos")
    eos = named("eos")
    if eos is None or (ends and eos not in ends):
        if not ends:
            raise ValueError(
                "neither config.json nor tokenizer_config.json says which piece ends a text; expected eos_token_id or "
                "eos_token"
            )
        eos = ends[0]
    bos, pad, unk = ([*numbered(role), named(role)][0] for role in ("bos", "pad", "unk"))
    special = SpecialIds(
        pad=eos if pad is None else pad, bos=eos if bos is None else bos, eos=eos, unk=eos if unk is None else unk
    )
    adds_bos = own.get("add_bos_token")
    return Conventions(special, adds_bos, stop=tuple(id_ for id_ in ends if id_ != eos))


def _ids_by_piece(data: bytes, file: Path) -> dict[str, int]:
    """The ids of all pieces of a tokenizer.json."""
    try:
        content = json.loads(data)
        table = content["model"]["vocab"]
        ids = dict(table) if isinstance(table, dict) else {entry[0]: id_ for id_, entry in enumerate(table)}
        return ids | {entry["content"]: entry["id"] for entry in content.get("added_tokens") or ()}
    except (ValueError, KeyError, TypeError, IndexError) as problem:
        raise ValueError(
            f"{file} is damaged ({problem!r}); expected a tokenizer.json with a model and its vocab"
        ) from problem


def _content(file: Path) -> bytes:
    if not file.is_file():
        raise FileNotFoundError(f"{file} is missing; expected the folder of a Hugging Face model, with all its files")
    return file.read_bytes()


def tokenizer_files(bundle: Bundle, family: Family, original: Options | None, imported: bool) -> dict[str, bytes]:
    """Names and contents of the files for the bundle's tokenizers.

    Args:
        bundle: With the tokenizers.
        family: To write for.
        original: What tokenizer_config.json said when the model was imported.
        imported: Whether it was imported, from this family.

    Raises:
        ValueError: if the family cannot be given such a tokenizer.
    """
    files = _marian_files(bundle) if family is MARIAN else _decoder_only_files(bundle.target_tokenizer, family)
    if not imported:
        original = _tokenizer_options(bundle, family)
    return files if original is None else files | {TOKENIZER_CONFIG: as_json(original)}


def _marian_files(bundle: Bundle) -> dict[str, bytes]:
    source, target = bundle.source_tokenizer, bundle.target_tokenizer
    files: dict[str, bytes] = {}
    for side, tokenizer in (("source", source), ("target", target)):
        table = f"{side}_vocab.json" if side == "target" and _separate(bundle) else "vocab.json"
        if isinstance(tokenizer, MarianTokenizer):
            files |= {f"{side}.spm": tokenizer.model, table: tokenizer.vocabulary}
        elif isinstance(tokenizer, SentencePieceTokenizer):
            pieces = tokenizer.pieces(range(tokenizer.vocab_size))
            vocabulary = json.dumps({piece: id_ for id_, piece in enumerate(pieces)}, ensure_ascii=False, indent=2)
            files |= {f"{side}.spm": tokenizer.model, table: vocabulary.encode("utf-8")}
        else:
            raise _unfit(tokenizer, MARIAN, "a SentencePiece model")
    return files


def _decoder_only_files(tokenizer: Tokenizer, family: Family) -> dict[str, bytes]:
    if isinstance(tokenizer, HuggingFaceTokenizer):
        return {"tokenizer.json": tokenizer.data}
    if isinstance(tokenizer, SentencePieceTokenizer):
        return {"tokenizer.json": sentence_piece_json(tokenizer.model)}
    raise _unfit(tokenizer, family, "a SentencePiece model or a tokenizer.json")


def _unfit(tokenizer: Tokenizer, family: Family, needed: str) -> ValueError:
    return ValueError(
        f"a {family.model_type} folder needs {needed}, this model has a tokenizer of format {tokenizer.format}; keep "
        "the bundle"
    )


def _separate(bundle: Bundle) -> bool:
    return bundle.source_tokenizer.vocabulary_sha256 != bundle.target_tokenizer.vocabulary_sha256


def _tokenizer_options(bundle: Bundle, family: Family) -> Options:
    """tokenizer_config.json for a model trained here."""
    tokenizer, languages = bundle.target_tokenizer, bundle.languages
    special = tokenizer.special
    roles = {"unk_token": special.unk, "eos_token": special.eos, "pad_token": special.pad}
    if family is not MARIAN:
        pieces = {f: tokenizer.pieces([id_])[0] for f, id_ in (roles | {"bos_token": special.bos}).items()}
        return {"tokenizer_class": "PreTrainedTokenizerFast", "clean_up_tokenization_spaces": False, **pieces}
    return {
        "tokenizer_class": "MarianTokenizer",
        "model_max_length": bundle.decode.max_source_length,
        "separate_vocabs": _separate(bundle),
        "source_lang": languages[0],
        "target_lang": languages[1],
        **{role: tokenizer.pieces([id_])[0] for role, id_ in roles.items()},
    }
