import json

import pytest
import torch

from seq2seq.config import Architecture, Task
from seq2seq.inspection.attention import (
    Attention,
    Kind,
    as_data,
    attention_of_pair,
    attention_of_text,
    choose,
)

SOURCE, TARGET = [5, 9, 30, 12, 2], [7, 40, 2]
BOS = "<s>"


def maps(num_layers: int = 2, num_heads: int = 3) -> list[Attention]:
    torch.manual_seed(1)

    def weights(queries: int, keys: int) -> torch.Tensor:
        return torch.randn(num_layers, num_heads, queries, keys).softmax(-1)

    source, target = ["a", "b", "</s>"], ["x", "</s>"]
    return [
        Attention(Kind.encoder, weights(3, 3), source, source),
        Attention(Kind.decoder, weights(2, 2), [BOS, "x"], [BOS, "x"]),
        Attention(Kind.cross, weights(2, 3), target, source, by_prediction=True),
    ]


def test_rows_sum_to_one_and_every_piece_has_its_place_in_every_family(bundle_of, family):
    bundle = bundle_of(family)
    found = {one.kind: one for one in attention_of_pair(bundle, SOURCE, TARGET)}
    source = bundle.source_tokenizer.pieces(SOURCE)
    target = bundle.target_tokenizer.pieces(TARGET)
    assert found[Kind.cross].queries == target
    if family.architecture is Architecture.decoder_only:
        assert list(found) == [Kind.decoder, Kind.cross]
        assert found[Kind.decoder].queries == found[Kind.decoder].keys == [*source[:-1], BOS, *target[:-1]]
        assert found[Kind.cross].keys == source[:-1]
    else:
        assert list(found) == [Kind.encoder, Kind.decoder, Kind.cross]
        assert found[Kind.encoder].queries == found[Kind.encoder].keys == found[Kind.cross].keys == source
        assert found[Kind.decoder].queries == found[Kind.decoder].keys == [BOS, *target[:-1]]
    for one in found.values():
        layers = family.num_encoder_layers if one.kind is Kind.encoder else family.num_decoder_layers
        assert one.weights.shape == (layers, family.num_heads, len(one.queries), len(one.keys))
        sums = one.weights.sum(-1)
        assert torch.allclose(sums, torch.ones_like(sums), atol=1e-12) is not one.part


def test_the_alignment_of_a_decoder_only_model_is_the_part_of_its_map_from_target_to_source(bundle_of, families):
    whole, part = attention_of_pair(bundle_of(families("qwen3")), SOURCE, TARGET)
    assert torch.equal(part.weights, whole.weights[:, :, 4:, :4])
    assert part.part
    assert "the rest of a row being on the target" in part.name


def test_a_decoder_only_model_without_a_source_has_no_alignment(bundle_of, families):
    (whole,) = attention_of_pair(bundle_of(families("gpt2")), [2], TARGET)
    assert len(whole.keys) == 3


def test_a_language_model_sees_only_what_came_before_so_a_longer_text_changes_nothing(bundle_of, families):
    bundle = bundle_of(families("llama"), Task.language_model)
    (longer,) = attention_of_text(bundle, [5, 9, 30, 12, 17])
    (shorter,) = attention_of_text(bundle, [5, 9, 30])
    torch.testing.assert_close(longer.weights[:, :, :3, :3], shorter.weights, rtol=0, atol=1e-12)
    assert longer.weights[:, :, 2, 3:].abs().max() == 0
    assert longer.queries == longer.keys == bundle.target_tokenizer.pieces([5, 9, 30, 12, 17])


def test_weights_of_half_precision_come_as_float32(bundle_of, families):
    bundle = bundle_of(families("llama"), Task.language_model)
    bundle.model.bfloat16()
    (found,) = attention_of_text(bundle, [5, 9])
    assert found.weights.dtype is torch.float32


def test_all_maps_are_chosen_with_the_means_over_heads_and_over_everything():
    attentions = maps()
    chosen = choose(attentions)
    assert [one.attention.kind for one in chosen] == [Kind.encoder, Kind.decoder, Kind.cross]
    cross = chosen[2]
    titles = ["layer 1, mean of heads", "layer 2, mean of heads", "mean of all layers"]
    assert [heat.title for heat in cross.means] == titles
    assert [[heat.title for heat in row] for row in cross.heads][1] == [f"layer 2, head {head}" for head in (1, 2, 3)]
    weights = attentions[2].weights
    assert torch.equal(cross.heads[1][2].weights, weights[1, 2])
    torch.testing.assert_close(cross.means[1].weights, (weights[1, 0] + weights[1, 1] + weights[1, 2]) / 3)
    torch.testing.assert_close(cross.means[2].weights, weights.flatten(0, 1).sum(0) / 6)


def test_layers_heads_and_kinds_narrow_the_choice():
    (cross,) = choose(maps(), kinds=[Kind.cross], layers=[2], heads=[3, 1])
    assert cross.means == []
    assert [[heat.title for heat in row] for row in cross.heads] == [["layer 2, head 3", "layer 2, head 1"]]
    (cross,) = choose(maps(), kinds=[Kind.cross], layers=[2])
    assert [heat.title for heat in cross.means] == ["layer 2, mean of heads"]
    (cross,) = choose(maps(), kinds=[Kind.cross], averages_only=True)
    assert (len(cross.means), cross.heads) == (3, [])
    (cross,) = choose(maps(num_layers=1), kinds=[Kind.cross])
    assert [heat.title for heat in cross.means] == ["layer 1, mean of heads"]


def test_what_the_model_does_not_have_is_refused():
    with pytest.raises(
        ValueError, match=r"layer 3: the model's encoder self-attention has 2 layers; choose from 1 to 2"
    ):
        choose(maps(), layers=[3])
    with pytest.raises(ValueError, match=r"head 0: the model's cross-attention has 3 heads; choose from 1 to 3"):
        choose(maps(), kinds=[Kind.cross], heads=[0])
    with pytest.raises(ValueError, match="this model has no encoder attention; choose from decoder, cross"):
        choose(maps()[1:], kinds=[Kind.encoder])
    with pytest.raises(ValueError, match="head 2 and averages only exclude each other"):
        choose(maps(), heads=[2], averages_only=True)


def test_the_data_has_every_map_with_its_pieces():
    attentions = maps()
    data = json.loads(json.dumps(as_data(choose(attentions, kinds=[Kind.cross]), "greedy")))
    assert data["output"] == "greedy"
    (cross,) = data["attention"]
    assert (cross["kind"], cross["queries_named_by"], cross["rows_sum_to_one"]) == ("cross", "predicted piece", True)
    assert (cross["queries"], cross["keys"]) == (["x", "</s>"], ["a", "b", "</s>"])
    places = [(heat["layer"], heat["head"]) for heat in cross["maps"]]
    assert places == [(1, None), (2, None), (None, None), *((layer, head) for layer in (1, 2) for head in (1, 2, 3))]
    torch.testing.assert_close(
        torch.tensor(cross["maps"][-1]["weights"]), attentions[2].weights[1, 2], atol=1e-6, rtol=0
    )
