import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from minigpt_tok.measure.windows import Windows, plan_windows


def contexts(windows: Windows) -> dict[int, list[tuple[int, bool]]]:
    """Place of a target → for every prediction of it, how many inputs it is made from and whether one is put before."""
    found: dict[int, list[tuple[int, bool]]] = {}
    for start, length, first, preceded in zip(
        windows.starts, windows.lengths, windows.first_scored, windows.preceded, strict=True
    ):
        for target in range(int(first), int(length)):
            found.setdefault(int(start) + target + 1, []).append((target + 1, bool(preceded)))
    return found


def test_sliding_by_half_a_block():
    windows = plan_windows(np.array([11]), 4, 2, preceded=False)
    assert windows.starts.tolist() == [0, 2, 4, 6]
    assert windows.lengths.tolist() == [4, 4, 4, 4]
    assert windows.first_scored.tolist() == [0, 2, 2, 2]
    assert windows.unpredicted.tolist() == [0]


def test_blocks_are_the_stride_of_a_block():
    windows = plan_windows(np.array([11]), 4, 4, preceded=False)
    assert windows.starts.tolist() == [0, 4, 8]
    assert windows.lengths.tolist() == [4, 4, 2]
    assert windows.first_scored.tolist() == [0, 0, 0]


def test_a_separator_before_each_document_leaves_no_token_without_context():
    windows = plan_windows(np.array([3, 3, 4]), 4, 2, preceded=True)
    assert windows.starts.tolist() == [-1, 2]
    assert windows.lengths.tolist() == [3, 1]
    assert windows.preceded.tolist() == [True, True]
    assert windows.unpredicted.tolist() == []


def test_documents_of_one_token_have_no_window_without_a_separator():
    windows = plan_windows(np.array([1, 2, 4]), 4, 2, preceded=False)
    assert windows.starts.tolist() == [2]
    assert windows.unpredicted.tolist() == [0, 1, 2]


sizes = st.lists(st.integers(0, 30), max_size=8)
blocks = st.integers(1, 9).flatmap(lambda block: st.tuples(st.just(block), st.integers(1, block)))


@given(sizes=sizes, block=blocks, preceded=st.booleans())
def test_every_token_is_predicted_once_from_the_context_that_is_stated(
    sizes: list[int], block: tuple[int, int], preceded: bool
):
    block_size, stride = block
    ends = np.cumsum(np.array(sizes, dtype=np.int64))
    found = contexts(plan_windows(ends, block_size, stride, preceded=preceded))
    begin = 0
    expected: dict[int, list[tuple[int, bool]]] = {}
    unpredicted = []
    for size in sizes:
        for place in range(size):
            available = place + preceded
            if available == 0:
                unpredicted.append(begin)
                continue
            dropped = max(0, -(-(available - block_size) // stride)) * stride
            expected[begin + place] = [(available - dropped, preceded and dropped == 0)]
        begin += size
    assert found == expected
    assert plan_windows(ends, block_size, stride, preceded=preceded).unpredicted.tolist() == unpredicted


@given(sizes=sizes, block=blocks, preceded=st.booleans(), count=st.integers(1, 5))
def test_parts_hold_every_window_once(sizes: list[int], block: tuple[int, int], preceded: bool, count: int):
    ends = np.cumsum(np.array(sizes, dtype=np.int64))
    whole = plan_windows(ends, *block, preceded=preceded)
    together: dict[int, list[tuple[int, bool]]] = {}
    for index in range(count):
        for place, made in contexts(whole.part(index, count).by_length()).items():
            together.setdefault(place, []).extend(made)
    assert together == contexts(whole)
    assert sum(len(whole.part(index, count).unpredicted) for index in range(count)) == len(whole.unpredicted)
