"""Draw docs/packings.svg: one small text in the blocks of every packing, as `TokenDataset` gives them.

Nothing is drawn by hand: squares are the places of real blocks, coloured by the document of the id that is predicted.
"""

import argparse
import sys
import tempfile
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from minigpt_tok.data.id_file import IdFile  # noqa: E402
from minigpt_tok.data.id_format import IdFileMetadata  # noqa: E402
from minigpt_tok.data.id_writer import write_id_file  # noqa: E402
from minigpt_tok.data.token_dataset import TokenDataset  # noqa: E402

LENGTHS = (7, 3, 13, 5, 9, 2, 28, 4, 6)  # of the documents, in ids, the separator apart
BLOCK = 16
SEPARATOR = 999
COLOURS = ("#4e79a7", "#f28e2b", "#59a14f", "#e15759", "#76b7b2", "#edc948", "#b07aa1", "#ff9da7", "#9c755f")
SQUARE, GAP, LEFT, LINE = 16, 2, 12, 18
NOTES = {
    "contiguous": "the stream, cut every 16 ids; documents run on",
    "document": "the same blocks; attention ends at the bars, positions begin again there",
    "best_fit": "whole documents, the longest that fits first; only what is longer than a block is cut",
    "bos_aligned": "every block begins behind a separator; the last document is cropped",
}


def main() -> None:
    """Write the picture."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=ROOT / "docs" / "packings.svg")
    arguments = parser.parse_args()
    arguments.out.write_text(picture(), encoding="utf-8")


def picture() -> str:
    """The SVG's text."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "train.safetensors"
        _write(path)
        file = IdFile(path)
        parts: list[str] = []
        y = _row(
            parts, LINE, "the ids, one document after the other; a dot is a separator", np.arange(len(file.ids)), file
        )
        for name, note in NOTES.items():
            y = _packing(parts, y + LINE, TokenDataset(path, BLOCK, packing=name), file, note)
    width = LEFT + len(file.ids) * 7 + LEFT
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{y}" viewBox="0 0 {width} {y}" '
        'font-family="sans-serif" font-size="12">\n'
        f'<rect width="{width}" height="{y}" fill="white"/>\n' + "\n".join(parts) + "\n</svg>\n"
    )


def _write(path: Path) -> None:
    """Every id is its own place, separators too, so that targets say where they are from."""
    metadata = IdFileMetadata(
        tokenizer_fingerprint="0", tokenizer_fingerprint_version=1, vocab_size=1000, corpus="drawn", split="train",
        separator="<|endoftext|>", separator_id=SEPARATOR,
    )  # fmt: skip
    ends = np.cumsum([length + 1 for length in LENGTHS])
    write_id_file(path, [("", part) for part in np.split(np.arange(ends[-1]), ends[:-1])], metadata)


def _row(parts: list[str], y: int, title: str, places: np.ndarray, file: IdFile) -> int:
    """All ids in one line of narrow squares."""
    parts.append(_text(LEFT, y, title))
    for number, place in enumerate(places):
        _square(parts, LEFT + number * 7, y + 6, int(place), file, width=6)
    return y + 6 + SQUARE + GAP


def _packing(parts: list[str], y: int, dataset: TokenDataset, file: IdFile, note: str) -> int:
    amounts = dataset.account.tokens
    lost = f"{amounts.cropped} cropped" if amounts.cropped else f"{amounts.lost} lost"
    parts.append(_text(LEFT, y, f"{dataset.packing}: {note}", bold=dataset.packing))
    parts.append(_text(LEFT, y + LINE, f"{amounts.kept} of {amounts.total} ids kept, {lost}, {amounts.padded} padded"))
    y += LINE + 6
    batch = dataset.__getitems__(np.arange(len(dataset)))
    column_width = BLOCK * (SQUARE + GAP) + 14
    per_line = 2
    for number, targets in enumerate(batch.targets.tolist()):
        x = LEFT + number % per_line * column_width
        top = y + number // per_line * (SQUARE + 8)
        parts.append(
            f'<rect x="{x - 2}" y="{top - 2}" width="{BLOCK * (SQUARE + GAP) + 2}" height="{SQUARE + 4}" fill="none" '
            'stroke="#999"/>'
        )
        for column, target in enumerate(targets):
            _square(parts, x + column * (SQUARE + GAP), top, target, file)
        if batch.documents is not None:
            documents = batch.documents[number].tolist()
            for column in range(1, BLOCK):
                if documents[column] != documents[column - 1]:
                    at = x + column * (SQUARE + GAP) - GAP / 2
                    parts.append(
                        f'<line x1="{at}" x2="{at}" y1="{top - 5}" y2="{top + SQUARE + 5}" stroke="black" '
                        'stroke-width="2"/>'
                    )
    return y + -(-len(dataset) // per_line) * (SQUARE + 8)


def _square(parts: list[str], x: float, y: float, place: int, file: IdFile, width: int = SQUARE) -> None:
    if place < 0:  # padding
        parts.append(f'<rect x="{x}" y="{y}" width="{width}" height="{SQUARE}" fill="white" stroke="#ccc"/>')
        return
    document = int(np.searchsorted(file.document_ends, place, side="right"))
    parts.append(f'<rect x="{x}" y="{y}" width="{width}" height="{SQUARE}" fill="{COLOURS[document % len(COLOURS)]}"/>')
    if place + 1 in file.document_ends:
        parts.append(f'<circle cx="{x + width / 2}" cy="{y + SQUARE / 2}" r="{min(3, width / 2)}" fill="black"/>')


def _text(x: float, y: float, text: str, bold: str = "") -> str:
    head = f'<tspan font-weight="bold">{bold}</tspan>' if bold else ""
    return f'<text x="{x}" y="{y}">{head}{text.removeprefix(bold)}</text>'


if __name__ == "__main__":
    main()
