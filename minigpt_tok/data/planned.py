"""Packings that choose which documents lie in which block: `best_fit` and `bos_aligned`.

What lies where is planned once (`row_plan`) and kept beside the data, in `plans/`, under a hash of all that the plan
depends on: where documents end, the separator, the block size, the packing and the version of the planner. It is mapped
into memory, not loaded. Where the folder cannot be written to, the plan is made anew each time.
"""

import hashlib
import logging
from collections.abc import Callable
from pathlib import Path
from typing import ClassVar, NamedTuple

import numpy as np

from minigpt_tok.data.blocks import AT_ONCE, NO_TARGET, Account, Amounts, Blocks, size_of
from minigpt_tok.data.contiguous import digest_of_documents
from minigpt_tok.data.id_file import IdFile
from minigpt_tok.data.row_plan import Plan, plan_best_fit, plan_bos_aligned
from minigpt_tok.errors import DataError
from minigpt_tok.files import writing

log = logging.getLogger(__name__)

PLANNER_VERSION = 1
FOLDER = "plans"


class DocumentTargets(NamedTuple):
    """Which targets documents have, int64 `(n_documents,)` each: the first one's place in the ids, and how many."""

    starts: np.ndarray
    lengths: np.ndarray


def document_targets(document_ends: np.ndarray, *, separated: bool) -> DocumentTargets:
    """All ids of a document where a separator is before it, else all but the first, which has nothing before it."""
    ends = np.asarray(document_ends, dtype=np.int64)
    starts = np.concatenate([np.zeros(1, dtype=np.int64), ends[:-1]])
    if separated:
        return DocumentTargets(starts, ends - starts)
    return DocumentTargets(starts + 1, np.maximum(ends - starts - 1, 0))


def gather_rows(plan: Plan, rows: np.ndarray, ids: np.ndarray, block_size: int, before_first: int) -> Blocks:
    """The rows of these numbers, int64 `(n,)`, filled up with places that have no target.

    `before_first`: the id that stands before `ids[0]`: the separator where there is one.
    """
    ends = np.asarray(plan.row_ends[rows])
    begins = np.where(rows > 0, np.asarray(plan.row_ends[np.maximum(rows - 1, 0)]), 0)
    pieces = _runs(begins, ends - begins)
    lengths = np.asarray(plan.lengths[pieces])
    places = _runs(np.asarray(plan.starts[pieces]), lengths)
    row_of_piece = np.repeat(np.arange(len(rows)), ends - begins)
    filled = np.arange(block_size) < np.bincount(row_of_piece, lengths, minlength=len(rows))[:, None]
    inputs = np.full(filled.shape, before_first, dtype=np.int64)
    targets = np.full(filled.shape, NO_TARGET, dtype=np.int64)
    targets[filled] = ids[places]
    read = ids[np.maximum(places - 1, 0)].astype(np.int64)
    read[places == 0] = before_first
    inputs[filled] = read
    return Blocks(inputs, targets)


def _runs(starts: np.ndarray, lengths: np.ndarray) -> np.ndarray:
    """starts[0], starts[0] + 1, … for lengths[0] numbers, then from starts[1] on, and so on: int64."""
    return np.repeat(starts - (np.cumsum(lengths) - lengths), lengths) + np.arange(int(lengths.sum()))


