"""Whole `tokenizer.json` files of the families that are published: ids, offsets and text as tokenizers gives them.

The pipelines are those of published tokenizers, around a small vocabulary of our own.
"""

import json
import warnings

import pytest
from tokenizers import Tokenizer as Theirs

from minigpt_tok.bpe.recipes import get_recipe
from minigpt_tok.bpe.trainer import train_model
from minigpt_tok.errors import FormatError
from minigpt_tok.formats.hf_model import vocab_and_merges
from minigpt_tok.tokenizer import Tokenizer

LEARNED_FROM = [
    "the cat's 1234 o'clock, don't!!  In 2024 The Cat sat on the mat.\n\n  x = {'a': [1, 22, 333]}\n",
    "Übermut tut selten gut; ça va? déjà vu, naïve façade. Ελληνικά και Русский текст, ещё раз.\t\tиндекс",
    "日本語の文字と漢字、かな。한국어 문장도 있다. สวัสดีครับ नमस्ते दुनिया مرحبا بالعالم 😀👍🏽 e\u0301 \u00bd \u00b2",
] * 3


def byte_level(prefix=False, cuts=True):
    return {"type": "ByteLevel", "add_prefix_space": prefix, "trim_offsets": False, "use_regex": cuts}


def split(pattern, behavior="Isolated", invert=False, kind="Regex"):
    return {"type": "Split", "pattern": {kind: pattern}, "behavior": behavior, "invert": invert}


def steps(*each):
    return {"pre_tokenizer": {"type": "Sequence", "pretokenizers": list(each)}}


def normalizer(*each):
    each = [{"type": step} if isinstance(step, str) else step for step in each]
    return {"normalizer": each[0] if len(each) == 1 else {"type": "Sequence", "normalizers": each}}


def digits(individual):
    return {"type": "Digits", "individual_digits": individual}


def punctuation(behavior):
    return {"type": "Punctuation", "behavior": behavior}


def around(*ids):
    tokens = {f"t{id}": {"id": f"t{id}", "ids": [id], "tokens": [f"t{id}"]} for id in ids}
    pieces = [{"SpecialToken": {"id": name, "type_id": 0}} for name in tokens]
    text, pair = ({"Sequence": {"id": name, "type_id": 0}} for name in "AB")
    return {
        "type": "TemplateProcessing",
        "single": [pieces[0], text, *pieces[1:]],
        "pair": [text, pair],
        "special_tokens": tokens,
    }


