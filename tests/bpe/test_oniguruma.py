"""Regular expressions of `tokenizer.json` files: read as Oniguruma reads them, by tokenizers itself as the judge."""

import warnings

import pytest
from tokenizers import Regex, normalizers, pre_tokenizers

from minigpt_tok.bpe import character_sets as sets
from minigpt_tok.bpe.expression import Expression
from minigpt_tok.bpe.oniguruma import UnreadableError

ANY_CASE = "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
WORDS = r"\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}"
SMALL = r"\p{Ll}\p{Lm}\p{Lo}\p{M}"
PUBLISHED = {
    "gpt2": r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+",
    "cl100k": r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}++|\p{N}{1,3}+| ?[^\s\p{L}\p{N}]++[\r\n]*+|\s++$|\s*[\r\n]"
    r"|\s+(?!\S)|\s",
    "llama3": rf"{ANY_CASE}|[^\r\n\p{{L}}\p{{N}}]?\p{{L}}+|\p{{N}}{{1,3}}| ?[^\s\p{{L}}\p{{N}}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
    "o200k": rf"[^\r\n\p{{L}}\p{{N}}]?[{WORDS}]*[{SMALL}]+{ANY_CASE}?|[^\r\n\p{{L}}\p{{N}}]?[{WORDS}]+[{SMALL}]*{ANY_CASE}?"
    r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+",
    "tekken": rf"[^\r\n\p{{L}}\p{{N}}]?[{WORDS}]*[{SMALL}]+|[^\r\n\p{{L}}\p{{N}}]?[{WORDS}]+[{SMALL}]*"
    r"|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+",
    "kimi": rf"[\p{{Han}}]+|[^\r\n\p{{L}}\p{{N}}]?[{WORDS}&&[^\p{{Han}}]]*[{SMALL}&&[^\p{{Han}}]]+{ANY_CASE}?"
    r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
    "deepseek": r"[!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+",
    "deepseek, ideographs": "[一-龥぀-ゟ゠-ヿ]+",
    "deepseek coder": r"\s?[!-/:-~！-／：-～‘-‟　-。]+",
    "bloom": r" ?[^(\s|[.,!?…。，、।۔،])]+",
    "falcon": "[0-9][0-9][0-9]",
    "numbers from the right": r"\d{1,3}(?=(?:\d{3})*\b)",
}
SYNTAX = [
    *(
        r"\n\n$|.",
        r"x*",
        r"(?=[ab])",
        r"^|b",
        r"$",
        r"\s+\z|\S+",
        r"\Z|a{,2}b",
        r"\w+|[^\w\s]+",
        r"[\w]+",
        r"\W",
        r"\h+",
    ),
    *(
        r"[[:punct:][:alpha:]]+?",
        r"[[:^space:]]",
        r"[^\W\d_]+",
        r"\p{^Latin}",
        r"\P{Greek}+",
        r"[\p{Thai}\p{Devanagari}]+",
    ),
    *(r"(?<=a|bc)d|(?<!x)y", r"(?i:k|[a-fß-ü&&[^ß]])+|\bs", r"(?i)σ|É+", r"a(?i)b|c", r"(?i:[^s])", r"(?-i:a)(?i:b)"),
    *(r"(?>a|ab)c|a{2}?", r"a{2}+", r"a{1,3}+b?", r"(?:[sdmt]|ll|ve|re)++\s?", r"(?m:.+?)\n|\B.", r"(?<n>a)b|(?#x)c"),
    *(
        r"\p{Sc}|\p{Cn}+|\p{So}",
        r"😀+|\x{1F601}|[\x{1F300}-\x{1F5FF}]",
        r"[a[^b]]",
        r"[]a]|[a-]",
        r"a{|a{,}",
        "",
        r"a||b",
    ),
    *(r"\u3042|\t|[\b]|\e", r"\p{Uppercase Letter}+", r"\p{Emoji_Modifier}"),
]


@pytest.mark.parametrize("source", [*PUBLISHED.values(), *SYNTAX])
def test_it_cuts_as_tokenizers_does(source, unlike_texts):
    theirs = pre_tokenizers.Split(Regex(source), "isolated")
    try:
        ours = Expression(source)
    except UnreadableError:
        assert source == r"\p{Emoji_Modifier}"  # a property that has no table here
        return
    for text in unlike_texts(len(source), 150):
        assert ours.cut(text) == [piece for piece, _ in theirs.pre_tokenize_str(text)], text


