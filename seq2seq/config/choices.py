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


class Utility(Enum):
    """How minimum Bayes risk decoding measures that two translations are alike; none: the most probable ones are taken.

    chrf: chrF2 (Popovic 2015). bleu: sentence BLEU with exponential smoothing (Papineni et al. 2002).
    """

    none = "none"
    chrf = "chrf"
    bleu = "bleu"


class Average(Enum):
    """What an ensemble takes the mean of.

    probability: of the members' probabilities. log_probability: of their log-probabilities, renormalised, so that a
    piece which one member thinks impossible is so.
    """

    probability = "probability"
    log_probability = "log_probability"


class LongLines(Enum):
    """What to do with an input line that has more pieces than `max_source_length`."""

    error = "error"
    truncate = "truncate"
    split = "split"


class Precision(Enum):
    """Number format of the training arithmetic.

    fp32: float32 throughout. bf16_mixed, fp16_mixed: products in half precision, weights and their optimiser state in
    float32 (Micikevicius et al. 2018); fp16 scales the loss, since its range is small. bf16_true: weights in bfloat16
    too.
    """

    fp32 = "fp32"
    bf16_mixed = "bf16_mixed"
    fp16_mixed = "fp16_mixed"
    bf16_true = "bf16_true"


class Strategy(Enum):
    """How several devices train one model.

    auto: ddp where there is more than one device. ddp: each has the whole model, gradients are averaged. fsdp: weights,
    gradients and optimiser state are divided among them (Zhao et al. 2023, arXiv:2304.11277).
    """

    auto = "auto"
    ddp = "ddp"
    fsdp = "fsdp"


class BatchTokens(Enum):
    """given: a batch holds `data.batch_tokens`. auto: as many as fit into memory, found by trying before training."""

    given = "given"
    auto = "auto"


class OptimizerKind(Enum):
    """Rule by which gradients become steps.

    adam: Kingma and Ba 2015, the paper's. adamw: with decoupled weight decay (Loshchilov and Hutter 2019). adafactor:
    second moments by rows and columns (Shazeer and Stern 2018). muon: orthogonalised momentum for the matrices of the
    layers (Jordan et al. 2024), AdamW for the rest.
    """

    adam = "adam"
    adamw = "adamw"
    adafactor = "adafactor"
    muon = "muon"


class ScheduleKind(Enum):
    """Learning rate after the linear warm-up that all but `noam` share with it.

    noam: the paper's inverse square root, scaled by d_model. inverse_sqrt: the same curve, its peak given. linear,
    cosine: down to the last step. warmup_stable_decay: constant, then down linearly over the last part. constant: no
    decay.
    """

    noam = "noam"
    inverse_sqrt = "inverse_sqrt"
    linear = "linear"
    cosine = "cosine"
    warmup_stable_decay = "warmup_stable_decay"
    constant = "constant"


class MixingSchedule(Enum):
    """How the share of replaced target pieces rises from 0 at `start_step` to `rate` at `end_step`.

    constant: at once. linear, exponential, inverse_sigmoid: the decays of the share of right pieces of Bengio et al.
    2015, arXiv:1506.03099, section 2.4.
    """

    constant = "constant"
    linear = "linear"
    exponential = "exponential"
    inverse_sigmoid = "inverse_sigmoid"


class Replacement(Enum):
    """What stands in the place of a replaced target piece.

    argmax: the most probable piece. sample: one drawn from the model's distribution. mixture: the mean of all
    embeddings, weighted by their probabilities.
    """

    argmax = "argmax"
    sample = "sample"
    mixture = "mixture"


class MixingChoice(Enum):
    """Which target pieces are replaced.

    random: each with the same probability. confidence: those of which the model is sure; where it is surest, a random
    piece of the sentence stands in (Liu et al. 2021, arXiv:2107.10427).
    """

    random = "random"
    confidence = "confidence"


class GradientThrough(Enum):
    """Which of the passes of scheduled sampling learn: the last one, or all of them."""

    last = "last"
    all = "all"


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


class StopKind(Enum):
    """How `seq2seq verify-resume` stops the run that it resumes."""

    steps = "steps"
    """At a limit of steps, with a validation that the straight run does not have."""
    validation = "validation"
    """At a limit of steps, right after a validation that the straight run has too."""
    signal = "signal"
    """By SIGTERM, in the middle of an epoch and without a validation."""


class Compute(Enum):
    """In which numbers a loaded model multiplies by its weights, on a CPU. All else is float32."""

    float32 = "float32"
    """As it was trained."""
    bfloat16 = "bfloat16"
    """Products of numbers rounded to 8 bits of precision, added up in float32; on CPUs with bfloat16 instructions."""
    int8 = "int8"
    """Products of 8-bit integers, a scale for each row of the weights and for each input: a quarter of the memory."""
