"""Remedies: on the command line a flag or a command, from Python an argument, one for each intention."""

import ast
import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import minigpt_tok
from minigpt_tok import MiniGPT, MiniGPTConfig, Tokenizer, train_tokenizer
from minigpt_tok.checkpoint import save_checkpoint
from minigpt_tok.cli.group import load_command
from minigpt_tok.cli.remedies import SAID, Options, on_the_command_line
from minigpt_tok.errors import CorpusError, DataError
from minigpt_tok.formats import gpt2, tiktoken

PACKAGE = Path(minigpt_tok.__file__).parent
IN_PYTHON = re.compile(r"\w=(True|None|'|…)|\w\(…|\[\.\.\.\]|minigpt_tok\.|\b(Tokenizer|TokenDataset|encode_corpus)\b")
SMALL = ("--block-size=16", "--embedding-dim=8", "--num-heads=2", "--num-layers=1", "--batch-size=8", "--logger=none")


def shown(part: ast.expr) -> str:
    if isinstance(part, ast.FormattedValue):
        return "'x'" if part.conversion == ord("r") else "x"
    assert isinstance(part, ast.Constant)
    return str(part.value)


def messages_of_the_library() -> Iterator[tuple[Path, str]]:
    """Every text in the package but the command line's, docstrings left out; x stands for what is put in."""
    for path in PACKAGE.rglob("*.py"):
        if "cli" in path.relative_to(PACKAGE).parts:
            continue
        tree = ast.parse(path.read_text(encoding="utf-8"))
        within = {id(part) for node in ast.walk(tree) if isinstance(node, ast.JoinedStr) for part in node.values}
        within |= {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
        for node in ast.walk(tree):
            if isinstance(node, ast.JoinedStr):
                yield path, "".join(map(shown, node.values))
            elif isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in within:
                yield path, node.value


@pytest.mark.parametrize("said", [said for said, _ in SAID])
def test_what_is_put_otherwise_is_in_a_message(said: str):
    assert any(re.search(said, message) for _, message in messages_of_the_library())


def test_the_library_names_no_flag_and_no_command():
    named = [
        (path.name, message)
        for path, message in messages_of_the_library()
        if path.name != "html.py"  # its style sheet
        and re.search(r"(^|[\s(])--[a-z]|minigpt-tok (train|encode|fit|convert|transplant|export)\b", message)
    ]
    assert named == []


@pytest.mark.parametrize(
    ("command", "said", "put"),
    [
        ("encode", "pass overwrite=True to replace it", "pass --overwrite to replace it"),
        ("encode", "errors='replace' or errors='ignore',", "--errors replace or --errors ignore,"),
        ("encode", "more than max_bytes=1,000,", "more than --max-bytes 1,000,"),
        ("encode", "or pass separator=None", "or pass --separator none"),
        ("encode", "workers=1 needs none", "--workers 1 needs none"),
        ("encode", "Give text_column, one of: a", "Give --text-column, one of: a"),
        ("train", "special_tokens has 'a' twice", "--special has 'a' twice"),
        ("train", "min_frequency is 0; the least is 1", "--min-frequency is 0; the least is 1"),
        ("train", "pattern is ''; give a name", "--pattern is ''; give a name"),
        ("fit", "a text with a pattern of its own, text_column", "a text with a pattern of its own, text_column"),
        ("fit", "dropout is 2, and dropout is a share", "--dropout is 2, and dropout is a share"),
        ("fit", "/data/block_size/x, 'block_size' and block_size.txt", None),
        ("encode", "workers=4.txt, a/workers=4/b and workers=4/b and workers=4: no such file", None),
        ("fit", "give learning_rate=0.01. Or", "give --learning-rate 0.01. Or"),
        ("info", "pass overwrite=True, vocab_size is 3", None),
    ],
)
def test_options_of_the_command_that_runs(command: str, said: str, put: str | None):
    assert on_the_command_line(said, Options.of(load_command(command))) == (said if put is None else put)


def test_what_is_said_of_a_file_keeps_the_names_that_the_file_has():
    options = Options.of(load_command("fit"))
    said = "its configuration says pad_vocab_to is 0; pass overwrite=True"
    assert (
        on_the_command_line(said, options, names=False) == "its configuration says pad_vocab_to is 0; pass --overwrite"
    )


class TestCommands:
    """Each runs, and is told what it can be told."""

    @pytest.fixture
    def folder(
        self, tokenizer: Tokenizer, tmp_path: Path, corpus_folder: Path, monkeypatch: pytest.MonkeyPatch
    ) -> Path:
        monkeypatch.chdir(tmp_path)
        tokenizer.save("t.json")
        (tmp_path / "latin.txt").write_bytes(b"caf\xe9 au lait\n")
        (tmp_path / "two.jsonl").write_text('{"a": "x", "b": "y"}\n', encoding="utf-8")
        (tmp_path / "new.txt").write_text("жук", encoding="utf-8")
        tiktoken.save("t.tiktoken", tokenizer.model)
        gpt2.save(tmp_path / "gpt2", tokenizer.model)
        (tmp_path / "lone").mkdir()
        (tmp_path / "gpt2" / "merges.txt").rename(tmp_path / "lone" / "m.txt")
        (tmp_path / "own").mkdir()
        for name in ("train.txt", "my-train.txt"):
            (tmp_path / "own" / name).write_text("text\n", encoding="utf-8")
        return tmp_path

    @pytest.mark.parametrize(
        ("words", "expected"),
        [
            ("train stories -n 100 -o x.json", "--vocab-size is 100, "),
            ("train stories -n 400 --special <a> --special <a> -o x.json", "--special has '<a>' twice"),
            ("train stories -n 400 --recipe character --special <a> -o x.json", "Use --recipe hf, cs336 or readable"),
            ("train stories -n 400 --recipe character --id-order bytes_first -o x.json", "with a recipe of characters"),
            ("train latin.txt -n 400 -o x.json", "read it with --errors replace or --errors ignore"),
            ("diff t.json t.json --text latin.txt", "read it with --errors replace or --errors ignore"),
            ("verify t.json two.jsonl", "Give --text-column, one of: a, b"),
            ("compare two.jsonl -o x", "Give --text-column, one of: a, b"),
            ("encode stories --held-out 5 -t t.json -o x", "leave out --held-out"),
            ("encode stories --max-bytes 10 -t t.json -o x", "more than --max-bytes 10,"),
            ("encode stories --max-bytes 10 -t t.json -o x", "or put a line <|endoftext|> between the documents"),
            ("train stories -n 500 --extend t.json --recipe character -o x.json", "--recipe is 'character', but"),
            ("info latin.txt", "is it the right file?"),
            ("encode stories --separator <sep> -t t.json -o x", "minigpt-tok train --special), or pass --separator none"),
            ("encode stories latin.txt -t t.json -o x", "give them one by one"),
            ("encode own/train.txt own/my-train.txt -t t.json -o x", "give one of them, or a folder without the other"),
            ("encode t.json -t t.json -o x", "Unpack or convert it"),
            ("info t.tiktoken", "minigpt-tok convert FILE --format hf --pattern … --special TOKEN=ID -o tokenizer.json"),
            ("info lone/m.txt", "put vocab.json beside them as merges.txt"),
            ("info gpt2/vocab.json", "put merges.txt beside it as vocab.json"),
            ("compare stories --vocab-sizes 300,300 -o x", "--vocab-sizes has 300 twice"),
            ("compare stories --recipe character -o x", "Give a trained character tokenizer with --with"),
            ("compare new.txt -o x", "give more documents, or a folder with train.txt and validation.txt"),
        ],
    )  # fmt: skip
    def test_tokenizers_and_corpora(self, run, folder: Path, words: str, expected: str):
        result = run(*words.split())
        assert (result.exit_code, result.stdout) == (1, "")
        assert expected in result.stderr
        assert not IN_PYTHON.search(result.stderr), result.stderr
        assert expected in json.dumps(json.loads(run(*words.split(), "--json").stdout), ensure_ascii=False)

    def test_characters(self, run, folder: Path, texts: list[str]):
        train_tokenizer(iter(texts), 300, "character").save("c.json")
        result = run("show", "ж", "-t", "c.json")
        assert "does not know: 'ж'. Train it on text that has them, or" in result.stderr
        result = run("convert", "c.json", "-f", "tiktoken", "-o", "c.tiktoken")
        assert "; minigpt-tok convert --format character keeps them" in result.stderr

    def test_what_another_tokenizer_made(self, run, folder: Path, texts: list[str]):
        train_tokenizer(iter(texts), 350).save("other.json")
        assert run("encode", "stories", "-t", "t.json", "-o", "ids").exit_code == 0
        result = run("encode", "stories", "-t", "other.json", "-o", "ids")
        assert "or pass --overwrite to replace the other's ids" in result.stderr
        result = run("decode", "ids/test.safetensors", "-t", "other.json")
        assert "Give the tokenizer that made it with --tokenizer, or encode" in result.stderr

    @pytest.fixture
    def checkpoint(self, folder: Path, tokenizer: Tokenizer) -> str:
        config = MiniGPTConfig(tokenizer.vocab_size, block_size=16, embedding_dim=8, num_heads=2, num_layers=1)
        save_checkpoint("m.ckpt", MiniGPT(config), tokenizer)
        return "m.ckpt"

    def test_checkpoints(self, run, checkpoint: str, texts: list[str]):
        train_tokenizer(iter(texts), 350).save("other.json")
        for more in ((), ("--json",)):
            found = run("check", checkpoint, "-t", "other.json", *more).stdout
            assert "minigpt-tok export 'm.ckpt' -o … writes it beside the model" in found
            assert "minigpt-tok transplant 'm.ckpt' --tokenizer … -o …" in found
            assert "minigpt_tok." not in found
        for words, expected in (
            (("generate", "-n", -1), "--max-new-tokens is -1"),
            (("generate", "--top-k", 0), "--top-k is 0"),
            (("generate", "--temperature", -1), "--temperature is -1"),
        ):
            assert expected in run(words[0], checkpoint, *words[1:]).stderr
        assert run("transplant", checkpoint, "-t", "other.json", "-o", "n.ckpt").exit_code == 0
        again = run("transplant", checkpoint, "-t", "other.json", "-o", "n.ckpt")
        assert "choose another name, or replace it with --overwrite" in again.stderr
        assert run("export", checkpoint, "-o", "exported").exit_code == 0
        again = run("export", "n.ckpt", "-o", "exported")
        assert "to replace it, pass --overwrite\n" in again.stderr

    def test_a_run(self, run, checkpoint: str, texts: list[str]):
        train_tokenizer(iter(texts), 350).save("other.json")
        assert run("encode", "stories", "-t", "t.json", "-o", "ids").exit_code == 0
        assert run("encode", "stories", "-t", "t.json", "--max-documents", 4, "-o", "less").exit_code == 0
        assert run("encode", "stories", "-t", "t.json", "--separator", "none", "-o", "none").exit_code == 0
        assert run("encode", "stories", "-t", "other.json", "-o", "others").exit_code == 0
        words = (*SMALL, "--budget", "tokens=300", "--validations", 1)
        for data, more, expected in (
            ("ids", ("-o", "run", "--resume"), "begin the run without --resume"),
            ("ids", ("-o", "run", "--embedding-dim", 9), "--embedding-dim is 9, not a multiple of --num-heads, 2"),
            ("ids", ("-o", "run", "--block-size", 100_000), "use a smaller --block-size, or more text"),
            ("ids", ("-o", "run", "--packing", "tight"), "--packing is 'tight'"),
            ("none", ("-o", "run", "--packing", "bos_aligned"), "or use --packing best_fit"),
        ):
            result = run("fit", "-d", data, *words, *more)
            assert (result.exit_code, result.stdout) == (1, ""), expected
            assert expected in result.stderr
        assert run("fit", "-d", "ids", *words, "-o", "run").exit_code == 0
        result = run("fit", "-d", "ids", *words, "-o", "run")
        assert "To go on with it, pass --resume; " in result.stderr
        assert "to replace it, pass --overwrite\n" in result.stderr
        further = ("-o", "run", "--resume", "--budget", "tokens=600")
        result = run("fit", "-d", "others", *further)
        assert "give the model's own tokenizer with --tokenizer, or begin a new run\n" in result.stderr
        result = run("fit", "-d", "less", *further)
        assert "begin a new run from the checkpoint's weights: minigpt-tok fit --weights … -o …\n" in result.stderr
        assert not IN_PYTHON.search(result.stderr)
        for more, expected in (
            (("--context", "blocks", "--stride", 4), "use --context sliding for a stride"),
            (("--stride", 99), "--stride is 99"),
        ):
            assert expected in run("evaluate", checkpoint, "-d", "ids", *more).stderr


def test_python_is_told_in_python(tokenizer: Tokenizer, corpus_folder: Path, tmp_path: Path):
    from minigpt_tok.data.corpora import open_corpus
    from minigpt_tok.data.encode import encode_corpus
    from minigpt_tok.data.token_dataset import TokenDataset

    with pytest.raises(CorpusError, match=r"leave out held_out$"):
        open_corpus(corpus_folder, held_out=5)
    encode_corpus(corpus_folder, tokenizer, tmp_path / "ids", separator=None)
    with pytest.raises(DataError, match=r"or use packing='best_fit'$"):
        TokenDataset(tmp_path / "ids", 8, packing="bos_aligned")
