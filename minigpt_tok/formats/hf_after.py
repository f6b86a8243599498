"""The post-processor and the decoder of a `tokenizer.json`: no ids depend on them, and they are carried beside.

A post-processor acts where special tokens are asked for (`add_special_tokens=True`): ids go before a text and after it.
A decoder acts where ids become text. Both are written again as they were read.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from minigpt_tok.bpe.expression import get_expression
from minigpt_tok.bpe.model import CHARACTER_TO_BYTE, BPEModel
from minigpt_tok.errors import FormatError, TokenizerError
from minigpt_tok.formats.hf_steps import flat, only, read_pattern
from minigpt_tok.formats.loaded import field, refusal

Fields = dict[str, Any]
MOST_STRIPPED = 1 << 20


@dataclass(frozen=True)
class Carried:
    """What a file says beside the tokenizer.

    Attributes:
        before, after: ids that go before and after the ids of a text where special tokens are asked for.
        post_processor: as it stands in the file.
        decoder: as it stands in the file; `None` for ByteLevel alone.
    """

    before: tuple[int, ...] = ()
    after: tuple[int, ...] = ()
    post_processor: Fields | None = None
    decoder: Fields | None = None

    def wrapped(self, ids: list[int]) -> list[int]:
        """The ids of a text with those that go around it."""
        return [*self.before, *ids, *self.after]

    @cached_property
    def decode(self) -> "Callable[[list[str], str], str] | None":
        """(tokens in printable characters, errors as in `bytes.decode`) → text; `None` where bytes alone say it."""
        return None if self.decoder is None else _Decoding(self.decoder)

    def renumbered(self, old: BPEModel, new: BPEModel) -> "Carried":
        """The same for another numbering of the tokens.

        Raises:
            TokenizerError: a token that goes around texts is not in the other vocabulary.
        """
        if not self.before and not self.after:
            return self
        ids = {id: _same_token(id, old, new) for id in {*self.before, *self.after}}
        return replace(
            self,
            before=tuple(ids[id] for id in self.before),
            after=tuple(ids[id] for id in self.after),
            post_processor=_with_ids(self.post_processor, ids),
        )


def _same_token(id: int, old: BPEModel, new: BPEModel) -> int:
    content = next((token.content for token in old.added_tokens if token.id == id), None)
    if content is not None:
        found = next((token.id for token in new.added_tokens if token.content == content), None)
    else:
        found = new.id_of.get(old.tokens[id] or b"")
    if found is None:
        raise TokenizerError(
            f"the token {id} goes around texts by the post-processor, and is not in the other vocabulary"
        )
    return found


def _with_ids(block: Any, ids: dict[int, int]) -> Any:
    """A post-processor's block with other ids: in `"ids": […]` of a template, or in `["</s>", 2]`."""
    if not isinstance(block, dict):
        return block
    changed = dict(block)
    for key in ("sep", "cls"):
        if isinstance(changed.get(key), list):
            changed[key] = [changed[key][0], ids.get(changed[key][1], changed[key][1])]
    if "processors" in changed:
        changed["processors"] = [_with_ids(part, ids) for part in changed["processors"]]
    if "special_tokens" in changed:
        changed["special_tokens"] = {
            name: {**token, "ids": [ids.get(id, id) for id in token["ids"]]}
            for name, token in changed["special_tokens"].items()
        }
    return changed


# Post-processors


def read_post_processor(block: Any, model: BPEModel, where: str) -> Carried:
    """What goes around a text.

    Raises:
        FormatError: naming what cannot be honoured.
    """
    if block is None:
        return Carried()
    carried = Carried(post_processor=block)
    parts = 1  # how many a text has been made of, by a template before: another one would not know what to do
    for step, place in flat(block, "processors", where):
        kind = field(step, "type", str, place)
        if kind == "ByteLevel":
            only(step, ("add_prefix_space", "trim_offsets", "use_regex"), place)
            for key in ("add_prefix_space", "trim_offsets", "use_regex"):
                field(step, key, bool, place, default=True)
            continue
        if kind not in ("TemplateProcessing", "RobertaProcessing", "BertProcessing"):
            raise refusal(place, "type", kind)
        if parts != 1:
            raise FormatError(f"{place}: {kind} after a template, on which tokenizers itself fails")
        if kind == "TemplateProcessing":
            before, after, parts = _template(step, model, place)
        else:
            before, after = _one_around(step, model, place)
        carried = replace(carried, before=(*before, *carried.before), after=(*carried.after, *after))
    return carried


def _one_around(step: Fields, model: BPEModel, place: str) -> tuple[tuple[int, ...], tuple[int, ...]]:
    only(step, ("sep", "cls", "trim_offsets", "add_prefix_space"), place)
    for key in ("trim_offsets", "add_prefix_space"):
        field(step, key, bool, place, default=True)
    ids = []
    for key in ("cls", "sep"):
        pair = field(step, key, list, place)
        if len(pair) != 2 or not isinstance(pair[0], str):
            raise FormatError(f"{place}.{key}: is not a token and its id")
        ids.append(_id(pair[1], model, f"{place}.{key}"))
    return (ids[0],), (ids[1],)


