"""How a stream of ids becomes blocks: the packings by name, each with an account of what it keeps, loses and repeats.

| packing | a block is | lost | attention across documents |
| --- | --- | --- | --- |
| `contiguous` | the next `block_size` ids of the stream | the tail | yes |
| `document` | the same, with document numbers and positions | the tail | no |
| `best_fit` | whole documents, the longest that fits first | nothing, but there is padding | yes, within a block |
| `bos_aligned` | the same from a separator on, the last document cropped | what is cropped | yes, within a block |

A packing knows how many blocks there are and gathers any of them at once; it reads ids from the memory map and holds
nothing of their size. `PACKINGS` names those there are; `TokenDataset` looks them up there.
"""

from minigpt_tok.data.blocks import NO_TARGET, Account, Amounts, Blocks, Packing
from minigpt_tok.data.contiguous import Contiguous, Document
from minigpt_tok.data.planned import BestFit, BosAligned
from minigpt_tok.errors import DataError

__all__ = ["NO_TARGET", "PACKINGS", "Account", "Amounts", "Blocks", "Packing", "get_packing"]

PACKINGS: dict[str, type[Packing]] = {kind.name: kind for kind in (Contiguous, Document, BestFit, BosAligned)}


def get_packing(name: str) -> type[Packing]:
    """The packing of a name.

    Raises:
        DataError: there is none of that name.
    """
    if name not in PACKINGS:
        raise DataError(f"packing is {name!r}; there is {', '.join(map(repr, PACKINGS))}")
    return PACKINGS[name]
