"""Options of the loss, the optimiser, the learning rate, and of scheduled sampling."""

from dataclasses import dataclass

from seq2seq.config.checks import not_negative, positive, probability, require
from seq2seq.config.choices import (
    GradientThrough,
    MixingChoice,
    MixingSchedule,
    OptimizerKind,
    Replacement,
    ScheduleKind,
)

DECAYING = (ScheduleKind.linear, ScheduleKind.cosine, ScheduleKind.warmup_stable_decay)
"""Schedules that go down towards a last step."""


@dataclass(frozen=True)
class OptimConfig:
    """Loss, optimiser and learning-rate schedule (paper, sections 5.3 and 5.4)."""

    optimizer: OptimizerKind = OptimizerKind.adam
    """Rule by which gradients become steps."""
    schedule: ScheduleKind = ScheduleKind.noam
    """Learning rate after the warm-up."""
    warmup_steps: int = 1000
    """Optimiser steps of linear warm-up, which Post-LN stacks need; the paper's own is 4000, for 100,000 steps. 0,
    which noam cannot do, begins with the highest rate."""
    lr_factor: float = 1.0
    """noam: multiplies d_model^-0.5 * min(step^-0.5, step * warmup_steps^-1.5)."""
    lr: float | None = None
    """All schedules but noam: the highest learning rate; null is the one that noam reaches. adafactor's are shares of
    the size of what is trained, so that 0.01 is usual."""
    total_steps: int | None = None
    """linear, cosine, warmup_stable_decay: the step at which the decay ends; null is where trainer.max_steps or
    trainer.max_epochs ends the run."""
    min_lr_ratio: float = 0.0
    """linear, cosine, warmup_stable_decay: the last learning rate, as a share of the highest."""
    decay_share: float = 0.2
    """warmup_stable_decay: the share of all steps over which the rate goes down."""
    beta1: float = 0.9
    """Adam's decay of the first moment."""
    beta2: float = 0.98
    """Adam's decay of the second moment."""
    eps: float = 1e-9
    """Adam's denominator floor."""
    weight_decay: float = 0.0
    """adamw, adafactor, muon: share of a weight that a step of learning rate 1 takes away; norms, biases and embeddings
    are spared."""
    muon_lr: float = 0.02
    """muon: the highest learning rate of the matrices; it follows the schedule's curve."""
    muon_momentum: float = 0.95
    """muon: decay of the momentum."""
    label_smoothing: float | None = None
    """Probability mass spread evenly over the whole vocabulary (Szegedy et al. 2016, section 7); null is the paper's
    0.1 for translation and 0 for a language model."""
    clip_norm: float | None = 1.0
    """Gradients are scaled down to this joint 2-norm; null is off."""
    skip_norm: float | None = None
    """A step whose gradients have a larger joint 2-norm is skipped and counted, as one whose gradients are not finite
    always is; null skips no other ones. The usual norms are in the log as train/grad_norm."""
    max_bad_steps: int = 10
    """Skipped steps in a row before the run ends."""
    loss_on_source: bool = False
    """Decoder-only translation: the pieces of the source are predicted, and counted in the loss, too."""
    loss_chunk: int | None = 2048
    """Target positions whose logits exist at one time; null computes those of a batch at once."""
    ema_decay: float | None = None
    """Validation and the bundle use an exponential moving average of the weights with this decay; null is off."""
    r_drop: float = 0.0
    """Weight of the divergence between two passes with different dropout, the alpha of Wu et al. 2021,
    arXiv:2106.14448, where 5 is usual for translation; 0 is off."""
    source_word_dropout: float = 0.0
    """Probability that a source piece is replaced by <unk> in training."""
    target_word_dropout: float = 0.0
    """Probability that a piece that the decoder is given is replaced by <unk> in training (Bowman et al. 2016)."""

    def __post_init__(self) -> None:
        for name in ("lr_factor", "eps", "muon_lr", "max_bad_steps"):
            positive(name, getattr(self, name))
        for name in ("lr", "total_steps", "clip_norm", "skip_norm", "loss_chunk"):
            if getattr(self, name) is not None:
                positive(name, getattr(self, name))
        for name in ("beta1", "beta2", "muon_momentum", "source_word_dropout", "target_word_dropout"):
            probability(name, getattr(self, name))
        for name in ("label_smoothing", "ema_decay"):
            if getattr(self, name) is not None:
                probability(name, getattr(self, name))
        for name in ("weight_decay", "r_drop"):
            not_negative(name, getattr(self, name))
        require(
            self.weight_decay == 0 or self.optimizer is not OptimizerKind.adam,
            f"optim.weight_decay={self.weight_decay} is not for optim.optimizer=adam; choose optim.optimizer=adamw",
        )
        self._check_schedule()

    def _check_schedule(self) -> None:
        """Refuse a curve that is none, or an option that the curve does not have."""
        require(self.warmup_steps >= 0, f"warmup_steps={self.warmup_steps} is negative")
        require(
            self.warmup_steps >= 1 or self.lr is not None,
            "optim.warmup_steps=0 leaves noam's learning rate, which optim.lr=null stands for too, without a peak; "
            "choose 1 or more, or another optim.schedule with optim.lr",
        )
        require(0 <= self.min_lr_ratio <= 1, f"min_lr_ratio={self.min_lr_ratio} is no share; choose 0 to 1")
        require(0 < self.decay_share <= 1, f"decay_share={self.decay_share} is no share; choose more than 0, up to 1")
        require(
            self.lr is None or self.schedule is not ScheduleKind.noam,
            f"optim.lr={self.lr} is not for optim.schedule=noam, whose height optim.lr_factor sets; choose "
            "optim.schedule=inverse_sqrt, the same curve with its peak given",
        )
        decaying = self.schedule in DECAYING
        for option, unused in (("total_steps", self.total_steps is None), ("min_lr_ratio", self.min_lr_ratio == 0)):
            require(
                decaying or unused,
                f"optim.{option}={getattr(self, option)} is not for optim.schedule={self.schedule.name}, which has no "
                "end; choose linear, cosine or warmup_stable_decay",
            )
        require(
            self.total_steps is None or self.total_steps > self.warmup_steps,
            f"optim.total_steps={self.total_steps} is over before optim.warmup_steps={self.warmup_steps}; choose more",
        )


