import dataclasses
import json
import math

import pytest

from seq2seq.config import GenerateConfig, from_dict, to_dict

REFUSED = [
    ({"max_new_pieces": 0}, "max_new_pieces=0 is not positive"),
    ({"beam_size": 0}, "beam_size=0 is not positive"),
    ({"num_samples": -1}, "num_samples=-1 is not positive"),
    ({"batch_tokens": 0}, "batch_tokens=0 is not positive"),
    ({"repetition_penalty": 0.0}, "repetition_penalty=0.0 is not positive"),
    ({"length_penalty": -21}, "length_penalty=-21.0 is not between -20 and 20; 1 is usual"),
    ({"temperature": -0.1}, "temperature=-0.1 is negative or too large; 0 draws nothing"),
    ({"temperature": math.nan}, "temperature=nan is negative"),
    ({"temperature": math.inf}, "temperature=inf is negative or too large"),
    ({"temperature": 1, "top_k": 0}, "top_k=0 is not positive"),
    ({"temperature": 1, "top_p": 0}, "top_p=0.0 is not above 0 and at most 1; 0.9 is usual"),
    ({"temperature": 1, "top_p": 1.1}, "top_p=1.1 is not above 0 and at most 1"),
    ({"temperature": 1, "min_p": -0.1}, "min_p=-0.1 is not between 0 and 1; 0.05 is usual"),
    ({"temperature": 1, "min_p": 1.5}, "min_p=1.5 is not between 0 and 1"),
    ({"seed": -1}, "seed=-1 is out of range; choose 0 <= seed < 4294967296"),
    ({"stop": ["a", ""]}, "stop has '', expected strings of at least one character"),
    ({"stop": "a"}, "option 'stop' got 'a', expected list"),
    ({"beam_size": 4, "temperature": 0.8}, "beam_size=4 looks for the most probable text, temperature=0.8 draws one"),
    ({"top_k": 5}, "top_k=5 is for texts that are drawn, but with temperature=0 nothing is; give a temperature above"),
    ({"top_p": 0.9}, "top_p=0.9 is for texts that are drawn"),
    ({"min_p": 0.1}, "min_p=0.1 is for texts that are drawn"),
    ({"num_samples": 3}, "num_samples=3 is for texts that are drawn"),
    ({"beam_size": 4, "num_samples": 3}, "num_samples=3 is for texts that are drawn"),
]


@pytest.mark.parametrize(("values", "message"), REFUSED)
def test_what_makes_no_sense_is_refused_with_a_reason(values, message):
    with pytest.raises(ValueError, match=message):
        from_dict(GenerateConfig, values)


def test_what_does_make_sense_survives_json():
    config = GenerateConfig(
        max_new_pieces=7,
        temperature=0.8,
        top_k=5,
        top_p=0.9,
        min_p=0.02,
        repetition_penalty=1.2,
        num_samples=3,
        seed=9,
        stop=["\n", "Ende"],
        batch_tokens=55,
    )
    assert from_dict(GenerateConfig, json.loads(json.dumps(to_dict(config)))) == config
    beam = dataclasses.replace(GenerateConfig(), beam_size=4, length_penalty=0.5, repetition_penalty=1.5)
    assert from_dict(GenerateConfig, to_dict(beam)) == beam
