"""What translates: one bundle or several, by torch, by code that it has compiled or by CTranslate2, on which device."""

from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Annotated, Any

import typer

from seq2seq.cli import UsageError
from seq2seq.cli.machine import use_threads
from seq2seq.cli.search_options import MACHINE, Device, Threads, chosen
from seq2seq.config import Average, DecodeConfig
from seq2seq.config import Compute as TorchCompute

ENSEMBLE = "Several models as one"

if TYPE_CHECKING:
    from seq2seq.translator import Translator
    from seq2seq.translator.line_translator import LineTranslator


class Backend(Enum):
    """The program that computes."""

    torch = "torch"
    aoti = "aoti"
    ctranslate2 = "ctranslate2"


class Compute(Enum):
    """The numbers that the weights are kept in."""

    float32 = "float32"
    float16 = "float16"
    bfloat16 = "bfloat16"
    int16 = "int16"
    int8 = "int8"


@dataclass(frozen=True)
class EngineOptions:
    """By what is translated, and where that is computed, as typed."""

    ensemble: Annotated[
        list[str] | None,
        typer.Option(
            metavar="BUNDLE",
            help="Another model that predicts together with the first one; several times for several. All must have "
            "the same tokenizers.",
            rich_help_panel=ENSEMBLE,
        ),
    ] = None
    weights: Annotated[
        str | None,
        typer.Option(
            metavar="W,W,...",
            help="How much each model counts, the first one first. Default: all alike.",
            rich_help_panel=ENSEMBLE,
        ),
    ] = None
    average: Annotated[Average, typer.Option(help="What the mean is taken of.", rich_help_panel=ENSEMBLE)] = (
        Average.probability
    )
    backend: Annotated[
        Backend,
        typer.Option(
            help="torch; aoti, which runs code that `seq2seq convert --to aoti` has compiled into the bundle (take "
            "bundles only that you trust); or the C++ engine CTranslate2 (extra `ctranslate2`), for which the model is "
            "converted once.",
            rich_help_panel=MACHINE,
        ),
    ] = Backend.torch
    compute: Annotated[
        Compute,
        typer.Option(
            help="Numbers that the weights are multiplied in; int8 and bfloat16 are faster on CPUs, and less exact.",
            rich_help_panel=MACHINE,
        ),
    ] = Compute.float32
    device: Device = "auto"
    devices: Annotated[
        int,
        typer.Option(
            help="So many processes share the work: a GPU each, or on a CPU the threads between them.",
            rich_help_panel=MACHINE,
        ),
    ] = 1
    threads: Threads = None

    @property
    def place(self) -> str:
        """The device, which for compiled code is the CPU unless another one was typed."""
        return "cpu" if self.backend is Backend.aoti and self.device == "auto" else self.device

    def check(self) -> None:
        """Refuse what cannot be.

        Raises:
            UsageError: for a number of processes that is not positive, or numbers that torch does not compute with.
        """
        if self.ensemble is None and (self.weights is not None or self.average is not Average.probability):
            raise UsageError(
                f"--{'average' if self.weights is None else 'weights'} is for models that predict together; give "
                "--ensemble BUNDLE too"
            )
        self.numbers()
        if self.devices < 1:
            raise UsageError(f"--devices {self.devices} is not positive; give at least 1")
        if self.devices > 1 and ":" in self.device:
            raise UsageError(
                f"--device {self.device} is one device, --devices {self.devices} asks for several; give --device "
                f"{self.device.split(':')[0]}"
            )
        if self.backend is Backend.ctranslate2 and self.ensemble is not None:
            raise UsageError("--ensemble is not something that CTranslate2 has; leave --backend ctranslate2 out")
        if self.backend is not Backend.ctranslate2 and self.compute.name not in TorchCompute.__members__:
            raise UsageError(
                f"--compute {self.compute.name} is for --backend ctranslate2; torch computes in "
                f"{', '.join(TorchCompute.__members__)} here"
            )

    def numbers(self) -> list[float] | None:
        """The weights of an ensemble.

        Raises:
            UsageError: if they are no numbers.
        """
        if self.weights is None:
            return None
        try:
            return [float(word) for word in self.weights.split(",")]
        except ValueError:
            raise UsageError(
                f"--weights {self.weights} is not a list of numbers; expected such as 2,1,1, one for each model"
            ) from None


def load_engine(
    model: str, options: EngineOptions, decode: DecodeConfig, *, one_by_one: bool = False, details: bool = True
) -> "LineTranslator":
    """What translates with the bundle at `model`.

    Args:
        model: The bundle.
        options: Where and by what is computed.
        decode: How translations are searched for.
        one_by_one: Whether each line is to be answered before the next one.
        details: Whether scores and log-probabilities are needed.

    Raises:
        ValueError: for options that do not fit together, or an unknown device.
        FileNotFoundError: if there is no bundle.
    """
    use_threads(options.threads)
    if options.backend is Backend.ctranslate2:
        from seq2seq.translator.ctranslate2_engine import CTranslate2Engine

        return CTranslate2Engine.load(
            model,
            decode,
            compute=options.compute.name,
            device=options.device,
            threads=options.threads,
            one_by_one=one_by_one,
            details=details,
        )
    from seq2seq.translator import Translator

    return Translator.load(
        (model, *(options.ensemble or ())),
        options.device,
        compute=TorchCompute[options.compute.name],
        weights=options.numbers(),
        average=options.average,
        decode=decode,
        compiled=options.backend is Backend.aoti,
        details=details,
    )


def bundle_decode(model: str, given: dict[str, Any]) -> DecodeConfig:
    """The search options of the bundle at `model`, those that were given in place of its own.

    Raises:
        ValueError: for options that do not fit together, or a damaged bundle.
        FileNotFoundError: if there is no bundle.
    """
    from seq2seq.bundle import read_config
    from seq2seq.config import from_dict

    return chosen(from_dict(DecodeConfig, read_config(model)["decode"], where="decode."), given)


def load_translator(
    model: str, given: dict[str, Any], device: str = "auto", threads: int | None = None
) -> "Translator":
    """The bundle's translator, with the search options that were given, and are not None, in place of its own.

    Raises:
        ValueError: for options that do not fit together, or an unknown device.
        FileNotFoundError: if there is no bundle.
    """
    use_threads(threads)

    from seq2seq.translator import Translator

    typed = {name: value for name, value in given.items() if value is not None}
    return Translator.load(model, device, decode=bundle_decode(model, typed))
