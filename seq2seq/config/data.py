"""Options of the text and its vocabulary."""

from dataclasses import dataclass, field

from seq2seq.config.checks import TOO_LARGE, positive, probability, require
from seq2seq.config.choices import DataKind, Documents, TokenizerKind


@dataclass(frozen=True)
class TokenizerConfig:
    """How SentencePiece models are trained, or where trained ones are."""

    kind: TokenizerKind = TokenizerKind.unigram
    """Algorithm."""
    vocab_size: int = 8000
    """Pieces, the four special ones included; for each side if not joint. With kind=char at most so many."""
    joint: bool = True
    """One vocabulary for both languages (needed for three-way tying)."""
    byte_fallback: bool = True
    """Spell characters outside the vocabulary as UTF-8 bytes (256 pieces) instead of the unknown piece."""
    character_coverage: float = 1.0
    """Share of the characters that get pieces of their own; 0.9995 suits Chinese and Japanese."""
    normalization: str = "nmt_nfkc"
    """SentencePiece's rule: nmt_nfkc, nfkc, nmt_nfkc_cf, nfkc_cf or identity. Recorded in the bundle."""
    keep_whitespace: bool = False
    """Every space and line feed is kept, as plain text of a language model needs it; with normalization=identity."""
    max_sentence_bytes: int = 4192
    """Longer lines are left out of the tokenizer's training, and counted; with keep_whitespace they are cut."""
    source_model: str | None = None
    """A trained SentencePiece model to use instead of training one."""
    target_model: str | None = None
    """The same for the target side; none with a joint vocabulary."""
    sampling_alpha: float = 0.0
    """Subword sampling in training, unigram only: segmentations are drawn with probability ~ P^alpha; 0 is off."""
    sampling_nbest: int = 64
    """Segmentations that the draw chooses from."""
    bpe_dropout: float = 0.0
    """Probability that a merge is left out in training, BPE only (Provilkov et al. 2020); 0 is off."""

    def __post_init__(self) -> None:
        floor = 4 + 256 * self.byte_fallback
        require(
            self.vocab_size > floor,
            f"data.tokenizer.vocab_size={self.vocab_size} leaves no room beside {floor} special and byte pieces; "
            f"choose more than {floor}" + (" or data.tokenizer.byte_fallback=false" if self.byte_fallback else ""),
        )
        require(
            0.98 <= self.character_coverage <= 1.0,
            f"data.tokenizer.character_coverage={self.character_coverage} is not between 0.98 and 1, which "
            "SentencePiece can train with; 0.9995 suits Chinese and Japanese, 1.0 other languages",
        )
        require(
            0 <= self.sampling_alpha < TOO_LARGE,
            f"data.tokenizer.sampling_alpha={self.sampling_alpha} is negative or infinite; 0 is off, 0.2 is usual",
        )
        positive("data.tokenizer.vocab_size", self.vocab_size)
        require(self.sampling_nbest > 1, f"data.tokenizer.sampling_nbest={self.sampling_nbest} must be at least 2")
        probability("data.tokenizer.bpe_dropout", self.bpe_dropout)
        require(
            10 <= self.max_sentence_bytes <= 2**30,
            f"data.tokenizer.max_sentence_bytes={self.max_sentence_bytes} is not between 10 and 2^30, which "
            "SentencePiece can train with",
        )
        require(
            self.kind is TokenizerKind.bpe or self.bpe_dropout == 0,
            f"data.tokenizer.bpe_dropout={self.bpe_dropout} needs data.tokenizer.kind=bpe, got {self.kind.name}; "
            "with unigram use data.tokenizer.sampling_alpha",
        )
        require(
            self.kind is TokenizerKind.unigram or self.sampling_alpha == 0,
            f"data.tokenizer.sampling_alpha={self.sampling_alpha} needs data.tokenizer.kind=unigram, got "
            f"{self.kind.name}; with bpe use data.tokenizer.bpe_dropout",
        )
        require(
            not self.keep_whitespace or self.normalization == "identity",
            f"data.tokenizer.keep_whitespace=true needs data.tokenizer.normalization=identity, got "
            f"{self.normalization}, which replaces and joins spaces",
        )
        require(
            self.target_model is None or not self.joint,
            "data.tokenizer.target_model is for separate vocabularies; set data.tokenizer.joint=false or leave it out",
        )
        require(
            self.joint or (self.source_model is None) == (self.target_model is None),
            "data.tokenizer.joint=false with a trained tokenizer needs both data.tokenizer.source_model and "
            "data.tokenizer.target_model",
        )


