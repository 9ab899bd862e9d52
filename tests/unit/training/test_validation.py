"""Sample translations at a validation."""

import json
from unittest.mock import MagicMock

import pytest
import pytorch_lightning
from pytorch_lightning.loggers import TensorBoardLogger

from seq2seq.config import DecodeConfig, LongLines, PenaltyForm
from seq2seq.training.validation import RawText, ValidationBleu, describe_decoding, share_of_lines
from seq2seq.translator import Translator

SOURCE, TARGET = ["die cat.", "", "owl", "der dog", "17 elk."], ["a", "b", "c", "d", "e"]


@pytest.mark.parametrize(("num_samples", "lines"), [(2, [1, 3]), (5, [1, 2, 3, 4, 5]), (0, []), (6, [])])
def test_samples_spread_over_the_set_go_to_a_file_and_to_tensorboard(tiny_bundle, tmp_path, num_samples, lines):
    file = tmp_path / "samples.jsonl"
    translator, decode = Translator(tiny_bundle), DecodeConfig(beam_size=1, max_length=6)
    callback = ValidationBleu(translator, RawText(SOURCE, TARGET), decode, "en", num_samples, file)
    board = MagicMock(spec=TensorBoardLogger)
    trainer = MagicMock(spec=pytorch_lightning.Trainer, loggers=[board], global_step=7)
    module = MagicMock(spec=pytorch_lightning.LightningModule)
    callback.on_validation_epoch_end(trainer, module)
    rows = [json.loads(line) for line in file.read_text(encoding="utf-8").split("\n")[:-1]]
    translations = [answer.text for answer in translator.translate(SOURCE, decode)]
    assert [(row["step"], row["line"], row["translation"]) for row in rows] == [
        (7, line, translations[line - 1]) for line in lines
    ]
    assert board.experiment.add_text.call_count == bool(lines)
    if lines:
        name, table = board.experiment.add_text.call_args.args
        assert name == "valid/samples"
        assert all(SOURCE[line - 1] in table and TARGET[line - 1] in table for line in lines)
    (logged,) = module.log_dict.call_args.args
    assert logged.keys() == {"valid/bleu", "valid/chrf"}


def test_the_settings_beside_a_score_are_those_that_it_depends_on():
    beam = DecodeConfig(beam_size=3, penalty_form=PenaltyForm.power, length_penalty=1.5)
    assert describe_decoding(beam) == (
        "beam_size=3, penalty_form=power, length_penalty=1.5, max_length_factor=2.0, max_length_offset=10"
    )
    assert describe_decoding(DecodeConfig(beam_size=1)) == "beam_size=1, max_length_factor=2.0, max_length_offset=10"


def test_what_is_to_be_said_of_a_line_is_said_once_with_its_number_in_the_whole_set(
    tiny_bundle, tmp_path, monkeypatch, caplog
):
    decode = DecodeConfig(beam_size=1, max_length=6, max_source_length=3, long_lines=LongLines.truncate)
    callback = ValidationBleu(Translator(tiny_bundle), RawText(SOURCE, TARGET), decode, "en", 0, tmp_path / "s")
    trainer = MagicMock(spec=pytorch_lightning.Trainer, loggers=[], global_step=7)
    module = MagicMock(spec=pytorch_lightning.LightningModule)
    callback.on_validation_epoch_end(trainer, module)
    whole = [record.message for record in caplog.records if record.levelname == "WARNING"]
    assert any("line 5 " in message for message in whole)
    assert len(whole) < len(SOURCE)
    caplog.clear()
    places = "seq2seq.training.validation."
    monkeypatch.setattr(places + "num_ranks", lambda: 2)
    theirs = {list: ["line 5 of another rank"], dict: dict.fromkeys(range(5), "")}
    monkeypatch.setattr(places + "gather_over_ranks", lambda value: [value, theirs[type(value)]])
    for number in (1, 0):  # another rank says nothing; what it would say comes to rank 0
        monkeypatch.setattr(places + "rank", lambda number=number: number)
        callback.on_validation_epoch_end(trainer, module)
    said = [record.message for record in caplog.records if record.levelname == "WARNING"]
    mine = share_of_lines(SOURCE, 0, 2)
    assert said == [
        *(message for message in whole if any(f"line {line + 1} " in message for line in mine)),
        "line 5 of another rank",
    ]


def test_lines_are_dealt_out_by_length_none_twice_and_each_share_in_order():
    lines = ["x" * length for length in (9, 1, 8, 2, 7, 3, 6)]
    shares = [share_of_lines(lines, rank, 3) for rank in range(3)]
    assert shares == [[0, 1, 6], [3, 4], [2, 5]]
    assert [share_of_lines(["a", "b"], rank, 3) for rank in range(3)] == [[0], [1], []]
