"""The optimiser of a run."""

from collections.abc import Mapping, Sequence
from typing import Any

from torch import nn
from torch.optim import Adafactor, Adam, AdamW, Optimizer

from seq2seq.config import OptimConfig, OptimizerKind
from seq2seq.models import Transformer
from seq2seq.training.muon import MuonWithAdamW, stacked_rows
from seq2seq.training.schedule import peak_rate


def build_optimizer(model: Transformer, optim: OptimConfig, *, fused: bool) -> Optimizer:
    """The optimiser of a network's trained parameters; each tied matrix is one parameter, frozen ones are left out.

    Its learning rates are set before every step by `set_rate`. Weight decay is decoupled and spares norms, biases and
    embeddings, learned positions and an output matrix that is tied to an embedding among them.

    Args:
        model: The network.
        optim: Kind and constants.
        fused: Whether one kernel does a whole step, where torch has one.

    Raises:
        ValueError: if this version of torch has no such optimiser, or there is nothing that it could train.

    Source:
        adam: Kingma and Ba 2015, arXiv:1412.6980, as in Vaswani et al. 2017, arXiv:1706.03762, section 5.3.
        adamw: Loshchilov and Hutter 2019, arXiv:1711.05101, algorithm 2; as in torch, the decay of a step is the
        learning rate times `weight_decay`. adafactor: Shazeer and Stern 2018, arXiv:1804.04235, algorithms 4 and 5
        without momentum: a step is relative to the root mean square of what is trained, at least 0.001, and its rate is
        the schedule's up to 1 / sqrt(step), where the paper has 0.01 in the schedule's place; the norm of all
        gradients together is clipped too, if `clip_norm` is set. muon: `MuonWithAdamW`.
    """
    matrices, others, spared = _groups(model)
    adam: dict[str, Any] = {"betas": (optim.beta1, optim.beta2), "eps": optim.eps, "fused": fused}
    decay: dict[str, Any] = {"weight_decay": optim.weight_decay}
    groups = _named_groups(decayed=[*matrices, *others], spared=spared)
    optimizer: Optimizer
    if optim.optimizer is OptimizerKind.adam:
        optimizer = Adam([parameter for parameter in model.parameters() if parameter.requires_grad], lr=0.0, **adam)
    elif optim.optimizer is OptimizerKind.adamw:
        optimizer = AdamW(groups, lr=0.0, **adam, **decay)
    elif optim.optimizer is OptimizerKind.adafactor:
        optimizer = Adafactor(groups, lr=0.0, **decay)
    elif not matrices:
        raise ValueError(
            "optim.optimizer=muon trains the matrices of the layers, and init.freeze_* leaves none of them; choose "
            "optim.optimizer=adamw"
        )
    else:
        optimizer = MuonWithAdamW(
            matrices,
            _named_groups(decayed=others, spared=spared),
            muon={"momentum": optim.muon_momentum, **decay},
            adamw={**adam, **decay},
            stacked=stacked_rows(model),
        )
    for group in optimizer.param_groups:
        group["optimizer"] = optim.optimizer.name
        if group.get("name") == "spared":
            group["weight_decay"] = 0.0
        if group.get("name") == "matrices":
            group["rate_scale"] = optim.muon_lr / peak_rate(optim, model.output.shape[1])
    _keep_options(optimizer)
    return optimizer


def set_rate(groups: Sequence[dict[str, Any]], rate: float) -> None:
    """Have the next step taken with this learning rate; muon's matrices follow the same curve up to `muon_lr`.

    Args:
        groups: The `param_groups` of the optimiser.
        rate: Of the schedule.
    """
    for group in groups:
        group["lr"] = rate * group.get("rate_scale", 1.0)


def _groups(model: Transformer) -> tuple[list[nn.Parameter], list[nn.Parameter], list[nn.Parameter]]:
    """The trained parameters, each once, in the network's order: the layers' matrices, an output matrix of its own, and
    what weight decay spares.

    By the module that has them and not by their shapes, which are others where devices divide them.
    """
    layers = {id(module.weight) for module in model.modules() if isinstance(module, nn.Linear)}
    tables = {id(module.weight) for module in model.modules() if isinstance(module, nn.Embedding)}
    matrices: list[nn.Parameter] = []
    others: list[nn.Parameter] = []
    spared: list[nn.Parameter] = []
    for parameter in model.parameters():
        if not parameter.requires_grad:
            continue
        if id(parameter) in layers:
            matrices.append(parameter)
        elif parameter is model.output and id(parameter) not in tables:
            others.append(parameter)
        else:
            spared.append(parameter)
    return matrices, others, spared


def _named_groups(**groups: list[nn.Parameter]) -> list[dict[str, Any]]:
    """Groups for an optimiser; those that nothing is in are left out."""
    return [{"params": parameters, "name": name} for name, parameters in groups.items() if parameters]


def _keep_options(optimizer: Optimizer) -> None:
    """Have a resumed run go on with the constants that its options say, not with those of the checkpoint."""
    own = [{name: value for name, value in group.items() if name != "params"} for group in optimizer.param_groups]

    def put_back(optimizer: Optimizer) -> None:
        for group, options in zip(optimizer.param_groups, own, strict=True):
            group.update(options)

    optimizer.register_load_state_dict_post_hook(put_back)


def check_same_optimizer(state: Mapping[str, Any], optim: OptimConfig, path: str) -> None:
    """Refuse to go on with another optimiser than that of a checkpoint, whose state it could not use.

    Args:
        state: The optimiser's state in the checkpoint.
        optim: What the options ask for.
        path: The checkpoint, for the message.

    Raises:
        ValueError: naming both.
    """
    found = state["param_groups"][0].get("optimizer", OptimizerKind.adam.name)  # in those of before there is no other
    if found != optim.optimizer.name:
        raise ValueError(
            f"resume={path} was trained with optim.optimizer={found}, the options say {optim.optimizer.name}, which "
            f"cannot use its state; give optim.optimizer={found}"
        )
