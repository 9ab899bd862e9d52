import itertools

from seq2seq.inspection.picture import check_picture
from seq2seq.inspection.sweep_picture import Measured, sweep_picture


def measured(sizes: list[int], penalties: list[float]) -> list[Measured]:
    return [Measured(size, one, 30 + size + one, 1 + one / 10) for size in sizes for one in penalties]


def test_each_penalty_is_a_line_over_the_beam_sizes_and_both_settings_are_marked():
    canvas = sweep_picture(measured([1, 4, 16], [0.0, 0.6]), "a heading", "a caption", (4, 0.6))
    left, right = canvas.figure.axes
    lines = {str(line.get_label()): list(line.get_ydata()) for line in left.get_lines()}
    assert lines == {"0": [31, 34, 46], "0.6": [31.6, 34.6, 46.6], "best BLEU": [46.6], "in use": [34.6]}
    assert [tick.get_text() for tick in left.get_xticklabels()] == ["1", "4", "16"]
    assert (left.get_ylabel(), left.get_xlabel()) == ("BLEU", "beam size")
    assert list(right.get_lines()[0].get_ydata()) == [1.0, 1.0, 1.0]
    styles = {(line.get_marker(), line.get_linestyle()) for line in left.get_lines()[:2]}
    assert len(styles) == 2


def test_with_one_beam_size_the_penalties_stand_across():
    canvas = sweep_picture(measured([4], [0.0, 0.6, 1.0]), "a heading", "a caption", (2, 0.6))
    left = canvas.figure.axes[0]
    assert [tick.get_text() for tick in left.get_xticklabels()] == ["0", "0.6", "1"]
    assert [str(line.get_label()) for line in left.get_lines()] == ["4", "best BLEU"]


def test_no_text_leaves_the_picture_or_touches_another_text(tmp_path):
    canvas = sweep_picture(measured([1, 2, 4, 8, 16], [0.0, 0.6, 1.0, 1.4]), "heading " * 8, "caption " * 8, (4, 0.6))
    path = tmp_path / "sweep.png"
    check_picture(path)
    assert canvas.save(path) == (1152, 528)
    canvas.figure.draw_without_rendering()  # the file had other points an inch
    right, top = canvas.figure.bbox.size
    texts = [
        text for axes in canvas.figure.axes for text in (*axes.get_xticklabels(), axes.xaxis.label, axes.yaxis.label)
    ]
    texts += [*canvas.figure.texts, *canvas.figure.axes[1].get_legend().get_texts()]
    found = [text.get_window_extent().extents.tolist() for text in texts]
    assert all(x_0 >= 0 and y_0 >= 0 and x_1 <= right and y_1 <= top for x_0, y_0, x_1, y_1 in found)
    for (a_0, b_0, a_1, b_1), (c_0, d_0, c_1, d_1) in itertools.combinations(found, 2):
        assert a_1 <= c_0 or c_1 <= a_0 or b_1 <= d_0 or d_1 <= b_0
