"""Reading and writing tokenizers: one module a format, and recognition by content.

| module | format |
| --- | --- |
| `recognition` | finds out which of these a file is; `foreign` names those that are none |
| `hub` | fetches a tokenizer's files from the Hugging Face hub |
| `own` | our own: a Hugging Face `tokenizer.json` with fingerprint and training record, or `character_bpe` |
| `hf_json` | Hugging Face's `tokenizer.json` with a byte-level BPE model |
| `character` | the `character_bpe` JSON |
| `gpt2` | `vocab.json` + `merges.txt` |
| `tiktoken` | `.tiktoken` ranks; `known` has what is known of published ones |
| `tekken` | Mistral's `tekken.json` |
| `transformers` | what the transformers library wants beside a `tokenizer.json` |
| `cs336` | `dict[int, bytes]` and `list[tuple[bytes, bytes]]` |
"""

from minigpt_tok.formats import cs336, gpt2, hf_json, tiktoken, transformers
from minigpt_tok.formats.hf_after import Carried
from minigpt_tok.formats.loaded import Loaded, check_fingerprint
from minigpt_tok.formats.own import save, to_json
from minigpt_tok.formats.recognition import from_json, load

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
    "transformers",
]
