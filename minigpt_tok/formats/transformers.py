"""What `transformers` wants to know of a tokenizer: its `tokenizer.json`, and the roles of its special tokens.

Its fast tokenizers match special tokens wherever they stand in a text, as `allowed_special="all"` does here; pass them
`split_special_tokens=True` for what `encode` does by default.
"""

import json
from importlib import import_module
from typing import Any

from minigpt_tok.bpe.model import BPEModel
from minigpt_tok.bpe.pretokenize import oniguruma_expression
from minigpt_tok.bpe.recipes import END_OF_TEXT
from minigpt_tok.bpe.trainer import Training
from minigpt_tok.errors import MissingDependencyError
from minigpt_tok.formats import hf_json
from minigpt_tok.formats.hf_after import Carried

# Role → special tokens that have it, by their usual names; the first that the tokenizer has.
_ROLES = {
    "bos_token": (END_OF_TEXT, "<|begin_of_text|>", "<s>", "<|startoftext|>"),
    "eos_token": (END_OF_TEXT, "<|end_of_text|>", "</s>"),
    "pad_token": ("<|pad|>", "<pad>", "[PAD]", "<|finetune_right_pad_id|>", END_OF_TEXT, "<|end_of_text|>", "</s>"),
}


def roles(model: BPEModel) -> dict[str, str]:
    """`bos_token`, `eos_token` and `pad_token`, as far as the tokenizer has one; texts end where others begin."""
    specials = {token.content for token in model.added_tokens if token.special}
    found = {role: next((name for name in names if name in specials), None) for role, names in _ROLES.items()}
    return {role: name for role, name in found.items() if name is not None}


def tokenizer_json(model: BPEModel, training: Training | None, fingerprint: str, carried: Carried | None = None) -> str:
    """A `tokenizer.json` that `tokenizers` loads; of characters too.

    A character tokenizer refuses characters that it lacks; `tokenizers` drops them.

    Raises:
        FormatError: the form cannot hold this tokenizer with the same ids.
    """
    if model.unit == "character":
        return _of_characters(model)
    return hf_json.to_json(model, training, fingerprint, carried)


def tokenizer_config(model: BPEModel, longest: int | None = None) -> dict[str, Any]:
    """The `tokenizer_config.json` that goes with it; `longest` is the model's window, in tokens."""
    return {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "clean_up_tokenization_spaces": False,
        **({} if longest is None else {"model_max_length": longest}),
        **roles(model),
    }


def fast_tokenizer(model: BPEModel, training: Training | None, fingerprint: str, carried: Carried | None = None) -> Any:
    """A `transformers.PreTrainedTokenizerFast` with the same ids.

    Raises:
        MissingDependencyError: transformers is not installed.
        FormatError: `tokenizer.json` cannot hold this tokenizer.
    """
    text = tokenizer_json(model, training, fingerprint, carried)
    try:
        # Not by import statements, which would have a type checker read all of this library.
        fast = import_module("transformers").PreTrainedTokenizerFast
        theirs = import_module("tokenizers").Tokenizer.from_str(text)
    except ImportError:
        raise MissingDependencyError(
            "to_transformers makes a tokenizer of the transformers library, which is not installed: pip install transformers"
        ) from None
    settings = tokenizer_config(model)
    del settings["tokenizer_class"]
    return fast(tokenizer_object=theirs, **settings)


def _of_characters(model: BPEModel) -> str:
    """BPE over characters, without bytes: a document is one piece, or cut by the pattern."""
    text = [(token or b"").decode("utf-8") for token in model.tokens]
    steps = []
    if model.pattern != "none":
        # As for bytes, but the last step there makes bytes, and for these two patterns it also cuts.
        steps = hf_json.pre_tokenizer_of(model.pattern).get("pretokenizers", [])[:-1]
        if model.pattern in ("gpt2", "smollm"):
            steps += hf_json.pre_tokenizer_of(oniguruma_expression("gpt2"))["pretokenizers"][:1]
    document: dict[str, Any] = {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [],
        "normalizer": None,
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": steps} if steps else None,
        "post_processor": None,
        "decoder": {"type": "Fuse"},
        "model": {
            "type": "BPE",
            "dropout": None,
            "unk_token": None,
            "continuing_subword_prefix": None,
            "end_of_word_suffix": None,
            "fuse_unk": False,
            "byte_fallback": False,
            "ignore_merges": model.whole_piece,
            "vocab": {token: id for id, token in enumerate(text)},
            "merges": [[text[left], text[right]] for left, right in model.merges],
        },
    }
    return json.dumps(document, ensure_ascii=False, separators=(",", ":"))
