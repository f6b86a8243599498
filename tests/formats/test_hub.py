"""Tokenizers from the hub, by a stand-in for it: there is no network where tests run."""

import fnmatch
import sys
import types

import pytest

from minigpt_tok.errors import FormatError, MissingDependencyError, TokenizerError
from minigpt_tok.formats.hub import FILES
from minigpt_tok.tokenizer import Tokenizer

COMMIT = "0123456789abcdef0123456789abcdef01234567"


class RepositoryNotFoundError(Exception):
    pass


class GatedRepoError(RepositoryNotFoundError):
    pass


class RevisionNotFoundError(Exception):
    pass


class Hub(types.ModuleType):
    """Repositories in memory; what is fetched lies in the cache, in a folder named by its commit."""

    def __init__(self, cache):
        super().__init__("huggingface_hub")
        self.cache, self.repositories, self.calls, self.error = cache, {}, [], None

    def snapshot_download(self, repo_id, *, revision=None, allow_patterns=None):
        self.calls.append((repo_id, revision))
        if self.error is not None:
            raise self.error
        if repo_id not in self.repositories:
            raise RepositoryNotFoundError("404 Client Error.\nmore")
        if revision not in (None, "main", COMMIT):
            raise RevisionNotFoundError("404")
        folder = self.cache / repo_id / "snapshots" / COMMIT
        folder.mkdir(parents=True, exist_ok=True)
        for name, content in self.repositories[repo_id].items():
            if any(fnmatch.fnmatch(name, pattern) for pattern in allow_patterns):
                (folder / name).write_bytes(content)
        return str(folder)


@pytest.fixture
def hub(tmp_path, monkeypatch, byte_tokenizer):
    hub = Hub(tmp_path / "cache")
    content = byte_tokenizer.to_json().encode()
    hub.repositories["someone/gpt"] = {"tokenizer.json": content, "model.safetensors": b"weights", "README.md": b"x"}
    monkeypatch.setitem(sys.modules, "huggingface_hub", hub)
    return hub


def test_the_commit_is_the_name_of_what_was_loaded(hub, byte_tokenizer):
    tokenizer = Tokenizer.load("hf:someone/gpt")
    assert tokenizer == byte_tokenizer
    assert tokenizer.name == f"hf:someone/gpt@{COMMIT}"
    assert tokenizer.name in repr(tokenizer)
    assert Tokenizer.load(tokenizer.name) == tokenizer
    assert hub.calls == [("someone/gpt", None), ("someone/gpt", COMMIT)]


def test_nothing_but_tokenizer_files_is_fetched(hub, tmp_path):
    Tokenizer.load("hf:someone/gpt@main")
    assert [file.name for file in (tmp_path / "cache").rglob("*") if file.is_file()] == ["tokenizer.json"]
    assert not any(fnmatch.fnmatch("model.safetensors", pattern) for pattern in FILES)


@pytest.mark.parametrize(
    ("name", "named"),
    [
        ("hf:someone/none", "no such repository"),
        ("hf:someone/gpt@old", "no revision 'old'"),
        ("hf:", "not hf:NAME"),
        ("hf:a/b/c", "not hf:NAME"),
        ("hf:../x y", "not hf:NAME"),
    ],
)
def test_what_is_not_there_is_named(hub, name, named):
    with pytest.raises(TokenizerError, match=named):
        Tokenizer.load(name)


def test_without_a_network_it_says_what_to_do(hub):
    hub.error = OSError("Network is unreachable\nlong story")
    with pytest.raises(
        TokenizerError, match=r"^hf:someone/gpt: could not be fetched.*give the path of its tokenizer.json"
    ):
        Tokenizer.load("hf:someone/gpt")
    hub.error = GatedRepoError("403")
    with pytest.raises(TokenizerError, match="agreement"):
        Tokenizer.load("hf:someone/gpt")


def test_a_repository_without_a_tokenizer_says_so(hub):
    hub.repositories["someone/empty"] = {"model.safetensors": b"weights"}
    with pytest.raises(FormatError, match=f"hf:someone/empty@{COMMIT}.*without tokenizer.json"):
        Tokenizer.load("hf:someone/empty")


def test_without_the_library_it_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    with pytest.raises(MissingDependencyError, match="pip install huggingface_hub"):
        Tokenizer.load("hf:someone/gpt")


def test_the_real_library_without_a_network(monkeypatch, tmp_path):
    pytest.importorskip("huggingface_hub")
    import huggingface_hub.constants as constants

    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path))
    with pytest.raises(TokenizerError, match="could not be fetched, and is not in the cache"):
        Tokenizer.load("hf:openai-community/gpt2")
