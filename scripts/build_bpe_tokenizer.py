#!/usr/bin/env python3
"""Build a character-level BPE tokenizer for WikiText-2 and encode its three splits with it.

Reads wikitext2_{train,val,test}_clean.txt, takes base characters from all three, learns merges from the beginning of
train alone, checks what it made, and writes the tokenizer and one tensor of ids for each split:

    python scripts/build_bpe_tokenizer.py --target-vocab-size 500

The ids belong to the tokenizer whose fingerprint stands in tokenizer_fingerprint.json beside them. Files that this
program did not write (ids of characters, say) are never replaced.
"""

import argparse
import contextlib
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))  # so that it runs in a clone where nothing is installed but what the package needs

import numpy as np  # noqa: E402

from minigpt_tok.compat.character import BPETokenizer  # noqa: E402
from minigpt_tok.errors import CorpusError, DataError, FormatError, MiniGPTTokError, TokenizerError  # noqa: E402
from minigpt_tok.files import replacing  # noqa: E402

SPLITS = {"train": "train", "val": "validation", "test": "test"}  # in file names → for people
SAMPLE = "Artificial intelligence and machine learning"
SIDECAR = "tokenizer_fingerprint.json"
MADE_BY = "build_bpe_tokenizer.py"


def main() -> int:
    arguments = parser().parse_args()
    try:
        build(arguments)
    except (MiniGPTTokError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    return 0


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = made.add_argument
    add("--processed-dir", type=Path, default=Path("data/processed"), help="where the three texts are (%(default)s)")
    add(
        "--tokenizer-output",
        type=Path,
        default=Path("tokenizer/bpe_tokenizer.json"),
        help="the tokenizer's file (%(default)s)",
    )
    add("--encoded-output-dir", type=Path, default=Path("data/encoded_bpe"), help="for the ids (%(default)s)")
    add("--target-vocab-size", type=positive, default=500, help="base characters and merges (%(default)s)")
    add("--training-characters", type=positive, default=500_000, help="of train, to learn from (%(default)s)")
    add("--minimum-pair-frequency", type=positive, default=2, help="below which no pair is merged (%(default)s)")
    return made


def positive(text: str) -> int:
    number = int(text)
    if number < 1:
        raise ValueError
    return number


def build(arguments: argparse.Namespace) -> None:
    refuse_what_others_made(arguments.tokenizer_output, arguments.encoded_output_dir)
    texts = {split: read(arguments.processed_dir / f"wikitext2_{split}_clean.txt") for split in SPLITS}
    heading("Texts")
    for split, text in texts.items():
        print(f"{SPLITS[split].capitalize()} characters: {len(text):,}")
    for split in ("val", "test"):
        if texts[split] and texts[split] == texts["train"]:
            print(f"warning: {SPLITS[split]} is the same text as train, so nothing is held out", file=sys.stderr)

    training_text = texts["train"][: arguments.training_characters]
    base_tokens = sorted(set().union(*texts.values()))
    heading("Training")
    print(f"Training characters: {len(training_text):,}")
    print(f"Initial characters: {len(set(training_text)):,}")
    print(f"Base vocabulary: {len(base_tokens):,}")
    if arguments.target_vocab_size < len(base_tokens):
        raise TokenizerError(
            f"--target-vocab-size is {arguments.target_vocab_size:,}, but the texts have {len(base_tokens):,} different "
            f"characters, each of which needs an id: ask for {len(base_tokens):,} (no merges) or more"
        )
    trained = BPETokenizer.train(
        training_text,
        arguments.target_vocab_size,
        minimum_pair_frequency=arguments.minimum_pair_frequency,
        base_tokens=base_tokens,
        verbose=True,
    )

    heading("Tokenizer")
    trained.save(arguments.tokenizer_output)
    tokenizer = BPETokenizer.from_file(arguments.tokenizer_output)
    print(f"Fingerprint: {trained.fingerprint()}")
    if tokenizer.fingerprint() != trained.fingerprint() or tokenizer.merges != trained.merges:
        raise FormatError(f"{arguments.tokenizer_output}: what was saved is not what was read back; train it again")
    print(f"Reload test: passed ({arguments.tokenizer_output})")

    heading("Round trip")
    ids = {split: encode(split, text, tokenizer) for split, text in texts.items()}
    heading("Tensors")
    write_tensors(arguments.encoded_output_dir, ids, tokenizer)

    heading("Compression")
    for split, text in texts.items():
        print_compression(SPLITS[split], len(text), len(ids[split]))
    heading("Longest learned tokens")
    learned = tokenizer.tokens[len(tokenizer.base_tokens) :]
    for token in sorted(learned, key=len, reverse=True)[:30]:
        print(f"{tokenizer.stoi[token]:>6}  {token!r}")
    heading("Sample")
    print_sample(tokenizer)


def heading(text: str) -> None:
    print(f"\n{text}\n{'-' * len(text)}", flush=True)


def read(path: Path) -> str:
    """A text, its line ends made newlines."""
    try:
        return path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise CorpusError(
            f"{path}: there is no such file. Lay wikitext2_train_clean.txt, wikitext2_val_clean.txt and "
            "wikitext2_test_clean.txt into one folder and name it with --processed-dir"
        ) from None
    except UnicodeDecodeError as error:
        raise CorpusError(f"{path}: not UTF-8 at byte {error.start:,}; convert it to UTF-8 first") from None


def refuse_what_others_made(tokenizer_file: Path, folder: Path) -> None:
    """Stop before any work if the results would replace something that this program did not write."""
    if tokenizer_file.exists() and not is_tokenizer(tokenizer_file):
        raise FormatError(f"{tokenizer_file}: is no character tokenizer, so it stays; name another --tokenizer-output")
    for split in SPLITS:
        if tensor_file(folder, split).exists() and made_by(folder) != MADE_BY:
            raise DataError(
                f"{tensor_file(folder, split)}: was not written by this program (the ids of characters, perhaps), so it "
                "stays; name another --encoded-output-dir, or move it away"
            )


def is_tokenizer(path: Path) -> bool:
    try:
        BPETokenizer.from_file(path)
    except (FormatError, OSError):
        return False
    return True


def tensor_file(folder: Path, split: str) -> Path:
    return folder / f"{split}_ids.pt"


def made_by(folder: Path) -> Any:
    """Which program the file beside the ids names."""
    try:
        return json.loads((folder / SIDECAR).read_text(encoding="utf-8"))["made_by"]
    except (OSError, ValueError, KeyError, TypeError):
        return None


def encode(split: str, text: str, tokenizer: BPETokenizer) -> np.ndarray:
    """Ids of a split, int64 (n_tokens,), after they have been decoded again and compared with its text."""
    ids = tokenizer.tokenizer.encode_to_numpy(text).astype(np.int64)
    if tokenizer.decode(ids) != text:
        raise DataError(f"{SPLITS[split]}: decoding its ids does not give its text; nothing is written")
    if len(ids) and not 0 <= ids.min() <= ids.max() < tokenizer.vocab_size:
        raise DataError(
            f"{SPLITS[split]}: ids from {ids.min()} to {ids.max()} in a vocabulary of {tokenizer.vocab_size}"
        )
    print(f"{SPLITS[split].capitalize()}: passed ({len(text):,} characters -> {len(ids):,} tokens)", flush=True)
    return ids


def write_tensors(folder: Path, ids: dict[str, np.ndarray], tokenizer: BPETokenizer) -> None:
    """One tensor of torch.long for each split, and whose ids they are: all of them, or none."""
    import torch  # a second, which those who only ask for help need not wait

    note = {
        "made_by": MADE_BY,
        "tokenizer_fingerprint": tokenizer.fingerprint(),
        "vocab_size": tokenizer.vocab_size,
        "tokens": {split: len(array) for split, array in ids.items()},
    }
    with contextlib.ExitStack() as stack:
        for split, array in ids.items():
            torch.save(torch.from_numpy(array), stack.enter_context(replacing(tensor_file(folder, split))))
        sidecar = stack.enter_context(replacing(folder / SIDECAR))
        sidecar.write_text(json.dumps(note, indent=2) + "\n", encoding="utf-8")
    for split, shape, span in tensor_facts(folder, ids):
        print(f"{SPLITS[split].capitalize()}: shape {shape}, {span} ({tensor_file(folder, split)})")


def tensor_facts(folder: Path, ids: dict[str, np.ndarray]) -> Iterator[tuple[str, tuple[int, ...], str]]:
    """What stands in the files, read back."""
    import torch

    for split, array in ids.items():
        tensor = torch.load(tensor_file(folder, split), weights_only=True)
        if tensor.dtype != torch.long or not np.array_equal(tensor.numpy(), array):
            raise DataError(f"{tensor_file(folder, split)}: what was written is not what is read back")
        span = f"min {tensor.min().item()}, max {tensor.max().item()}" if len(tensor) else "empty"
        yield split, tuple(tensor.shape), span


def print_compression(name: str, characters: int, tokens: int) -> None:
    print(f"{name.capitalize()}: {characters:,} character tokens, {tokens:,} BPE tokens", end="")
    if tokens:
        print(
            f", compression factor {characters / tokens:.2f}x, reduction {100 * (1 - tokens / characters):.2f}%", end=""
        )
    print()


def print_sample(tokenizer: BPETokenizer) -> None:
    unknown = sorted(set(SAMPLE) - set(tokenizer.base_tokens))
    print(f"Text: {SAMPLE}")
    if unknown:
        print(f"Left out: the texts have none of the characters {', '.join(map(repr, unknown))}")
        return
    ids = tokenizer.encode(SAMPLE)
    print(f"Tokens: {tokenizer.encode_tokens(SAMPLE)}")
    print(f"Ids: {ids}")
    print(f"Decoded: {tokenizer.decode(ids)}")


if __name__ == "__main__":
    sys.exit(main())
