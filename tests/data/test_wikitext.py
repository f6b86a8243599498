import logging

import pytest

from minigpt_tok.data import text_files, wikitext
from minigpt_tok.data.documents import ReadCounts

ARTICLE = " \n = One = \n \n Text = with = signs . \n = Goals ; A = \n more \n \n = = Section = = \n \n end \n"


def read(path):
    return list(text_files.read_file(path, ReadCounts()))


@pytest.mark.parametrize(("split", "articles"), [("train", 600), ("valid", 60), ("test", 60)])
def test_wikitext_2_has_exactly_its_articles_and_all_bytes(shared, split, articles):
    path = shared / "corpora" / "wikitext-2" / f"{split}.txt"
    documents = read(path)
    assert len(documents) == articles
    assert "".join(documents).encode() == path.read_bytes()
    assert all(wikitext.is_heading(next(line for line in d.encode().splitlines() if line.strip())) for d in documents)


def test_only_a_heading_between_blank_lines_begins_an_article(tmp_path):
    path = tmp_path / "wiki.train.tokens"
    path.write_text(ARTICLE + " \n = Two = \n \n x \n", encoding="utf-8")
    assert read(path) == [ARTICLE + " \n", " = Two = \n \n x \n"]


def test_text_before_the_first_heading_is_a_document_of_its_own():
    lines = [b" tail of an article \n", b" \n", b" = Two = \n", b" \n", b" x \n"]
    assert list(wikitext.cut_articles(lines)) == [b" tail of an article \n \n", b" = Two = \n \n x \n"]


def test_an_article_of_a_heading_alone_at_the_end():
    lines = [b" = One = \n", b" \n", b" x \n", b" \n", b" = Two = \n"]
    assert len(list(wikitext.cut_articles(lines))) == 2


def test_a_copy_without_blank_lines_and_with_carriage_returns_is_read_and_said(shared, caplog):
    path = shared / "corpora" / "wikitext-2-raw" / "wiki.test.raw"
    with caplog.at_level(logging.WARNING):
        documents = read(path)
    assert "lost the blank lines" in caplog.text
    assert documents[0].startswith(" = Robert Boulter = \r\n")
    assert "".join(documents).encode() == path.read_bytes()
    assert 60 <= len(documents) <= 62


def test_other_text_is_not_taken_for_wikitext():
    assert not wikitext.looks_like_wikitext(b"= Title =\n\ntext")
    assert not wikitext.looks_like_wikitext(b" = = Section = = \n\ntext")
    assert not wikitext.looks_like_wikitext(b"")
    assert wikitext.looks_like_wikitext(b"\xef\xbb\xbf = T = \n")
