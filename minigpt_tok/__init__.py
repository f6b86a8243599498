"""Train tokenizers, encode and pack text, train small GPTs, and compare them by bits per byte.

The public names are imported when they are first used: `import minigpt_tok` itself loads neither torch, nor
lightning, nor datasets.
"""

from importlib import import_module
from typing import TYPE_CHECKING

from minigpt_tok._version import __version__

if TYPE_CHECKING:
    from minigpt_tok.checkpoint import embed_fingerprint, verify_checkpoint
    from minigpt_tok.data.data_module import TokenDataModule
    from minigpt_tok.data.encode import encode_corpus
    from minigpt_tok.data.hub_encoding import encode_dataset
    from minigpt_tok.data.mixture import Mixture
    from minigpt_tok.data.stream import TokenStream
    from minigpt_tok.data.token_dataset import TokenDataset
    from minigpt_tok.errors import TokenizerMismatchError
    from minigpt_tok.gpt.config import MiniGPTConfig
    from minigpt_tok.gpt.fingerprint_callback import TokenizerFingerprint
    from minigpt_tok.gpt.model import MiniGPT
    from minigpt_tok.measure.bits_per_byte import BitsPerByte, bits_per_byte
    from minigpt_tok.measure.compare import compare_tokenizers
    from minigpt_tok.tokenizer import Tokenizer
    from minigpt_tok.train import train_tokenizer

_HOME = {
    "BitsPerByte": "measure.bits_per_byte",
    "MiniGPT": "gpt.model",
    "MiniGPTConfig": "gpt.config",
    "Mixture": "data.mixture",
    "TokenDataModule": "data.data_module",
    "TokenDataset": "data.token_dataset",
    "TokenStream": "data.stream",
    "Tokenizer": "tokenizer",
    "TokenizerFingerprint": "gpt.fingerprint_callback",
    "TokenizerMismatchError": "errors",
    "bits_per_byte": "measure.bits_per_byte",
    "compare_tokenizers": "measure.compare",
    "embed_fingerprint": "checkpoint",
    "encode_corpus": "data.encode",
    "encode_dataset": "data.hub_encoding",
    "train_tokenizer": "train",
    "verify_checkpoint": "checkpoint",
}

__all__ = [
    "BitsPerByte",
    "MiniGPT",
    "MiniGPTConfig",
    "Mixture",
    "TokenDataModule",
    "TokenDataset",
    "TokenStream",
    "Tokenizer",
    "TokenizerFingerprint",
    "TokenizerMismatchError",
    "__version__",
    "bits_per_byte",
    "compare_tokenizers",
    "embed_fingerprint",
    "encode_corpus",
    "encode_dataset",
    "train_tokenizer",
    "verify_checkpoint",
]


def __getattr__(name: str) -> object:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(f"{__name__}.{_HOME[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
