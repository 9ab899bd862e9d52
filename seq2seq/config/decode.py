"""Options of the search for translations."""

from dataclasses import dataclass, field

from seq2seq.config.checks import TOO_LARGE, not_negative, positive, require
from seq2seq.config.choices import LongLines, PenaltyForm, Utility


@dataclass(frozen=True)
class DecodeConfig:
    """How translations are searched for, or drawn. Lengths are in target pieces and count the closing EOS."""

    beam_size: int = 4
    """Hypotheses kept for each sentence; 1 is greedy search."""
    n_best: int = 1
    """Translations returned for each sentence, at most as many as are found (`num_found`): distinct, best first.
    Where they are drawn without `mbr` they are independent samples in the order of their numbers, the first ones the
    same however many are asked for; what the model is sure of may come several times."""
    penalty_form: PenaltyForm = PenaltyForm.gnmt
    """Which divisor normalises for length."""
    length_penalty: float = 0.6
    """Exponent p of the divisor: larger favours longer translations, negative shorter ones, 0 neither."""
    patience: float | None = None
    """The search of a sentence ends when patience * beam_size hypotheses have ended; null goes on until no other one
    can score higher, which takes about half as long again and is seldom another answer."""
    coverage_penalty: float = 0.0
    """Weight of the logarithm of how much of each source piece has been attended to; 0 is off. With the divisor gnmt
    0.2 is usual. Where scores are means per piece (power, 1) that is far too much: translations repeat themselves."""
    min_length: int = 1
    """EOS is not allowed before this many pieces."""
    max_length: int | None = None
    """No translation is longer than this, whatever the source."""
    max_length_factor: float = 2.0
    """The limit is factor * source length + offset, ..."""
    max_length_offset: int = 10
    """... and the source length counts its EOS too."""
    min_length_factor: float = 0.0
    """EOS is not allowed before factor * source length pieces either."""
    no_repeat_ngram: int = 0
    """No sequence of so many pieces comes twice in a translation, those of a given prefix counted; 0 is off."""
    repetition_penalty: float = 1.0
    """Logits of pieces that the translation has already are divided by this (negative ones multiplied); 1 is off."""
    forbidden: list[str] = field(default_factory=list)
    """Words or phrases that no translation contains, as whole words, written as they are to be avoided. Forbidding
    "cat" leaves "cats"; with beam_size=1, which has no way back once it has begun a word, not in the pieces cat and
    s. What a line gives as prefix or target is let pass, and so are source words that replace unknown pieces."""
    unknown_penalty: float = 0.0
    """Nats taken off the logit of the unknown piece; its reported log-probability remains the model's."""
    forbid_unknown: bool = False
    """Whether the unknown piece is never produced."""
    replace_unknown: bool = False
    """Whether an unknown piece is replaced by the source word that it is aligned to."""
    ordered_phrases: bool = False
    """Whether phrases that a translation must contain come in the order in which they are given."""
    temperature: float = 0.0
    """0 searches. Above, translations are drawn: 1 by the model's probabilities, less makes probable pieces more so."""
    top_k: int | None = None
    """Draw from the k most probable pieces; null draws from all."""
    top_p: float = 1.0
    """Draw from the most probable pieces that together have this probability; 1 draws from all."""
    min_p: float = 0.0
    """Draw from the pieces that are at least so probable beside the best one; 0 draws from all."""
    seed: int = 1
    """Of the draws. With it, the number of the line and that of the sample decide what is drawn."""
    mbr: Utility = Utility.none
    """Minimum Bayes risk: of all translations found take those that the others resemble most, measured by this."""
    num_candidates: int | None = None
    """Translations found (or drawn) for minimum Bayes risk to choose from; null: as many as the beam holds."""
    alignments: bool = False
    """Whether translations come with the attention that each of their pieces paid to the source."""
    alignment_layer: int | None = None
    """Decoder layer whose attention is taken for alignments and coverage, from 1; null: the last but one."""
    alignment_head: int | None = None
    """Head of it, from 1; null: the mean of all."""
    shortlist: bool = False
    """Choose each translation from the bundle's shortlist for its source (`seq2seq data shortlist`) alone, which is
    faster. Log-probabilities are then normalised over the shortlist."""
    max_source_length: int = 1024
    """Source lines with more pieces than this are treated as `long_lines` says."""
    long_lines: LongLines = LongLines.error
    """What becomes of longer source lines."""
    batch_tokens: int = 2048
    """Source pieces translated at once, padding and beams not counted."""

    @property
    def draws(self) -> bool:
        """Whether translations are drawn instead of searched for."""
        return self.temperature > 0

    @property
    def num_found(self) -> int:
        """Translations that are found or drawn for each sentence, if so many distinct ones come up."""
        if self.mbr is Utility.none:
            return self.n_best
        return self.num_candidates if self.num_candidates is not None else max(self.n_best, self.beam_size)

    def __post_init__(self) -> None:
        for name in ("beam_size", "n_best", "max_length_factor", "max_source_length", "batch_tokens", "min_length"):
            positive(name, getattr(self, name))
        require(self.min_length_factor >= 0, f"min_length_factor={self.min_length_factor} is negative")
        require(
            abs(self.length_penalty) <= 20,
            f"length_penalty={self.length_penalty} is not between -20 and 20; 0.6 to 1 is usual, 0 is off",
        )
        require(
            1 <= self.max_length_offset < TOO_LARGE, f"max_length_offset={self.max_length_offset} must be at least 1"
        )
        require(
            self.min_length_factor <= self.max_length_factor,
            f"min_length_factor={self.min_length_factor} is more than max_length_factor={self.max_length_factor}",
        )
        if self.max_length is not None:
            require(
                self.max_length >= self.min_length,
                f"max_length={self.max_length} is less than min_length={self.min_length}",
            )
        self._check_rules()
        self._check_draws()
        self._check_together()

    def _check_rules(self) -> None:
        """Refuse values out of range of the options that change what may be produced, and how it is compared."""
        for name in ("patience", "num_candidates", "alignment_layer", "alignment_head", "top_k"):
            if getattr(self, name) is not None:
                positive(name, getattr(self, name))
        for name in ("coverage_penalty", "no_repeat_ngram", "unknown_penalty"):
            not_negative(name, getattr(self, name))
        positive("repetition_penalty", self.repetition_penalty)
        for phrase in self.forbidden:
            require(
                isinstance(phrase, str) and phrase.strip() != "",
                f"forbidden has {phrase!r}, expected words or phrases",
            )

    def _check_draws(self) -> None:
        """Refuse values out of range of the options of drawing."""
        require(
            0 <= self.temperature < TOO_LARGE,
            f"temperature={self.temperature} is negative or too large; 0 draws nothing, 0.7 to 1 is usual",
        )
        require(0 < self.top_p <= 1, f"top_p={self.top_p} is not above 0 and at most 1; 0.9 is usual, 1 is off")
        require(0 <= self.min_p <= 1, f"min_p={self.min_p} is not between 0 and 1; 0.05 is usual, 0 is off")
        require(0 <= self.seed < 2**32, f"seed={self.seed} is out of range; choose 0 <= seed < {2**32}")

    def _check_together(self) -> None:
        """Refuse options of which one makes another mean nothing."""
        if self.draws:
            require(
                self.beam_size == 1,
                f"beam_size={self.beam_size} looks for the most probable translations, temperature={self.temperature} "
                "draws them; choose beam_size=1 or temperature=0",
            )
            require(
                self.coverage_penalty == 0,
                f"coverage_penalty={self.coverage_penalty} ranks what a search has found, but with temperature="
                f"{self.temperature} translations are drawn; choose temperature=0 or coverage_penalty=0",
            )
        else:
            for name, off in {"top_k": None, "top_p": 1.0, "min_p": 0.0}.items():
                require(
                    getattr(self, name) == off,
                    f"{name}={getattr(self, name)} is for translations that are drawn, but with temperature=0 nothing "
                    "is; give a temperature above 0, such as 1",
                )
            require(
                self.num_found <= self.beam_size,
                f"n_best={self.n_best} is more than beam_size={self.beam_size}; choose a beam at least as large"
                if self.num_found == self.n_best
                else f"num_candidates={self.num_found} is more than beam_size={self.beam_size}; choose a beam at least "
                "as large, or draw them with a temperature above 0",
            )
        require(
            self.num_candidates is None or self.mbr is not Utility.none,
            f"num_candidates={self.num_candidates} is for minimum Bayes risk; choose mbr=chrf or mbr=bleu too",
        )
        require(
            self.mbr is Utility.none or self.num_candidates is not None or not self.draws,
            f"mbr={self.mbr.name} chooses among translations that are drawn, but not how many; give num_candidates, 30 "
            "or more",
        )
        require(
            self.mbr is Utility.none or self.num_found > 1,
            f"mbr={self.mbr.name} chooses among translations, but only one is looked for; choose a larger beam_size, "
            "or more num_candidates",
        )
        require(
            self.n_best <= self.num_found,
            f"n_best={self.n_best} is more than num_candidates={self.num_found}; choose at least as many candidates",
        )
        require(
            self.patience is None or self.beam_size > 1,
            f"patience={self.patience} is for beams, but beam_size is 1; choose a larger beam, or patience=null",
        )
        require(
            self.coverage_penalty == 0 or self.beam_size > 1,
            f"coverage_penalty={self.coverage_penalty} ranks the hypotheses of a beam, but beam_size is 1; choose a "
            "larger beam, or coverage_penalty=0",
        )
