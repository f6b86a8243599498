"""Four published tutorials' own calls, as thin views of the one core.

| module | whose calls |
| --- | --- |
| `cs336` | Stanford's CS336, assignment 1: `train_bpe`, `find_chunk_boundaries`, `Tokenizer` |
| `course` | a course's byte-level BPE that reads GPT-2's and SmolLM2's files: `BPETokenizer`, `pretokenize_gpt2`, `split_digits` |
| `readable` | a readable trainer with eight special tokens at the end: `train_bpe`, `pair_counts`, `merge`, `BPETokenizer` |
| `character` | a character-level tutorial on WikiText-2: `BPETokenizer`, `count_pairs`, `merge_pair`, `tokenizer_fingerprint` |

Defaults, results and habits are the originals': special tokens in a text are matched unless said otherwise, and what
they print is printed. Every class has the core's value as `.tokenizer`.
"""
