"""The four published training recipes as settings of one trainer (`reference.train_merges`)."""

from dataclasses import dataclass, fields, replace
from typing import Any, Literal, get_args

from minigpt_tok.bpe.model import Unit
from minigpt_tok.errors import TokenizerError

Tie = Literal["lowest_ids", "greatest_bytes", "first_seen"]
IdOrder = Literal["specials_first", "bytes_first", "specials_last", "characters"]

END_OF_TEXT = "<|endoftext|>"
CHAT_TOKENS = (
    END_OF_TEXT,
    "<|im_start|>",
    "<|im_end|>",
    "<|system|>",
    "<|user|>",
    "<|assistant|>",
    "<|tool|>",
    "<|pad|>",
)


def check_whole(argument: str, value: Any) -> None:
    """Refuse what is no whole number, such as 300.0 or True.

    Raises:
        TokenizerError: naming the argument.
    """
    if not isinstance(value, int) or isinstance(value, bool):
        raise TokenizerError(f"{argument} is {value!r}, not a whole number")


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """One way of training, switch by switch. Every switch is also an argument of `train_tokenizer` by its name here.

    Attributes:
        unit: base tokens are the 256 `byte`s, or the `character`s of the text.
        pattern: the pre-tokenizer, by name or as a regular expression; `none` lets merges cross everything.
        tie: of pairs with equal counts, `lowest_ids` takes the smallest (left id, right id), `greatest_bytes` the
            greatest (left bytes, right bytes), `first_seen` the one that occurs first in the current segmentation.
        id_order: `specials_first`: specials, bytes by printable character, merges; `bytes_first`: bytes by value,
            specials, merges; `specials_last`: bytes by value, merges, specials; `characters`: by code point, merges.
        min_frequency: training stops when the best pair occurs less often; a count equal to it still merges.
        max_token_length: no merge makes a token longer than this, in units. Differs from `BpeTrainer`'s argument of
            the same name, whose bound is strict, counts the bytes of printable characters, and spares two-unit merges.
        initial_alphabet: characters that are base tokens whether the text has them or not (character unit).
        limit_alphabet: how many characters, the most frequent ones, become base tokens (character unit); ties go to
            the smaller code point. With bytes, which are always all there, less than 256 is an error.
        base_characters: the base tokens, given; the text may have no others (character unit).
    """

    name: str
    unit: Unit = "byte"
    pattern: str = "gpt2"
    tie: Tie = "lowest_ids"
    id_order: IdOrder = "specials_first"
    min_frequency: int = 2
    max_token_length: int | None = None
    initial_alphabet: frozenset[str] = frozenset()
    limit_alphabet: int | None = None
    base_characters: frozenset[str] | None = None

    def __post_init__(self) -> None:
        """Check every switch, naming the one that is wrong."""
        for switch, kinds in (("unit", Unit), ("tie", Tie), ("id_order", IdOrder)):
            if getattr(self, switch) not in get_args(kinds):
                raise TokenizerError(
                    f"{switch} is {getattr(self, switch)!r}; choose one of {', '.join(get_args(kinds))}"
                )
        if not isinstance(self.pattern, str):
            raise TokenizerError(f"pattern is {self.pattern!r}; give a pattern's name or a regular expression")
        for switch in ("min_frequency", "max_token_length", "limit_alphabet"):
            if getattr(self, switch) is not None or switch == "min_frequency":
                check_whole(switch, getattr(self, switch))
        if self.min_frequency < 1:
            raise TokenizerError(f"min_frequency is {self.min_frequency}; the least is 1 (merge whatever occurs)")
        if self.max_token_length is not None and self.max_token_length < 1:
            raise TokenizerError(f"max_token_length is {self.max_token_length}; the least is 1 (no merge at all)")
        if self.limit_alphabet is not None:
            if self.unit == "byte" and self.limit_alphabet < 256:
                raise TokenizerError(
                    f"limit_alphabet is {self.limit_alphabet}, but all 256 bytes are base tokens: give 256 or more, "
                    "or unit='character'"
                )
            if self.limit_alphabet < 1:
                raise TokenizerError(f"limit_alphabet is {self.limit_alphabet}; the least is 1")
        if (self.unit == "character") != (self.id_order == "characters"):
            raise TokenizerError(
                f"id_order is {self.id_order!r} with unit={self.unit!r}: 'characters' is the order of characters, "
                "and the only one they have"
            )
        if self.base_characters is not None and self.unit == "byte":
            raise TokenizerError("base_characters is for unit='character'; with bytes all 256 are base tokens")
        for switch in ("initial_alphabet", "base_characters"):
            for character in sorted(getattr(self, switch) or ()):
                if len(character) != 1 or "\ud800" <= character <= "\udfff":
                    raise TokenizerError(f"{switch} has {character!r}, which is not one character")


RECIPES = {
    recipe.name: recipe
    for recipe in (
        Recipe(name="hf"),
        Recipe(name="cs336", tie="greatest_bytes", id_order="bytes_first", min_frequency=1),
        Recipe(name="readable", pattern="digits1", tie="first_seen", id_order="specials_last", min_frequency=1),
        Recipe(name="character", unit="character", pattern="none", tie="first_seen", id_order="characters"),
    )
}
SWITCHES = frozenset(field.name for field in fields(Recipe)) - {"name"}


def get_recipe(name: str, **switches: Any) -> Recipe:
    """The recipe `name` with some of its switches set otherwise.

    A `unit` that differs from the recipe's brings its own `id_order` along, unless one is given.

    Raises:
        TokenizerError: no such recipe or switch, or a value that a switch cannot have.
    """
    if name not in RECIPES:
        raise TokenizerError(f"recipe is {name!r}; choose one of {', '.join(RECIPES)}")
    unknown = sorted(set(switches) - SWITCHES)
    if unknown:
        raise TokenizerError(
            f"no recipe has a switch {', '.join(unknown)}; the switches are {', '.join(sorted(SWITCHES))}"
        )
    recipe = RECIPES[name]
    if switches.get("unit", recipe.unit) != recipe.unit:
        switches.setdefault("id_order", "characters" if switches["unit"] == "character" else "specials_first")
    for switch in ("initial_alphabet", "base_characters"):
        if switches.get(switch) is not None:
            switches[switch] = frozenset(switches[switch])
    return replace(recipe, **switches)


def check_special_tokens(recipe: Recipe, special_tokens: tuple[str, ...]) -> None:
    """Refuse specials that are empty, given twice, equal to a base token, or asked of characters.

    Raises:
        TokenizerError: naming the token.
    """
    if recipe.unit == "character" and special_tokens:
        raise TokenizerError(
            f"special_tokens has {special_tokens[0]!r}, but a character tokenizer has none: every id stands for its text. "
            "Use unit='byte' (recipes hf, cs336, readable) for special tokens"
        )
    seen: set[str] = set()
    for token in special_tokens:
        if not token:
            raise TokenizerError("special_tokens has an empty string, which would match everywhere")
        if token in seen:
            raise TokenizerError(f"special_tokens has {token!r} twice")
        try:
            raw = token.encode("utf-8")
        except UnicodeEncodeError:
            raise TokenizerError(f"special_tokens has {token!r}, a lone surrogate, which no text can hold") from None
        if len(raw) == 1:
            raise TokenizerError(f"special_tokens has {token!r}, which is a base token (one byte)")
        seen.add(token)
