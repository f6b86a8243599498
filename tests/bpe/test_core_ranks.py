"""What the order of tokens implies, by the core and by the readable Python: the same for any vocabulary."""

import random
from dataclasses import replace

import pytest

from minigpt_tok.bpe import ranks
from minigpt_tok.bpe.model import ALL_BYTES, BPEModel


def answers(model):
    by_bytes = replace(model, rank_rule="bytes", merges=(), merge_results=())
    implied = ranks.implied_merges(by_bytes)
    return (
        implied,
        list(implied),
        ranks.made_alone(model),
        ranks.made_alone(by_bytes),
        ranks.unreachable_ids(model),
        ranks.reached_out_of_order(model, implied),
        ranks.ranks_suffice(model, implied),
        ranks.merge_list(by_bytes),
    )


def check(core, monkeypatch, model):
    monkeypatch.setattr(ranks, "core", None)
    expected = answers(model)
    monkeypatch.setattr(ranks, "core", core)
    assert answers(model) == expected


def random_model(rng):
    """Tokens made of others in an order that training would not give, some that nothing makes, some bytes missing."""
    missing = rng.choice((b"", b"b", b"az\0"))
    tokens = [byte for byte in rng.sample(ALL_BYTES, 256) if not missing or byte not in missing]
    made = {rng.choice(b"abc ").to_bytes() * rng.randint(2, 3) for _ in range(3)}
    while len(made) < 25:
        made.add(b"".join(rng.choices([b"a", b"b", b"c", b" ", *made], k=2)))
    made |= {bytes(rng.choices(b"abcxyz", k=rng.randint(2, 60))) for _ in range(5)}
    tokens += rng.sample(sorted(made), len(made))
    holes = rng.choices(range(len(tokens)), k=2)
    with_holes = [None if place in holes and len(tokens[place]) > 1 else token for place, token in enumerate(tokens)]
    number = {token: id for id, token in enumerate(with_holes) if token is not None}
    splits = [
        (number[token[:cut]], number[token[cut:]], id)
        for token, id in number.items()
        for cut in range(1, len(token))
        if token[:cut] in number and token[cut:] in number
    ]
    splits = rng.sample(splits, rng.randint(0, len(splits)))
    return BPEModel(
        tokens=tuple(with_holes),
        merges=tuple((left, right) for left, right, _ in splits),
        merge_results=tuple(made for _, _, made in splits),
    )


def test_random_vocabularies(core, monkeypatch):
    rng = random.Random(1)
    for _ in range(40):
        check(core, monkeypatch, random_model(rng))


@pytest.mark.parametrize("pattern", ["gpt2", "none"])
def test_trained_vocabularies(core, models, monkeypatch, pattern):
    model = models.trained(pattern)
    check(core, monkeypatch, model)
    assert ranks.ranks_suffice(model, ranks.implied_merges(model))


def test_a_very_long_token_is_not_quadratic(core):
    """Sizes only: a rank file may hold anything. All its halves would be 500 GB of bytes to look up."""
    tokens = [*ALL_BYTES, b"ab", b"abc" * 300_000, b"x" * 1_000_000]
    assert core.implied_merges(tokens) == [[256, ord("a"), ord("b")]]
    assert core.made_alone(tokens, [], [], [], True) == [256]