ANY_CASE = "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
LLAMA3 = (
    rf"{ANY_CASE}|[^\r\n\p{{L}}\p{{N}}]?\p{{L}}+|\p{{N}}{{1,3}}| ?[^\s\p{{L}}\p{{N}}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
CL100K = r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}++|\p{N}{1,3}+| ?[^\s\p{L}\p{N}]++[\r\n]*+|\s++$|\s*[\r\n]|\s+(?!\S)|\s"
DEEPSEEK = (
    r"[!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)
BLOOM = r" ?[^(\s|[.,!?…。，、।۔،])]+"
TEXT_ONLY = byte_level(cuts=False)
THREE_SPLITS = steps(split(r"\p{N}{1,3}"), split("[一-龥぀-ゟ゠-ヿ]+"), split(DEEPSEEK), TEXT_ONLY)
METASPACE = {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "first", "split": True}

FAMILIES = {
    "GPT-2": {},
    "Pythia": normalizer("NFC"),
    "NFKC": normalizer("NFKC"),
    "uncased": normalizer("NFD", "Lowercase", "StripAccents"),
    "RoBERTa": {
        "pre_tokenizer": byte_level(),
        "post_processor": {
            "type": "RobertaProcessing",
            "sep": ["b", 2],
            "cls": ["a", 1],
            "trim_offsets": False,
            "add_prefix_space": False,
        },
    },
    "OPT": {"post_processor": {"type": "Sequence", "processors": [byte_level(), around(7)]}},
    "ModernBERT": {**normalizer("NFC"), "post_processor": around(1, 2)},
    "prefix space": {"pre_tokenizer": byte_level(prefix=True)},
    "StarCoder": steps(digits(True), byte_level()),
    "Command-R": {**normalizer("NFC"), **steps(digits(True), byte_level())},
    "Falcon": steps(punctuation("Contiguous"), byte_level(), digits(False), split("[0-9][0-9][0-9]")),
    "BLOOM": steps(split(BLOOM), TEXT_ONLY),
    "BLOOM, the other way round": steps(split(BLOOM, "Removed", True), TEXT_ONLY),
    "DeepSeek": {**normalizer({"type": "Sequence", "normalizers": []}), **THREE_SPLITS},
    "Llama 3": steps(split(LLAMA3), TEXT_ONLY),
    "GPT-4, matches kept": steps(split(LLAMA3, "Removed", True), TEXT_ONLY),
    "GPT-4, possessive": steps(split(CL100K), TEXT_ONLY),
    "words": steps({"type": "Whitespace"}, byte_level()),
    "words with spaces": steps({"type": "WhitespaceSplit"}, byte_level(prefix=True)),
    "Metaspace": steps(METASPACE, TEXT_ONLY),
    "merged": steps(
        *(
            split(r"\s", "MergedWithNext"),
            split(",", "MergedWithPrevious", kind="String"),
            punctuation("MergedWithNext"),
        ),
        TEXT_ONLY,
    ),
    "bytes by the normalizer": {**normalizer("NFC", "ByteLevel"), "pre_tokenizer": split("Ġ?[A-Za-z]+|Ġ")},
    "bytes by the normalizer alone": {**normalizer("ByteLevel"), "pre_tokenizer": None},
    "replaced": normalizer(
        {"type": "Replace", "pattern": {"Regex": " {2,}"}, "content": " "},
        {"type": "Replace", "pattern": {"String": "\n"}, "content": "<nl>"},
        {"type": "Strip", "strip_left": True, "strip_right": True},
        {"type": "Prepend", "prepend": "_"},
    ),
    "decoded in steps": {
        "decoder": {
            "type": "Sequence",
            "decoders": [
                {"type": "Replace", "pattern": {"String": "Ġ"}, "content": "Ġ_"},
                *(byte_level(), {"type": "Fuse"}, {"type": "Strip", "content": "_", "start": 1, "stop": 0}),
            ],
        }
    },
    "decoded in one": {"decoder": {"type": "Sequence", "decoders": [{"type": "Fuse"}, byte_level()]}},
}


def added(content, **flags):
    return {
        "content": content,
        "single_word": False,
        "lstrip": False,
        "rstrip": False,
        "normalized": False,
        "special": False,
        **flags,
    }


ADDED = [
    *(added("<|end|>", special=True), added("aBk", normalized=True), added("ÉxΣ", normalized=True), added("<x>")),
    *(
        added("bçxω", normalized=True, single_word=True),
        added("’xй", lstrip=True),
        added("…", rstrip=True, normalized=True),
    ),
    *(
        added("\u200b", single_word=True),
        added("S<", special=True),
        added(">K", normalized=True),
        added("  ", normalized=True),
    ),
]
IN_TEXTS = [
    *(
        "<|end|>",
        "aBk",
        "abk",
        "ÉxΣ",
        "éxσ",
        "<x>",
        "bçxω",
        " bçxω ",
        "’xй",
        "  ’xй",
        "…  ",
        "\u200b",
        "S<",
        "s<",
        ">K",
    ),
    *("S<x>K", " ", "   ", "cat's", "12345", "日本"),
]


@pytest.fixture(scope="module")
def document():
    model, _ = train_model(LEARNED_FROM, 700, get_recipe("hf", min_frequency=2), ())
    vocab, merges = vocab_and_merges(model)
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [],
        "normalizer": None,
        "pre_tokenizer": byte_level(),
        "post_processor": None,
        "decoder": byte_level(),
        "model": {
            "type": "BPE",
            "dropout": None,
            "unk_token": None,
            "continuing_subword_prefix": None,
            "end_of_word_suffix": None,
            "fuse_unk": False,
            "byte_fallback": False,
            "ignore_merges": False,
            "vocab": vocab,
            "merges": [f"{left} {right}" for left, right in merges],
        },
    }


def with_added(document, tokens):
    size = len(document["model"]["vocab"])
    return [{"id": size + number, **token} for number, token in enumerate(tokens)]


