"""`generate` of an imported language model gives the pieces that `transformers` gives: greedy, beam, penalty, stops.

Random GPT-2 and LLaMA models (the latter with two ends of a text) at small size, uneven prompts in one batch, which
`transformers` pads on the left. float64, so that no rounding decides; LLaMA's norms and rotations stay float32 there.
"""

import json
from pathlib import Path

import pytest
import torch

from seq2seq.config import GenerateConfig, Task
from seq2seq.generator import Ended, Generator
from seq2seq.interop.hugging_face import import_hugging_face

transformers = pytest.importorskip("transformers")
tokenizers = pytest.importorskip("tokenizers")

PROMPTS = ["der ant", "o", "die cat und das yak schläft, und der owl auch", "17 elk"]
V, NEW = 280, 12
SIZES = {
    "gpt2": {"n_embd": 24, "n_head": 2, "n_layer": 2, "n_positions": 80, "n_inner": 20},
    "llama": {
        "hidden_size": 24,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "num_hidden_layers": 2,
        "intermediate_size": 20,
        "max_position_embeddings": 80,
    },
}
ENDS = {"gpt2": [0], "llama": [2, 9]}


@pytest.fixture(scope="module", params=SIZES)
def both(request: pytest.FixtureRequest, tiny_lines: list[str], tmp_path_factory: pytest.TempPathFactory):
    """Theirs, with its ends; and ours, imported from the folder that theirs was written to."""
    folder: Path = tmp_path_factory.mktemp(request.param)
    ends = ENDS[request.param]
    torch.manual_seed(3)
    ids = {"bos_token_id": 0 if request.param == "gpt2" else 1, "eos_token_id": ends, "pad_token_id": ends[0]}
    options = transformers.AutoConfig.for_model(request.param, vocab_size=V, **SIZES[request.param], **ids)
    theirs = transformers.AutoModelForCausalLM.from_config(options).eval().requires_grad_(False)
    for parameter in theirs.parameters():
        parameter.add_(torch.randn_like(parameter), alpha=0.3)
    theirs.save_pretrained(folder)
    made = tokenizers.ByteLevelBPETokenizer()
    made.train_from_iterator(tiny_lines, vocab_size=V, special_tokens=["<|end|>"], show_progress=False)
    made.save(str(folder / "tokenizer.json"))
    (folder / "generation_config.json").write_text(json.dumps(ids), encoding="utf-8")
    bundle = import_hugging_face(folder)
    assert bundle.task is Task.language_model
    bundle.model.double()
    return theirs.double(), Generator(bundle), ends


def their_ids(theirs, prompts: list[tuple[int, ...]], ends: list[int], **options: object) -> list[list[int]]:
    """What theirs adds to each prompt: the batch padded on the left, and all behind an end taken away."""
    width = max(map(len, prompts))
    ids = torch.tensor([[0] * (width - len(prompt)) + list(prompt) for prompt in prompts])
    valid = torch.tensor([[0] * (width - len(prompt)) + [1] * len(prompt) for prompt in prompts])
    found = theirs.generate(
        ids,
        attention_mask=valid,
        max_new_tokens=NEW,
        do_sample=False,
        eos_token_id=ends,
        pad_token_id=ends[0],
        **options,
    )
    rows = found[:, width:].tolist()
    cuts = [next((place + 1 for place, id_ in enumerate(row) if id_ in ends), len(row)) for row in rows]
    return [row[:cut] for row, cut in zip(rows, cuts, strict=True)]


@pytest.mark.parametrize(
    ("ours", "options"),
    [
        ({}, {}),
        ({"repetition_penalty": 1.7}, {"repetition_penalty": 1.7}),
        ({"beam_size": 4}, {"num_beams": 4, "early_stopping": "never"}),
        (
            {"beam_size": 3, "length_penalty": 0.3},
            {"num_beams": 3, "length_penalty": 0.3, "early_stopping": "never"},
        ),
    ],
    ids=["greedy", "greedy with penalty", "beam", "beam for short ones"],
)
def test_uneven_prompts_are_continued_as_theirs_continues_them(both, ours, options):
    theirs, generator, ends = both
    found = generator.generate(PROMPTS, GenerateConfig(max_new_pieces=NEW, **ours))
    expected = their_ids(theirs, [one.prompt_ids for one in found], ends, **options)
    assert [list(one.ids) for one in found] == expected
    assert all((one.ended is Ended.eos) == (one.ids[-1] in ends) for one in found)


def test_what_one_seed_draws_are_pieces_that_theirs_leaves_to_draw_from(both):
    """Its processors, in its order, on its logits, for every step of a drawn text."""
    theirs, generator, _ = both
    options = {"temperature": 1.4, "top_k": 9, "top_p": 0.8, "min_p": 0.05}
    config = GenerateConfig(max_new_pieces=NEW, repetition_penalty=1.3, **options)
    settings = transformers.GenerationConfig(do_sample=True, repetition_penalty=1.3, **options)
    for one in generator.generate(PROMPTS, config):
        ids = torch.tensor([[*one.prompt_ids, *one.ids]])
        logits = theirs(ids).logits[0]
        processors = theirs._get_logits_processor(settings, input_ids_seq_length=len(one.prompt_ids))
        for place, (piece, own) in enumerate(zip(one.ids, one.token_log_probs, strict=True), len(one.prompt_ids)):
            left = processors(ids[:, :place], logits[place - 1 : place].clone())
            assert left[0, piece].isfinite()
            assert own == pytest.approx(float(logits[place - 1].log_softmax(-1)[piece]), abs=1e-5)


def test_a_text_stops_where_theirs_stops(both):
    theirs, generator, ends = both
    plain = generator.generate(PROMPTS, GenerateConfig(max_new_pieces=NEW))
    stop = next(one.text[2:4] for one in plain if len(one.text) > 4)
    found = generator.generate(PROMPTS, GenerateConfig(max_new_pieces=NEW, stop=[stop]))
    assert {Ended.stop} <= {one.ended for one in found}
    for one, whole in zip(found, plain, strict=True):
        (expected,) = their_ids(theirs, [one.prompt_ids], ends)
        assert list(one.ids) == expected[: len(one.ids)]
        assert one.text == whole.text.partition(stop)[0]
