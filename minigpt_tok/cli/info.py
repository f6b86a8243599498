"""`minigpt-tok info`."""

import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from minigpt_tok.amounts import counted, lasted, sized
from minigpt_tok.bpe.trainer import Training
from minigpt_tok.cli.kinds import files_in, kind_of
from minigpt_tok.cli.options import AsJson
from minigpt_tok.cli.outcome import message_of
from minigpt_tok.cli.printing import print_facts, print_json
from minigpt_tok.data.id_file import IdFile
from minigpt_tok.formats.known import known_name
from minigpt_tok.tokenizer import Tokenizer

EXAMPLE = "minigpt-tok info tokenizer.json data/encoded/wikitext-2/bpe checkpoints/bpe/last.ckpt"


def info(
    files: Annotated[
        list[Path], typer.Argument(metavar="FILE", help="Files of any kind, or folders of them.", show_default=False)
    ],
    as_json: AsJson = False,
) -> None:
    """Say what files are: tokenizers, id files or checkpoints, with fingerprints and sizes.

    What a file is, is found out from what is in it, not from its name. The status is 1 if one of them is none of these.
    """
    results: list[dict[str, Any]] = []
    for given in files:
        try:
            for path in files_in(given):
                results.append(_describe(path))
        except Exception as error:
            message = message_of(error)
            if message is None:
                raise
            results.append({"path": given, "error": message})
            print(f"error: {message}", file=sys.stderr)
    if as_json:
        print_json({"files": results})
    else:
        described = [result for result in results if "error" not in result]
        for number, result in enumerate(described):
            if number:
                print()
            _print_page(result)
    if any("error" in result for result in results):
        raise typer.Exit(1)


def _describe(path: Path) -> dict[str, Any]:
    kind = kind_of(path)
    describe = {"tokenizer": _tokenizer, "id file": _id_file, "checkpoint": _checkpoint}[kind]
    return {"path": path, "kind": kind, "file_bytes": path.stat().st_size, **describe(path)}


def _tokenizer(path: Path) -> dict[str, Any]:
    return describe_tokenizer(Tokenizer.load(path))


def describe_tokenizer(tokenizer: Tokenizer) -> dict[str, Any]:
    """What there is to say about a tokenizer, its training in short."""
    training = tokenizer.training
    return {
        "fingerprint": tokenizer.fingerprint,
        "fingerprint_version": tokenizer.fingerprint_version,
        "known_as": known_name(tokenizer.fingerprint),
        "vocab_size": tokenizer.vocab_size,
        "unit": tokenizer.unit,
        "pattern": tokenizer.pattern,
        "merges": len(tokenizer.merges),
        "special_tokens": tokenizer.special_tokens,
        "id_dtype": tokenizer.dtype.name,
        "training": None if training is None else _training(training),
    }


def _training(training: Training) -> dict[str, Any]:
    plain = {name: value for name, value in training.to_plain().items() if name not in ("counts", "curve")}
    tokens = training.curve[-1] if training.curve else training.base_tokens
    return {**plain, "tokens": tokens, "bytes_per_token": training.bytes / tokens if tokens else None}


def _id_file(path: Path) -> dict[str, Any]:
    metadata = IdFile(path).metadata
    per_token = metadata.n_bytes / metadata.n_tokens if metadata.n_tokens else None
    return {
        "fingerprint": metadata.tokenizer_fingerprint,
        "fingerprint_version": metadata.tokenizer_fingerprint_version,
        "vocab_size": metadata.vocab_size,
        "corpus": metadata.corpus,
        "split": metadata.split,
        "documents": metadata.n_documents,
        "bytes": metadata.n_bytes,
        "tokens": metadata.n_tokens,
        "bytes_per_token": per_token,
        "separator": metadata.separator or None,
        "ids_sha256": metadata.ids_sha256,
        "command": metadata.command,
        "package_version": metadata.package_version,
    }


