"""The `character_bpe` JSON: base tokens, merges, vocabulary size and fingerprint of a character tokenizer.

    {"type": "character_bpe", "base_tokens": [" ", "e", …], "merges": [["l", "o"], …], "vocab_size": 12, "fingerprint": …}

written with indent 2 and characters as they are, byte for byte as the tutorial that this form comes from writes it. A
pattern other than `none`, which that tutorial does not know, follows as `"pattern"`.
"""

import json
from typing import Any

from minigpt_tok.bpe.model import BPEModel
from minigpt_tok.bpe.pretokenize import get_pretokenizer
from minigpt_tok.errors import FormatError, TokenizerError
from minigpt_tok.files import StrPath, write_text
from minigpt_tok.formats.loaded import Loaded, field

TYPE = "character_bpe"


def to_model(base_tokens: list[str], merges: list[tuple[str, str]], source: str, pattern: str = "none") -> BPEModel:
    """A model from base characters and merges in the order in which they apply.

    Raises:
        FormatError: a base token that is not one character or stands twice, or a merge of a token not yet made.
    """
    if not base_tokens:
        raise FormatError(f"{source}: base_tokens is empty, so no text could be encoded")
    id_of: dict[str, int] = {}
    for number, token in enumerate(base_tokens):
        if not isinstance(token, str) or len(token) != 1 or "\ud800" <= token <= "\udfff":
            raise FormatError(f"{source}: base_tokens[{number}] is {token!r}, not one character")
        if token in id_of:
            raise FormatError(f"{source}: base_tokens has {token!r} twice")
        id_of[token] = number
    pairs, results, tokens = [], [], list(base_tokens)
    for rank, merge in enumerate(merges):
        if not isinstance(merge, list | tuple) or len(merge) != 2 or not all(isinstance(part, str) for part in merge):
            raise FormatError(f"{source}: merges[{rank}] is {merge!r}, not a pair of strings")
        for part in merge:
            if part not in id_of:
                raise FormatError(
                    f"{source}: merges[{rank}] joins {merge[0]!r} and {merge[1]!r}, but {part!r} is neither a base token "
                    "nor made by an earlier merge: merges stand in the order in which they were learned"
                )
        text = merge[0] + merge[1]
        pairs.append((id_of[merge[0]], id_of[merge[1]]))
        if text in id_of:
            raise FormatError(f"{source}: merges[{rank}] makes {text!r}, which an earlier merge made")
        id_of[text] = len(tokens)
        results.append(len(tokens))
        tokens.append(text)
    get_pretokenizer(pattern)  # refuses what is no pattern
    return BPEModel(
        unit="character",
        tokens=tuple(token.encode("utf-8") for token in tokens),
        merges=tuple(pairs),
        merge_results=tuple(results),
        pattern=pattern,
    )


def parse(document: Any, source: str) -> Loaded:
    """From the parsed JSON."""
    base_tokens = field(document, "base_tokens", list, source)
    pattern = field(document, "pattern", str, source, default="none")
    try:
        model = to_model(base_tokens, field(document, "merges", list, source), source, pattern)
    except TokenizerError as error:
        raise FormatError(f"{source}.pattern: {error}") from None
    size = field(document, "vocab_size", int, source, default=model.vocab_size)
    if size != model.vocab_size:
        raise FormatError(
            f"{source}: vocab_size is {size:,}, but base tokens and merges make {model.vocab_size:,}: damaged or edited"
        )
    return Loaded(model, fingerprint=field(document, "fingerprint", str, source, default=None), source=source)


def to_json(model: BPEModel, fingerprint: str) -> str:
    """The text of the file."""
    text = [(token or b"").decode("utf-8") for token in model.tokens]
    bases = len(text) - len(set(model.merge_results))
    document: dict[str, Any] = {
        "type": TYPE,
        "base_tokens": text[:bases],
        "merges": [[text[left], text[right]] for left, right in model.merges],
        "vocab_size": model.vocab_size,
        "fingerprint": fingerprint,
    }
    if model.pattern != "none":
        document["pattern"] = model.pattern
    return json.dumps(document, indent=2, ensure_ascii=False)


def save(path: StrPath, model: BPEModel, fingerprint: str) -> None:
    """Write the file, whole or not at all."""
    write_text(path, to_json(model, fingerprint))