def texts_with_tokens(unlike_texts, seed, count):
    for number, text in enumerate(unlike_texts(seed, count)):
        token = IN_TEXTS[number % len(IN_TEXTS)]
        yield text
        yield text[:5] + token + text[5:9] + IN_TEXTS[number * 7 % len(IN_TEXTS)] + token


def nth(batch, number):
    return batch.ids[batch.offsets[number] : batch.offsets[number + 1]].tolist()


def check(document, texts, *, decoded=True):
    """Every way to encode, here and from what is written, against tokenizers on the same file and on what is written."""
    plain = json.dumps(document)
    theirs = Theirs.from_str(plain)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        ours = Tokenizer.from_json(plain)
        written = ours.to_json()
        again = Tokenizer.from_json(written)
        assert again.fingerprint == ours.fingerprint
        assert again.to_json() == written
        theirs_again = Theirs.from_str(written)
        texts = list(texts)
        batch = ours.encode_batch(texts, allowed_special="all")
        flat = ours.encode_batch_to_numpy(texts, allowed_special="all", add_special_tokens=True)
        mixed = [text.encode() if number % 3 else text for number, text in enumerate(texts)]
        followed = ours.encode_batch_to_numpy(mixed, allowed_special="all", add_special_tokens=True, separator_id=9)
        plain_text = ours.encode_batch_to_numpy(mixed, separator_id=9)
        for number, text in enumerate(texts):
            expected = theirs.encode(text, add_special_tokens=False)
            ids, spans = ours.encode_with_offsets(text, allowed_special="all")
            wrapped = theirs.encode(text).ids
            assert ids == expected.ids, ascii(text)
            assert spans == expected.offsets, ascii(text)
            assert batch[number] == ids, ascii(text)
            assert ours.encode(text, allowed_special="all") == ids, ascii(text)
            assert again.encode(text, allowed_special="all") == ids, ascii(text)
            assert theirs_again.encode(text, add_special_tokens=False).ids == ids, ascii(text)
            assert ours.encode(text, allowed_special="all", add_special_tokens=True) == wrapped, ascii(text)
            assert nth(flat, number) == wrapped, ascii(text)
            assert nth(followed, number) == [*wrapped, 9], ascii(text)
            assert nth(plain_text, number) == [*ours.encode(text), 9], ascii(text)
            assert ours.encode_to_numpy(text.encode(), allowed_special="all").tolist() == ids, ascii(text)
            assert ours.count(text, allowed_special="all", add_special_tokens=True) == len(wrapped), ascii(text)
            parts = [text[:3], text[3:4], text[4:]]
            assert list(ours.encode_iter(parts, allowed_special="all")) == ids, ascii(text)
            if decoded:
                assert ours.decode(ids) == theirs.decode(ids, skip_special_tokens=False), ascii(text)
            if not document["added_tokens"]:
                assert [id for piece in ours.explain(text).pieces for id in piece.ids] == ids, ascii(text)


@pytest.mark.parametrize("family", FAMILIES)
def test_a_family_is_read_and_written(family, document, unlike_texts):
    check({**document, **FAMILIES[family]}, [*unlike_texts(len(family), 40), *LEARNED_FROM[:3]])


@pytest.mark.parametrize(
    "family",
    ["GPT-2", "uncased", "prefix space", "DeepSeek", "Metaspace", "replaced", "bytes by the normalizer", "Falcon"],
)
def test_added_tokens_are_found_before_and_after_the_normalizer(family, document, unlike_texts):
    # The token of white space alone is nothing after Strip, and is refused then.
    kept = ADDED[:-1] if family == "replaced" else ADDED
    tokens = {"added_tokens": with_added(document, kept)}
    # Their decoder takes ÉxΣ for bytes where all of an added token's characters stand for one: see docs/decisions.md.
    check({**document, **tokens, **FAMILIES[family]}, texts_with_tokens(unlike_texts, 5, 60), decoded=False)


