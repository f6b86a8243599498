"""`minigpt-tok export`."""

from pathlib import Path
from typing import Annotated

import typer

from minigpt_tok.amounts import sized
from minigpt_tok.cli.options import AsJson, CheckpointFile, Overwrite
from minigpt_tok.cli.printing import print_facts, print_json

EXAMPLE = "minigpt-tok export checkpoints/bpe/last.ckpt -o exported"


def export(
    checkpoint: CheckpointFile,
    output: Annotated[
        Path, typer.Option("--output", "-o", metavar="DIR", help="The folder to write.", show_default=False)
    ],
    overwrite: Overwrite = False,
    as_json: AsJson = False,
) -> None:
    """Write a checkpoint in the GPT-2 layout of transformers, with its tokenizer.

    AutoModelForCausalLM and AutoTokenizer load the folder, and so do evaluation harnesses; the logits are those of the
    checkpoint. What was exported with another tokenizer is not overwritten unless --overwrite is given.
    """
    from minigpt_tok.checkpoint import load_model
    from minigpt_tok.formats.transformers import roles
    from minigpt_tok.gpt.export import export_gpt2

    model, tokenizer = load_model(checkpoint)
    files = export_gpt2(model, tokenizer, output, overwrite=overwrite)
    found = roles(tokenizer.model)
    result = {
        "checkpoint": checkpoint,
        "folder": output,
        "files": files,
        "fingerprint": tokenizer.fingerprint,
        "vocab_size": tokenizer.vocab_size,
        "parameters": sum(parameter.numel() for parameter in model.parameters()),
        **{role: found.get(role) for role in ("bos_token", "eos_token", "pad_token")},
    }
    if as_json:
        print_json(result)
        return
    print_facts(
        [
            ("written", "\n".join(f"{file} ({sized(file.stat().st_size)})" for file in files)),
            ("tokenizer", f"{result['fingerprint']}, {result['vocab_size']:,} ids"),
            ("special tokens", "  ".join(f"{role} {token}" for role, token in found.items()) or _no_specials()),
            ("load with", f"transformers.AutoModelForCausalLM.from_pretrained({str(output)!r})"),
        ]
    )


def _no_specials() -> str:
    return "none: programs that want an end of text need one (train --special '<|endoftext|>')"
