import itertools

import pytest
import torch
from matplotlib.text import Text

from seq2seq.inspection.attention import Attention, Kind, choose
from seq2seq.inspection.attention_picture import attention_picture
from seq2seq.inspection.picture import Canvas
from seq2seq.inspection.picture_fonts import choose_fonts

GERMAN = ["▁Donau", "dampf", "schiff", "fahrts", "gesellschaft", "▁läuft", "▁$x$", ".", "</s>"]
ARABIC = ["<s>", "▁مرحبا", "▁بالعالم", "▁ال", "سلام"]


def attentions(source: list[str], target: list[str]) -> list[Attention]:
    def weights(queries: list[str], keys: list[str]) -> torch.Tensor:
        return torch.full((2, 3, len(queries), len(keys)), 1 / len(keys))

    causal = weights(target, target).tril()
    return [
        Attention(Kind.encoder, weights(source, source), source, source),
        Attention(Kind.decoder, causal / causal.sum(-1, keepdim=True), target, target),
        Attention(Kind.cross, weights(target, source), target, source, by_prediction=True),
    ]


def picture(found: list[Attention], output: str = "greedy") -> Canvas:
    fonts = choose_fonts(piece for one in found for piece in (*one.queries, *one.keys))
    return attention_picture(choose(found), fonts, output)


def boxes(canvas: Canvas) -> list[tuple[Text, float, float, float, float]]:
    """Every text with its left, right, lower and upper edge in points."""
    return [(text, *text.get_window_extent().extents[[0, 2, 1, 3]].tolist()) for text in canvas.axes.texts]


@pytest.mark.parametrize(("source", "target"), [(GERMAN, ARABIC), (["a", "</s>"], ["<s>"])])
def test_no_text_leaves_the_picture_or_touches_another_text(source, target):
    canvas = picture(attentions(source, target))
    right, top = canvas.figure.bbox.size
    found = boxes(canvas)
    for text, x_0, x_1, y_0, y_1 in found:
        inside = x_0 >= 0 and x_1 <= right and y_0 >= 0 and y_1 <= top
        assert inside, text
    for (one, a_0, a_1, b_0, b_1), (other, c_0, c_1, d_0, d_1) in itertools.combinations(found, 2):
        apart = a_1 <= c_0 + 1 or c_1 <= a_0 + 1 or b_1 <= d_0 + 1 or d_1 <= b_0 + 1
        assert apart, (one, other)


def test_every_map_has_its_title_its_pieces_and_the_names_of_its_axes():
    canvas = picture(attentions(GERMAN, ARABIC))
    texts = [text.get_text() for text in canvas.axes.texts]
    num_maps = 3 * (3 + 2 * 3)
    assert texts.count("queries (looking)") == texts.count("keys (looked at)") == num_maps
    assert texts.count("layer 2, head 3") == texts.count("mean of all layers") == 3
    assert texts.count("▁läuft") == 2 * num_maps / 3 + num_maps / 3
    assert len(canvas.axes.images) == num_maps + 1
    headings = [text for text in texts if "attention" in text]
    assert headings == [
        "encoder self-attention",
        "decoder self-attention (grey: later pieces, masked); output: greedy",
        "cross-attention (rows: pieces predicted); output: greedy",
    ]


def test_what_a_causal_mask_forbids_is_grey_and_nothing_else_is():
    found = attentions(GERMAN, ARABIC)[1:2]
    found[0].weights[0, 0, 3, 1] = 0.0  # a weight of nothing is no mask
    image = picture(found).axes.images[1 + 3].get_array()
    assert image.mask.tolist() == [[key > query for key in range(5)] for query in range(5)]
    whole = Attention(Kind.decoder, torch.full((1, 1, 2, 2), 0.5), ["a", "b"], ["a", "b"])
    assert not picture([whole]).axes.images[1].get_array().mask.any()


def test_a_piece_that_is_too_long_for_an_axis_is_cut_off():
    canvas = picture(attentions(["x" * 200, "</s>"], ["<s>"]))
    assert "x" * 29 + "…" in [text.get_text() for text in canvas.axes.texts]


def test_a_text_too_long_for_a_picture_is_refused():
    with pytest.raises(
        ValueError, match=r"self-attention has 121 pieces on an axis, a picture has room for 120; choose"
    ):
        picture(attentions(["a"] * 121, ["<s>"]))
