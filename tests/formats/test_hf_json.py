"""Hugging Face's `tokenizer.json`: every field is honoured or refused by its name."""

import copy
import json

import pytest

from minigpt_tok.bpe.model import BYTE_TO_CHARACTER
from minigpt_tok.errors import FormatError
from minigpt_tok.tokenizer import Tokenizer

BYTE_LEVEL = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
DIGITS = {"type": "Digits", "individual_digits": True}


def split(expression, **changes):
    return {"type": "Split", "pattern": {"Regex": expression}, "behavior": "Isolated", "invert": False, **changes}


TEXT = {"Sequence": {"id": "A", "type_id": 0}}


def sequence(*steps):
    return {"type": "Sequence", "pretokenizers": list(steps)}


def added(content, id, **flags):
    token = {"id": id, "content": content, "single_word": False, "lstrip": False, "rstrip": False}
    return {**token, "normalized": False, "special": True, **flags}


@pytest.fixture
def document():
    vocab = {character: number for number, character in enumerate(sorted(BYTE_TO_CHARACTER.values()))}
    vocab |= {"bc": 256, "ab": 257, "<s>": 258}
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [added("<s>", 258)],
        "normalizer": None,
        "pre_tokenizer": dict(BYTE_LEVEL),
        "post_processor": None,
        "decoder": dict(BYTE_LEVEL),
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
            "merges": [["b", "c"], ["a", "b"]],
        },
    }


def load(document):
    return Tokenizer.from_json(json.dumps(document))


def with_field(document, path, value):
    changed = copy.deepcopy(document)
    *way, last = path.split(".")
    place = changed
    for key in way:
        place = place[key]
    if value is ...:
        del place[last]
    else:
        place[last] = value
    return changed


def test_it_is_read_as_it_stands(document):
    tokenizer = load(document)
    assert tokenizer.vocab_size == 259
    assert tokenizer.special_tokens == {"<s>": 258}
    assert tokenizer.pattern == "gpt2"
    assert tokenizer.encode("abc<s>", allowed_special="all") == [64, 256, 258]
    assert tokenizer.token_bytes(256) == b"bc"


@pytest.mark.parametrize("merges", [["b c", "a b"], [["b", "c"], ["a", "b"]], ["b c", ["a", "b"]]])
def test_merges_stand_as_strings_or_pairs(document, merges):
    assert load(with_field(document, "model.merges", merges)) == load(document)


@pytest.mark.parametrize(
    "path",
    [
        *("version", "truncation", "padding", "normalizer", "post_processor"),
        *("model.type", "model.dropout", "model.unk_token", "model.fuse_unk", "model.ignore_merges"),
        *("model.byte_fallback", "model.continuing_subword_prefix", "model.end_of_word_suffix"),
    ],
)
def test_a_field_that_older_files_lack_has_its_neutral_value(document, path):
    assert load(with_field(document, path, ...)) == load(document)


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("model.dropout", 0.0),
        ("model.dropout", 0),
        ("model.continuing_subword_prefix", ""),
        ("model.end_of_word_suffix", ""),
        ("post_processor", {**BYTE_LEVEL, "trim_offsets": False}),
        ("post_processor", {"type": "TemplateProcessing", "single": [TEXT], "pair": [], "special_tokens": {}}),
        ("post_processor", {"type": "Sequence", "processors": [dict(BYTE_LEVEL)]}),
        ("pre_tokenizer", {**BYTE_LEVEL, "trim_offsets": False}),
        ("decoder", {**BYTE_LEVEL, "use_regex": False}),
        ("decoder", {"type": "Sequence", "decoders": [dict(BYTE_LEVEL), {"type": "Fuse"}]}),
        ("normalizer", {"type": "Sequence", "normalizers": []}),
        ("normalizer", {"type": "Strip", "strip_left": False, "strip_right": False}),
        ("normalizer", {"type": "Prepend", "prepend": ""}),
        ("pre_tokenizer", sequence(sequence(), sequence(BYTE_LEVEL))),
    ],
)
def test_fields_without_effect_on_ids_change_nothing(document, path, value):
    assert load(with_field(document, path, value)).fingerprint == load(document).fingerprint


