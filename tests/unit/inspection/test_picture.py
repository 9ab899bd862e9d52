import numpy as np
import pytest
from matplotlib import colormaps
from matplotlib.image import imread

from seq2seq.inspection.picture import Canvas, check_picture, text_width

FAMILY = ["DejaVu Sans"]


def test_a_matrix_is_drawn_with_its_first_row_at_the_top_and_its_first_column_at_the_left(tmp_path):
    canvas = Canvas.new(4.0, 3.0, FAMILY)
    values = np.array([[0.0, 0.5, 1.0], [1.0, 0.25, np.nan]])
    canvas.heat(values, x=0.5, y=1.0, width=3.0, height=1.0)
    assert canvas.save(tmp_path / "a.png", dpi=100) == (400, 300)
    picture = imread(tmp_path / "a.png")
    assert picture.shape[:2] == (300, 400)
    assert picture[50, 200, :3].tolist() == [1, 1, 1]
    for row in range(2):
        for column in range(3):
            shown = picture[125 + 50 * row, 100 + 100 * column, :3]
            value = values[row, column]
            grey = (211 / 255,) * 3
            colour = grey if np.isnan(value) else colormaps["viridis"](value)[:3]
            assert shown == pytest.approx(colour, abs=0.01)


def test_a_dollar_in_a_piece_is_no_formula(tmp_path):
    canvas = Canvas.new(1.0, 1.0, FAMILY)
    canvas.text("$x^$", 0.1, 0.1, 8.0)
    canvas.text("$\\frac", 0.1, 0.5, 8.0)
    canvas.save(tmp_path / "a.png")


@pytest.mark.parametrize("ending", ["png", "svg", "pdf"])
def test_the_same_picture_has_the_same_bytes_in_every_format(tmp_path, ending):
    for name in ("a", "b"):
        canvas = Canvas.new(2.0, 1.0, FAMILY)
        canvas.heat(np.eye(2), 0.5, 0.5, 0.4, 0.4)
        canvas.text("Grüße", 0.1, 0.1, 8.0)
        canvas.save(tmp_path / f"{name}.{ending}")
    content = (tmp_path / f"a.{ending}").read_bytes()
    assert content == (tmp_path / f"b.{ending}").read_bytes()
    assert {"png": b"\x89PNG", "svg": b"<?xml", "pdf": b"%PDF"}[ending] == content[: len(b"<?xml")][
        : 4 + (ending == "svg")
    ]


def test_a_picture_that_no_program_would_show_is_refused_and_nothing_is_written(tmp_path):
    canvas = Canvas.new(100.0, 100.0, FAMILY)
    with pytest.raises(ValueError, match=r"would have 10000 x 10000 points, 60 million at most .*choose fewer layers"):
        canvas.save(tmp_path / "a.png", dpi=100)
    assert list(tmp_path.iterdir()) == []


def test_a_name_that_is_no_picture_or_no_place_is_refused_before_the_work(tmp_path):
    for name in ("a.jpg", "a", "a.png.txt"):
        with pytest.raises(ValueError, match=r"a picture's name ends in \.png, \.svg or \.pdf"):
            check_picture(tmp_path / name)
    with pytest.raises(FileNotFoundError, match=r"there is no folder .*missing"):
        check_picture(tmp_path / "missing" / "a.png")
    check_picture(tmp_path / "a.PNG")


def test_the_width_of_texts_is_that_of_the_widest_and_grows_with_the_letters():
    assert text_width([], 8.0, FAMILY) == 0
    assert (
        text_width(["i", "WWWW"], 8.0, FAMILY) == text_width(["WWWW"], 8.0, FAMILY) > 3 * text_width(["i"], 8.0, FAMILY)
    )
    assert text_width(["WWWW"], 16.0, FAMILY) == pytest.approx(2 * text_width(["WWWW"], 8.0, FAMILY), rel=0.05)
