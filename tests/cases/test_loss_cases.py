"""Cases T1, T2 and T9 as far as the optimiser step itself is concerned: what `training_step` does to the weights.

For encoder-decoders, for decoder-only models that learn the target or the source too, and for language models.
"""

from collections.abc import Callable, Sequence

import pytest
import torch

from seq2seq.config import ModelConfig, OptimConfig, Tying
from seq2seq.corpus.batching import Batch, make_batch
from seq2seq.corpus.documents import TextSize
from seq2seq.corpus.text_blocks import EncodedText, PackedText, Part, TextBatch
from seq2seq.models import build_model
from seq2seq.text.special import SpecialIds
from seq2seq.training.loss import smoothed_cross_entropy
from seq2seq.training.module import TrainingModule
from seq2seq.training.objectives import LanguageModelModule, TranslationModule
from seq2seq.training.schedule import noam_lr

V, D = 13, 8
SOURCES = [[5, 6, 7, 2], [8, 2], [9, 10, 11, 12, 5, 2], [7, 2], [5, 5, 2], [6, 7, 8, 9, 2], [10, 2], [12, 11, 2]]
TARGETS = [[6, 2], [9, 10, 11, 2], [5, 6, 7, 8, 9, 10, 2], [11, 2], [12, 5, 2], [7, 2], [8, 9, 10, 2], [6, 6, 2]]
SPECIAL = SpecialIds()


class Recorder:
    """An optimiser that leaves the weights alone."""

    def __init__(self) -> None:
        self.param_groups = [{"lr": 0.0}]
        self.steps = 0

    def zero_grad(self, set_to_none: bool) -> None:
        assert set_to_none

    def step(self) -> None:
        self.steps += 1


def batch(indices: Sequence[int]) -> Batch:
    return make_batch([SOURCES[i] for i in indices], [TARGETS[i] for i in indices], SPECIAL, SPECIAL)


def blocks(indices: Sequence[int]) -> TextBatch:
    """Some of eight blocks of two documents each, padded where they are shorter than others."""
    text = EncodedText([ids[:-1] for pair in zip(SOURCES, TARGETS, strict=True) for ids in pair], SPECIAL)
    begins, lengths = text.begins.tolist(), (text.ends - text.begins - 1).tolist()
    parts = [Part(begin, length) for begin, length in zip(begins, lengths, strict=True)]
    return PackedText(text, [parts[2 * i : 2 * i + 2] for i in range(8)])[list(indices)]


SIZES = ModelConfig(d_model=D, num_heads=2, d_ff=12, num_encoder_layers=1, num_decoder_layers=2, dropout=0.0)
KINDS = ("encoder_decoder", "decoder_only", "decoder_only_with_source", "language_model")


def module(kind: str, families: Callable[..., ModelConfig], **optim: object) -> TrainingModule:
    """A module of each kind, its network's weights always the same."""
    config = SIZES if kind == "encoder_decoder" else families("gpt2", d_model=D, num_heads=2)
    options = OptimConfig(**optim, loss_on_source=kind == "decoder_only_with_source")
    torch.manual_seed(0)
    model = build_model(config, V, V).double()
    if kind == "language_model":
        return LanguageModelModule(model, options, D, 20, TextSize(characters=5, bytes=7))
    return TranslationModule(model, options, D)