class _Planned:
    """What both have in common; see `Packing`."""

    name: ClassVar[str]
    _planner: ClassVar[Callable[..., Plan]]

    def __init__(self, file: IdFile, block_size: int, stride: int | None, seed: int) -> None:
        """`stride` must be `None`; `seed` is not used: the plan is the same whatever the order."""
        if stride is not None:
            raise DataError(f"stride is {stride}, and blocks of {self.name} are made of documents: leave it out")
        self._file = file
        self._block_size = block_size
        self._separator = file.metadata.separator_id
        self._digest = self._digest_of_plan()
        plan = self._kept()
        if plan is None:
            targets = document_targets(file.document_ends, separated=self._separator is not None)
            plan = type(self)._planner(targets.starts, targets.lengths, block_size)
            self._keep(plan)
            plan = self._kept() or plan  # mapped, where it could be kept: it has 24 bytes for each piece
        self._plan = plan
        if not len(plan.row_ends):
            raise DataError(f"{file.path} has no document with an id to predict: there is not one block; use more text")

    @property
    def stride(self) -> None:
        """There is none."""

    @property
    def depends_on(self) -> tuple[str, ...]:
        """The plan."""
        return (self._digest,)

    def __len__(self) -> int:
        return len(self._plan.row_ends)

    def gather(self, blocks: np.ndarray) -> Blocks:
        """See `Packing.gather`."""
        return gather_rows(self._plan, blocks, self._file.ids, self._block_size, self._separator or 0)

    def account(self, byte_lengths: np.ndarray | None) -> Account:
        """See `Packing.account`. For bytes it reads the ids that are no target."""
        total, kept = len(self._file.ids), int(self._plan.lengths.sum())
        targets = document_targets(self._file.document_ends, separated=self._separator is not None)
        cropped = int(targets.lengths.sum()) - kept
        padded = len(self) * self._block_size - kept
        tokens = Amounts(total, kept, total - kept, 0, padded, cropped)
        if byte_lengths is None:
            return Account(len(self), tokens, None)
        lost = 0
        if kept < total:
            starts, lengths = self._gaps()
            lost = self._size_of_runs(byte_lengths, starts, lengths)
        n_bytes = self._file.metadata.n_bytes
        # What is lost is cropped, or the first ids of documents without a separator, which are never cropped.
        of_bytes = Amounts(n_bytes, n_bytes - lost, lost, 0, 0, lost if cropped else 0)
        return Account(len(self), tokens, of_bytes)

    def _gaps(self) -> tuple[np.ndarray, np.ndarray]:
        """(starts, lengths) of the ids between pieces, in the order of the file."""
        order = np.argsort(self._plan.starts, kind="stable")
        starts = self._plan.starts[order]
        ends = np.concatenate([np.zeros(1, dtype=np.int64), starts + self._plan.lengths[order]])
        lengths = np.concatenate([starts, [len(self._file.ids)]]) - ends
        return ends[lengths > 0], lengths[lengths > 0]

    def _size_of_runs(self, byte_lengths: np.ndarray, starts: np.ndarray, lengths: np.ndarray) -> int:
        total, at = 0, 0
        ends = np.cumsum(lengths)
        while at < len(lengths):  # as many runs as make AT_ONCE ids, and one at least
            behind = max(at + 1, int(np.searchsorted(ends, (ends[at - 1] if at else 0) + AT_ONCE, side="right")))
            if behind == at + 1:
                total += size_of(byte_lengths, self._file.ids[starts[at] : starts[at] + lengths[at]])
            else:
                total += int(byte_lengths[self._file.ids[_runs(starts[at:behind], lengths[at:behind])]].sum())
            at = behind
        return total

    # The plan on the disk: one int64 array: the header's numbers, then row ends, starts and lengths.

    def _digest_of_plan(self) -> str:
        parts = (PLANNER_VERSION, self.name, self._block_size, digest_of_documents(self._file))
        return hashlib.sha256(repr(parts).encode("ascii")).hexdigest()

    @property
    def _path(self) -> Path:
        return self._file.path.parent / FOLDER / f"{self.name}-{self._block_size}-{self._digest[:16]}.npy"

    def _kept(self) -> Plan | None:
        """The plan that an earlier run left; `None` if there is none, or a damaged one."""
        try:
            numbers = np.load(self._path, mmap_mode="r", allow_pickle=False)
        except FileNotFoundError:
            return None
        except (OSError, ValueError, EOFError):
            log.warning("%s is damaged, and made anew", self._path)
            return None
        plan = _read(numbers, self._digest)
        if plan is None:
            log.warning("%s is damaged, and made anew", self._path)
        return plan

    def _keep(self, plan: Plan) -> None:
        body = np.concatenate(plan)
        header = np.array([len(plan.row_ends), len(plan.starts)], dtype=np.int64)
        digests = bytes.fromhex(self._digest) + hashlib.sha256(body.data).digest()
        try:
            with writing(self._path) as file:
                np.save(file, np.concatenate([header, np.frombuffer(digests, dtype=np.int64), body]))
        except OSError as error:
            log.info("the plan of %s is not kept: %s", self.name, error)


_HEADER = 2 + 8  # numbers: rows, pieces, and two digests of 32 bytes


def _read(numbers: np.ndarray, digest: str) -> Plan | None:
    if numbers.dtype != np.int64 or numbers.ndim != 1 or len(numbers) < _HEADER:
        return None
    n_rows, n_pieces = int(numbers[0]), int(numbers[1])
    body = np.asarray(numbers[_HEADER:])
    digests = bytes.fromhex(digest) + hashlib.sha256(body.data).digest()
    if n_rows < 0 or len(body) != n_rows + 2 * n_pieces or numbers[2:_HEADER].tobytes() != digests:
        return None
    return Plan(body[:n_rows], body[n_rows : n_rows + n_pieces], body[n_rows + n_pieces :])


class BestFit(_Planned):
    """Whole documents, the longest that fits first; only documents longer than a block are cut.

    With a separator every id is a target exactly once, a document's first one predicted from a separator. Without,
    the first id of each document has nothing before it and is lost. No target is predicted from another document's
    last id. What is left of a block is padding: the separator (or id 0) as input, no target.
    """

    name: ClassVar[str] = "best_fit"
    _planner = staticmethod(plan_best_fit)


class BosAligned(_Planned):
    """Every block begins with the separator, which stands for the beginning of a sequence; blocks are full.

    Documents are laid in from their beginning on, the longest that fits first; when none fits, the shortest that is
    left is cropped to fill the block, and the rest of it is not trained on. Only the last block may have padding.
    """

    name: ClassVar[str] = "bos_aligned"
    _planner = staticmethod(plan_bos_aligned)

    def __init__(self, file: IdFile, block_size: int, stride: int | None, seed: int) -> None:
        """As `best_fit`; there must be a separator.

        Raises:
            DataError: the file has none.
        """
        if file.metadata.separator_id is None:
            raise DataError(
                f"{file.path} has no separator between documents, and packing 'bos_aligned' begins every block with it; "
                "encode with a tokenizer that has <|endoftext|>, or use packing='best_fit'"
            )
        super().__init__(file, block_size, stride, seed)
