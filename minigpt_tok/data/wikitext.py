r"""WikiText's layout: articles one after the other, each begun by a line ` = Title = `.

Only a heading with a blank line before and after begins an article. Lines of the same form also occur inside articles
(legends of tables such as ` = Goals ; A = `): by the form alone WikiText-2 has 629, 60 and 62 articles, by this rule
the 600, 60 and 60 that it was made of.

Bytes are kept: the articles joined are the file. A blank line before the first heading goes with the first article;
text before it (in an excerpt) is a document of its own.
"""

from collections.abc import Iterable, Iterator
from itertools import chain, pairwise

BLANK_LINE = b" \n"  # as it stands in the published files


def is_heading(line: bytes) -> bool:
    """Whether a line has the form ` = Title = `, of the first level."""
    line = line.rstrip(b"\r\n")
    return len(line) > 6 and line.startswith(b" = ") and line.endswith(b" = ") and not line.startswith(b" = = ")


def looks_like_wikitext(head: bytes) -> bool:
    """Whether the beginning of a file is WikiText's: its first line that is not blank is a heading."""
    first = next((line for line in head.splitlines(keepends=True) if line.strip()), b"")
    return is_heading(first.removeprefix(b"\xef\xbb\xbf"))


def has_blank_lines(head: bytes) -> bool:
    """Whether the beginning of a file has blank lines; some copies of WikiText have lost them."""
    lines = head.splitlines(keepends=True)[:-1]  # the last may be cut
    return any(not line.strip() for line in lines)


def cut_articles(lines: Iterable[bytes], *, blank_lines: bool = True) -> Iterator[bytes]:
    """Join lines (with their newlines) to articles.

    Args:
        lines: of a file, or of a data set's rows.
        blank_lines: require them around a heading. Without them (in copies that lost them) legends of tables are
            taken for headings as well.
    """
    article: list[bytes] = []
    has_text = False
    after_blank = True
    for line, following in pairwise(chain(lines, [b""])):
        if is_heading(line) and (not blank_lines or (after_blank and not following.strip())) and has_text:
            yield b"".join(article)
            article = []
            has_text = False
        after_blank = not line.strip()
        has_text = has_text or not after_blank
        article.append(line)
    if article:
        yield b"".join(article)
