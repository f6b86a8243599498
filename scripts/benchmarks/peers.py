"""One adapter for each tokenizer: how to load it, and its fastest call for each job.

An adapter is a function of a vocabulary and a number of threads that gives the calls it has, by the names in `jobs`. It
imports its package itself, in the process that measures it. Calls are those that the package's own pages recommend for
the job; where a call gives a wrapper (an awkward array, an `Encoding`), taking the ids out of it is part of the call.

Another contender can be named as `module:function`, for a function of the same kind: that is how to measure your own.
"""

import importlib
import os
from collections.abc import Callable
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import numpy as np
from benchmarks.vocabularies import TIKTOKEN_PATTERNS, Vocabulary, read_ranks

OURS = "minigpt-tok"
PURE = "minigpt-tok in Python"
SLOW = 1_000_000  # bytes of text, for calls that take seconds for each megabyte


@dataclass
class Calls:
    """What a loaded tokenizer offers.

    Attributes:
        by_job: job → a function of one argument.
        id_type: of the arrays that it takes to decode.
    """

    by_job: dict[str, Callable[[Any], Any]]
    id_type: str = "uint32"


Load = Callable[[Vocabulary, int], Calls]


@dataclass(frozen=True)
class Peer:
    """A contender.

    Attributes:
        name: in tables and on the command line.
        package: as it is installed; gives the version.
        load: the adapter.
        limits: job → bytes of text at most, where the whole would take too long.
        environment: variables for its process.
    """

    name: str
    package: str
    load: Load
    limits: dict[str, int] = field(default_factory=dict)
    environment: dict[str, str] = field(default_factory=dict)

    @property
    def version(self) -> str | None:
        """The installed version; `None` where the package is not there."""
        return installed_version(self.package)


def installed_version(package: str) -> str | None:
    """Of a package by its name in the index, of nothing in particular for an empty name; `None` where it is not there."""
    if package == OURS:  # may be used from its folder, not installed
        from minigpt_tok import __version__

        return __version__
    try:
        return version(package) if package else ""
    except PackageNotFoundError:
        return None


def find(name: str) -> Peer:
    """A contender by its name, or by `module:function`.

    Raises:
        ValueError: there is none.
    """
    if name in PEERS:
        return PEERS[name]
    module, _, function = name.partition(":")
    if not function:
        raise ValueError(f"no contender is called {name}; there are {', '.join(PEERS)}, and module:function")
    return Peer(name, "", getattr(importlib.import_module(module), function))


def _minigpt_tok(vocabulary: Vocabulary, threads: int) -> Calls:
    from minigpt_tok import Tokenizer
    from minigpt_tok.bpe.native import core

    if core is None and "MINIGPT_TOK_PURE" not in os.environ:
        raise RuntimeError("the C++ core is not built")
    if vocabulary.name == "gpt2":
        tokenizer = Tokenizer.load(vocabulary.json)
    else:
        tokenizer = Tokenizer.from_tiktoken(vocabulary.ranks, pattern=vocabulary.name)
    tokenizer.encode("a")  # the encoder is made when it is first used; then `encode` is a built-in function
    return Calls(
        {
            "array": tokenizer.encode_to_numpy,
            "list": tokenizer.encode,
            "documents_to_arrays": lambda documents: tokenizer.encode_batch_to_numpy(documents).ids,
            "documents_to_lists": tokenizer.encode_batch,
            "count": tokenizer.count,
            "decode_list": tokenizer.decode,
            "decode_array": tokenizer.decode,
        },
        id_type=tokenizer.dtype.name,
    )


def _gigatoken(vocabulary: Vocabulary, threads: int) -> Calls:
    import gigatoken

    if vocabulary.name == "gpt2":
        tokenizer = gigatoken.Tokenizer(vocabulary.json)
    else:
        tokenizer = gigatoken.Tokenizer.from_tiktoken(vocabulary.ranks)
    as_tiktoken = tokenizer.as_tiktoken()
    parallel = threads > 1
    return Calls(
        {
            "array": tokenizer.encode,
            "list": as_tiktoken.encode_ordinary,
            "documents_to_arrays": lambda documents: np.asarray(
                tokenizer.encode_batch(documents, parallel=parallel).layout.content.data
            ),
            "documents_to_lists": lambda documents: tokenizer.encode_batch_list(documents, parallel=parallel),
            "count": lambda text: len(tokenizer.encode(text)),
            "decode_list": lambda ids: tokenizer.decode(ids).decode("utf-8", "replace"),
            "decode_array": lambda ids: tokenizer.decode(ids).decode("utf-8", "replace"),
        }
    )


def _snaptokens(vocabulary: Vocabulary, threads: int) -> Calls:
    import snaptokens

    tokenizer = snaptokens.Tokenizer.from_file(vocabulary.json)
    return Calls(
        {
            "array": lambda text: np.frombuffer(tokenizer.encode_batch_flat([text])[0], dtype=np.uint32),
            "list": lambda text: tokenizer.encode(text).ids,
            "documents_to_arrays": lambda documents: np.frombuffer(
                tokenizer.encode_batch_flat(documents)[0], dtype=np.uint32
            ),
            "documents_to_lists": lambda documents: [encoded.ids for encoded in tokenizer.encode_batch(documents)],
            "count": lambda text: len(tokenizer.encode_batch_flat([text])[0]) // 4,
            "decode_list": tokenizer.decode,
        }
    )


