"""Reading and writing tokenizers: one module a format, and recognition by content.

| module | format |
| --- | --- |
| `own` | our own: a Hugging Face `tokenizer.json` with fingerprint and training record, or `character_bpe` |
| `hf_json` | Hugging Face's `tokenizer.json` with a byte-level BPE model |
| `character` | the `character_bpe` JSON |
| `gpt2` | `vocab.json` + `merges.txt` |
| `tiktoken` | `.tiktoken` ranks |
| `cs336` | `dict[int, bytes]` and `list[tuple[bytes, bytes]]` |
"""

from minigpt_tok.formats import cs336, gpt2, hf_json, tiktoken
from minigpt_tok.formats.hf_after import Carried
from minigpt_tok.formats.loaded import Loaded, check_fingerprint
from minigpt_tok.formats.own import from_json, load, save, to_json

__all__ = [
    "Carried",
    "Loaded",
    "check_fingerprint",
    "cs336",
    "from_json",
    "gpt2",
    "hf_json",
    "load",
    "save",
    "tiktoken",
    "to_json",
]
