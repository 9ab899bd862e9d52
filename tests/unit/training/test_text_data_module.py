"""Plain text, epoch by epoch."""

import dataclasses
import time
from itertools import pairwise

import pytest
import torch

from seq2seq.config import DataConfig, DataKind, TokenizerConfig, TokenizerKind
from seq2seq.corpus.documents import TextSize
from seq2seq.text.tokenizer_training import train_tokenizer
from seq2seq.training.data_module import Position
from seq2seq.training.text_data_module import TextDataModule

TRAIN = ["".join(f"{i} bottles of beer on the wall,\n  {i} bottles of beer;\n" for i in range(30)), "the end"]
VALID = ["no more bottles ü\n"]


@pytest.fixture(scope="module")
def tokenizer():
    how = TokenizerConfig(kind=TokenizerKind.char, vocab_size=300, keep_whitespace=True, normalization="identity")
    return train_tokenizer(TRAIN, how)[0]


@pytest.fixture
def made(tokenizer):
    def build(accumulate=1, seed=1, **changes):
        data = DataConfig(kind=DataKind.text, train_text="a", block_length=32, batch_tokens=100, max_length=32)
        return TextDataModule(TRAIN, VALID, tokenizer, dataclasses.replace(data, **changes), accumulate, seed)

    return build


def test_an_epoch_predicts_every_piece_and_the_next_one_is_cut_otherwise(made):
    data = made()
    predicted = []
    for number in range(2):
        packed, batches = data.epoch(number)
        assert all(len(batch) == 3 for batch in batches[:-1])
        predicted.append([packed[batch].targets[packed[batch].counted].tolist() for batch in batches])
    sizes = [sum(map(len, epoch)) for epoch in predicted]
    assert sizes == [sum(map(len, TRAIN)) + 2] * 2
    assert predicted[0] != predicted[1]


def test_a_step_holds_so_many_batches_and_a_resumed_epoch_leaves_out_what_was_trained_on(made):
    data = made(accumulate=4)
    updates = list(data.train_dataloader())
    assert [len(update) for update in updates[:-1]] == [4] * (len(updates) - 1)
    assert len(updates) == data.steps_an_epoch() > 2
    data.load_state_dict({"epoch": 0, "steps": 2})
    assert data.resumed == Position(0, 2)
    rest = list(data.train_dataloader())
    assert [batch.indices for update in rest for batch in update] == [
        batch.indices for update in updates[2:] for batch in update
    ]
    assert torch.equal(rest[0][0].ids, updates[2][0].ids)


def test_validation_goes_through_the_text_in_order_and_knows_its_size(made, tokenizer):
    data = made()
    (batch,) = data.val_dataloader()
    special = tokenizer.special
    assert batch.ids.tolist() == [[special.bos, *tokenizer.encode(VALID[0])]]
    assert batch.targets.tolist() == [[*tokenizer.encode(VALID[0]), special.eos]]
    assert data.valid_size == TextSize(characters=18, bytes=19)


def test_documents_are_apart_or_run_on(made):
    for apart in (True, False):
        packed, batches = made(documents_apart=apart, block_length=100).epoch(0)
        several = [packed[batch].documents is not None for batch in batches]
        assert any(several) == apart


def test_the_order_depends_on_the_seed(made):
    blocks = [made(seed=seed).epoch(3)[0].blocks for seed in (1, 1, 2)]
    assert [one == two for one, two in pairwise(blocks)] == [True, False]


def test_iterating_draws_nothing_from_the_global_generator_and_workers_change_nothing(made):
    before = torch.get_rng_state()
    alone, helped = (list(made(num_workers=number).train_dataloader()) for number in (0, 2))
    assert torch.equal(torch.get_rng_state(), before)
    for (one,), (other,) in zip(alone, helped, strict=True):
        assert one.indices == other.indices
        assert torch.equal(one.ids, other.ids)


def test_there_is_next_to_no_padding(made):
    assert 0 <= made(block_length=8).padding_share() < 0.05


def test_a_megabyte_in_one_document_is_encoded_and_cut_in_seconds(tokenizer):
    text = TRAIN[0] * (1_000_000 // len(TRAIN[0]))
    data = DataConfig(kind=DataKind.text, train_text="a")
    started = time.process_time()
    module = TextDataModule([text], VALID, tokenizer, data)
    module.epoch(0)
    assert time.process_time() - started < 8
    assert module.train_text.num_predicted == len(text) + 1
