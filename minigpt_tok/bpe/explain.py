"""How a text came to its ids: the pieces, what cut them, and the merges inside each."""

from collections.abc import Callable
from dataclasses import dataclass

from minigpt_tok.bpe.encoder import Encoder


@dataclass(frozen=True)
class ExplainedMerge:
    """One merge: its rank, what it joined, and the tokens of the piece after it."""

    rank: int
    left: str
    right: str
    tokens: tuple[str, ...]


@dataclass(frozen=True)
class ExplainedPiece:
    """One piece: which alternative of the pattern cut it, its base tokens, the merges in order, its ids."""

    text: str
    cut_by: str
    base_tokens: tuple[str, ...]
    merges: tuple[ExplainedMerge, ...]
    ids: tuple[int, ...]
    tokens: tuple[str, ...]


@dataclass(frozen=True)
class Explanation:
    """What `Tokenizer.explain` gives; `str()` of it is a page to read."""

    text: str
    pieces: tuple[ExplainedPiece, ...]

    def __str__(self) -> str:
        lines = []
        for piece in self.pieces:
            lines.append(f"{piece.text!r}  cut by: {piece.cut_by}")
            lines.append(f"  {'':>12}{' '.join(piece.base_tokens)}")
            lines += [f"  rank {merge.rank:<7,}{' '.join(merge.tokens)}" for merge in piece.merges]
            lines.append(f"  {'ids':<12}{' '.join(map(str, piece.ids))}")
        return "\n".join(lines)


def explain(encoder: Encoder, text: str) -> Explanation:
    """Explain a text; added tokens in it are taken as plain text."""
    encoder.encode(text)  # refuses what cannot be encoded, with its place in the text
    readable = _reader(encoder)
    pieces = []
    for piece, cut_by in encoder.explained_cuts(text):
        base, steps = encoder.explain_piece(piece)
        ids = steps[-1].ids_after if steps else base
        pieces.append(
            ExplainedPiece(
                text=piece if isinstance(piece, str) else piece.decode("utf-8", "backslashreplace"),
                cut_by=cut_by,
                base_tokens=tuple(map(readable, base)),
                merges=tuple(
                    ExplainedMerge(
                        step.rank, readable(step.left), readable(step.right), tuple(map(readable, step.ids_after))
                    )
                    for step in steps
                ),
                ids=tuple(ids),
                tokens=tuple(map(readable, ids)),
            )
        )
    return Explanation(text, tuple(pieces))


def _reader(encoder: Encoder) -> Callable[[int], str]:
    def readable(id: int) -> str:
        """`␣the` for ` the`; bytes that are no character alone as `\\xe6`."""
        text = (encoder.model.tokens[id] or b"").decode("utf-8", "backslashreplace")
        return text.replace(" ", "␣").replace("\n", "⏎").replace("\t", "⇥")

    return readable
