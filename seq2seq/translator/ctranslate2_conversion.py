"""A bundle as CTranslate2 reads it, made once for each kind of weights and kept beside them.

bundle/ctranslate2/int8-0123456789ab/    model.bin, config.json, vocabularies; the number is that of the bundle's files
"""

from pathlib import Path
from typing import Any

from seq2seq.bundle import load_bundle, read_config
from seq2seq.config import Architecture, ModelConfig, Task, from_dict
from seq2seq.interop.ctranslate2 import check_exportable, export_ctranslate2, is_ctranslate2
from seq2seq.translator.checksums import bundle_checksum

FOLDER = "ctranslate2"
"""Of the bundle: where conversions are kept."""


def converted(path: str | Path, compute: str) -> Path:
    """The folder with the bundle's model as CTranslate2 reads it, which is made if it is not there.

    Raises:
        FileNotFoundError: if `path` is not a bundle.
        ValueError: if the model is not one that CTranslate2 computes, or the folder of the bundle cannot be written.
    """
    config = read_config(path)
    model_config = from_dict(ModelConfig, config["model"], where="model.")
    if config["task"] != Task.translation.name or model_config.architecture is not Architecture.encoder_decoder:
        raise ValueError(
            f"{path} is a model with one stack, and the backend ctranslate2 is for encoder-decoders; leave it out, or "
            "convert the model with `seq2seq convert --to ctranslate2` and use it as the README there says"
        )
    check_exportable(model_config)
    folder = Path(path) / FOLDER / f"{compute}-{bundle_checksum(path)[:12]}"
    if is_ctranslate2(folder):
        return folder
    quantization = None if compute == "float32" else compute
    try:
        folder.parent.mkdir(exist_ok=True)
        export_ctranslate2(load_bundle(path), folder, quantization)
    except OSError as error:
        if is_ctranslate2(folder):  # another process was faster
            return folder
        raise ValueError(
            f"the model could not be converted into {folder.parent} ({error.strerror}); make that folder writable, or "
            "copy the bundle to where you may write"
        ) from error
    return folder


def library() -> Any:
    """The package ctranslate2.

    Raises:
        ValueError: if it is not installed.
    """
    try:
        import ctranslate2
    except ImportError as error:
        raise ValueError(
            "the backend ctranslate2 needs the package ctranslate2; pip install 'seq2seq[ctranslate2]'"
        ) from error
    return ctranslate2
