"""MiniGPT in the GPT-2 layout of `transformers`: a folder that its `AutoModelForCausalLM` and `AutoTokenizer` load.

| file | has |
| --- | --- |
| `model.safetensors` | the weights under GPT-2's names; the head is not in it, it is the embedding |
| `config.json` | GPT-2's configuration, and the tokenizer's fingerprint |
| `generation_config.json` | which ids begin and end a text |
| `tokenizer.json`, `tokenizer_config.json` | the tokenizer, as `tokenizers` and `transformers` load it |

The architectures are the same (`minigpt_tok.gpt.model`), so nothing is approximated: linear layers are GPT-2's `Conv1D`,
transposed; GELU is the exact one (`"gelu"`, where the published GPT-2 has `"gelu_new"`); the layer norms have the same
epsilon; rows that pad the embedding are left out, since they have no logit. Dropout is carried over, and is idle unless
the model is trained on.
"""

import json
from pathlib import Path
from typing import Any

import torch

from minigpt_tok.checkpoint_files import write_safetensors
from minigpt_tok.errors import FormatError, ModelError
from minigpt_tok.files import StrPath, write_text
from minigpt_tok.formats import transformers as form
from minigpt_tok.gpt.model import GPT2_NAMES, MiniGPT
from minigpt_tok.tokenizer import Tokenizer

FINGERPRINT_KEY = "tokenizer_fingerprint"
TRANSPOSED = ("attn.c_attn.weight", "attn.c_proj.weight", "mlp.c_fc.weight", "mlp.c_proj.weight")


def export_gpt2(model: MiniGPT, tokenizer: Tokenizer, folder: StrPath, *, overwrite: bool = False) -> list[Path]:
    """Write the folder; each file is whole or not there, `config.json` last.

    Args:
        model: what to export.
        tokenizer: the one that it was trained with.
        folder: where; missing folders are made.
        overwrite: replace an export that was made with another tokenizer, or files of another origin.

    Returns:
        The files.

    Raises:
        ModelError: the model has another number of ids than the tokenizer.
        FormatError: `tokenizer.json` cannot hold the tokenizer, or there is something else in the folder.
        OSError: it could not be written.
    """
    if model.config.vocab_size != tokenizer.vocab_size:
        raise ModelError(
            f"the model has {model.config.vocab_size:,} ids and the tokenizer {tokenizer.vocab_size:,}: export a model with "
            "the tokenizer that it was trained with"
        )
    place = Path(folder)
    if not overwrite:
        _check_folder(place, tokenizer)
    texts = {
        "tokenizer.json": _tokenizer_json(tokenizer),
        "tokenizer_config.json": _json(form.tokenizer_config(tokenizer.model, model.config.block_size)),
        "generation_config.json": _json(_ids_of_roles(tokenizer)),
        "config.json": _json(gpt2_config(model, tokenizer)),
    }
    # First of all, so that a folder with a configuration is complete.
    (place / "config.json").unlink(missing_ok=True)
    write_safetensors(place / "model.safetensors", gpt2_state(model), {FINGERPRINT_KEY: tokenizer.fingerprint})
    for name, text in texts.items():
        write_text(place / name, text)
    return [place / "model.safetensors", *(place / name for name in texts)]


def gpt2_state(model: MiniGPT) -> dict[str, torch.Tensor]:
    """The weights under the names, in the shapes and in the order of `transformers`' `GPT2LMHeadModel`."""
    state = {}
    for name, tensor in model.state_dict().items():
        theirs = gpt2_name(name)
        if theirs.endswith(TRANSPOSED):
            tensor = tensor.t()
        if name == "token_embedding.weight":
            tensor = tensor[: model.config.vocab_size]
        state[theirs] = tensor.contiguous()
    return state


def gpt2_name(name: str) -> str:
    """`blocks.3.mlp.expand.weight` → `transformer.h.3.mlp.c_fc.weight`.

    Raises:
        ModelError: GPT-2 has no such weight.
    """
    start, parameter = name.rpartition(".")[::2]
    parts = start.split(".")
    if parts[0] == "blocks":
        module = ".".join(parts[2:])
        if module in GPT2_NAMES:
            return f"transformer.h.{parts[1]}.{GPT2_NAMES[module]}.{parameter}"
    elif start in GPT2_NAMES:
        return f"transformer.{GPT2_NAMES[start]}.{parameter}"
    raise ModelError(f"the model has the weight {name!r}, which GPT-2's layout has no place for")


def gpt2_config(model: MiniGPT, tokenizer: Tokenizer) -> dict[str, Any]:
    """The content of `config.json`."""
    config = model.config
    return {
        "architectures": ["GPT2LMHeadModel"],
        "model_type": "gpt2",
        "activation_function": "gelu",
        "attn_pdrop": config.dropout,
        "embd_pdrop": config.dropout,
        "resid_pdrop": config.dropout,
        "layer_norm_epsilon": model.final_norm.eps,
        "n_ctx": config.block_size,
        "n_embd": config.embedding_dim,
        "n_head": config.num_heads,
        "n_inner": config.expansion_factor * config.embedding_dim,
        "n_layer": config.num_layers,
        "n_positions": config.block_size,
        "tie_word_embeddings": True,
        "dtype": str(model.token_embedding.weight.dtype).removeprefix("torch."),
        "use_cache": True,
        "vocab_size": config.vocab_size,
        **_ids_of_roles(tokenizer),
        FINGERPRINT_KEY: tokenizer.fingerprint,
    }


def _ids_of_roles(tokenizer: Tokenizer) -> dict[str, int | None]:
    """`bos_token_id` and so on. Where there is none it is said: GPT-2's own would be taken."""
    found = form.roles(tokenizer.model)
    return {
        f"{role}_id": tokenizer.special_tokens.get(found.get(role, ""))
        for role in ("bos_token", "eos_token", "pad_token")
    }


def _tokenizer_json(tokenizer: Tokenizer) -> str:
    if tokenizer.unit == "byte":
        return tokenizer.to_json()
    return form.tokenizer_json(tokenizer.model, tokenizer.training, tokenizer.fingerprint)


def _check_folder(folder: Path, tokenizer: Tokenizer) -> None:
    names = ("config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json", "generation_config.json")
    there = [name for name in names if (folder / name).exists()]
    if not there:
        return
    try:
        made_with = json.loads((folder / "config.json").read_bytes()).get(FINGERPRINT_KEY)
    except (OSError, ValueError, AttributeError, RecursionError):
        made_with = None
    if made_with != tokenizer.fingerprint:
        whose = f"an export made with the tokenizer {made_with}" if isinstance(made_with, str) else "of another origin"
        raise FormatError(
            f"{folder}: has {', '.join(there)}, {whose[:120]}. To keep it, export to another folder; to replace it, pass "
            "overwrite=True"
        )


def _json(document: dict[str, Any]) -> str:
    return json.dumps(document, indent=2, ensure_ascii=False) + "\n"
