"""Published tokenizers, known by what is in them: rank files by the hash of their ranks, tokenizers by fingerprint.

Nothing here is a guess: a file of ranks does not name its pattern, but a file whose ranks hash to these values is the
published one, and its publisher's programs name pattern and special tokens. Sources: `openai_public.py` of tiktoken 0.14
for the four of OpenAI; for the others the hash of the published file, and their model's own program.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

END_OF_TEXT = "<|endoftext|>"
END_OF_PROMPT = "<|endofprompt|>"


@dataclass(frozen=True)
class KnownRanks:
    """What the publisher of a rank file says beside it.

    Attributes:
        name: of the encoding.
        pattern: its pre-tokenizer, by name.
        special_tokens: of the encoding of the same name; none where they differ between the models that share the file.
    """

    name: str
    pattern: str
    special_tokens: Mapping[str, int] = field(default_factory=dict)


RANKS = {
    "306cd27f03c1a714eca7108e03d66b7dc042abe8c258b44c199a7ed9838dd930": KnownRanks(
        "r50k_base", "gpt2", {END_OF_TEXT: 50256}
    ),
    "94b5ca7dff4d00767bc256fdd1b27e5b17361d7b8a5f968547f9f23eb70d2069": KnownRanks(
        "p50k_base", "gpt2", {END_OF_TEXT: 50256}
    ),
    "223921b76ee99bde995b7ff738513eef100fb51d18c93597a113bcffe865b2a7": KnownRanks(
        "cl100k_base",
        "cl100k",
        {
            END_OF_TEXT: 100257,
            "<|fim_prefix|>": 100258,
            "<|fim_middle|>": 100259,
            "<|fim_suffix|>": 100260,
            END_OF_PROMPT: 100276,
        },
    ),
    "446a9538cb6c348e3516120d7c08b09f57c36495e2acfffe59a5bf8b0cfb1a2d": KnownRanks(
        "o200k_base", "o200k", {END_OF_TEXT: 199999, END_OF_PROMPT: 200018}
    ),
    # The models that share these files have different special tokens: Llama 3 and 3.1, Qwen and Qwen 2.
    "82e9d31979e92ab929cd544440f129d9ecd797b69e327f80f17e1c50d5551b55": KnownRanks("Llama 3", "llama3"),
    "b2b1b8dfb5cc5f024bafc373121c6aba3f66f9a5a0269e243470a1de16a33186": KnownRanks("Qwen", "digits1"),
}
"""SHA-256 of the ranks, as lines of base64 and rank in the order of ranks → what is known of them."""

FINGERPRINTS: dict[str, str] = {
    "883bd91c6ed322bc8b1d68b8bf1925e0c1988f6b9df7a3a3192d27ec3d16a1e2": "GPT-2 (r50k_base)",
    "51341a66919adefedb3e69a119dd39047cde5bc8faa6b9ced140988155bf66bf": "p50k_base (Codex)",
    "7fbc51c6fe744b3daac1963243803db8608416aba9b234fd58da3e19169de4ba": "cl100k_base (GPT-4)",
    "42024ad87bfaf05202b3538dcf602df949bf229b05ba95a9bb7d5a4ce6c9dbdb": "o200k_base (GPT-4o)",
    "5796c541aba73c7226ada47ae969ec8a9630c2b7b3e3e916395309ab9c089fe2": "SmolLM2",
    "c664d0e66d4c5dbdc34818feb611aa58f0e2ef686557d87f90772be071a8d6dd": "Llama 3",
    "90f250da1b39042eea89dbd9de897acfb9c5c342f45ebf4da072fff2aa02e006": "Llama 3, ranks without special tokens",
    "cfad1c0d3398ec88973b9427bd3f89914d33e57fffd3722434e760a298d984b0": "Qwen and Qwen 2, ranks without special tokens",
    "9bd7e40f8a793bcb75b03db7d31235ef4af96d3118214f01b53d47424bf98682": "Qwen 3",
    "a302e7e8e60d7ec06e2658675ebe4a59e2c54935c1f999c0ecb0e7ef3a602d0a": "Tekken (Mistral Nemo)",
}
"""Fingerprint, version 1 → the published tokenizer that has it."""


def known_name(fingerprint: str) -> str | None:
    """The published tokenizer that has a fingerprint, if it is one that is known here."""
    return FINGERPRINTS.get(fingerprint)
