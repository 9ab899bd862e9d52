"""Cases T10 and T11: scheduled sampling mixes piece by piece, leaks nothing, and does what its options say."""

import csv
import dataclasses
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from seq2seq.config import (
    Accelerator,
    DataConfig,
    DataKind,
    DecodeConfig,
    MixingChoice,
    MixingSchedule,
    ModelConfig,
    OptimConfig,
    Replacement,
    ScheduledSamplingConfig,
    TokenizerConfig,
    TokenizerKind,
    TrainConfig,
    TrainerConfig,
)
from seq2seq.corpus.batching import Batch, make_batch
from seq2seq.corpus.documents import TextSize
from seq2seq.corpus.text_blocks import EncodedText, TextBatch, epoch_blocks
from seq2seq.models import build_model
from seq2seq.text.special import SpecialIds
from seq2seq.training.averaging import checkpoint_weights
from seq2seq.training.fit import fit
from seq2seq.training.metrics_file import MetricsCsv
from seq2seq.training.objectives import LanguageModelModule, TranslationModule
from seq2seq.training.passes import PassesModule
from seq2seq.training.scheduled_sampling import Mixer, mixing_rate

V, SPECIAL = 19, SpecialIds()
ALWAYS = ScheduledSamplingConfig(rate=0.5, schedule=MixingSchedule.constant, end_step=0)
OFF = ScheduledSamplingConfig()
NOTHING = ScheduledSamplingConfig(rate=0.0, schedule=MixingSchedule.constant, end_step=0, passes=3)
KINDS = ("encoder_decoder", "decoder_only", "decoder_only_with_source", "language_model")


def pairs(count: int = 6, seed: int = 1) -> Batch:
    """Random pairs of uneven lengths."""
    draw = torch.Generator().manual_seed(seed)
    sides: list[list[list[int]]] = [[], []]
    for side in sides:
        for _ in range(count):
            length = int(torch.randint(1, 12, (), generator=draw))
            side.append([*torch.randint(4, V, (length,), generator=draw).tolist(), SPECIAL.eos])
    return make_batch(sides[0], sides[1], SPECIAL, SPECIAL)


def blocks(count: int = 12, seed: int = 1) -> TextBatch:
    """Blocks of random documents, several in each."""
    draw = torch.Generator().manual_seed(seed)
    documents = [
        torch.randint(4, V, (int(torch.randint(1, 9, (), generator=draw)),), generator=draw).tolist()
        for _ in range(count)
    ]
    packed = epoch_blocks(EncodedText(documents, SPECIAL), 14, apart=True, seed=seed)
    return packed[list(range(len(packed)))]


def module(
    kind: str, families: Callable[..., ModelConfig], sampling: ScheduledSamplingConfig, dropout: float = 0.0
) -> tuple[PassesModule, Batch | TextBatch]:
    """A module of each kind, its weights always the same, and a batch for it."""
    config = families("original" if kind == "encoder_decoder" else "llama", dropout=dropout, num_decoder_layers=1)
    torch.manual_seed(0)
    model = build_model(config, V, V).double()
    optim = OptimConfig(loss_on_source=kind == "decoder_only_with_source")
    if kind == "language_model":
        size = TextSize(characters=5, bytes=7)
        return LanguageModelModule(model, optim, 24, 20, size, sampling=sampling), blocks()
    return TranslationModule(model, optim, 24, sampling=sampling), pairs()


def mixed_input(net: PassesModule, batch: Batch | TextBatch, seed: int) -> tuple[Mixer, torch.Tensor]:
    """What the second pass is given, and what mixed it."""
    torch.manual_seed(seed)
    barred = (SPECIAL.pad, SPECIAL.bos, SPECIAL.eos)
    mixer = Mixer(net.model, net.target(batch), net.sampling.rate, net.sampling, barred, None)
    with torch.no_grad():
        return mixer, mixer.mix(net.read(batch)[:, -mixer.where.shape[1] :]).ids


@pytest.mark.parametrize("kind", KINDS)
def test_t10_each_piece_is_replaced_or_not_for_itself(kind: str, families: Callable[..., ModelConfig]) -> None:
    net, _ = module(kind, families, ALWAYS)
    batch = blocks(count=400) if kind == "language_model" else pairs(count=200)
    mixer, ids = mixed_input(net, batch, seed=3)
    target = net.target(batch)
    changed, can = ids != target.ids, target.replaceable
    assert can.sum() > 1000
    assert mixer.where.sum().item() / can.sum().item() == pytest.approx(0.5, abs=0.05)
    assert changed.sum().item() > 0.4 * can.sum().item()  # few predictions are the right piece
    assert not changed[~can].any()
    assert not changed[target.ids == SPECIAL.bos].any()
    long = can.sum(1) >= 8
    shares = mixer.where[long].sum(1) / can[long].sum(1)
    assert long.sum() > 20
    assert ((shares > 0) & (shares < 1)).double().mean().item() > 0.95
    follows = can[:, 1:] & can[:, :-1]  # a coin tells nothing of the next one
    both = (mixer.where[:, 1:] & mixer.where[:, :-1])[follows].double().mean().item()
    assert both == pytest.approx(0.25, abs=0.06)


