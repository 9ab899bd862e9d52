from pathlib import Path

import pytest

from seq2seq.bundle import load_bundle
from seq2seq.cli import UsageError
from seq2seq.cli.engines import Backend, Compute, EngineOptions, load_engine
from seq2seq.config import DecodeConfig
from seq2seq.models import quantized
from seq2seq.models.decoding import TurnedProjection
from seq2seq.models.quantized import BFloat16Linear, Int8Linear
from seq2seq.translator import Translator


@pytest.mark.parametrize(
    ("compute", "layer"),
    [
        (Compute.int8, Int8Linear),
        pytest.param(
            Compute.bfloat16,
            BFloat16Linear,
            marks=pytest.mark.skipif(not quantized._has_bfloat16(), reason="this CPU has no bfloat16 instructions"),
        ),
        (Compute.float32, TurnedProjection),
    ],
)
def test_every_model_multiplies_in_the_numbers_that_were_typed(compute, layer, tiny_bundle_folder: Path):
    options = EngineOptions(ensemble=[str(tiny_bundle_folder)], compute=compute, device="cpu")
    engine = load_engine(str(tiny_bundle_folder), options, DecodeConfig())
    assert isinstance(engine, Translator)
    for bundle in engine.bundles:
        assert isinstance(bundle.model.projection, layer)
    assert load_bundle(tiny_bundle_folder).model.projection is None


def test_numbers_that_torch_does_not_multiply_in_are_refused():
    EngineOptions(compute=Compute.float16, backend=Backend.ctranslate2).check()
    with pytest.raises(
        UsageError, match="float16 is for --backend ctranslate2; torch computes in float32, bfloat16, i"
    ):
        EngineOptions(compute=Compute.float16).check()