@dataclass(frozen=True)
class DataConfig:
    """Files of text and how they become batches. A path without its .gz is found as well."""

    kind: DataKind = DataKind.parallel
    """Pairs of lines for translation (`train_source`, `train_target`), or plain text for a language model."""
    train_source: str | None = None
    """Training text, source side: one segment a line, UTF-8, plain or .gz."""
    train_target: str | None = None
    """Training text, target side: line n translates line n of the source."""
    train_text: str | None = None
    """Training text of a language model, UTF-8, plain or .gz."""
    valid_text: str | None = None
    """Validation text of a language model; when absent, the last `valid_share` of the training text is held out."""
    valid_share: float = 0.1
    """Share of the training text, by characters, that is held out when no `valid_text` is given."""
    documents: Documents = Documents.file
    """What one document of `train_text` is."""
    documents_apart: bool = True
    """No attention from one document to another in a block, and positions counted anew in each; a document that fits in
    a block is never cut. False reads the text on and on, and cuts it anywhere."""
    block_length: int = 256
    """Pieces of a packed block of plain text: the model never sees more at once in training."""
    valid_source: str | None = None
    """Validation text; when absent, `valid_size` pairs are held out of the training text."""
    valid_target: str | None = None
    """The same, target side."""
    dir: str = "."
    """Folder that a data group's file names stand in."""
    source_lang: str | None = None
    """Language code of the source; in the folder layout also the ending of its files."""
    target_lang: str | None = None
    """Language code of the target."""
    valid_size: int = 500
    """Pairs held out when no validation files are given (at most a tenth of the corpus)."""
    max_length: int = 256
    """Pairs with more pieces than this on either side are left out of training, and counted."""
    batch_tokens: int = 4096
    """Budget of a batch: sentences times the longest of them, the larger of both sides, in pieces; or blocks times
    their length."""
    num_workers: int = 0
    """Processes that put batches together; 0 does it in the training process."""
    tokenizer: TokenizerConfig = field(default_factory=TokenizerConfig)
    """Vocabulary."""

    def __post_init__(self) -> None:
        for name in ("valid_size", "max_length", "batch_tokens"):
            positive(name, getattr(self, name))
        require(self.block_length > 1, f"block_length={self.block_length} is too short; choose at least 2")
        require(0 < self.valid_share < 1, f"valid_share={self.valid_share} is not between 0 and 1; 0.1 is usual")
        self._check_files()
        require(self.num_workers >= 0, f"num_workers={self.num_workers} is negative")
        if self.kind is DataKind.text:
            self._check_text()
        else:
            require(
                self.max_length <= self.batch_tokens,
                f"max_length={self.max_length} is more than batch_tokens={self.batch_tokens}; "
                "a batch must hold at least one pair of the longest kind",
            )
        require(
            (self.valid_source is None) == (self.valid_target is None),
            "give both valid_source and valid_target, or neither",
        )

    def _check_files(self) -> None:
        """Refuse a kind of data without its files, or with those of the other kind."""
        needed: tuple[str, ...] = ("train_source", "train_target")
        other: tuple[str, ...] = ("train_text", "valid_text")
        if self.kind is DataKind.text:
            needed, other = ("train_text",), ("train_source", "train_target", "valid_source", "valid_target")
        for name in needed:
            require(getattr(self, name) is not None, f"option 'data.{name}' is missing; give data.{name}=...")
        for name in other:
            require(
                getattr(self, name) is None,
                f"data.{name} is not for data.kind={self.kind.name}; leave it out or choose another data=...",
            )

    def _check_text(self) -> None:
        """Refuse what packed blocks of plain text cannot have."""
        require(
            self.block_length <= self.batch_tokens,
            f"block_length={self.block_length} is more than batch_tokens={self.batch_tokens}; "
            "a batch must hold at least one block",
        )
        require(
            self.tokenizer.sampling_alpha == 0 and self.tokenizer.bpe_dropout == 0,
            f"data.tokenizer.sampling_alpha={self.tokenizer.sampling_alpha} and data.tokenizer.bpe_dropout="
            f"{self.tokenizer.bpe_dropout} are for pairs; set both to 0 with data.kind=text",
        )
