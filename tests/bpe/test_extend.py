"""Continued training: the parent is kept whole, and what is learned is what its own merges leave to learn."""

import random
from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from minigpt_tok import Tokenizer, train_tokenizer
from minigpt_tok.bpe import extend as module
from minigpt_tok.bpe import fast
from minigpt_tok.bpe.model import ALL_BYTES, AddedToken, BPEModel
from minigpt_tok.bpe.pretokenize import get_pretokenizer
from minigpt_tok.errors import CorpusError, TokenizerError

TEXTS = [
    "the cat sat on the mat. the cat ate the rat,",
    "it's 1234 o'clock\n\n  on the mat",
    "café 日本 don't 日本語",
    "aaaa aaa aa a aaaaaaa",
] * 3
OTHER = ["the other day the others gathered together there", "12345 1234 日本語 日本人 aaaaaa"] * 4


@pytest.fixture(params=["core", "python"], autouse=True)
def engine(request, monkeypatch):
    """By the core and by the readable Python."""
    if request.param == "python":
        monkeypatch.setattr(fast, "core", None)
    elif fast.core is None:
        pytest.skip("the C++ core is not there: it needs a compiler when the package is installed")
    return request.param


def runs(parent_ids, child, parent):
    """Whether the child's tokens are whole runs of the parent's, in order."""
    place = 0
    for id in child:
        raw = b""
        while raw != id and len(raw) < len(id):
            raw += parent_ids[place]
            place += 1
        if raw != id:
            return False
    return place == len(parent_ids)


def check_refines(parent: Tokenizer, child: Tokenizer, texts):
    for text in texts:
        old = [parent.token_bytes(id) for id in parent.encode(text, allowed_special="all")]
        new = [child.token_bytes(id) for id in child.encode(text, allowed_special="all")]
        assert runs(old, new, parent), text


def check_keeps(parent: Tokenizer, child: Tokenizer):
    assert child.model.tokens[: parent.vocab_size] == parent.model.tokens
    assert child.model.added_tokens[: len(parent.model.added_tokens)] == parent.model.added_tokens
    record = child.training.extends
    assert record["fingerprint"] == parent.fingerprint
    assert record["vocab_size"] == parent.vocab_size
    assert Tokenizer(module.parent_of(child.model, record)).fingerprint == parent.fingerprint


def check_curve(child: Tokenizer, texts):
    """Encoding gives what training left, so it does apply the merges as they were learned."""
    added = child.model.added_ids
    tokens = sum(id not in added for text in texts for id in child.encode(text, allowed_special="all"))
    training = child.training
    assert tokens == (training.curve[-1] if training.curve else training.base_tokens)


@pytest.mark.parametrize("recipe", ["hf", "cs336", "character"])
@pytest.mark.parametrize("switches", [{}, {"tie": "first_seen"}, {"max_token_length": 4}, {"pattern": "none"}])
def test_extending_a_shorter_run_gives_the_longer_run(recipe, switches):
    longest = train_tokenizer(TEXTS, 330, recipe, min_frequency=1, **switches)
    base = len(longest.model.base_ids)
    rest = {name: value for name, value in switches.items() if name != "pattern"}
    for size in (base, base + 7, longest.vocab_size - 1):
        parent = longest.truncated(size)
        child = train_tokenizer(TEXTS, longest.vocab_size, recipe, min_frequency=1, extend=parent, **rest)
        assert child == longest
        assert child.merges == longest.merges
        merges = size - base
        assert child.training.counts == longest.training.counts[merges:]
        assert child.training.curve == longest.training.curve[merges:]
        assert child.training.extends == {"fingerprint": parent.fingerprint, "vocab_size": size, "merges": merges}
        assert child.truncated(size) == parent


def test_on_other_text_the_parent_is_kept_and_refined():
    parent = train_tokenizer(TEXTS, 290, special_tokens=["<|endoftext|>"])
    child = train_tokenizer(OTHER, 310, extend=parent, special_tokens=["<|pad|>"])
    check_keeps(parent, child)
    check_curve(child, OTHER)
    check_refines(parent, child, [*TEXTS, *OTHER])
    assert child.special_tokens == {"<|endoftext|>": 0, "<|pad|>": child.vocab_size - 1}
    assert child.merges[: len(parent.merges)] == parent.merges
    assert len(child.encode(OTHER[0])) < len(parent.encode(OTHER[0]))
    again = Tokenizer.from_json(child.to_json())
    assert again == child
    assert again.training == child.training