def _checkpoint(path: Path) -> dict[str, Any]:
    from minigpt_tok.checkpoint_binding import DATA_KEY, bound_tokenizer
    from minigpt_tok.checkpoint_files import read_checkpoint
    from minigpt_tok.gpt.embedding_rows import config_of, state_of

    checkpoint = read_checkpoint(path, mapped=True)
    bound = bound_tokenizer(checkpoint, str(path))
    # Tensors that are one and the same (tied weights) are counted once.
    weights = {(t.untyped_storage().data_ptr(), t.storage_offset()): t for t in state_of(checkpoint).values()}
    return {
        "fingerprint": None if bound is None else bound.fingerprint,
        "vocab_size": checkpoint.get("vocab_size"),
        "tokenizer": None if bound is None or bound.tokenizer is None else describe_tokenizer(bound.tokenizer),
        "data_fingerprint": checkpoint.get(DATA_KEY),
        "config": config_of(checkpoint),
        "parameters": sum(tensor.numel() for tensor in weights.values()),
        "epoch": checkpoint.get("epoch"),
        "global_step": checkpoint.get("global_step"),
        "keys": sorted(map(str, checkpoint)),
    }


def _print_page(result: dict[str, Any]) -> None:
    print(f"{result['path']}: {result['kind']}, {sized(result['file_bytes'])}")
    facts = {"tokenizer": _tokenizer_facts, "id file": _id_facts, "checkpoint": _checkpoint_facts}[result["kind"]]
    print_facts(facts(result), indent=2)


Facts = list[tuple[str, object]]


def _tokenizer_facts(result: dict[str, Any]) -> Facts:
    specials = list(result["special_tokens"].items())
    shown = "  ".join(f"{token} {id}" for token, id in specials[:8])
    if len(specials) > 8:
        shown += f"  … {len(specials):,} in all"
    facts: Facts = [
        ("known as", result["known_as"]),
        ("fingerprint", result["fingerprint"]),
        ("vocabulary", f"{result['vocab_size']:,} ids of {result['unit']}s, kept as {result['id_dtype']}"),
        ("pattern", result["pattern"]),
        ("merges", f"{result['merges']:,}"),
        ("special tokens", shown or "none"),
    ]
    training = result["training"]
    if training is None:
        return [*facts, ("training", "no record in the file")]
    per_token = training["bytes_per_token"]
    text = f"{counted(training['documents'], 'document')}, {sized(training['bytes'])}"
    if (parent := training["extends"]) is not None:
        name = known_name(parent["fingerprint"]) or parent["fingerprint"]
        facts.append(("extends", f"{name}, {parent['vocab_size']:,} ids, all kept"))
    return [
        *facts,
        ("recipe", training["recipe"]["name"]),
        ("trained on", f"{text}, in {lasted(training['seconds'])}"),
        ("stopped because", training["stopped"]),
        ("compression", None if per_token is None else f"{per_token:.3f} bytes per token of the training text"),
    ]


def _id_facts(result: dict[str, Any]) -> Facts:
    per_token = result["bytes_per_token"]
    return [
        ("tokenizer", f"{result['fingerprint']}, {result['vocab_size']:,} ids"),
        ("corpus", f"{result['corpus']}, {result['split']}"),
        ("documents", f"{result['documents']:,}"),
        ("bytes", f"{result['bytes']:,}"),
        ("tokens", f"{result['tokens']:,}{'' if per_token is None else f', {per_token:.3f} bytes per token'}"),
        ("separator", result["separator"] or "none"),
        ("ids' SHA-256", result["ids_sha256"]),
        ("made by", f"{result['command']} (version {result['package_version']})"),
    ]


def _checkpoint_facts(result: dict[str, Any]) -> Facts:
    config = result["config"] or {}
    tokenizer = result["tokenizer"]
    inside = "not in the file"
    if tokenizer is not None:
        inside = f"{tokenizer['vocab_size']:,} ids of {tokenizer['unit']}s, {counted(tokenizer['merges'], 'merge')}"
    return [
        ("tokenizer", result["fingerprint"] or "no fingerprint: nothing says with which tokenizer it was trained"),
        ("its vocabulary", inside),
        ("data", result["data_fingerprint"]),
        ("parameters", f"{result['parameters']:,}"),
        ("model", ", ".join(f"{name} {value}" for name, value in config.items()) or None),
        ("steps", result["global_step"]),
    ]
