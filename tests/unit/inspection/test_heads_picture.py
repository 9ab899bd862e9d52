import itertools

from seq2seq.inspection.attention import Kind
from seq2seq.inspection.heads import MEASURES, HeadProfile, HeadReport
from seq2seq.inspection.heads_picture import heads_picture


def report() -> HeadReport:
    def measures(value: float, without: str) -> dict[str, float | None]:
        return {name: None if name == without else value for name in MEASURES}

    profiles = [
        HeadProfile(kind, layer, head, measures(layer / 10 + head / 100, without))
        for kind, num_layers, without in ((Kind.encoder, 3, "separator"), (Kind.decoder, 1, "next"))
        for layer in range(1, num_layers + 1)
        for head in (1, 2)
    ]
    uniform = {Kind.encoder: measures(0.125, "separator"), Kind.decoder: measures(0.25, "next")}
    return HeadReport(profiles, uniform, 7, {Kind.encoder: 40, Kind.decoder: 30})


def test_every_kind_has_a_panel_for_each_measure_that_it_has_layers_down_and_heads_across():
    canvas = heads_picture(report())
    images = [image.get_array() for image in canvas.axes.images]
    assert [image.shape for image in images[1:]] == [(3, 2)] * 8 + [(1, 2)] * 8
    assert images[1].round(2).tolist() == [[0.11, 0.12], [0.21, 0.22], [0.31, 0.32]]
    texts = [text.get_text() for text in canvas.axes.texts]
    assert texts.count("entropy") == texts.count("first") == 2
    assert texts.count("separator") == texts.count("next") == 1
    assert texts.count(".31") == 8
    assert "heads over 7 sentences: 40 queries of encoder self-attention, 30 queries of decoder self-attention" in texts
    assert any("a uniform head: first 0.12, previous 0.12" in text for text in texts)


def test_no_text_leaves_the_picture_or_touches_another_text():
    canvas = heads_picture(report())
    right, top = canvas.figure.bbox.size
    found = [text.get_window_extent().extents.tolist() for text in canvas.axes.texts]
    assert all(x_0 >= 0 and y_0 >= 0 and x_1 <= right and y_1 <= top for x_0, y_0, x_1, y_1 in found)
    for (a_0, b_0, a_1, b_1), (c_0, d_0, c_1, d_1) in itertools.combinations(found, 2):
        assert a_1 <= c_0 or c_1 <= a_0 or b_1 <= d_0 or d_1 <= b_0