@pytest.mark.slow
@pytest.mark.parametrize("source", [*PUBLISHED.values(), *SYNTAX[:-1]])
def test_it_cuts_many_texts_as_tokenizers_does(source, unlike_texts):
    theirs = pre_tokenizers.Split(Regex(source), "isolated")
    ours = Expression(source)
    for text in unlike_texts(-len(source), 20_000):
        assert ours.cut(text) == [piece for piece, _ in theirs.pre_tokenize_str(text)], text


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("(a", "parenthesis that is not closed at character 0"),
        ("a)", "parenthesis too many at character 1"),
        ("[a", "bracket that is not closed at character 0"),
        ("[z-a]", "ends before it begins at character 1"),
        (r"[\w-a]", "range that begins with a class at character 1"),
        ("*a", "repeats nothing at character 0"),
        (r"a\X", r"escape that is not read here at character 1, '\\\\X'"),
        (r"(a)\1", "escape that is not read here"),
        (r"\p{Klingon}", "property 'Klingon', which is not known here, at character 0"),
        ("[[:foo:]]", "class 'foo', which is not known here"),
        ("(?~a)", "kind of group that is not read here"),
        ("(?{1})", "kind of group that is not read here"),
        ("(?<=a+)b", "looks behind for a text of no fixed length"),
        ("(?:a?)*", "repeats what may be empty"),
        ("a{3,1}", "count of repeats"),
        ("a{1,100000}", "count of repeats"),
        ("(?i:ss)", "'ss' in any case, which a single character can also be"),
        ("(?i:ß)", "several characters can also be"),
        ("(?i:[ß])", "one character can be several"),
        (r"\pL", "escape that is not read here"),
        ("\\", "ends in a backslash"),
        ("[a&&b]", "empty set"),
        ("(" * 200 + ")" * 200, "nests more than 100 deep"),
        ("[" * 200 + "a", "nests more than 100 deep"),
    ],
)
def test_what_is_not_read_is_refused_with_its_place(source, message):
    with pytest.raises(UnreadableError, match=message):
        Expression(source)


@pytest.mark.parametrize(
    ("source", "neutral"),
    [
        (PUBLISHED["llama3"], True),
        (PUBLISHED["deepseek"], True),
        (PUBLISHED["cl100k"], False),
        ("a$", False),
        (r"\w", False),
        ("(?m:.)", False),
        ("a{,2}", False),
        ("[a[b]]", False),
    ],
)
def test_whether_other_engines_read_it_alike_is_known(source, neutral):
    assert Expression(source).neutral is neutral


def test_a_text_in_an_expressions_clothes_is_known():
    assert Expression(r"a\.b\n").literal == "a.b\n"
    assert Expression("a.b").literal is None
    assert Expression("(?i:a)").literal is None


def test_a_repeat_of_a_repeat_takes_no_exponential_time():
    assert Expression(r"(?:\p{N}{1,3})+x|.").cut("1" * 200) == ["1"] * 200


MORE_CLASSES = [
    *(
        "L",
        "Lu",
        "Mn",
        "N",
        "No",
        "P",
        "Po",
        "S",
        "Sk",
        "Z",
        "Zs",
        "Cn",
        "Cf",
        "Latin",
        "Common",
        "Alnum",
        "Graph",
        "Print",
    ),
    *("Punct", "Blank", "Upper", "Lower", "Cntrl", "LC", "Any"),
]


@pytest.mark.parametrize(
    "name",
    ["M", "Nd", "C", "Alphabetic", "Han", "Word", *(pytest.param(n, marks=pytest.mark.slow) for n in MORE_CLASSES)],
)
def test_a_property_is_theirs_on_every_code_point(name):
    others = sets.complement(sets.union(sets.property_ranges(name), ((0xD800, 0xDFFF),)))
    characters = "".join(chr(point) for point in range(0x110000) if not 0xD800 <= point <= 0xDFFF)
    expected = "".join(chr(point) for first, last in others for point in range(first, last + 1))
    assert normalizers.Replace(Regex(rf"\p{{{name}}}"), "").normalize_str(characters) == expected


def test_sets_of_characters_are_sets():
    some = ((0x41, 0x5A), (0x61, 0x7A), (0x10FFFF, 0x10FFFF))
    assert sets.complement(sets.complement(some)) == some
    assert sets.union(some, sets.complement(some)) == sets.EVERYTHING
    assert sets.intersection(some, sets.complement(some)) == ()
    assert sets.difference(some, ((0x42, 0x79),)) == ((0x41, 0x41), (0x7A, 0x7A), (0x10FFFF, 0x10FFFF))


def test_no_warning_is_needed():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        Expression(PUBLISHED["kimi"]).cut("漢字 and 😀")