def test_t10_padding_and_bos_are_kept_at_a_rate_of_1_and_all_else_is_replaced(
    families: Callable[..., ModelConfig],
) -> None:
    net, batch = module("encoder_decoder", families, dataclasses.replace(ALWAYS, rate=1.0))
    assert isinstance(batch, Batch)
    mixer, ids = mixed_input(net, batch, seed=1)
    assert (ids[:, 0] == SPECIAL.bos).all()
    assert (ids[~batch.tgt_valid] == SPECIAL.pad).all()
    assert torch.equal(mixer.where[:, 1:], batch.tgt_valid[:, 1:])
    assert not mixer.where[:, 0].any()
    assert batch.tgt_valid.sum() < batch.tgt_valid.numel()


@pytest.mark.parametrize("kind", KINDS)
def test_t11_a_rate_of_0_is_plain_training_bit_for_bit(kind: str, families: Callable[..., ModelConfig]) -> None:
    results = []
    for sampling in (OFF, NOTHING, dataclasses.replace(ALWAYS, start_step=1, end_step=1)):
        net, batch = module(kind, families, sampling, dropout=0.2)
        torch.manual_seed(7)
        losses = net.training_loss(batch)
        losses.loss.backward()
        assert not losses.further
        results.append([losses.loss.detach(), losses.nll, torch.get_rng_state(), *(p.grad for p in net.parameters())])
    for other in results[1:]:
        assert all(torch.equal(one, two) for one, two in zip(results[0], other, strict=True))


@pytest.mark.parametrize("kind", KINDS)
def test_t11_the_option_is_not_ignored(kind: str, families: Callable[..., ModelConfig]) -> None:
    plain, batch = module(kind, families, OFF)
    mixed, _ = module(kind, families, dataclasses.replace(ALWAYS, rate=1.0))
    losses, other = plain.training_loss(batch), mixed.training_loss(batch)
    assert losses.loss.item() != pytest.approx(other.loss.item(), abs=1e-3)
    assert other.further["replaced"].item() == other.further["replaceable"].item() > 20
    assert other.further["first_pass_loss"].item() == pytest.approx(losses.loss.item(), abs=1e-9)


@pytest.mark.parametrize("kind", KINDS)
def test_t11_validation_is_that_of_plain_training(kind: str, families: Callable[..., ModelConfig]) -> None:
    values = []
    for sampling in (OFF, dataclasses.replace(ALWAYS, rate=1.0)):
        net, batch = module(kind, families, sampling)
        torch.manual_seed(5)
        before = torch.get_rng_state()
        with torch.no_grad():
            losses = net.eval().validation_loss(batch)
        assert torch.equal(before, torch.get_rng_state())
        values.append([losses.loss, losses.nll, losses.correct, *losses.further.values()])
    assert all(torch.equal(one, two) for one, two in zip(*values, strict=True))


@pytest.mark.parametrize("replacement", list(Replacement))
@pytest.mark.parametrize("kind", KINDS)
def test_t11_what_stands_at_a_replaced_place_does_not_depend_on_the_right_piece_there(
    kind: str, replacement: Replacement, families: Callable[..., ModelConfig]
) -> None:
    net, batch = module(kind, families, dataclasses.replace(ALWAYS, rate=1.0, replacement=replacement))
    target = net.target(batch)

    def given(ids: torch.Tensor) -> torch.Tensor:
        torch.manual_seed(2)
        barred = (SPECIAL.pad, SPECIAL.bos, SPECIAL.eos)
        mixer = Mixer(net.model, dataclasses.replace(target, ids=ids), 1.0, net.sampling, barred, None)
        with torch.no_grad():
            mixed = mixer.mix(net.read(net.with_target(batch, ids))[:, -ids.shape[1] :])
        vectors = net.model.target_table(mixed.ids)
        if mixed.mixture is not None:
            vectors = vectors.masked_scatter(mixed.mixture.where[..., None], mixed.mixture.vectors)
        return vectors.detach()

    before = given(target.ids)
    for row, place in target.replaceable.nonzero()[::5].tolist():
        other = target.ids.clone()
        other[row, place] = 4 + (other[row, place] - 3) % (V - 4)
        assert other[row, place] != target.ids[row, place]
        after = given(other)
        torch.testing.assert_close(after[row, : place + 1], before[row, : place + 1], rtol=0, atol=1e-12)


def test_t11_a_padded_batch_is_mixed_as_its_rows_alone(families: Callable[..., ModelConfig]) -> None:
    net, batch = module("encoder_decoder", families, dataclasses.replace(ALWAYS, rate=1.0))
    assert isinstance(batch, Batch)
    _, together = mixed_input(net, batch, seed=1)
    for row in range(len(batch.src)):
        source = batch.src[row][batch.src_valid[row]].tolist()
        targets = batch.tgt_out[row][batch.tgt_valid[row]].tolist()
        _, alone = mixed_input(net, make_batch([source], [targets], SPECIAL, SPECIAL), seed=1)
        assert alone[0].tolist() == together[row, : len(targets)].tolist()