def _template(step: Fields, model: BPEModel, place: str) -> tuple[tuple[int, ...], tuple[int, ...], int]:
    only(step, ("single", "pair", "special_tokens"), place)
    tokens = field(step, "special_tokens", (dict, list), place, default={})
    if isinstance(tokens, list):
        raise FormatError(f"{place}.special_tokens: is a list, not an object")
    field(step, "pair", list, place, default=[])
    before: list[int] = []
    after: list[int] = []
    texts = 0
    pieces = field(step, "single", list, place)
    for number, piece in enumerate(pieces):
        where = f"{place}.single[{number}]"
        if not isinstance(piece, dict) or len(piece) != 1 or not piece.keys() <= {"Sequence", "SpecialToken"}:
            raise FormatError(f"{where}: is neither a Sequence nor a SpecialToken")
        if "Sequence" in piece:
            if field(piece["Sequence"], "id", str, where) != "A":
                raise FormatError(f"{where}: asks for a second text where there is one")
            texts += 1
            continue
        name = field(piece["SpecialToken"], "id", str, where)
        if name not in tokens:
            raise FormatError(f"{where}: names {name!r}, which special_tokens does not have")
        for id in field(tokens[name], "ids", list, f"{place}.special_tokens[{name!r}]"):
            (after if texts else before).append(_id(id, model, f"{place}.special_tokens[{name!r}].ids"))
    if texts != 1:
        raise FormatError(f"{place}.single: has the text {texts} times, not once")
    return tuple(before), tuple(after), len(pieces)


def _id(id: Any, model: BPEModel, where: str) -> int:
    if not isinstance(id, int) or isinstance(id, bool) or not 0 <= id < model.vocab_size:
        raise FormatError(f"{where}: the id is {id!r}, and ids go from 0 to {model.vocab_size - 1}")
    return id


# Decoders


def read_decoder(block: Any, where: str) -> Fields | None:
    """The decoder as it stands; `None` where it does what joining bytes does.

    Raises:
        FormatError: naming what cannot be honoured.
    """
    if block is None:
        raise refusal(where, "type", None)
    steps = flat(block, "decoders", where)
    for step, place in steps:
        kind = field(step, "type", str, place)
        if kind == "ByteLevel":
            only(step, ("add_prefix_space", "trim_offsets", "use_regex"), place)
        elif kind == "Fuse":
            only(step, (), place)
        elif kind == "Replace":
            only(step, ("pattern", "content"), place)
            read_pattern(step, place)
            field(step, "content", str, place)
        elif kind == "Strip":
            only(step, ("content", "start", "stop"), place)
            if len(field(step, "content", str, place)) != 1:
                raise FormatError(f"{place}.content: is not one character")
            for key in ("start", "stop"):
                if not 0 <= field(step, key, int, place) <= MOST_STRIPPED:
                    raise refusal(place, key, step[key])
        else:
            raise refusal(place, "type", kind)
    kinds = [step["type"] for step, _ in steps]
    if "ByteLevel" not in kinds:
        raise FormatError(f"{where}: has no ByteLevel, so its text would be in the characters that stand for bytes")
    simple = kinds[0] == "ByteLevel" and set(kinds[1:]) <= {"Fuse"}
    return None if simple else block


class _Decoding:
    """The steps of a decoder, run one after the other on the tokens."""

    def __init__(self, block: Fields) -> None:
        self._steps = [step for step, _ in flat(block, "decoders", "decoder")]

    def __call__(self, tokens: list[str], errors: str) -> str:
        for step in self._steps:
            tokens = _decoded(step, tokens, errors)
        return "".join(tokens)


def _decoded(step: Fields, tokens: list[str], errors: str) -> list[str]:
    kind = step["type"]
    if kind == "Fuse":
        return ["".join(tokens)]
    if kind == "ByteLevel":
        return [b"".join(map(token_bytes, tokens)).decode("utf-8", errors)]
    if kind == "Replace":
        pattern, is_expression = read_pattern(step, "decoder")
        return [_replaced(token, pattern, is_expression, step["content"]) for token in tokens]
    return [_stripped(token, step["content"], step["start"], step["stop"]) for token in tokens]


def token_bytes(token: str) -> bytes:
    """The bytes that a token's characters stand for; its own UTF-8 where one of them stands for none."""
    found = [CHARACTER_TO_BYTE.get(character) for character in token]
    return token.encode("utf-8") if None in found else bytes(byte for byte in found if byte is not None)


def _replaced(token: str, pattern: str, is_expression: bool, content: str) -> str:
    if not token:
        return token
    if not is_expression:
        return token.replace(pattern, content)
    parts = []
    done = 0
    for start, end in get_expression(pattern).matches(token):
        parts += [token[done:start], content]
        done = end
    return "".join([*parts, token[done:]])


def _stripped(token: str, character: str, start: int, stop: int) -> str:
    first = 0
    while first < min(start, len(token)) and token[first] == character:
        first += 1
    last = len(token)
    while last > max(first, len(token) - stop) and token[last - 1] == character:
        last -= 1
    return token[first:last]
