"""A long text in parts that can be cut into pieces one after the other, so that its pieces are never all in memory."""

from collections.abc import Iterator

from minigpt_tok.bpe.pretokenize import PreTokenizer

STRETCH = 1 << 20  # characters that are cut into pieces at a time, where the pattern is certain to cut


def stretches(text: str, pretokenizer: PreTokenizer) -> Iterator[str]:
    """`text` in parts of about `STRETCH` characters whose pieces, side by side, are the pieces of the whole."""
    start = 0
    while len(text) - start > STRETCH:
        # Where the next megabyte has no certain cut, look at twice as much: linear in all.
        size = STRETCH
        cut = 0
        while start + size < len(text) and cut == 0:
            cut = pretokenizer.last_certain_cut(text[start : start + size])
            size *= 2
        if cut == 0:
            break
        yield text[start : start + cut]
        start += cut
    if start < len(text):
        yield text[start:] if start else text