def test_both_engines_learn_the_same(monkeypatch):
    parent = train_tokenizer(TEXTS, 280)
    found = []
    for core in (fast.core, None):
        monkeypatch.setattr(fast, "core", core)
        for tie in ("lowest_ids", "greatest_bytes", "first_seen"):
            child = train_tokenizer(iter(OTHER + TEXTS), 300, extend=parent, tie=tie, min_frequency=1)
            found.append((child.fingerprint, child.training.counts, child.training.curve, child.training.stopped))
    assert found[:3] == found[3:]


def ranks(words, **more):
    return BPEModel(tokens=(*ALL_BYTES, *words), rank_rule="bytes", whole_piece=True, pattern="gpt2", **more)


def test_ranks_stay_ranks():
    parent = Tokenizer(ranks([b"th", b"the", b"at"]))
    child = train_tokenizer(TEXTS, 270, extend=parent)
    assert child.model.rank_rule == "bytes"
    check_keeps(parent, child)
    check_curve(child, TEXTS)
    check_refines(parent, child, TEXTS)


def test_ranks_in_which_a_new_token_would_make_an_old_one_become_merges():
    """`abcd` is reached only whole, until `bcd` is learned: by bytes, `a` + `bcd` would make it inside of longer pieces."""
    parent = Tokenizer(ranks([b"abcd", b"xa", b"bc"]))
    assert parent.tokens(" abcd") == [" ", "a", "bc", "d"]
    child = train_tokenizer([" zbcd zbcd zbcd"] * 3 + [" abcd"], 261, extend=parent, min_frequency=4)
    assert child.tokens(" zbcd")[-1] in ("bcd", "zbcd", " zbcd")
    check_keeps(parent, child)
    check_curve(child, [" zbcd zbcd zbcd"] * 3 + [" abcd"])
    check_refines(parent, child, [" abcd", "abcd", " zbcd", "abcde"])


def test_a_token_that_no_merge_makes_is_not_made():
    parent = Tokenizer(
        BPEModel(
            tokens=(*ALL_BYTES, b"ab", b"bcd"),
            merges=((97, 98),),
            merge_results=(256,),
            whole_piece=True,
            pattern="gpt2",
        )
    )
    texts = [" bcd bcd bcd", "bcd"] * 3
    child = train_tokenizer(texts, 262, extend=parent, min_frequency=1)
    assert len(set(filter(None, child.model.tokens))) == len(list(filter(None, child.model.tokens)))
    check_curve(child, texts)
    check_refines(parent, child, texts)


def test_holes_and_ids_behind_them_stay():
    added = (AddedToken(content="<s>", id=260), AddedToken(content="<tool>", id=262, special=False))
    tokens = (*ALL_BYTES, b"at", *[None] * 6)
    parent = Tokenizer(BPEModel(tokens=tokens, rank_rule="bytes", whole_piece=True, pattern="gpt2", added_tokens=added))
    texts = ["the cat<tool>that mat<s>the hat"] * 3
    child = train_tokenizer(texts, 268, extend=parent)
    assert child.model.tokens[257:263] == (None,) * 6
    assert min(merged for _, _, merged in module.learned_merges(child.model, len(child.training.counts))) == 263
    check_keeps(parent, child)
    check_curve(child, texts)
    assert not any(b"<" in (token or b"") for token in child.model.tokens[263:])


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        ({"vocab_size": 260}, "ask for more than 280"),
        ({"vocab_size": 280}, "has 280 ids"),
        ({"vocab_size": 282, "special_tokens": ["<a>", "<b>"]}, "2 special tokens to be added: ask for more than 282"),
        ({"vocab_size": 281.0}, "not a whole number"),
        ({"special_tokens": ["<s>"]}, "'<s>', which the tokenizer to extend has already"),
        ({"pattern": "none"}, "pattern is given"),
        ({"recipe": "character"}, "recipe is 'character', but the tokenizer to extend is of bytes"),
        ({"unit": "character"}, "unit is given"),
        ({"id_order": "specials_last"}, "id_order is given"),
        ({"extend": "tokenizer.json"}, "extend is str"),
        ({"threads": 0}, "threads is 0"),
    ],
)
def test_what_cannot_be_is_refused(arguments, named):
    parent = train_tokenizer(TEXTS, 280, special_tokens=["<s>"])
    with pytest.raises(TokenizerError, match=named):
        train_tokenizer(TEXTS, **{"vocab_size": 300, "extend": parent} | arguments)


def test_nothing_to_learn_from_is_refused():
    parent = train_tokenizer(TEXTS, 280)
    with pytest.raises(CorpusError, match="nothing to train on"):
        train_tokenizer([""], 300, extend=parent)


def test_characters_that_the_parent_lacks_are_named():
    parent = train_tokenizer(["abc abc"], 5, "character")
    with pytest.raises(TokenizerError, match=r"cannot be encoded by the tokenizer to extend.*'x'"):
        train_tokenizer(["abxabc"], 9, "character", extend=parent)


