"""The published vocabularies, in the forms that tokenizers load."""

import base64
import json
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

# As tiktoken's own definitions of these encodings have them.
TIKTOKEN_PATTERNS = {
    "gpt2": r"'(?:[sdmt]|ll|ve|re)| ?\p{L}++| ?\p{N}++| ?[^\s\p{L}\p{N}]++|\s++$|\s+(?!\S)|\s",
    "cl100k": r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}++|\p{N}{1,3}+| ?[^\s\p{L}\p{N}]++[\r\n]*+|\s++$|"
    r"\s*[\r\n]|\s+(?!\S)|\s",
}
# As tokenizer.json files of this vocabulary have it: tokenizers that know patterns by their spelling know this one.
CL100K_IN_JSON = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|"
    r"\s*[\r\n]+|\s+(?!\S)|\s+"
)
NAMES = tuple(TIKTOKEN_PATTERNS)


@dataclass(frozen=True)
class Vocabulary:
    """Paths of one vocabulary.

    Attributes:
        name: `gpt2` or `cl100k`.
        json: a `tokenizer.json`.
        ranks: a `.tiktoken` file.
        vectors: strings with the ids that are published for them.
        specials: special token → id.
    """

    name: str
    json: str
    ranks: str
    vectors: str
    specials: dict[str, int] = field(default_factory=dict)

    def to_plain(self) -> dict[str, Any]:
        """As JSON can hold it."""
        return asdict(self)


def find(name: str, data: Path, scratch: Path) -> Vocabulary:
    """A vocabulary of the shared data; a form that is not there is made in `scratch`."""
    tokenizers, vectors = data / "tokenizers", data / "vectors" / f"{name}.json"
    if name == "gpt2":
        folder = tokenizers / "gpt2"
        return Vocabulary(
            name,
            str(folder / "tokenizer.json"),
            str(folder / "r50k_base.tiktoken"),
            str(vectors),
            {"<|endoftext|>": 50256},
        )
    ranks = tokenizers / "cl100k_base.tiktoken"
    as_json = scratch / "cl100k_base.json"
    if not as_json.exists():
        _write_json(ranks, as_json)
    specials = {
        "<|endoftext|>": 100257,
        "<|fim_prefix|>": 100258,
        "<|fim_middle|>": 100259,
        "<|fim_suffix|>": 100260,
        "<|endofprompt|>": 100276,
    }
    return Vocabulary(name, str(as_json), str(ranks), str(vectors), specials)


def read_ranks(path: str) -> dict[bytes, int]:
    """Token → rank, of a `.tiktoken` file."""
    with open(path, "rb") as file:
        return {base64.b64decode(token): int(rank) for token, rank in (line.split() for line in file if line.strip())}


def read_vectors(path: str) -> list[tuple[str, list[int]]]:
    """(text, ids) of every published vector in which no special token stands."""
    cases = json.loads(Path(path).read_text(encoding="utf-8"))["cases"]
    return [(case["text"], case["ids"]) for case in cases if "<|" not in case["text"]]


def _write_json(ranks: Path, path: Path) -> None:
    from minigpt_tok import Tokenizer

    Tokenizer.from_tiktoken(ranks, pattern="cl100k").to_hf_json(path)
    content = json.loads(path.read_text(encoding="utf-8"))
    content["model"].pop("minigpt_tok", None)
    content["pre_tokenizer"]["pretokenizers"][0]["pattern"]["Regex"] = CL100K_IN_JSON
    path.write_text(json.dumps(content, ensure_ascii=False), encoding="utf-8")