SHARE = ScheduledSamplingConfig(
    rate=0.8, schedule=MixingSchedule.linear, start_step=1, end_step=5, replacement=Replacement.sample, passes=3
)


def run_config(kind: str, corpus: tuple[Path, Path], families: Callable[..., ModelConfig]) -> TrainConfig:
    """A run of four steps with dropout, validated every two, whose share of replaced pieces rises at each."""
    how = TokenizerConfig(kind=TokenizerKind.char, vocab_size=40, byte_fallback=False)
    data = DataConfig(
        train_source=str(corpus[0]),
        train_target=str(corpus[1]),
        valid_size=3,
        max_length=40,
        batch_tokens=150,
        tokenizer=how,
    )
    if kind == "language_model":
        how = dataclasses.replace(how, keep_whitespace=True, normalization="identity")
        data = DataConfig(
            kind=DataKind.text, train_text=str(corpus[0]), block_length=32, batch_tokens=96, tokenizer=how
        )
    name = {"encoder_decoder": "original", "decoder_only": "llama", "language_model": "gpt2"}[kind]
    return TrainConfig(
        model=families(name, d_model=16, num_heads=2, num_kv_heads=1, dropout=0.1, num_decoder_layers=1),
        data=data,
        optim=OptimConfig(warmup_steps=4),
        scheduled_sampling=SHARE,
        decode=DecodeConfig(beam_size=1, max_length=5),
        trainer=TrainerConfig(
            max_steps=4,
            validate_every=2,
            log_every=1,
            num_samples=0,
            keep_best=1,
            average_last=0,
            accelerator=Accelerator.cpu,
            num_threads=1,
            report=False,
        ),
    )


def logged(run_dir: Path, name: str) -> dict[int, float]:
    """A metric by its step."""
    with (run_dir / "metrics.csv").open(newline="") as stream:
        rows = [row for row in csv.DictReader(stream) if row.get(name)]
    return {int(float(row["step"])): float(row[name]) for row in rows}


@pytest.mark.parametrize("kind", ["encoder_decoder", "decoder_only", "language_model"])
def test_t11_the_schedule_goes_on_after_a_resume_as_if_there_had_been_none(
    kind: str, copy_corpus: tuple[Path, Path], families: Callable[..., ModelConfig], tmp_path: Path
) -> None:
    config = run_config(kind, copy_corpus, families)

    def run(folder: Path, steps: int, resume: str | None = None) -> None:
        trainer = dataclasses.replace(config.trainer, max_steps=steps)
        fit(dataclasses.replace(config, trainer=trainer, resume=resume), folder, [MetricsCsv(str(folder))])

    straight, stopped = tmp_path / "straight", tmp_path / "stopped"
    run(straight, 4)
    run(stopped, 2)
    run(stopped, 4, resume=str(stopped / "checkpoints" / "last.ckpt"))
    expected = {step: mixing_rate(step, SHARE) for step in (1, 2, 3, 4)}
    assert expected == pytest.approx({1: 0.0, 2: 0.2, 3: 0.4, 4: 0.6})
    for folder in (straight, stopped):
        assert logged(folder, "train/mixing_rate") == pytest.approx(expected)
    for name in ("train/first_pass_loss", "train/mixed_share", "train/loss", "valid/loss", "valid/exposure_gap"):
        assert logged(straight, name) == logged(stopped, name), name
    assert set(logged(straight, "train/first_pass_loss")) == {2, 3, 4}  # nothing is replaced in the first step
    assert logged(straight, "train/mixed_share")[4] == pytest.approx(0.6, abs=0.2)
    assert set(logged(straight, "valid/free_running_accuracy")) == {2, 4}
    weights = [checkpoint_weights(folder / "checkpoints" / "last.ckpt") for folder in (straight, stopped)]
    assert all(torch.equal(weight, weights[1][name]) for name, weight in weights[0].items())


def test_t11_without_scheduled_sampling_nothing_of_it_is_logged(families: Callable[..., ModelConfig]) -> None:
    net, batch = module("encoder_decoder", families, OFF)
    net._count(net.train_sums, batch, net.training_loss(batch), net.num_pieces(batch))
    assert net.extra_training_metrics(net.train_sums.over_ranks()) == {}


def test_t11_confidence_too_mixes_by_the_piece(families: Callable[..., ModelConfig]) -> None:
    how = dataclasses.replace(ALWAYS, rate=1.0, choice=MixingChoice.confidence, sure=0.04, surest=0.06)
    net, _ = module("encoder_decoder", families, how)
    batch = pairs(count=100)
    mixer, ids = mixed_input(net, batch, seed=1)
    can = net.target(batch).replaceable
    assert 0.1 < mixer.where[can].double().mean().item() < 0.9
    assert not (ids != batch.tgt_in)[~can].any()
