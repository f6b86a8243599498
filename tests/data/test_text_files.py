from pathlib import Path

import pytest

from minigpt_tok.data import text_files
from minigpt_tok.data.documents import ReadCounts
from minigpt_tok.errors import CorpusError

EOT = "<|endoftext|>"


def read(path: Path, **options):
    counts = ReadCounts()
    return list(text_files.read_file(path, counts, **options)), counts


def written(tmp_path: Path, content: str | bytes) -> Path:
    path = tmp_path / "text.txt"
    path.write_bytes(content if isinstance(content, bytes) else content.encode("utf-8"))
    return path


def test_a_file_without_separators_is_one_document_with_its_bytes_kept(tmp_path):
    text = "first\r\nsecond\rthird\n\n\x00日本\u200b\n"
    documents, counts = read(written(tmp_path, text))
    assert documents == [text]
    assert counts.separators == 0


def test_of_a_separator_line_the_token_and_one_newline_on_each_side_go(tmp_path):
    documents, counts = read(written(tmp_path, f"a\n\n{EOT}\n\nb\n{EOT}\nc\n{EOT}\n"))
    assert documents == ["a\n", "\nb", "c"]
    assert counts.separators == 3
    assert counts.separator_bytes == 3 * (len(EOT) + 2)


def test_carriage_returns_belong_to_the_newline(tmp_path):
    documents, counts = read(written(tmp_path, f"a\r\n{EOT}\r\nb\r\n"))
    assert documents == ["a", "b\r\n"]
    assert counts.separator_bytes == len(EOT) + 4


def test_a_mention_inside_a_line_does_not_separate(tmp_path):
    text = f"the token {EOT} ends\n{EOT} a document\nas {EOT}\n"
    assert read(written(tmp_path, text))[0] == [text]


def test_a_given_separator_cuts_wherever_it_stands(tmp_path):
    path = written(tmp_path, f"a{EOT}b {EOT}\nc\n")
    assert read(path, separator=EOT)[0] == ["a", "b ", "c\n"]


def test_a_separator_with_its_own_newlines_takes_no_others(tmp_path):
    documents, counts = read(written(tmp_path, "one\n\n\n\ntwo\n\n\nthree\n"), separator="\n\n\n")
    assert documents == ["one", "\ntwo", "three\n"]
    assert counts.separator_bytes == 6


def test_no_separator_means_the_whole_file(tmp_path):
    text = f"a\n{EOT}\nb"
    assert read(written(tmp_path, text), separator=None)[0] == [text]


def test_an_empty_separator_is_refused():
    with pytest.raises(CorpusError, match="empty"):
        text_files.check_options("", "strict")


def test_a_long_document_is_found_whole_across_reads(tmp_path):
    long = "x" * (3 << 20)
    documents, _ = read(written(tmp_path, f"{long}\n{EOT}\n{long}y\n{EOT}\nz"))
    assert [len(d) for d in documents] == [3 << 20, (3 << 20) + 1, 1]


def test_what_is_not_utf8_is_named_by_file_and_byte(tmp_path):
    path = written(tmp_path, b"good\n<|endoftext|>\nbad \xff\xfe here")
    with pytest.raises(CorpusError, match=rf"{path}: not UTF-8 at byte 23 \(0xff\)"):
        read(path)


@pytest.mark.parametrize(("errors", "text"), [("replace", "a\ufffdb\ufffd\ufffdc"), ("ignore", "ab\ufffdc")])
def test_undecodable_places_are_counted_apart_from_real_replacement_characters(tmp_path, errors, text):
    documents, counts = read(written(tmp_path, b"a\xffb\xe6\x97\xef\xbf\xbdc"), errors=errors)
    assert documents == [text]
    assert counts.undecodable == 2


def test_a_byte_order_mark_is_kept_and_said(tmp_path, caplog):
    documents, counts = read(written(tmp_path, "\ufeffhello"))
    assert documents == ["\ufeffhello"]
    assert counts.byte_order_marks == 1
    assert "byte order mark" in caplog.text


@pytest.mark.parametrize("name", ["a.json", "a.csv.gz", "a.txt.bz2", "a.ZIP"])
def test_other_formats_are_refused_by_what_is_read(tmp_path, name):
    path = tmp_path / name
    path.write_bytes(b"{}")
    with pytest.raises(CorpusError, match=r"not read.*\.txt"):
        text_files.check_file(path)


def test_published_tinystories(shared):
    path = shared / "corpora" / "tinystories" / "tinystories_v2_1728_stories.txt"
    documents, counts = read(path)
    assert len(documents) == counts.separators == 1728
    assert documents[0].startswith("Once upon a time there was a little boy")
    assert documents[-1].endswith("as fast as they could.")
    assert sum(len(d.encode()) for d in documents) + counts.separator_bytes == path.stat().st_size


def test_two_blank_lines_between_books(shared):
    path = shared / "corpora" / "prose" / "gutenberg_1MB.txt"
    documents, counts = read(path, separator="\n\n\n")
    assert len(documents) == counts.separators + 1 > 1
    assert "\n\n\n".join(documents) == path.read_bytes().decode()