@pytest.mark.slow
@pytest.mark.parametrize("family", FAMILIES)
def test_a_family_on_many_texts(family, document, unlike_texts):
    kept = ADDED[:-1] if family == "replaced" else ADDED
    tokens = {"added_tokens": with_added(document, kept)}
    check({**document, **tokens, **FAMILIES[family]}, texts_with_tokens(unlike_texts, 9, 400), decoded=False)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            normalizer({"type": "Strip", "strip_left": True, "strip_right": True}),
            "'  ' is nothing once it is normalized",
        ),
        (normalizer("Lowercase"), "'abK' and 'aBk' are the same once they are normalized"),
    ],
)
def test_tokens_that_cannot_be_told_apart_are_refused(changes, message, document):
    tokens = with_added(document, [added(content, normalized=True) for content in ("aBk", "  ", "abK")])
    with pytest.raises(FormatError, match=message):
        Tokenizer.from_json(json.dumps({**document, "added_tokens": tokens, **changes}))


@pytest.mark.parametrize("whole", [False, True])
def test_an_added_token_may_be_a_token_of_plain_text_too(whole, document, unlike_texts):
    vocab = document["model"]["vocab"]
    tokens = [{"id": vocab[text], **added(text)} for text in ("the", "!", "Ã")]
    model = {**document["model"], "ignore_merges": whole}
    texts = [*texts_with_tokens(unlike_texts, 6, 40), "the then them!", "Ã", "é the"]
    check({**document, "model": model, "added_tokens": tokens}, texts)
    tokenizer = Tokenizer.from_json(json.dumps({**document, "added_tokens": tokens}))
    assert tokenizer.decode(tokenizer.encode("é then")) == "é then"
    renumbered = tokenizer.with_id_order("bytes_first")
    assert renumbered.decode(renumbered.encode("é then the")) == "é then the"
    assert len(renumbered.encode("é then the")) == len(tokenizer.encode("é then the"))


def test_what_goes_around_a_text_follows_the_numbering(document):
    tokens = with_added(document, [added("<s>", special=True), added("</s>", special=True)])
    processor = around(*(token["id"] for token in tokens))
    tokenizer = Tokenizer.from_json(json.dumps({**document, "added_tokens": tokens, "post_processor": processor}))
    for other in (
        tokenizer.with_id_order("specials_first"),
        tokenizer.truncated(tokenizer.vocab_size - 100),
        tokenizer.with_special_tokens(["<more>"]),
    ):
        ids = other.encode("cat", add_special_tokens=True)
        assert other.decode(ids) == "<s>cat</s>"
        assert Tokenizer.from_json(other.to_json()).encode("cat", add_special_tokens=True) == ids
        assert Theirs.from_str(other.to_json()).encode("cat").ids == ids


def test_around_the_empty_text_and_no_text(document):
    tokenizer = Tokenizer.from_json(json.dumps({**document, "post_processor": around(3, 4)}))
    assert tokenizer.encode("", add_special_tokens=True) == [3, 4]
    assert tokenizer.encode_to_numpy("", add_special_tokens=True).tolist() == [3, 4]
    assert tokenizer.encode_batch_to_numpy([], add_special_tokens=True).offsets.tolist() == [0]
    assert tokenizer.encode_with_offsets("a", add_special_tokens=True)[1] == [(0, 0), (0, 1), (0, 0)]
    assert list(tokenizer.encode_iter([], add_special_tokens=True)) == [3, 4]


def test_a_stream_waits_where_the_decoder_looks_at_the_whole_text(document):
    tokenizer = Tokenizer.from_json(json.dumps({**document, **FAMILIES["decoded in steps"]}))
    ids = tokenizer.encode(" the cat sat")
    stream = tokenizer.stream_decoder()
    assert "".join(map(stream.feed, ids)) + stream.finish() == tokenizer.decode(ids) == " _the _cat _sat"
    assert stream.finish() == ""


def test_long_texts_are_encoded_in_parts_as_in_one(document):
    """Where a normalizer may join characters, a stream is cut only where it cannot."""
    text = ("e\u0301 =\u0338 cafe\u0301 naïve 日本 " * 50 + "e" + "\u0301\u0323" * 40 + " x") * 3
    for family in ("Pythia", "NFKC", "uncased", "replaced", "Falcon"):
        tokenizer = Tokenizer.from_json(json.dumps({**document, **FAMILIES[family]}))
        ids = tokenizer.encode(text)
        for size in (1, 7, 50):
            parts = [text[start : start + size] for start in range(0, len(text), size)]
            assert list(tokenizer.encode_iter(parts)) == ids, (family, size)
