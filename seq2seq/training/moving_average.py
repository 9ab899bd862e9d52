"""An exponential moving average of the weights, which is validated and kept while training goes on with the weights."""

from typing import Any

import torch
from torch import nn
from torch.distributed.tensor import DTensor, distribute_tensor

from seq2seq.shapes import Tensor

HELD_BACK = "weights_under_training"
"""Entry of a checkpoint whose `state_dict` holds averages: the weights that training goes on with, by their names."""


class MovingAverage:
    """average <- d * average + (1 - d) * weights after every step taken, with d = min(decay, (1 + n) / (10 + n)).

    n counts the steps averaged before. The average begins with the first weights; the smaller d of the first steps has
    them soon forgotten. A tied matrix is averaged once, and what is frozen not at all. Half-precision weights have
    float32 averages, in which a decay near 1 does not get lost. Where ranks have a part of each weight, they have the
    same part of its average; a checkpoint holds whole ones.

    Lightning's own callback is not used: it averages in the weights' precision, without a smaller d at the beginning,
    and a checkpoint that an interrupt writes in the middle of a validation holds its two sets of weights changed round.

    Args:
        decay: d, once enough steps are taken; the average looks back over about 1 / (1 - d) steps.

    Source:
        Polyak and Juditsky 1992; Szegedy et al. 2016, arXiv:1512.00567, section 8. The smaller d at the beginning is
        that of TensorFlow's `ExponentialMovingAverage` with `num_updates`.
    """

    def __init__(self, decay: float) -> None:
        self.decay = decay
        self.num_steps = 0
        self.averages: dict[str, Tensor] = {}
        self._held_back: dict[str, Tensor] = {}

    @torch.no_grad()
    def start(self, module: nn.Module) -> None:
        """Begin with a network's weights, unless a checkpoint gave the averages to go on with."""
        for name, weight in _trained(module).items():
            dtype = torch.promote_types(weight.dtype, torch.float32)
            average = _divided(self.averages.get(name, weight), weight)
            # a copy in any case, or training would change the average of the beginning
            self.averages[name] = average.to(weight.device, dtype, copy=True)

    @torch.no_grad()
    def update(self, module: nn.Module) -> None:
        """Take the weights after a step in."""
        decay = min(self.decay, (1 + self.num_steps) / (10 + self.num_steps))
        for name, weight in _trained(module).items():
            average = self.averages[name]
            average.lerp_(weight.to(average.dtype), 1 - decay)
        self.num_steps += 1

    @torch.no_grad()
    def show(self, module: nn.Module) -> None:
        """Have the network compute with the averages until `hide`. Divided weights are so at both calls."""
        assert not self._held_back, "the averages are shown already"
        for name, weight in _trained(module).items():
            self._held_back[name] = weight.clone()
            weight.copy_(self.averages[name])  # in place, as others look at the same memory

    @torch.no_grad()
    def hide(self, module: nn.Module) -> None:
        """Put the weights back, bit for bit."""
        for name, weight in _trained(module).items():
            weight.copy_(self._held_back[name])
        self._held_back = {}

    def save(self, module: nn.Module, checkpoint: dict[str, Any]) -> None:
        """Have a checkpoint hold the averages as its weights, and beside them what training goes on with.

        Args:
            module: What the checkpoint is of; it may be showing the averages. All ranks call this.
            checkpoint: All of it, or weights alone; a new `state_dict` takes the place of the old one.
        """
        trained = _trained(module)
        names = {id(weight): name for name, weight in trained.items()}
        state = dict(checkpoint["state_dict"])
        whole = {name: _whole(average) for name, average in self.averages.items()}
        averages = {name: whole[name].to(weight.dtype) for name, weight in trained.items()}
        for name, weight in module.named_parameters(remove_duplicate=False):
            if id(weight) in names:
                state[name] = averages[names[id(weight)]]
        checkpoint["state_dict"] = state
        if "optimizer_states" in checkpoint:
            weights = self._held_back or trained
            checkpoint[HELD_BACK] = {name: _whole(weight.detach()) for name, weight in weights.items()}
            checkpoint["moving_average"] = {"num_steps": self.num_steps, "averages": whole}

    def load(self, checkpoint: dict[str, Any]) -> None:
        """Go on with a checkpoint's averages; one of a run without leaves them to begin with its weights."""
        if "moving_average" in checkpoint:
            self.num_steps = checkpoint["moving_average"]["num_steps"]
            self.averages = checkpoint["moving_average"]["averages"]


@torch.no_grad()
def weights_to_train(module: nn.Module, checkpoint: dict[str, Any]) -> None:
    """Put the weights that training goes on with back into the place where a checkpoint holds averages, if it does.

    Args:
        module: What the checkpoint is of.
        checkpoint: Changed in place.
    """
    if HELD_BACK not in checkpoint:
        return
    held_back = checkpoint[HELD_BACK]
    first = {id(weight): name for name, weight in module.named_parameters()}
    state = checkpoint.get("state_dict")
    if state is None:  # an engine that divides weights has put them into the network already
        for name, weight in module.named_parameters():
            if name in held_back:
                weight.copy_(_divided(held_back[name], weight))
        return
    for name, weight in module.named_parameters(remove_duplicate=False):
        state[name] = held_back.get(first[id(weight)], state[name])


def _whole(value: Tensor) -> Tensor:
    """A tensor of which each rank may have a part."""
    return value.full_tensor() if isinstance(value, DTensor) else value


def _divided(value: Tensor, weight: Tensor) -> Tensor:
    """This rank's part of a tensor, where it has a part of the weight, too."""
    if not isinstance(weight, DTensor) or isinstance(value, DTensor):
        return value
    return distribute_tensor(value.to(weight.device), weight.device_mesh, weight.placements)


def _trained(module: nn.Module) -> dict[str, nn.Parameter]:
    """The parameters that are not frozen, each once."""
    return {name: weight for name, weight in module.named_parameters() if weight.requires_grad}