@pytest.mark.parametrize(
    ("path", "value", "named"),
    [
        ("version", "2.0", "version is '2.0'"),
        ("version", None, "version: is None, not str"),
        ("truncation", {"max_length": 5}, "truncation"),
        ("padding", {"strategy": "BatchLongest"}, "padding"),
        ("normalizer", {"type": "Nmt"}, "normalizer.type is 'Nmt'"),
        ("normalizer", {"type": "Precompiled", "precompiled_charsmap": ""}, "normalizer.type is 'Precompiled'"),
        ("normalizer", {"type": "BertNormalizer"}, "normalizer.type is 'BertNormalizer'"),
        (
            "normalizer",
            {"type": "Sequence", "normalizers": [{"type": "NFC"}, {"type": "X"}]},
            r"normalizers\[1\].type is 'X'",
        ),
        ("normalizer", {"type": "NFC", "more": 1}, "'more' is not known"),
        ("normalizer", {"type": "Strip", "strip_left": True}, "has no 'strip_right'"),
        ("normalizer", {"type": "Replace", "pattern": {"Glob": "*"}, "content": ""}, "pattern: has 'Glob'"),
        ("normalizer", {"type": "Replace", "pattern": {"Regex": "^"}, "content": "_"}, "matches nothing, too"),
        ("normalizer", {"type": "Replace", "pattern": {"Regex": "(a"}, "content": ""}, "not closed at character 0"),
        (
            "normalizer",
            {"type": "Sequence", "normalizers": [{"type": "ByteLevel"}, {"type": "NFC"}]},
            "NFC after ByteLevel",
        ),
        ("normalizer", "NFC", "not dict or null"),
        ("something_new", 1, "'something_new' is not known"),
        ("model.something_new", None, "'something_new' is not known"),
        ("model.dropout", 0.1, "dropout is 0.1"),
        ("model.dropout", [0], r"dropout is \[0\]"),
        ("model.unk_token", "<unk>", "unk_token is '<unk>'"),
        ("model.unk_token", "", "unk_token is ''"),
        ("model.fuse_unk", True, "fuse_unk is True"),
        ("model.byte_fallback", True, "byte_fallback is True"),
        ("model.continuing_subword_prefix", "##", "continuing_subword_prefix is '##'"),
        ("model.end_of_word_suffix", "</w>", "end_of_word_suffix is '</w>'"),
        ("model.ignore_merges", 1, "ignore_merges: is 1, not bool"),
        ("model.type", "WordPiece", "type is 'WordPiece'"),
        ("model.type", "Unigram", "type is 'Unigram'"),
        ("model.type", "WordLevel", "type is 'WordLevel'"),
        ("model.vocab", ..., "has no 'vocab'"),
        ("model.vocab", [["a", 0]], "not dict"),
        ("model.merges", ..., "has no 'merges'"),
        ("model.merges", {"b": "c"}, "not list"),
        ("model.merges", ["b"], r"merges\[0\]: is 'b', not two tokens"),
        ("model.merges", ["b c d"], "not two tokens"),
        ("model.merges", ["b "], "not two tokens"),
        ("model.merges", [["b", "c", "d"]], "not two tokens"),
        ("model.merges", [["b", 3]], "not two tokens"),
        ("model.merges", [["b", "b"]], r"merges\[0\]: 'bb' is not in the vocabulary"),
        ("model.merges", [["b", "日"]], "stands for no byte"),
        ("pre_tokenizer", None, "pre_tokenizer is null"),
        ("pre_tokenizer", {"type": "Metaspace", "replacement": "▁"}, "has no ByteLevel"),
        ("pre_tokenizer", {"type": "Whitespace"}, "has no ByteLevel"),
        ("pre_tokenizer", sequence(), "has no ByteLevel"),
        ("pre_tokenizer", sequence(DIGITS), "has no ByteLevel"),
        ("pre_tokenizer", sequence(BYTE_LEVEL, {"type": "Metaspace", "replacement": "▁"}), "Metaspace after the bytes"),
        ("pre_tokenizer", {"type": "BertPreTokenizer"}, "pre_tokenizer.type is 'BertPreTokenizer'"),
        ("pre_tokenizer", {"type": "UnicodeScripts"}, "pre_tokenizer.type is 'UnicodeScripts'"),
        ("pre_tokenizer", sequence({"type": "FixedLength", "length": 0}, BYTE_LEVEL), "length: is 0"),
        ("pre_tokenizer", sequence("ByteLevel"), r"pretokenizers\[0\]: is not an object"),
        ("pre_tokenizer", sequence(None, BYTE_LEVEL), r"pretokenizers\[0\]: is not an object"),
        ("pre_tokenizer", {**BYTE_LEVEL, "use_regex": "yes"}, "use_regex"),
        ("pre_tokenizer", sequence(split("a", behavior="Kept"), BYTE_LEVEL), "behavior is 'Kept'"),
        ("pre_tokenizer", sequence(split("a", why=1), BYTE_LEVEL), "'why' is not known"),
        ("pre_tokenizer", sequence(split(r"\X"), BYTE_LEVEL), r"pretokenizers\[0\].pattern.Regex: .* character 0"),
        ("decoder", None, "decoder.type is None"),
        ("decoder", {"type": "Metaspace"}, "decoder.type is 'Metaspace'"),
        ("decoder", {"type": "Fuse"}, "decoder: has no ByteLevel"),
        ("post_processor", {"type": "BertProcessing", "sep": ["x", 1]}, "has no 'cls'"),
        ("post_processor", {"type": "BertProcessing", "sep": ["x", 900], "cls": ["x", 1]}, "sep: the id is 900"),
        ("post_processor", {"type": "TemplateProcessing", "single": []}, "the text 0 times"),
        ("post_processor", {"type": "TemplateProcessing", "single": [TEXT, TEXT]}, "the text 2 times"),
        (
            "post_processor",
            {"type": "TemplateProcessing", "single": [{"SpecialToken": {"id": "<b>", "type_id": 0}}, TEXT]},
            "names '<b>', which special_tokens does not have",
        ),
        ("post_processor", {"type": "Sequence", "processors": [{"type": "New"}]}, r"processors\[0\].type is 'New'"),
        ("post_processor", {"type": "Sequence", "processors": ["x"]}, r"processors\[0\]: is not an object"),
        ("added_tokens", {}, "not list"),
        ("added_tokens", [3], r"added_tokens\[0\]"),
        ("added_tokens", [{"id": 258}], r"added_tokens\[0\]: has no 'content'"),
        ("added_tokens", [{"content": "<s>"}], r"added_tokens\[0\]: has no 'id'"),
        ("added_tokens", [added("<s>", "258")], "not int"),
        ("added_tokens", [added("<s>", 258, lstrip=1)], "lstrip: is 1, not bool"),
        ("added_tokens", [added("", 259)], "content is empty"),
        ("added_tokens", [added("\ud800", 259)], "lone surrogate"),
        ("added_tokens", [added("<s>", 258), added("<s>", 259)], "'<s>' with id 259 stands twice"),
        ("added_tokens", [added("<s>", 258), added("<t>", 258)], "'<t>' with id 258 stands twice"),
        ("added_tokens", [added("<s>", 258), added("<t>", 300)], "no token has id 259, but ids go up to 300"),
        ("added_tokens", [added("<s>", 258), added("<t>", -1)], "id -1 is not a whole number"),
        ("added_tokens", [added("<s>", 258), added("<t>", 257)], "which another token has too"),
        ("added_tokens", [added("<s>", 259)], "'<s>' has the id 258, and as an added token 259"),
        ("added_tokens", [added("<u>", 260), added("<t>", 259)], "'<u>' has the id 260, but tokenizers gives it 259"),
        ("added_tokens", [added("<s>", 258, colour="red")], "'colour' is not known"),
    ],
)
def test_what_is_not_honoured_is_refused_by_its_name(document, path, value, named):
    with pytest.raises(FormatError, match=named) as error:
        load(with_field(document, path, value))
    assert isinstance(error.value, ValueError)


