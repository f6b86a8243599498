"""Characters and snippets of every kind that some pattern tells apart."""

from hypothesis import strategies as st

KINDS = ("a", "S", "ǅ", "ʰ", "中", "\u0301", "7", " ", "\t", "\n", "'", "/", "\U0001f600")
FRAGMENTS = (
    *KINDS,
    *(
        "re",
        "ve",
        "ll",
        "'s",
        "'T",
        "'ſ",
        "'LL",
        "'d",
        "don't",
        "WE'RE",
        "x",
        "É",
        "ß",
        "ſ",
        "K",
        "İ",
        "\r",
        "\r\n",
        "  ",
    ),
    *("\xa0", "\u3000", "\u2028", "\x85", "\x1c", "\x1f", "\u200b", "\ufeff", "\x00", "!", "...", "½", "Ⅷ", "٣", "123"),
    *("\U0001d400", "\U00010428", "\U0001d7d8", "\U0001e000", "\U0001f1e6", "\U0010ffff", "👍🏽", "हिन्दी", "e\u0301"),
)

any_text = st.lists(st.one_of(st.sampled_from(FRAGMENTS), st.characters()), max_size=20).map("".join)
