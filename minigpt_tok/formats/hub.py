"""Tokenizers from the Hugging Face hub: `hf:openai-community/gpt2`, `hf:NAME@REVISION`.

Only files of tokenizers are fetched, into the cache of huggingface_hub, where they are found again without a network. A
branch is resolved to the commit it stands at, and that is the name of what was loaded: `hf:NAME@COMMIT` loads the same
files for good. The library is imported when it is needed and at no other time.
"""

import re
from importlib import import_module
from pathlib import Path

from minigpt_tok.errors import MissingDependencyError, TokenizerError

SCHEME = "hf:"
FILES = (
    "tokenizer.json", "vocab.json", "merges.txt", "encoder.json", "vocab.bpe", "tekken.json", "*.tiktoken",
    "tokenizer.model", "tokenizer_config.json", "vocab.txt",
)  # fmt: skip
_NAME = re.compile(r"hf:(?P<name>[\w.-]+(?:/[\w.-]+)?)(?:@(?P<revision>[\w./-]+))?")
_COMMIT = re.compile("[0-9a-f]{40}")


def is_hub_name(path: object) -> bool:
    """Whether something is the name of a repository on the hub, and not a path."""
    return str(path).startswith(SCHEME)


def fetch(path: str) -> tuple[Path, str]:
    """Fetch the tokenizer's files of a repository.

    Returns:
        The folder that they are in, and the name with the commit that they are of.

    Raises:
        TokenizerError: no such name, repository or revision; no access; or no network and nothing in the cache.
        MissingDependencyError: huggingface_hub is not installed.
    """
    if (match := _NAME.fullmatch(path)) is None:
        raise TokenizerError(f"{path!r} is not hf:NAME or hf:NAME@REVISION, as in hf:openai-community/gpt2")
    name, revision = match["name"], match["revision"]
    try:
        hub = import_module("huggingface_hub")
    except ImportError:
        raise MissingDependencyError(
            f"{path} is fetched by huggingface_hub, which is not installed: pip install huggingface_hub"
        ) from None
    try:
        folder = Path(hub.snapshot_download(name, revision=revision, allow_patterns=list(FILES)))
    except Exception as error:  # the library raises its own, those of its network client, and the system's
        raise TokenizerError(f"{path}: {_reason(error, revision)}") from error
    commit = folder.name if _COMMIT.fullmatch(folder.name) else revision
    return folder, f"{SCHEME}{name}@{commit}" if commit else f"{SCHEME}{name}"


def _reason(error: Exception, revision: str | None) -> str:
    kinds = {base.__name__ for base in type(error).__mro__}
    if "GatedRepoError" in kinds:
        return (
            "its publisher asks for an agreement first: accept it on the repository's page, and log in (hf auth login)"
        )
    if "RepositoryNotFoundError" in kinds:
        return "there is no such repository, or it is private (log in: hf auth login)"
    if "RevisionNotFoundError" in kinds:
        return f"the repository has no revision {revision!r}"
    first = (str(error).strip().splitlines() or [""])[0]
    return (
        f"could not be fetched, and is not in the cache ({type(error).__name__}: {first[:200]}). Without a network, give the "
        "path of its tokenizer.json, or of a folder with it"
    )