def test_text_that_has_nothing_new_gives_the_parent():
    parent = train_tokenizer(["a b"], 256, min_frequency=1)
    child = train_tokenizer(["a", "b"], 300, extend=parent)
    assert child == parent
    assert child.training.stopped == "no pair is left"


@st.composite
def parents(draw):
    """Rank files and merge lists of any shape over three letters, hand-made ones included."""
    words = draw(st.lists(st.text("abc", min_size=2, max_size=4).map(str.encode), max_size=8, unique=True))
    whole = draw(st.booleans())
    model = BPEModel(tokens=(*ALL_BYTES, *words), rank_rule="bytes", whole_piece=whole, pattern="gpt2")
    if draw(st.booleans()):
        return model
    splits = []
    for id, word in enumerate(words, start=256):
        cuts = [cut for cut in range(1, len(word)) if word[:cut] in model.id_of and word[cut:] in model.id_of]
        if cuts:
            cut = draw(st.sampled_from(cuts))
            splits.append(((model.id_of[word[:cut]], model.id_of[word[cut:]]), id))
    splits = draw(st.permutations(splits))
    merges, results = tuple(pair for pair, _ in splits), tuple(id for _, id in splits)
    return replace(model, rank_rule="pair", merges=merges, merge_results=results)


@settings(max_examples=200, deadline=None)
@given(
    parents(),
    st.lists(st.text("abc ", min_size=1, max_size=12), min_size=1, max_size=5),
    st.sampled_from(["lowest_ids", "greatest_bytes", "first_seen"]),
)
def test_any_parent_is_kept_and_refined(model, texts, tie):
    parent = Tokenizer(model)
    child = train_tokenizer(texts, parent.vocab_size + 6, extend=parent, tie=tie, min_frequency=1)
    check_keeps(parent, child)
    check_curve(child, texts)
    check_refines(parent, child, texts)
    tokens = [token for token in child.model.tokens if token is not None]
    assert len(set(tokens)) == len(tokens)


def naive(parent: Tokenizer, texts, merges):
    """Continued training by counting everything anew for each merge."""
    pieces: dict[str, int] = {}
    for text in texts:
        for piece in get_pretokenizer(parent.pattern).pieces(text):
            pieces[piece] = pieces.get(piece, 0) + 1
    alone = Tokenizer(replace(parent.model, pattern="none"))
    words = [(alone.encode(piece), count) for piece, count in pieces.items()]
    size, learned = parent.vocab_size, []
    while len(learned) < merges:
        counts: dict[tuple[int, int], int] = {}
        for word, count in words:
            for pair in pairwise(word):
                counts[pair] = counts.get(pair, 0) + count
        if not counts:
            break
        best = min(counts, key=lambda pair: (-counts[pair], pair))
        if counts[best] < 2:
            break
        new = []
        for word, count in words:
            out, at = [], 0
            while at < len(word):
                if tuple(word[at : at + 2]) == best:
                    out.append(size)
                    at += 2
                else:
                    out.append(word[at])
                    at += 1
            new.append((out, count))
        words = new
        learned.append(best)
        size += 1
    return learned


def test_it_is_what_counting_anew_gives():
    chance = random.Random(7)
    for _ in range(12):
        texts = ["".join(chance.choices("ab c", k=chance.randrange(5, 60))) for _ in range(6)]
        parent = train_tokenizer(texts[:3], 256 + chance.randrange(8), min_frequency=1)
        child = train_tokenizer(texts, parent.vocab_size + 8, extend=parent)
        learned = module.learned_merges(child.model, len(child.training.counts))
        assert [(left, right) for left, right, _ in learned] == naive(parent, texts, 8)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("as_json", "as_ranks", "pattern"),
    [
        ("gpt2/tokenizer.json", "gpt2/r50k_base.tiktoken", "gpt2"),
        ("llama3/tokenizer.json", "llama3/tokenizer.model", "llama3"),
    ],
)
def test_a_published_tokenizer_is_extended_alike_in_either_form(shared, engine, as_json, as_ranks, pattern):
    if engine == "python":
        pytest.skip("takes minutes in Python")
    texts = [(shared / "corpora" / "tinystories" / "tinystories_v2_1728_stories.txt").read_text("utf-8")]
    first = Tokenizer.load(shared / "tokenizers" / as_json)
    specials = first.special_tokens
    second = Tokenizer.load(shared / "tokenizers" / as_ranks, pattern=pattern, special_tokens=specials)
    assert first == second
    children = [train_tokenizer(texts, first.vocab_size + 500, extend=parent) for parent in (first, second)]
    assert children[0] == children[1]
    check_keeps(first, children[0])
    check_curve(children[0], texts)
    check_refines(first, children[0], [texts[0][:200_000]])
