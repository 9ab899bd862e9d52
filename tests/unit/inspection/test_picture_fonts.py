from pathlib import Path

import matplotlib
import pytest
from matplotlib import font_manager, ft2font

from seq2seq.inspection.picture import Canvas
from seq2seq.inspection.picture_fonts import choose_fonts

ARABIC, CHINESE = "مرحبا", "我们"


FONTS = Path(matplotlib.get_data_path()) / "fonts" / "ttf"


def entry(file: Path) -> font_manager.FontEntry:
    return font_manager.ttfFontProperty(ft2font.FT2Font(str(file)))


def special() -> str:
    """A character that STIXGeneral has, but DejaVu Sans has not."""
    common = ft2font.FT2Font(str(FONTS / "DejaVuSans.ttf"))
    own = ft2font.FT2Font(str(FONTS / "STIXGeneral.ttf")).get_charmap()
    return next(chr(code) for code in sorted(own) if chr(code).isprintable() and not common.get_char_index(code))


@pytest.fixture(autouse=True)
def bare_system(monkeypatch):
    """A machine that has no fonts but DejaVu Sans, and the placeholder that comes with matplotlib where it does."""
    files = [*FONTS.glob("LastResort*.ttf"), FONTS / "DejaVuSans.ttf"]
    monkeypatch.setattr(font_manager.fontManager, "ttflist", [entry(file) for file in files])
    monkeypatch.setattr(font_manager, "findSystemFonts", list)


def test_one_font_is_enough_for_latin_and_arabic_and_nothing_is_said():
    fonts = choose_fonts(["▁Grüße", "</s>", "▁привет", ARABIC])
    assert (list(fonts.families), list(fonts.missing)) == (["DejaVu Sans"], [])
    assert list(fonts.notes) == []
    assert fonts.written("▁Grüße") == "▁Grüße"


def test_characters_that_no_font_has_are_written_as_codes_and_named_with_what_to_install():
    fonts = choose_fonts(["▁我们x", "们。"])
    assert list(fonts.missing) == ["。", "们", "我"]
    assert fonts.written("▁我们x") == "▁ U+6211 U+4EEC x"
    (note,) = fonts.notes
    assert note.startswith(
        "no installed font has 。 (U+3002), 们 (U+4EEC), 我 (U+6211), so the picture has their codes"
    )
    assert "install Noto Sans CJK (on Debian and Ubuntu the package fonts-noto-cjk)" in note
    assert "or give a font file with --font" in note


def test_many_missing_characters_are_counted_and_other_scripts_get_other_advice():
    (note,) = choose_fonts(["".join(map(chr, range(0x1780, 0x1780 + 20)))]).notes
    assert "and 8 more" in note
    assert "package fonts-noto)" in note


def test_what_cannot_be_seen_is_written_as_its_code_but_joiners_are_part_of_the_spelling():
    fonts = choose_fonts(["a\nb", "\u200b", "می\u200cخواهم"])
    assert fonts.written("a\nb") == "a U+000A b"
    assert fonts.written("\u200b") == "U+200B"
    assert fonts.written("می\u200cخواهم") == "می\u200cخواهم"
    assert list(fonts.notes) == []


def test_a_font_that_has_what_is_missing_is_added_where_it_is_needed(monkeypatch):
    listed = [*font_manager.fontManager.ttflist, entry(FONTS / "STIXGeneral.ttf")]
    monkeypatch.setattr(font_manager.fontManager, "ttflist", listed)
    fonts = choose_fonts([special()])
    assert (list(fonts.families), list(fonts.missing)) == (["DejaVu Sans", "STIXGeneral"], [])
    assert list(choose_fonts(["a"]).families) == ["DejaVu Sans"]


def test_a_font_installed_since_the_list_of_fonts_was_made_is_found(monkeypatch, tmp_path):
    damaged = tmp_path / "damaged.ttf"
    damaged.write_bytes(b"no font")
    found = [str(damaged), str(FONTS / "STIXGeneral.ttf")]
    monkeypatch.setattr(font_manager, "findSystemFonts", lambda: found)
    assert list(choose_fonts([special()]).families) == ["DejaVu Sans", "STIXGeneral"]


def test_a_listed_font_that_is_damaged_or_gone_is_passed_over(monkeypatch, tmp_path):
    damaged = tmp_path / "damaged.ttf"
    damaged.write_bytes(b"no font")
    lost = [
        font_manager.FontEntry(fname=str(file), name="Noto Sans CJK SC", weight=400)
        for file in (damaged, tmp_path / "gone.ttf")
    ]
    monkeypatch.setattr(font_manager.fontManager, "ttflist", [*font_manager.fontManager.ttflist, *lost])
    assert list(choose_fonts([CHINESE]).families) == ["DejaVu Sans"]


def test_a_given_font_file_comes_first():
    fonts = choose_fonts([special()], FONTS / "STIXGeneral.ttf")
    assert (list(fonts.families), list(fonts.missing)) == (["STIXGeneral"], [])
    assert list(choose_fonts([ARABIC], FONTS / "STIXGeneral.ttf").families) == ["STIXGeneral", "DejaVu Sans"]


def test_a_font_file_that_is_none_is_refused(tmp_path):
    damaged = tmp_path / "damaged.ttf"
    with pytest.raises(
        FileNotFoundError, match=r"no font file at .*damaged\.ttf; expected a \.ttf, \.otf or \.ttc file"
    ):
        choose_fonts(["a"], damaged)
    damaged.write_bytes(b"no font")
    with pytest.raises(
        ValueError, match=r"damaged\.ttf is not a font that can be drawn with .*; give a \.ttf or \.otf"
    ):
        choose_fonts(["a"], damaged)


def test_older_versions_of_matplotlib_say_that_they_do_not_join_arabic_letters(monkeypatch):
    monkeypatch.delattr(ft2font, "__libraqm_version__", raising=False)
    (note,) = choose_fonts([ARABIC]).notes
    assert "draws letters that run from right to left one by one from left to right" in note
    assert "version 3.11 orders and joins them" in note
    assert list(choose_fonts(["a"]).notes) == []


def test_nothing_that_is_drawn_as_written_needs_a_placeholder_or_a_warning(tmp_path):
    pieces = ["▁Grüße", ARABIC, CHINESE, "می\u200cخواهم", "a\nb", "$x", "👨", "\ufffd"]
    fonts = choose_fonts(pieces)
    canvas = Canvas.new(4.0, 1.0, fonts.families)
    for at, piece in enumerate(pieces):
        canvas.text(fonts.written(piece), 0.1 + at / 2, 0.5, 8.0)
    canvas.save(tmp_path / "all.png")  # a warning about a glyph would be an error here
    has = ft2font.FT2Font(str(FONTS / "DejaVuSans.ttf")).get_char_index
    assert all(has(ord(character)) for piece in pieces for character in fonts.written(piece))