def one_update(
    parts: Sequence[Sequence[int]],
    clip_norm: float | None = None,
    kind: str = "encoder_decoder",
    families: Callable[..., ModelConfig] = ModelConfig,
) -> tuple[list[torch.Tensor], Recorder]:
    """Gradients that the optimiser is given when one update has these micro-batches, and the optimiser."""
    net = module(kind, families, clip_norm=clip_norm, warmup_steps=7)
    optimizer = Recorder()
    patches = {
        "optimizers": lambda: optimizer,
        "manual_backward": lambda loss: loss.backward(),
        "_log": lambda metrics: None,
    }
    for name, value in patches.items():  # what Lightning's trainer would bring
        object.__setattr__(net, name, value)
    make = blocks if kind == "language_model" else batch
    net.training_step(tuple(make(part) for part in parts), 0)
    return [parameter.grad.clone() for parameter in net.parameters() if parameter.grad is not None], optimizer


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("size", [1, 2, 4])
def test_t2_a_step_of_several_micro_batches_has_the_gradient_of_one_batch(size: int, kind: str, families) -> None:
    joined, _ = one_update([range(8)], kind=kind, families=families)
    parts, optimizer = one_update([range(i, i + size) for i in range(0, 8, size)], kind=kind, families=families)
    assert optimizer.steps == 1
    for one, other in zip(joined, parts, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("kind", KINDS)
def test_t2_the_mean_of_the_parts_means_would_be_another_gradient(kind: str, families) -> None:
    joined, _ = one_update([range(8)], kind=kind, families=families)
    parts = [one_update([[i]], kind=kind, families=families)[0] for i in range(8)]
    means = [torch.stack(gradients).mean(0) for gradients in zip(*parts, strict=True)]
    assert max((one - other).abs().max().item() for one, other in zip(joined, means, strict=True)) > 1e-3


def test_t2_the_joint_norm_of_all_parts_together_is_clipped() -> None:
    free, _ = one_update([range(4), range(4, 8)])
    norm = torch.stack([gradient.norm() for gradient in free]).norm().item()
    clipped, _ = one_update([range(4), range(4, 8)], clip_norm=norm / 3)
    for one, other in zip(free, clipped, strict=True):
        torch.testing.assert_close(one / 3, other, rtol=1e-5, atol=1e-9)  # torch adds 1e-6 to the norm
    untouched, _ = one_update([range(4), range(4, 8)], clip_norm=2 * norm)
    assert all(torch.equal(one, other) for one, other in zip(free, untouched, strict=True))


def test_t4_the_first_update_uses_the_rate_of_step_one_however_many_micro_batches_it_has() -> None:
    for parts in ([range(8)], [[i] for i in range(8)]):
        _, optimizer = one_update(parts)
        assert optimizer.param_groups[0]["lr"] == noam_lr(1, d_model=D, warmup_steps=7)


@pytest.mark.parametrize("kind", KINDS)
def test_t1_no_gradient_reaches_padded_positions(kind: str, families) -> None:
    net = module(kind, families)
    model, kept = net.model, []
    name = {"encoder_decoder": "decode", "language_model": "read"}.get(kind, "read_pairs")
    original = getattr(model, name)

    def read(*arguments: torch.Tensor) -> torch.Tensor:
        kept.append(original(*arguments))
        kept[0].retain_grad()
        return kept[0]

    object.__setattr__(model, name, read)
    if kind == "language_model":
        part = blocks([0, 2, 4])
        counted = part.counted
    else:
        part = batch([0, 2, 4])
        counted = part.tgt_valid
        if kind != "encoder_decoder":
            source = (
                part.src_valid[:, 1:] if kind == "decoder_only_with_source" else torch.zeros(3, 5, dtype=torch.bool)
            )
            counted = torch.cat([source, counted], 1)
    net.training_loss(part).loss.backward()
    assert not counted.all()
    assert not kept[0].grad[~counted].any()
    assert kept[0].grad[counted].abs().amax(-1).min() > 0


@pytest.mark.parametrize("kind", KINDS[1:3])
def test_t1_padding_between_source_and_target_changes_neither_loss_nor_gradient(kind: str, families) -> None:
    few = batch([0, 1, 3])
    pads = [(tensor, 30 if tensor.shape == few.src.shape else 40) for tensor in (few.src, few.src_valid)]
    pads += [(tensor, 40) for tensor in (few.tgt_in, few.tgt_out, few.tgt_valid)]
    wide = Batch(
        *(torch.nn.functional.pad(tensor, (0, more)) for tensor, more in pads),
        few.num_target_tokens,
        few.num_source_tokens,
        (),
    )
    losses, gradients = [], []
    for part in (few, wide):
        net = module(kind, families)
        assert net.num_pieces(part) == net.num_pieces(few)
        losses.append(net.training_loss(part))
        losses[-1].loss.backward()
        gradients.append([parameter.grad for parameter in net.parameters()])
    torch.testing.assert_close(losses[0].loss, losses[1].loss, rtol=1e-12, atol=1e-12)
    for one, other in zip(*gradients, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-9, atol=1e-12)


def test_t1_the_pad_column_gets_its_share_of_the_smoothing_at_real_positions_and_nothing_more() -> None:
    logits = torch.randn(3, V, dtype=torch.float64, generator=torch.Generator().manual_seed(1)).requires_grad_()
    smoothed_cross_entropy(logits, torch.tensor([5, 2, 9]), 0.1)[0].backward()
    expected = logits.detach().softmax(-1)[:, SPECIAL.pad] - 0.1 / V
    torch.testing.assert_close(logits.grad[:, SPECIAL.pad], expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize("tying", list(Tying))
def test_t9_a_model_under_training_stays_tied_when_its_checkpoint_is_loaded_again(tying: Tying) -> None:
    def module() -> TranslationModule:
        sizes = ModelConfig(d_model=D, num_heads=2, d_ff=12, num_encoder_layers=1, num_decoder_layers=2, tying=tying)
        return TranslationModule(build_model(sizes, V, V), OptimConfig(), D)

    def tables(net: TranslationModule) -> list[int]:
        model = net.model
        rows = (model.encoder.embedding.rows.weight, model.decoder.embedding.rows.weight, model.output)
        return [weight.data_ptr() for weight in rows]

    net, other = module(), module()
    other.load_state_dict(net.state_dict())
    optimizer = other.configure_optimizers()
    moved = sum(parameter.numel() for group in optimizer.param_groups for parameter in group["params"])
    assert moved == other.model.num_parameters() == net.model.num_parameters()
    assert len(set(tables(other))) == {Tying.three_way: 1, Tying.two_way: 2, Tying.none: 3}[tying]
    assert not set(tables(other)) & set(tables(net))
    assert torch.equal(other.model.output, net.model.output)


@pytest.mark.parametrize("tying", [Tying.two_way, Tying.none])
def test_t9_a_decoder_only_model_under_training_stays_tied_when_its_checkpoint_is_loaded_again(
    tying: Tying, families
) -> None:
    def made() -> TranslationModule:
        return TranslationModule(build_model(families("gpt2", tying=tying), V, V), OptimConfig(), 24)

    net, other = made(), made()
    other.load_state_dict(net.state_dict())
    optimizer = other.configure_optimizers()
    moved = sum(parameter.numel() for group in optimizer.param_groups for parameter in group["params"])
    assert moved == other.model.num_parameters() == net.model.num_parameters()
    rows = other.model.decoder.embedding.rows.weight
    assert (rows.data_ptr() == other.model.output.data_ptr()) == (tying is Tying.two_way)
    assert torch.equal(other.model.output, net.model.output)
