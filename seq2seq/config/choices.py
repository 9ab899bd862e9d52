"""The options that are a choice of words: enums whose member names are the words that users type."""

from enum import Enum


class Tying(Enum):
    """Which of the three [V, D] matrices are one: source embedding, target embedding, output projection."""

    three_way = "three_way"
    two_way = "two_way"
    none = "none"


class Architecture(Enum):
    """An encoder and a decoder with cross-attention, or one causal stack that reads source and target in a row."""

    encoder_decoder = "encoder_decoder"
    decoder_only = "decoder_only"


class Activation(Enum):
    """Non-linearity of the feed-forward network: ReLU, GELU (exact, by tanh, as x*sigmoid(1.702x)), SiLU."""

    relu = "relu"
    gelu = "gelu"
    gelu_tanh = "gelu_tanh"
    gelu_sigmoid = "gelu_sigmoid"
    silu = "silu"


class NormKind(Enum):
    """LayerNorm (Ba et al. 2016) or RMSNorm, which neither centres nor has a bias (Zhang and Sennrich 2019)."""

    layer_norm = "layer_norm"
    rms_norm = "rms_norm"


class NormPlacement(Enum):
    """Where a sublayer's norm stands.

    post: LN(x + f(x)), the paper's. pre: x + f(LN(x)), and one norm after the last layer. deepnorm: LN(a*x + f(x)) with
    a > 1 and smaller initial weights, both by depth (Wang et al. 2022), for very deep stacks.
    """

    post = "post"
    pre = "pre"
    deepnorm = "deepnorm"


class PositionKind(Enum):
    """How the order of the pieces is told.

    sinusoidal: added once, sines and cosines in turn (the paper's). sinusoidal_halves: all sines, then all cosines
    (Marian's). learned: a table, added once. rope: queries and keys are turned by their position (Su et al. 2021).
    """

    sinusoidal = "sinusoidal"
    sinusoidal_halves = "sinusoidal_halves"
    learned = "learned"
    rope = "rope"


class RopeScaling(Enum):
    """How rotary positions are stretched for texts longer than those trained on.

    linear: positions divided by the factor (Chen et al. 2023). yarn: by frequency, with a ramp (Peng et al. 2023).
    llama3: by wavelength, as in LLaMA 3.1.
    """

    none = "none"
    linear = "linear"
    yarn = "yarn"
    llama3 = "llama3"


class AttentionBias(Enum):
    """Which projections of attention have biases: all four, only queries, keys and values (Qwen 2), or none."""

    all = "all"
    qkv = "qkv"
    none = "none"


class Task(Enum):
    """What a model is for: translating lines, or going on from a text."""

    translation = "translation"
    language_model = "language_model"


class DataKind(Enum):
    """Pairs of lines to translate, or plain text for a language model."""

    parallel = "parallel"
    text = "text"


class Documents(Enum):
    """What one document of a plain text is: a whole file, what stands between blank lines, or a line."""

    file = "file"
    paragraph = "paragraph"
    line = "line"


class TokenizerKind(Enum):
    """What SentencePiece cuts text into.

    unigram: Pieces of a unigram language model (Kudo 2018). bpe: Byte-pair encoding (Sennrich et al. 2016). char: One
    character each.
    """

    unigram = "unigram"
    bpe = "bpe"
    char = "char"


class PenaltyForm(Enum):
    """Divisor of a hypothesis' log-probability: ((5 + length) / 6)^p, length^p, or 1."""

    gnmt = "gnmt"
    power = "power"
    none = "none"


class LongLines(Enum):
    """What to do with an input line that has more pieces than `max_source_length`."""

    error = "error"
    truncate = "truncate"
    split = "split"


class Precision(Enum):
    """Number format of the training arithmetic; weights stay float32 in both."""

    fp32 = "fp32"
    bf16_mixed = "bf16_mixed"


class Accelerator(Enum):
    """Kind of device that training runs on."""

    auto = "auto"
    cpu = "cpu"
    gpu = "gpu"
    mps = "mps"


class Direction(Enum):
    """Whether a smaller or a larger value of the monitored metric is better."""

    min = "min"
    max = "max"


class FinalWeights(Enum):
    """Which weights the bundle at the end of a run holds."""

    best = "best"
    last = "last"
    average = "average"
