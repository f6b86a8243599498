from minigpt_tok.data.corpora import open_corpus
from minigpt_tok.data.leakage import Overlap, check_leakage


def test_copies_are_counted_in_documents_and_bytes():
    leakage = check_leakage(
        open_corpus({"train": ["a", "é", "c", "a", "a"], "validation": ["x", "é", "é"], "test": ["x", "c", "y"]})
    )
    assert leakage.found
    assert leakage.between == {
        ("train", "validation"): Overlap(2, 4),
        ("train", "test"): Overlap(1, 1),
        ("validation", "test"): Overlap(1, 1),
    }
    assert leakage.within == {"train": Overlap(2, 2), "validation": Overlap(1, 2), "test": Overlap(0, 0)}


def test_near_copies_are_not_exact_ones():
    leakage = check_leakage(open_corpus({"train": ["a", "b\n"], "test": ["a ", "b"]}))
    assert not leakage.found


def test_splits_by_hash_never_share_a_text():
    texts = [f"text {n % 50}" for n in range(500)]
    corpus = open_corpus(texts, fractions={"train": 0.5, "validation": 0.3, "test": 0.2})
    assert not check_leakage(corpus).found
    assert sum(overlap.documents for overlap in check_leakage(corpus).within.values()) == 450


def test_wikitext_2_has_no_copies(shared):
    leakage = check_leakage(open_corpus(shared / "corpora" / "wikitext-2"))
    assert not leakage.found