@pytest.mark.parametrize("text", ["[]", "3", '"x"', "null"])
def test_a_file_of_another_kind_is_refused(tmp_path, text):
    (tmp_path / "t.json").write_text(text)
    with pytest.raises(FormatError, match="not the object"):
        Tokenizer.from_hf_json(tmp_path / "t.json")


PUBLISHED = {
    "llama3": r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+"
    r"|\s+(?!\S)|\s+",
    "digits1": r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+"
    r"|\s+(?!\S)|\s+",
}


@pytest.mark.parametrize("name", PUBLISHED)
def test_a_published_expression_is_known_by_its_name(document, name):
    steps = sequence(split(PUBLISHED[name]), {**BYTE_LEVEL, "use_regex": False})
    assert load(with_field(document, "pre_tokenizer", steps)).pattern == name


def test_digits_before_gpt2_and_no_cut_at_all(document):
    assert load(with_field(document, "pre_tokenizer", sequence(DIGITS, BYTE_LEVEL))).pattern == "smollm"
    assert load(with_field(document, "pre_tokenizer", {**BYTE_LEVEL, "use_regex": False})).pattern == "none"
    assert load(with_field(document, "pre_tokenizer", sequence(BYTE_LEVEL))).pattern == "gpt2"


def test_another_expression_is_run_as_it_stands(document):
    steps = sequence(split("b|\\p{N}"), {**BYTE_LEVEL, "use_regex": False})
    tokenizer = load(with_field(document, "pre_tokenizer", steps))
    assert tokenizer.encode("abc") == [64, 65, 66]
    assert tokenizer.pattern == "b|\\p{N}"
    assert Tokenizer.from_json(tokenizer.to_json()) == tokenizer


