"""What a form cannot hold is refused when it is written, with the reason: it would be read back with other ids."""

from collections.abc import Iterable

from minigpt_tok.bpe.model import BPEModel
from minigpt_tok.bpe.ranks import unreachable_ids
from minigpt_tok.errors import FormatError
from minigpt_tok.files import StrPath


def refuse(where: StrPath, form: str, reasons: Iterable[tuple[bool, str]]) -> None:
    """Raise for the first reason that holds; `form` names the form, as in `ranks`.

    Raises:
        FormatError: with the reason, and the form that holds everything.
    """
    for holds, what in reasons:
        if holds:
            raise FormatError(f"{where}: {form} cannot hold {what}; save it as tokenizer.json")


def refuse_characters(where: StrPath, form: str, model: BPEModel) -> None:
    """Refuse a character tokenizer.

    Raises:
        FormatError: it is one.
    """
    if model.unit != "byte":
        raise FormatError(f"{where}: {form} cannot hold characters for base tokens; save it as character_bpe")


def refuse_doubles(where: StrPath, form: str, model: BPEModel) -> None:
    """Refuse two ids with the same bytes, which a form that finds ids by bytes cannot tell apart.

    Raises:
        FormatError: naming both ids.
    """
    seen: dict[bytes, int] = {token.content.encode("utf-8"): token.id for token in model.added_tokens}
    for id, token in enumerate(model.tokens):
        if token is None:
            continue
        if seen.get(token, id) != id:
            raise FormatError(f"{where}: {form} cannot hold two ids ({seen[token]} and {id}) with the bytes {token!r}")
        seen[token] = id


def refuse_whole_pieces(where: StrPath, form: str, model: BPEModel) -> None:
    """Refuse whole-piece lookup where ids depend on it.

    Raises:
        FormatError: saying of how many tokens.
    """
    if model.whole_piece and (unreachable := unreachable_ids(model)):
        raise FormatError(
            f"{where}: {form} cannot hold whole-piece lookup, without which {len(unreachable):,} of the tokens would "
            "never appear; save it as tokenizer.json"
        )


def common_reasons(model: BPEModel) -> list[tuple[bool, str]]:
    """What no form but `tokenizer.json` can hold."""
    steps = [step["type"] for step in model.normalizer.plain()] if model.normalizer is not None else []
    both = [token.content for token in model.added_tokens if model.tokens[token.id] is not None]
    flagged = [
        token.content
        for token in model.added_tokens
        if not token.special or token.lstrip or token.rstrip or token.single_word
    ]
    return [
        (bool(steps), f"a normalizer ({', '.join(steps)})"),
        (model.pipeline is not None, f"the pre-tokenizer {model.pipeline}"),
        (bool(both), f"added tokens that plain text leads to, too ({', '.join(map(repr, both[:5]))})"),
        (bool(flagged), f"added tokens that are not special or have flags ({', '.join(map(repr, flagged[:5]))})"),
    ]
