import re
from html.parser import HTMLParser

import pytest

from minigpt_tok.report.html import comparison_page, write_comparison_report

VOID = {"meta", "br", "link", "use", "path", "img"}


class Page(HTMLParser):
    """Collects tags, attributes and text, and holds that every element is closed where it was opened."""

    def __init__(self, text: str):
        super().__init__()
        self.tags, self.attributes, self.open, self.text = [], [], [], []
        self.feed(text)
        self.close()
        assert not self.open

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes += attrs
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes += attrs

    def handle_endtag(self, tag):
        if tag not in VOID:
            assert self.open.pop() == tag

    def handle_data(self, data):
        self.text.append(data)


@pytest.fixture(scope="module")
def page(comparison) -> str:
    return comparison_page(comparison())


def test_page_needs_nothing_else(page):
    parsed = Page(page)
    assert not {"script", "link", "img", "iframe", "object"} & set(parsed.tags)
    for name, value in parsed.attributes:
        if name in ("src", "href", "xlink:href", "srcset"):
            assert value.startswith("#"), (name, value)
    assert not re.search(r"url\((?!#)|@import", page)
    # Namespaces of SVG are names, not addresses that anything fetches.
    addresses = set(re.findall(r"https?://[^\s\"'<]+", page))
    assert addresses <= {"http://www.w3.org/2000/svg", "http://www.w3.org/1999/xlink"}


def test_whatever_comes_from_texts_is_escaped(page):
    assert "<fox>" not in page
    assert "<b>" not in page
    assert "\x1b" not in page
    assert "\x00" not in page
    text = "".join(Page(page).text)
    assert "The fox <b>&amp; ␛[31m日本</b>\n\n  ␀ ran" in text
    assert "stories <1>" in text
    assert "minigpt-tok compare 'a & b'" in text


def test_page_shows_scores_verdicts_caveats_settings_and_fingerprints(page, comparison):
    found = comparison()
    text = "".join(Page(page).text)
    for entry in found.entries:
        assert f"{entry.bits_per_byte:.4f}" in text
        assert entry.fingerprint in text
        assert entry.first_block in text
    for said in (*(verdict.text for verdict in found.verdicts), *found.caveats):
        assert said in text
    assert "body: embedding dim128" in text
    assert "1018, 1019, … (3,000 in all)" in text
    assert "1020" not in text
    assert "not comparable" in text


def test_page_suits_phones_and_dark_rooms(page):
    assert '<meta name="viewport" content="width=device-width, initial-scale=1">' in page
    assert "prefers-color-scheme: dark" in page
    assert page.count("<svg") == 4
    assert page.count("currentColor") > 20
    for opening in re.findall(r"<svg [^>]*>", page):
        assert "viewBox" in opening
        assert not re.search(r"\b(width|height)=", opening)


def test_ids_inside_the_pictures_do_not_clash(page):
    clips = re.findall(r'<clipPath id="([^"]+)"', page)
    assert len(clips) == len(set(clips)) > 0


def test_same_comparison_same_page(page, comparison):
    assert comparison_page(comparison()) == page


def test_several_seeds_are_shown_one_by_one(comparison):
    text = "".join(Page(comparison_page(comparison(seeds=2))).text)
    assert "bpe-1024, seed 1" in text
    assert "lowest to highest of the seeds" in text


def test_page_is_written_whole(tmp_path, comparison):
    path = write_comparison_report(comparison(), tmp_path)
    assert path == tmp_path / "report.html"
    assert path.read_text(encoding="utf-8").endswith("</html>\n")
    assert [file.name for file in tmp_path.iterdir()] == ["report.html"]