def test_an_expression_that_engines_read_differently_is_a_step_of_its_own(document):
    steps = sequence(split("b$|\\w"), {**BYTE_LEVEL, "use_regex": False})
    tokenizer = load(with_field(document, "pre_tokenizer", steps))
    assert tokenizer.pattern == "Split('b$|\\\\w', 'Isolated', False) > ByteLevel(False, False)"
    assert Tokenizer.from_json(tokenizer.to_json()) == tokenizer
    steps["pretokenizers"][0].update(behavior="Removed", invert=True)
    assert load(with_field(document, "pre_tokenizer", steps)).fingerprint != tokenizer.fingerprint


@pytest.mark.parametrize("word", ["none", "gpt2", "bc"])
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_an_expression_that_reads_like_a_name_is_an_expression(document, word):
    steps = sequence(split(word), {**BYTE_LEVEL, "use_regex": False})
    tokenizer = load(with_field(document, "pre_tokenizer", steps))
    assert [piece.text for piece in tokenizer.explain(f"a{word}b").pieces] == ["a", word, "b"]


def test_an_expression_that_cannot_be_run_is_refused(document):
    steps = sequence(split("(unclosed"), {**BYTE_LEVEL, "use_regex": False})
    with pytest.raises(FormatError, match=r"pretokenizers\[0\]\.pattern\.Regex: .* not closed at character 0"):
        load(with_field(document, "pre_tokenizer", steps))


def test_an_expression_is_read_as_the_engine_of_these_files_reads_it(document):
    """`\\p{N}{1,3}+` is up to three digits to tiktoken and any number of them in a tokenizer.json."""
    tokenizers = pytest.importorskip("tokenizers")
    expression = (
        r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}++|\p{N}{1,3}+| ?[^\s\p{L}\p{N}]++[\r\n]*+|\s++$|\s*[\r\n]"
        r"|\s+(?!\S)|\s"
    )
    steps = sequence(split(expression), {**BYTE_LEVEL, "use_regex": False})
    changed = with_field(document, "pre_tokenizer", steps)
    pieces = [piece.text for piece in load(changed).explain("in 123456  \n").pieces]
    theirs = tokenizers.pre_tokenizers.Split(tokenizers.Regex(expression), "isolated").pre_tokenize_str("in 123456  \n")
    assert pieces == [piece for piece, _ in theirs] == ["in", " ", "123456", "  \n"]


def test_added_tokens_keep_their_flags(document):
    tokens = [added("<s>", 258, lstrip=True, rstrip=True), added("word", 259, special=False, single_word=True)]
    tokenizer = load(with_field(document, "added_tokens", tokens))
    assert tokenizer.special_tokens == {"<s>": 258}
    assert tokenizer.encode("a <s> word words", allowed_special="all")[:3] == [64, 258, 259]
    assert tokenizer.encode("word") == [259]
    assert tokenizer.encode("words")[0] != 259
    again = json.loads(tokenizer.to_json())["added_tokens"]
    assert again == tokens
    assert Tokenizer.from_json(tokenizer.to_json()) == tokenizer


def test_a_whole_piece_is_looked_up_first_where_the_file_says_so(document):
    document["model"]["vocab"] |= {"cab": 259}
    assert load(document).encode("cab") == [66, 257]
    whole = load(with_field(document, "model.ignore_merges", True))
    assert whole.encode("cab") == [259]
    assert whole.encode("cabb") == [66, 257, 65]
    assert json.loads(whole.to_json())["model"]["ignore_merges"] is True


def test_hugging_face_agrees_on_hand_made_merges(document):
    tokenizers = pytest.importorskip("tokenizers")
    document["model"]["merges"] = [["b", "c"], ["a", "b"], ["b", "c"], ["a", "a"], ["aa", "a"], ["a", "bc"]]
    document["model"]["vocab"] |= {"aa": 259, "aaa": 260, "abc": 261}
    for ignore in (False, True):
        document["model"]["ignore_merges"] = ignore
        theirs = tokenizers.Tokenizer.from_str(json.dumps(document))
        ours = load(document)
        for text in ("abc", "aaa", "aaaaaa", "aabc", "abcabc", "aaaa aaa abc", "<s>abc"):
            assert ours.encode(text, allowed_special="all") == theirs.encode(text).ids


def test_a_learned_special_that_no_file_can_hold_is_refused(make):
    tokenizer = make("hf", 320, ()).with_special_tokens(["the"])
    with pytest.raises(FormatError, match=r"cannot hold two ids .* written 'the'"):
        tokenizer.to_json()
