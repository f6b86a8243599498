"""The fingerprint: one bit of difference in what ids mean shows, and nothing else does."""

import hashlib
import json
import subprocess
import sys
from dataclasses import fields, replace

import pytest

from minigpt_tok.bpe.model import ALL_BYTES, BYTES_BY_CHARACTER, AddedToken, BPEModel
from minigpt_tok.bpe.normalize import Lowercase, Normalizer, Prepend, UnicodeForm
from minigpt_tok.bpe.pipeline import ByteLevel, Pipeline, Split
from minigpt_tok.bpe.recipes import get_recipe
from minigpt_tok.bpe.trainer import train_model
from minigpt_tok.fingerprint import FINGERPRINT_VERSION, canonical_text, fingerprint
from minigpt_tok.formats.character import to_model

TEXTS = ["the cat sat on the mat. the cat ate the rat", "it's 1234 o'clock", "café 日本"] * 2


def trained(recipe="hf", size=290, specials=("<|endoftext|>",), **switches):
    return train_model(TEXTS, size, get_recipe(recipe, **switches), specials)[0]


def sha256(text):
    return hashlib.sha256(text.encode("utf-8")).hexdigest()


# Published values


@pytest.mark.parametrize(
    ("text", "value"),
    [
        (
            '{"base_tokens":[" ","e","l","o","r","s","t","w"],"merges":[["l","o"],["lo","w"]]}',
            "100f579e5eaba6ce9de6c58043b1e9fcdb5105f9ebabf12518b7f8b4259e13a2",
        ),
        (
            '{"base_tokens":["a","b","é"],"merges":[["a","b"]]}',
            "e0bc4089b6f6406a7991e02905f263806e904b2c0147163bdac5588c89691f87",
        ),
    ],
)
def test_character_values(text, value):
    plain = json.loads(text)
    model = to_model(plain["base_tokens"], plain["merges"], "the test")
    assert canonical_text(model) == text
    assert fingerprint(model) == value == sha256(text)


def test_a_byte_level_text_written_out():
    a, b, c = b"abc"
    model = BPEModel(
        tokens=(*ALL_BYTES, b"ab", b"bc", None),
        merges=((b, c), (a, b)),
        merge_results=(257, 256),
        added_tokens=(AddedToken(content="<é>", id=258, lstrip=True),),
    )
    text = (
        '{"version":1,"tokens":['
        + ",".join(f'"{number:02x}"' for number in range(256))
        + ',"6162","6263",null],"added_tokens":[[258,"<é>","special","lstrip"]],'
        '"rank_rule":"pair","merges":[[98,99],[97,98]],"whole_piece":false,"pattern":"gpt2"}'
    )
    assert canonical_text(model) == text
    assert fingerprint(model) == sha256(text)


def test_merges_in_the_order_of_their_tokens_are_not_written():
    a, b, c = b"abc"
    model = BPEModel(tokens=(*ALL_BYTES, b"ab", b"bc"), merges=((a, b), (b, c)), merge_results=(256, 257))
    plain = json.loads(canonical_text(model))
    assert plain["rank_rule"] == "bytes"
    assert "merges" not in plain
    ranks = BPEModel(tokens=model.tokens, rank_rule="bytes", whole_piece=True)
    assert fingerprint(ranks) == fingerprint(model)


# Three values that must never change while the version is 1


def test_version_1_values():
    assert FINGERPRINT_VERSION == 1
    bytes_alone = BPEModel(tokens=BYTES_BY_CHARACTER)
    assert fingerprint(bytes_alone) == BYTES_ALONE
    assert fingerprint(trained("hf", 290)) == HF
    assert fingerprint(trained("readable", 290, ("<s>", "<t>"))) == READABLE


BYTES_ALONE = "5811ca3329b1c9b58073caa3f021e7bca974c221a91193fc4744cc46d8fca7c5"
HF = "1f734158468ee1fba9013cf6cfa3177e115d34fbabb60314f945ddae2dd9b19d"
READABLE = "fb97666dac6ccbf292d66d1006e556cb66dcc1468f999548b6cb1ed9252d72c1"


# What changes it


def variants():
    model = trained(min_frequency=1)
    base = trained(min_frequency=1)
    yield "the same again", base, True
    yield "one merge less", trained(size=289, min_frequency=1), False
    yield "another order of ids", trained("hf", min_frequency=1, id_order="bytes_first"), False
    yield "no special", trained(specials=(), min_frequency=1), False
    yield "another special", trained(specials=("<s>",), min_frequency=1), False
    yield "another pattern", replace(model, pattern="digits1"), False
    yield "no pattern", replace(model, pattern="none"), False
    first, second, *rest = model.merges
    r1, r2, *r_rest = model.merge_results
    yield "two merges swapped", replace(model, merges=(second, first, *rest), merge_results=(r2, r1, *r_rest)), False
    yield "a merge dropped", replace(model, merges=model.merges[:-1], merge_results=model.merge_results[:-1]), False
    tokens = list(model.tokens)
    tokens[1], tokens[2] = tokens[2], tokens[1]
    yield "two ids swapped", replace(model, tokens=tuple(tokens)), False
    yield "a hole more", replace(model, tokens=(*model.tokens, None)), False
    (special,) = model.added_tokens
    for flag in ("lstrip", "rstrip", "single_word"):
        yield f"{flag}", replace(model, added_tokens=(replace(special, **{flag: True}),)), False
    yield "not special", replace(model, added_tokens=(replace(special, special=False),)), False
    yield "normalized, without a normalizer", replace(model, added_tokens=(replace(special, normalized=True),)), True
    yield "whole pieces, all reachable", replace(model, whole_piece=True), True
    yield "a normalizer", replace(model, normalizer=Normalizer((UnicodeForm("NFC"),))), False
    yield "a pipeline", replace(model, pattern="none", pipeline=Pipeline((ByteLevel(True, True),))), False
    expression = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
    yield "the pattern spelled out", replace(model, pattern=expression), True


