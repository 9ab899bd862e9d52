"""The tensors of a Hugging Face folder: read into a model by a family's table, and written from one."""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file

from seq2seq.config import ModelConfig
from seq2seq.interop.families import Family
from seq2seq.interop.families_weights import Layout, Size
from seq2seq.models import Transformer
from seq2seq.nn.positions import sinusoids
from seq2seq.shapes import Tensor

SINGLE, INDEX = "model.safetensors", "model.safetensors.index.json"
_DTYPES = {torch.float32: "float32", torch.float16: "float16", torch.bfloat16: "bfloat16"}
_NAMED = {name: dtype for dtype, name in _DTYPES.items()}


class TensorFiles(Mapping[str, Tensor]):
    """The tensors in a folder's safetensors files, each read from disk when it is asked for.

    Args:
        folder: With model.safetensors, or its parts and their index.
        prefix: What their names begin with; put in front where none of them does.

    Raises:
        FileNotFoundError: if there are no such files, or a part is missing.
        ValueError: if a file is damaged, or the weights are pickled.
    """

    def __init__(self, folder: Path, prefix: str = "") -> None:
        names = [SINGLE]
        if (folder / INDEX).is_file():
            names = _parts(folder / INDEX)
        elif not (folder / SINGLE).is_file():
            raise FileNotFoundError(_without_weights(folder))
        self._files: dict[str, safe_open] = {}
        for name in names:
            if not (folder / name).is_file():
                raise FileNotFoundError(f"{folder / name} is missing; {INDEX} says that it holds a part of the weights")
            try:
                file = safe_open(folder / name, framework="pt")
            except SafetensorError as problem:
                raise ValueError(
                    f"{folder / name} is damaged ({problem}); expected a safetensors file, download it again"
                ) from problem
            self._files |= dict.fromkeys(list(file.keys()), file)  # type: ignore[no-untyped-call]

        names_in_files = {name: name for name in self._files}
        if not any(name.startswith(prefix) for name in names_in_files):
            names_in_files = {name if name == "lm_head.weight" else prefix + name: name for name in self._files}
        self._names_in_files = names_in_files

    def __getitem__(self, name: str) -> Tensor:
        stored = self._names_in_files[name]
        tensor: Tensor = self._files[stored].get_tensor(stored)  # type: ignore[no-untyped-call]
        return tensor

    def __iter__(self) -> Iterator[str]:
        return iter(self._names_in_files)

    def __len__(self) -> int:
        return len(self._files)


def _parts(index: Path) -> list[str]:
    """The files that an index names."""
    try:
        return sorted(set(json.loads(index.read_text(encoding="utf-8"))["weight_map"].values()))
    except (ValueError, KeyError, TypeError, AttributeError) as problem:
        raise ValueError(f"{index} is damaged: {problem!r}; expected JSON with a weight_map") from problem


def _without_weights(folder: Path) -> str:
    pickled = sorted(file.name for file in folder.glob("pytorch_model*.bin*"))
    if not pickled:
        return f"{folder} has no {SINGLE}; expected the weights of a Hugging Face model"
    return (
        f"{folder} has its weights in {pickled[0]}, which is a pickle and could run code when it is loaded; this "
        "package reads safetensors only. Convert it where you trust it, with the package transformers: "
        "AutoModel(ForSeq2SeqLM or ForCausalLM).from_pretrained(folder).save_pretrained(new_folder)"
    )


def fill(model: Transformer, config: ModelConfig, family: Family, tensors: Mapping[str, Tensor]) -> dict[str, str]:
    """Put the tensors into the model, in its own precision.

    Returns:
        The precision of each tensor that was used, by its name.

    Raises:
        ValueError: if a tensor is missing, has another shape than the options say, is in a precision that would lose
            something, is left over, or contradicts the tying.
    """
    parameters = dict(model.named_parameters(remove_duplicate=False))
    stored: dict[str, str] = {}
    filled = set()
    for weight in family.weights(config):
        parameter = parameters[weight.ours]
        parts = []
        for name, ours in zip(weight.theirs, split(parameter, len(weight.theirs), config), strict=True):
            part = _take(tensors, name, _theirs(ours, weight.layout).shape)
            stored[name] = _DTYPES[part.dtype]
            parts.append(_ours(part, weight.layout))
        with torch.no_grad():
            parameter.copy_(torch.cat(parts))
        filled.add(id(parameter))
    assert all(id(parameter) in filled for parameter in model.parameters()), (
        "a parameter that no row of the table fills"
    )
    _check_rest(model, family, tensors, stored)
    return stored


