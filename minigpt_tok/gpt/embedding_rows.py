"""Does a model have a row for every token: its token embedding found by name, and its rows compared.

The weights of a checkpoint are looked for under `STATE_KEYS` (`state_dict` is Lightning's, and what
`minigpt_tok.checkpoint.save_checkpoint` writes), or in the dict itself. In them the token embedding is the matrix whose
name, behind whatever prefix, is one of `EMBEDDING_NAMES`. It has as many rows as the vocabulary has ids, unless padding
is declared: by `embedding_rows`, or by `pad_vocab_to` in the configuration, under one of `CONFIG_KEYS` or in a
`config` inside of it. Padding is never guessed: 64 rows too many are an error until somebody says that they are meant.
"""

import dataclasses
from collections.abc import Iterator, Mapping
from typing import Any

import torch

from minigpt_tok.errors import FormatError, TokenizerMismatchError

ROWS_KEY = "embedding_rows"
STATE_KEYS = ("state_dict", "model", "model_state_dict", "model_state")
CONFIG_KEYS = ("config", "hyper_parameters", "model_args")
EMBEDDING_NAMES = frozenset(
    {"token_embedding", "token_embedding_table", "tok_emb", "tok_embeddings", "embed_tokens", "word_embeddings", "wte"}
)


def embedding_rows(state: Mapping[str, Any]) -> dict[str, int]:
    """Name → rows of every token embedding in a state dict, found by its name, see `EMBEDDING_NAMES`."""
    return {
        name: value.shape[0]
        for name, value in state.items()
        if isinstance(name, str)
        and isinstance(value, torch.Tensor)
        and value.ndim == 2
        and name.endswith(".weight")
        and name.split(".")[-2] in EMBEDDING_NAMES
    }


def state_of(checkpoint: Mapping[str, Any]) -> Mapping[str, Any]:
    """The state dict in a checkpoint: under one of `STATE_KEYS`, or the checkpoint itself."""
    for key in STATE_KEYS:
        if isinstance(state := checkpoint.get(key), Mapping):
            return state
    return checkpoint


def module_checkpoint(module: torch.nn.Module) -> dict[str, Any]:
    """What a checkpoint of a model would say of its embedding: its parameters, and the configuration found in it.

    The configuration is a dataclass `config` of the part that has the embedding, or of the model, or Lightning's
    `hparams`; nothing is copied.
    """
    checkpoint: dict[str, Any] = {"state_dict": dict(module.named_parameters())}
    for name in embedding_rows(checkpoint["state_dict"]):
        for part in (module.get_submodule(".".join(name.split(".")[:-2])), module):
            config = getattr(part, "config", None)
            if dataclasses.is_dataclass(config) and not isinstance(config, type) and hasattr(config, "pad_vocab_to"):
                return checkpoint | {"config": dataclasses.asdict(config)}
    if isinstance(hparams := getattr(module, "hparams", None), Mapping):
        checkpoint["hyper_parameters"] = hparams
    return checkpoint


def check_rows(checkpoint: Mapping[str, Any], vocab_size: int, where: str) -> None:
    """Check that the embedding has a row for every id, and no more than is declared.

    Raises:
        TokenizerMismatchError: naming the tensor, its rows and the vocabulary size.
        FormatError: a declaration that is no number of rows.
    """
    declared = _declared_rows(checkpoint, vocab_size, where)
    expected = vocab_size if declared is None else declared
    for name, rows in embedding_rows(state_of(checkpoint)).items():
        if rows == expected:
            continue
        padded = "" if declared in (None, vocab_size) else f" (padded, it declares {declared} rows)"
        raise TokenizerMismatchError(
            f"{where}: its embedding {name} has {rows} rows, and the tokenizer has {vocab_size} ids{padded}. If the rows "
            f"are padded on purpose, declare it: pad_vocab_to in the model's configuration, or the key {ROWS_KEY!r}"
        )


def _declared_rows(checkpoint: Mapping[str, Any], vocab_size: int, where: str) -> int | None:
    rows = checkpoint.get(ROWS_KEY)
    if rows is None:
        config = config_of(checkpoint)
        if config is None:
            return None
        size, pad = config.get("vocab_size"), config["pad_vocab_to"]
        if type(pad) is not int or pad < 1:
            raise FormatError(f"{where}: its configuration says pad_vocab_to is {pad!r}, not a number of at least 1")
        if size is not None and size != vocab_size:
            raise TokenizerMismatchError(
                f"{where}: its model is configured for a vocabulary of {size} ids, and the tokenizer has {vocab_size} ids"
            )
        rows = -(-vocab_size // pad) * pad
    if type(rows) is not int:
        raise FormatError(f"{where}: {ROWS_KEY} is {rows!r}, not a number")
    if rows < vocab_size:
        raise TokenizerMismatchError(
            f"{where}: it declares {rows} embedding rows, fewer than the {vocab_size} ids of the tokenizer"
        )
    return rows


def config_of(checkpoint: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """The model's configuration in a checkpoint: the dict with `pad_vocab_to`, as `MiniGPTConfig` has it."""
    for config in _configurations(checkpoint):
        if "pad_vocab_to" in config:
            return config
    return None


def _configurations(checkpoint: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    for key in CONFIG_KEYS:
        if isinstance(config := checkpoint.get(key), Mapping):
            yield config
            if isinstance(inner := config.get("config"), Mapping):
                yield inner