@pytest.mark.parametrize(
    ("what", "model", "same"), [*variants()], ids=lambda value: value if isinstance(value, str) else ""
)
def test_one_difference_in_meaning_is_another_value(what, model, same):
    assert (fingerprint(model) == fingerprint(trained(min_frequency=1))) is same


def with_tokens(*tokens):
    model = trained(min_frequency=1, specials=())
    added = tuple(replace(token, id=model.vocab_size + n) for n, token in enumerate(tokens))
    return replace(model, tokens=model.tokens + (None,) * len(added), added_tokens=added)


def test_when_a_token_is_looked_for_counts_only_where_it_decides_something():
    first, second = AddedToken(content="abc", id=0), AddedToken(content="cd", id=0)
    apart = AddedToken(content="xy", id=0)

    def same(one, other):
        late = replace(other, normalized=True)
        return fingerprint(with_tokens(one, other)) == fingerprint(with_tokens(one, late))

    assert same(first, apart)
    assert not same(first, second)
    assert not same(second, first)
    assert not same(first, AddedToken(content="b", id=0))
    assert not same(first, replace(apart, single_word=True))
    lower = Normalizer((Lowercase(),))
    alone = with_tokens(apart)
    late = replace(alone, added_tokens=tuple(replace(token, normalized=True) for token in alone.added_tokens))
    assert fingerprint(alone) == fingerprint(late)
    assert fingerprint(replace(alone, normalizer=lower)) != fingerprint(replace(late, normalizer=lower))


def test_steps_are_written_as_the_docs_say():
    model = replace(
        trained(min_frequency=1, specials=()),
        pattern="none",
        normalizer=Normalizer((UnicodeForm("NFC"), Prepend("_"))),
        pipeline=Pipeline((Split("x", False, "Isolated", False), ByteLevel(False, True))),
    )
    assert canonical_text(model).endswith(
        ',"whole_piece":false,"pipeline":[{"type":"Split","pattern":{"String":"x"},"behavior":"Isolated","invert":false},'
        '{"type":"ByteLevel","add_prefix_space":false,"use_regex":true}],'
        '"normalizer":[{"type":"NFC"},{"type":"Prepend","prepend":"_"}]}'
    )


def test_the_whole_piece_rule_counts_where_a_token_needs_it():
    tokens = (*ALL_BYTES, b"xyz")
    plain = BPEModel(tokens=tokens)
    assert fingerprint(replace(plain, whole_piece=True)) != fingerprint(plain)


def test_a_merge_that_a_later_one_of_the_same_pair_replaces_does_not_count():
    a, b, c = b"abc"
    tokens = (*ALL_BYTES, b"bc", b"ab")
    once = BPEModel(tokens=tokens, merges=((a, b), (b, c)), merge_results=(257, 256))
    twice = BPEModel(tokens=tokens, merges=((b, c), (a, b), (b, c)), merge_results=(256, 257, 256))
    assert fingerprint(twice) == fingerprint(once)
    assert fingerprint(replace(twice, merges=once.merges[::-1], merge_results=(256, 257))) != fingerprint(once)


def test_every_field_of_the_model_has_a_say():
    """A field that is added to the model must be thought of here."""
    assert [field.name for field in fields(BPEModel)] == [
        *("unit", "tokens", "merges", "merge_results", "rank_rule", "whole_piece", "pattern", "added_tokens"),
        *("normalizer", "pipeline"),
    ]
    assert [field.name for field in fields(AddedToken)] == [
        *("content", "id", "special", "lstrip", "rstrip", "single_word", "normalized")
    ]


def test_characters_with_a_pattern_say_so():
    model = trained("character", 60, (), pattern="gpt2")
    plain = json.loads(canonical_text(model))
    assert list(plain) == ["base_tokens", "merges", "pattern"]
    assert fingerprint(model) != fingerprint(replace(model, pattern="none"))


def test_it_does_not_depend_on_the_process():
    program = (
        "from minigpt_tok.bpe.recipes import get_recipe\n"
        "from minigpt_tok.bpe.trainer import train_model\n"
        "from minigpt_tok.fingerprint import fingerprint\n"
        f"for recipe in ('hf', 'cs336', 'readable', 'character'):\n"
        f"    specials = () if recipe == 'character' else ('<s>', '<t>')\n"
        f"    model, _ = train_model({TEXTS!r}, 290, get_recipe(recipe, min_frequency=1), specials)\n"
        "    print(fingerprint(model))\n"
    )
    outputs = {
        subprocess.run(
            [sys.executable, "-c", program],
            env={"PYTHONHASHSEED": seed, "PYTHONPATH": ":".join(sys.path)},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("0", "1", "4242")
    }
    assert len(outputs) == 1
    assert len(set(outputs.pop().split())) == 4
