"""The fingerprint: SHA-256 over one canonical text of what decides ids, so that one bit of difference shows.

Version 1. A `character` tokenizer with the pattern `none` is the compact JSON `{"base_tokens":[…],"merges":[[l,r],…]}`;
with another pattern, `"pattern"` follows. A byte-level tokenizer is the compact JSON of these keys, in this order:

| key | value |
| --- | --- |
| `version` | 1 |
| `tokens` | the raw bytes of every id in lower-case hex; `null` for added tokens and holes |
| `added_tokens` | by id, `[id, content, flags…]`: `special`, `lstrip`, `rstrip`, `single_word`, `normalized`, if set |
| `rank_rule` | `bytes`: ranks are ids; `pair`: the merge list decides |
| `merges` | `[[left id, right id], …]` by rank under the rule `pair`; absent under `bytes` |
| `whole_piece` | whether a piece that is a token is taken whole; only where some token is unreachable without it |
| `pattern` | the name of the pre-tokenizer, or its regular expression where it has no name; absent where there is a pipeline |
| `pipeline` | only where the pre-tokenizer is no one pattern: its steps, sequences opened, each as a `tokenizer.json` spells it |
| `normalizer` | only where there is one: its steps, likewise |

A step has its fields in the order of `type`, then as `minigpt_tok.bpe.pipeline` and `.normalize` list them, all of them
but `trim_offsets`; a step without effect is left out, `invert` is false where matches and the rest are kept alike, and an
expression that matches one text only is that text. `normalized` is written only where it can decide anything: there is
a normalizer, or there are tokens of both kinds, one of which could overlap the other or looks at what stands beside it.

Of a pair that stands twice in a merge list the last place counts. A merge list is dropped, and the rule is `bytes`,
where the order of the tokens implies it: merging each token's bytes with lower ranks only gives it (and merging with
all ranks gives no token besides), or it is all splits of each token into two tokens, by token, then left, then right.
Separators are `,` and `:`; characters outside ASCII are not escaped; the text is UTF-8.
"""

import hashlib
import json
from collections.abc import Iterable
from typing import Any

from minigpt_tok.bpe.model import AddedToken, BPEModel
from minigpt_tok.bpe.patterns import known_pattern_name
from minigpt_tok.bpe.ranks import implied_merges, live_merges, ranks_suffice, unreachable_ids

FINGERPRINT_VERSION = 1


def fingerprint(model: BPEModel) -> str:
    """SHA-256 of `canonical_text(model)`, in lower-case hex."""
    return hashlib.sha256(canonical_text(model).encode("utf-8")).hexdigest()


def canonical_text(model: BPEModel) -> str:
    """The text that is hashed: equal for two models exactly if they give the same ids by the same rules."""
    if model.unit == "character":
        return _compact(_character_form(model))
    implied = implied_merges(model)
    flags = ["special", "lstrip", "rstrip", "single_word"]
    if model.normalizer is not None or _order_matters(model.added_tokens):
        flags.append("normalized")
    form: dict[str, object] = {
        "version": FINGERPRINT_VERSION,
        "tokens": [None if token is None else token.hex() for token in model.tokens],
        "added_tokens": [
            [
                token.id,
                token.content,
                *(flag for flag in flags if getattr(token, flag)),
            ]
            for token in sorted(model.added_tokens, key=lambda token: token.id)
        ],
    }
    if ranks_suffice(model, implied):
        form["rank_rule"] = "bytes"
    else:
        form["rank_rule"] = "pair"
        form["merges"] = [list(pair) for pair in live_merges(model)]
    form["whole_piece"] = model.whole_piece and bool(unreachable_ids(model))
    if model.pipeline is None:
        form["pattern"] = known_pattern_name(model.pattern) or model.pattern
    else:
        form["pipeline"] = [_without_offsets(step) for step in model.pipeline.plain()]
    if model.normalizer is not None:
        form["normalizer"] = model.normalizer.plain()
    return _compact(form)


def _without_offsets(step: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in step.items() if key != "trim_offsets"}


def _order_matters(tokens: Iterable[AddedToken]) -> bool:
    """Whether looking for the tokens that are not `normalized` first can find others than looking for all at once."""
    first, second = ([token for token in tokens if token.normalized is late] for late in (False, True))
    if not first or not second:
        return False
    if any(token.lstrip or token.rstrip or token.single_word for token in (*first, *second)):
        return True
    return _overlap(first, second) or _overlap(second, first)


def _overlap(some: list[AddedToken], others: list[AddedToken]) -> bool:
    """Whether one of the others begins where one of `some` ends or before, and inside it."""
    starts = {token.content[:end] for token in others for end in range(1, len(token.content) + 1)}
    if any(token.content[start:] in starts for token in some for start in range(len(token.content))):
        return True
    return any(other.content in token.content for token in some for other in others)


def _character_form(model: BPEModel) -> dict[str, object]:
    text = [(token or b"").decode("utf-8") for token in model.tokens]
    made = set(model.merge_results)
    form: dict[str, object] = {
        "base_tokens": [token for id, token in enumerate(text) if id not in made],
        "merges": [[text[left], text[right]] for left, right in model.merges],
    }
    if model.pattern != "none":
        form["pattern"] = known_pattern_name(model.pattern) or model.pattern
    return form


def _compact(form: dict[str, object]) -> str:
    return json.dumps(form, ensure_ascii=False, separators=(",", ":"))