def _toktok(vocabulary: Vocabulary, threads: int) -> Calls:
    import toktok

    tokenizer = toktok._encoding(_built_in(vocabulary))
    return Calls(
        {
            "array": lambda text: tokenizer.encode_to_numpy(text, disallowed_special=()),
            "list": tokenizer.encode_ordinary,
            "documents_to_arrays": lambda documents: tokenizer.encode_batch_to_numpy(documents, threads)[0],
            "documents_to_lists": lambda documents: [tokenizer.encode_ordinary(text) for text in documents],
            "count": tokenizer.count,
            "decode_list": tokenizer.decode,
        }
    )


def _quicktok(vocabulary: Vocabulary, threads: int) -> Calls:
    import quicktok

    tokenizer = quicktok.get_encoding(_built_in(vocabulary))
    return Calls(
        {
            "array": lambda text: tokenizer.encode_batch([text], 1)[0],
            "list": tokenizer.encode_ordinary,
            "documents_to_arrays": lambda documents: tokenizer.encode_batch(documents, threads)[0],
            "documents_to_lists": lambda documents: [tokenizer.encode_ordinary(text) for text in documents],
            "count": tokenizer.count,
            "decode_list": tokenizer.decode,
        }
    )


def _splintr(vocabulary: Vocabulary, threads: int) -> Calls:
    import splintr

    tokenizer = splintr.from_json(vocabulary.json)
    return Calls(
        {
            "array": lambda text: np.frombuffer(tokenizer.encode_flat(text), dtype=np.uint32),
            "list": tokenizer.encode_ordinary,
            "documents_to_arrays": lambda documents: np.frombuffer(
                tokenizer.encode_batch_flat(documents)[0], dtype=np.uint32
            ),
            "documents_to_lists": tokenizer.encode_batch,
            "decode_list": tokenizer.decode,
        }
    )


def _tokie(vocabulary: Vocabulary, threads: int) -> Calls:
    import tokie

    tokenizer = tokie.Tokenizer.from_json(vocabulary.json)
    return Calls(
        {
            "array": lambda text: tokenizer.encode_batch_flat([text], add_special_tokens=False)[0],
            "list": lambda text: tokenizer.encode(text, add_special_tokens=False).ids,
            "documents_to_arrays": lambda documents: tokenizer.encode_batch_flat(documents, add_special_tokens=False)[
                0
            ],
            "documents_to_lists": lambda documents: [
                encoded.ids for encoded in tokenizer.encode_batch(documents, add_special_tokens=False)
            ],
            "count": tokenizer.count_tokens,
            "decode_list": tokenizer.decode,
        }
    )


def _tuetoken(vocabulary: Vocabulary, threads: int) -> Calls:
    import tuetoken

    tokenizer = tuetoken.Tokenizer(vocabulary.json)
    return Calls(
        {
            "array": lambda text: np.frombuffer(tokenizer.encode_to_bytes(text), dtype=np.uint32),
            "list": tokenizer.encode_ordinary,
            "documents_to_arrays": lambda documents: tokenizer.encode_ordinary_to_buffer(
                documents, num_threads=threads
            )["data"],
            "documents_to_lists": lambda documents: tokenizer.encode_ordinary_batch(documents, num_threads=threads),
            "count": tokenizer.count_tokens,
            "decode_list": tokenizer.decode,
            "decode_array": tokenizer.decode_array,
        }
    )


def _tiktoken(vocabulary: Vocabulary, threads: int) -> Calls:
    import tiktoken

    tokenizer = tiktoken.Encoding(
        vocabulary.name,
        pat_str=TIKTOKEN_PATTERNS[vocabulary.name],
        mergeable_ranks=read_ranks(vocabulary.ranks),
        special_tokens=vocabulary.specials,
    )
    return Calls(
        {
            "array": lambda text: tokenizer.encode_to_numpy(text, disallowed_special=()),
            "list": tokenizer.encode_ordinary,
            "documents_to_lists": lambda documents: tokenizer.encode_ordinary_batch(documents, num_threads=threads),
            "decode_list": tokenizer.decode,
        }
    )


def _tokenizers(vocabulary: Vocabulary, threads: int) -> Calls:
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(vocabulary.json)
    tokenizer.encode_special_tokens = True
    return Calls(
        {
            "list": lambda text: tokenizer.encode(text, add_special_tokens=False).ids,
            "documents_to_lists": lambda documents: [
                encoded.ids for encoded in tokenizer.encode_batch_fast(documents, add_special_tokens=False)
            ],
            "decode_list": lambda ids: tokenizer.decode(ids, skip_special_tokens=False),
        }
    )


def _built_in(vocabulary: Vocabulary) -> str:
    """For packages that bring their vocabularies with them.

    Raises:
        LookupError: it is none of theirs.
    """
    if vocabulary.name != "cl100k":
        raise LookupError(f"has no {vocabulary.name}")
    return "cl100k_base"


_SLOW_CALLS = dict.fromkeys(("list", "documents_to_lists", "decode_list"), 10 * SLOW)

PEERS = {
    peer.name: peer
    for peer in (
        Peer(OURS, OURS, _minigpt_tok),
        Peer("gigatoken", "gigatoken", _gigatoken),
        Peer("snaptokens", "snaptokens", _snaptokens),
        Peer("toktok", "toktok-rs", _toktok),
        Peer("quicktok", "quicktok-v1", _quicktok),
        Peer("splintr", "splintr-rs", _splintr),
        Peer("tokie", "tokie", _tokie),
        Peer("tuetoken", "tuetoken", _tuetoken),
        Peer("tiktoken", "tiktoken", _tiktoken),
        Peer("tokenizers", "tokenizers", _tokenizers, limits=_SLOW_CALLS),
        Peer(
            PURE,
            OURS,
            _minigpt_tok,
            limits=dict.fromkeys(("array", "list", "count", "documents_to_lists", "documents_to_arrays"), 10 * SLOW),
            environment={"MINIGPT_TOK_PURE": "1"},
        ),
    )
}
