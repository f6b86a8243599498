"""What binds a checkpoint to its tokenizer: the keys, and what they say, checked. `minigpt_tok.checkpoint` is its face."""

import re
from collections.abc import Mapping
from typing import Any, NamedTuple

from minigpt_tok.difference import difference
from minigpt_tok.errors import FormatError, MiniGPTTokError, TokenizerMismatchError
from minigpt_tok.fingerprint import FINGERPRINT_VERSION
from minigpt_tok.tokenizer import Tokenizer

FINGERPRINT_KEY = "tokenizer_fingerprint"
VERSION_KEY = "tokenizer_fingerprint_version"
TOKENIZER_KEY = "tokenizer"
VOCAB_SIZE_KEY = "vocab_size"
DATA_KEY = "data_fingerprint"
TRANSPLANT_KEY = "transplant"
OWN_KEYS = (FINGERPRINT_KEY, VERSION_KEY, TOKENIZER_KEY, VOCAB_SIZE_KEY)


class Bound(NamedTuple):
    """What a checkpoint says of its tokenizer, checked; `tokenizer` is `None` if only the fingerprint is in it."""

    fingerprint: str
    tokenizer: Tokenizer | None


def embed(checkpoint: dict[str, Any], tokenizer: Tokenizer, text: str, data_fingerprint: str | None) -> None:
    """Put the keys into a checkpoint; `text` is the tokenizer's JSON, for whoever saves often and has it at hand.

    Raises:
        TokenizerMismatchError: another tokenizer is embedded already.
        FormatError: a key is in use for something else.
    """
    values = {
        FINGERPRINT_KEY: tokenizer.fingerprint,
        VERSION_KEY: tokenizer.fingerprint_version,
        TOKENIZER_KEY: text,
        VOCAB_SIZE_KEY: tokenizer.vocab_size,
        **({} if data_fingerprint is None else {DATA_KEY: data_fingerprint}),
    }
    present = checkpoint.get(FINGERPRINT_KEY)
    if present is None:
        for key in (TOKENIZER_KEY, VOCAB_SIZE_KEY):
            if key in checkpoint and checkpoint[key] != values[key]:
                raise FormatError(
                    f"the checkpoint has a {key!r} of its own ({str(checkpoint[key])[:40]!r}), under a key that binds a "
                    "checkpoint to its tokenizer: rename it"
                )
    elif present != tokenizer.fingerprint:
        raise TokenizerMismatchError(
            f"the checkpoint carries the tokenizer {present} already, and {tokenizer.fingerprint} is to be embedded. If its "
            f"model was trained anew on ids of that one, remove the keys {FINGERPRINT_KEY!r} and {TOKENIZER_KEY!r} first"
        )
    checkpoint.update(values)


def bound_tokenizer(checkpoint: Mapping[str, Any], where: str, like: Tokenizer | None = None) -> Bound | None:
    """What a checkpoint says of its tokenizer; `None` if there is no fingerprint in it.

    Args:
        checkpoint: the dict.
        where: what to call it in messages.
        like: a tokenizer that is probably the same; if it is, byte for byte, nothing is parsed.

    Raises:
        TokenizerMismatchError: damaged or edited, or a version of the fingerprint that is not known here.
    """
    fingerprint = checkpoint.get(FINGERPRINT_KEY)
    if fingerprint is None:
        return None
    if not isinstance(fingerprint, str) or re.fullmatch("[0-9a-f]{64}", fingerprint) is None:
        raise _damaged(where, f"its fingerprint is {str(fingerprint)[:80]!r}, not a SHA-256")
    version = checkpoint.get(VERSION_KEY, FINGERPRINT_VERSION)
    if version != FINGERPRINT_VERSION:
        raise TokenizerMismatchError(
            f"{where} has a fingerprint of version {version}, and version {FINGERPRINT_VERSION} is known here: use the "
            "release of minigpt-tok that wrote it, or a later one"
        )
    tokenizer = _inner_tokenizer(checkpoint, fingerprint, where, like)
    known = tokenizer or (like if like is not None and like.fingerprint == fingerprint else None)
    if VOCAB_SIZE_KEY in checkpoint and known is not None:
        size = checkpoint[VOCAB_SIZE_KEY]
        if type(size) is not int or size != known.vocab_size:
            raise _damaged(where, f"it says vocab_size is {size!r}, and its tokenizer has {known.vocab_size:,} ids")
    return Bound(fingerprint, tokenizer)


def _inner_tokenizer(
    checkpoint: Mapping[str, Any], fingerprint: str, where: str, like: Tokenizer | None
) -> Tokenizer | None:
    if TOKENIZER_KEY not in checkpoint:
        return None
    text = checkpoint[TOKENIZER_KEY]
    if not isinstance(text, str):
        raise _damaged(where, f"its tokenizer is {type(text).__name__}, not JSON text")
    if like is not None and like.fingerprint == fingerprint and text == like.to_json():
        return like
    try:
        tokenizer = Tokenizer.from_json(text)
    except MiniGPTTokError as error:
        raise _damaged(where, f"its tokenizer cannot be read ({error})") from None
    if tokenizer.fingerprint != fingerprint:
        raise _damaged(
            where, f"it says its tokenizer is {fingerprint}, and the tokenizer in it gives {tokenizer.fingerprint}"
        )
    return tokenizer


def _damaged(where: str, why: str) -> TokenizerMismatchError:
    return TokenizerMismatchError(f"{where}: damaged or edited: {why}. Take an earlier or the original checkpoint")


def unverified(where: str) -> str:
    """What to say of a checkpoint without a fingerprint."""
    return f"{where} has no tokenizer fingerprint, so nothing says with which tokenizer it was trained"


def mismatch(where: str, bound: Bound, given: Tokenizer, source: str = "checkpoint") -> TokenizerMismatchError:
    """The error for another tokenizer: both fingerprints, what differs, what to do for each intention.

    `source`: how code would name the checkpoint.
    """
    lines = [
        f"{where}: made with another tokenizer than the one given",
        f"  the checkpoint's  {bound.fingerprint}",
        f"  the one given     {given.fingerprint}",
    ]
    if bound.tokenizer is None:
        lines.append(
            "It does not carry its tokenizer, so what differs cannot be said: give the one it was trained with."
        )
        return TokenizerMismatchError("\n".join(lines))
    found = difference(bound.tokenizer, given, names=("the checkpoint's tokenizer", "the one given"))
    first, *others = found.reasons
    lines.append(f"First difference: {first}")
    lines += [f"  also {reason}" for reason in others[:2]]
    lines.append(f"{found.ids_sentence}.")
    lines.append(f"To use this checkpoint, take its own tokenizer: minigpt_tok.checkpoint.tokenizer_of({source}).")
    lines.append(
        "To use the tokenizer given, train a model on ids that it made; to begin with this one's embeddings, "
        f"minigpt_tok.transplant.transplant({source}, tokenizer, …)."
    )
    return TokenizerMismatchError("\n".join(lines))


def described_transplant(provenance: Any) -> str:
    """What a checkpoint says of where it comes from, in a sentence."""
    if not isinstance(provenance, dict):
        return f"it says {str(provenance)[:80]!r}, which this version does not know"
    counts = [f"{provenance.get(name, '?')} {name}" for name in ("copied", "averaged", "unknown")]
    return f"from the tokenizer {provenance.get('from_tokenizer')}: embeddings {', '.join(counts)}"