def _take(tensors: Mapping[str, Tensor], name: str, shape: torch.Size) -> Tensor:
    if name not in tensors:
        raise ValueError(f"tensor {name} is missing; config.json says that the model has it")
    tensor = tensors[name]
    if tensor.shape != shape:
        raise ValueError(
            f"tensor {name} has shape {list(tensor.shape)}, config.json and the tokenizer say {list(shape)}; expected "
            "files of one model"
        )
    if tensor.dtype not in _DTYPES:
        raise ValueError(
            f"tensor {name} is {str(tensor.dtype).removeprefix('torch.')}; this package reads {', '.join(_NAMED)}, so "
            "save the model in one of them"
        )
    return tensor


def _check_rest(model: Transformer, family: Family, tensors: Mapping[str, Tensor], used: Mapping[str, str]) -> None:
    """Refuse tensors that were not used, unless they are what the model computes anyway."""
    for name in sorted(set(tensors) - set(used)):
        if not family.left_out.fullmatch(name):
            raise ValueError(
                f"tensor {name} has no place in a {family.model_type} model with these options; expected a "
                f"{family.class_name}"
            )
        if name.endswith("embed_positions.weight"):
            theirs = tensors[name].float()
            if not torch.allclose(theirs, sinusoids(theirs.shape[0], theirs.shape[1], True).float(), atol=1e-3):
                raise ValueError(f"tensor {name} is not the table of sinusoids; this package computes with those")
        copied = name.endswith(("lm_head.weight", "embed_tokens.weight"))
        if copied and not torch.equal(tensors[name].float(), model.output.float()):
            raise ValueError(
                f"tensor {name} differs from the one that config.json says it is tied to; set "
                "tie_word_embeddings=false if it is meant to be a weight of its own"
            )


def tensors_of(model: Transformer, config: ModelConfig, family: Family) -> dict[str, Tensor]:
    """The model's weights under the family's names, in its layout, each with memory of its own."""
    parameters = dict(model.named_parameters(remove_duplicate=False))
    tensors = {}
    for weight in family.weights(config):
        if weight.ours in parameters:
            parameter = parameters[weight.ours].detach()
        else:
            assert weight.zeros is not None, f"a model without {weight.ours}"
            parameter = torch.zeros(model.output.shape[0 if weight.zeros is Size.rows else 1])
        parts = split(parameter, len(weight.theirs), config)
        for name, part in zip(weight.theirs, parts, strict=True):
            tensors[name] = _theirs(part, weight.layout).to("cpu", copy=True).contiguous()
    return tensors


def in_precision(tensors: Mapping[str, Tensor], stored: Mapping[str, str]) -> dict[str, Tensor]:
    """Each tensor in the precision it was stored in, or in float32 where that would lose something.

    What was imported in half precision and not trained since is written as it was read.

    Args:
        tensors: By name.
        stored: Precision of each at the time of the import; a name that is not there means float32.
    """
    written = {}
    for name, tensor in tensors.items():
        half = tensor.to(_NAMED[stored.get(name, "float32")])
        written[name] = half if torch.equal(half.float(), tensor.float()) else tensor.float()
    return written


def write_tensors(tensors: Mapping[str, Tensor], folder: Path) -> None:
    """Write model.safetensors.

    Raises:
        OSError: if it cannot be written.
    """
    try:
        save_file(dict(tensors), folder / SINGLE, metadata={"format": "pt"})
    except SafetensorError as problem:  # its word for a full disk and the like
        raise OSError(f"{folder / SINGLE} could not be written ({problem}); is the disk full?") from problem


def split(tensor: Tensor, parts: int, config: ModelConfig) -> list[Tensor]:
    """The rows of queries, keys and values (three parts), of two equal halves, or all."""
    query, key = config.num_heads * config.head_width, config.kv_heads * config.head_width
    return list(torch.split(tensor, [query, key, key] if parts == 3 else len(tensor) // parts))


def _ours(tensor: Tensor, layout: Layout) -> Tensor:
    if layout is Layout.row:
        return tensor.flatten()
    return tensor.T if layout is Layout.transposed and tensor.dim() == 2 else tensor


def _theirs(tensor: Tensor, layout: Layout) -> Tensor:
    return tensor[None] if layout is Layout.row else _ours(tensor, layout)