MOST_PASSES = 100
"""As many pieces as a long sentence has; further passes would change nothing in it."""


@dataclass(frozen=True)
class ScheduledSamplingConfig:
    """Target pieces that the decoder is given in training, in part replaced by what the model itself predicts."""

    rate: float = 0.0
    """Share of pieces replaced at the end of the schedule, each or not for itself; 0 is plain teacher forcing."""
    schedule: MixingSchedule = MixingSchedule.linear
    """How the share rises."""
    start_step: int = 0
    """Optimiser step up to which nothing is replaced."""
    end_step: int = 10_000
    """Optimiser step from which on the share is `rate`; constant needs none."""
    replacement: Replacement = Replacement.argmax
    """What stands in the place of a replaced piece; never BOS, EOS or padding."""
    temperature: float = 1.0
    """sample, mixture: divides the logits."""
    passes: int = 2
    """Passes of the decoder a batch, each but the first on what the one before predicts (Duckworth et al. 2019)."""
    gradient: GradientThrough = GradientThrough.last
    """Which passes learn; with `all` their losses are averaged, and gradients go through mixtures."""
    choice: MixingChoice = MixingChoice.random
    """Which pieces are replaced; by confidence, a piece that the rule replaces is with the schedule's share."""
    sure: float = 0.9
    """confidence: probability of the right piece above which the prediction stands in."""
    surest: float = 0.95
    """confidence: probability of the right piece above which a random piece of the sentence stands in."""

    def __post_init__(self) -> None:
        require(0 <= self.rate <= 1, f"rate={self.rate} is no share of the target's pieces; choose 0 to 1")
        require(self.start_step >= 0, f"start_step={self.start_step} is negative")
        require(
            self.end_step >= self.start_step or self.schedule is MixingSchedule.constant,
            f"end_step={self.end_step} is before start_step={self.start_step}; choose a later one",
        )
        positive("temperature", self.temperature)
        require(self.passes >= 2, f"passes={self.passes} leaves none for the predictions; choose 2 or more")
        require(
            self.passes <= MOST_PASSES,
            f"passes={self.passes} are more than {MOST_PASSES}, and each costs as much as the one before; choose fewer",
        )
        require(
            0 <= self.sure <= self.surest <= 1,
            f"sure={self.sure} and surest={self.surest} are no probabilities in order; choose 0 <= sure <= surest <= 1",
        )
