"""Every option of the package: its name, unit, default and check, declared once.

Hydra composes the YAML files under ``conf/`` against these dataclasses, Python users build them directly, and a
bundle's ``config.json`` is read back through `from_dict`. A default stands here and nowhere else; an option that has
none (the sizes of a model, the files of a corpus) must be given. Choices are enums whose member names are the words
that users type.
"""

from seq2seq.config.choices import (
    Accelerator,
    Activation,
    Architecture,
    AttentionBias,
    Average,
    BatchTokens,
    Compute,
    DataKind,
    Direction,
    Documents,
    FinalWeights,
    GradientThrough,
    LongLines,
    MixingChoice,
    MixingSchedule,
    NormKind,
    NormPlacement,
    OptimizerKind,
    PenaltyForm,
    PositionKind,
    Precision,
    Replacement,
    RopeScaling,
    ScheduleKind,
    StopKind,
    Strategy,
    Task,
    TokenizerKind,
    Tying,
    Utility,
)
from seq2seq.config.data import DataConfig, TokenizerConfig
from seq2seq.config.decode import DecodeConfig
from seq2seq.config.generate import GenerateConfig
from seq2seq.config.model import ModelConfig, RopeConfig
from seq2seq.config.optim import DECAYING, OptimConfig, ScheduledSamplingConfig
from seq2seq.config.plain import from_dict, nearest, option_name, to_dict
from seq2seq.config.trainer import MAX_THREADS, TrainerConfig
from seq2seq.config.training import InitConfig, TrainConfig

__all__ = [
    "DECAYING",
    "MAX_THREADS",
    "Accelerator",
    "Activation",
    "Architecture",
    "AttentionBias",
    "Average",
    "BatchTokens",
    "Compute",
    "DataConfig",
    "DataKind",
    "DecodeConfig",
    "Direction",
    "Documents",
    "FinalWeights",
    "GenerateConfig",
    "GradientThrough",
    "InitConfig",
    "LongLines",
    "MixingChoice",
    "MixingSchedule",
    "ModelConfig",
    "NormKind",
    "NormPlacement",
    "OptimConfig",
    "OptimizerKind",
    "PenaltyForm",
    "PositionKind",
    "Precision",
    "Replacement",
    "RopeConfig",
    "RopeScaling",
    "ScheduleKind",
    "ScheduledSamplingConfig",
    "StopKind",
    "Strategy",
    "Task",
    "TokenizerConfig",
    "TokenizerKind",
    "TrainConfig",
    "TrainerConfig",
    "Tying",
    "Utility",
    "from_dict",
    "nearest",
    "option_name",
    "to_dict",
]
