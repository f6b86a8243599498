"""`show`, `explain`, `diff`, `info` and `verify`: looking at tokenizers."""

import json
import re
from html import unescape
from pathlib import Path

import pytest

from minigpt_tok import Tokenizer, train_tokenizer
from minigpt_tok.bpe.model import BPEModel
from minigpt_tok.cli.sample_texts import sample_texts
from minigpt_tok.cli.tokenizer_checks import (
    TrainingText,
    check_compression,
    check_round_trips,
    check_training_tokens,
    expected_bytes_per_token,
)
from minigpt_tok.data.corpora import open_corpus


@pytest.fixture
def other_file(texts: list[str], tmp_path: Path) -> Path:
    """Trained on the same texts, ties decided otherwise."""
    path = tmp_path / "other.json"
    train_tokenizer(iter(texts), 400, special_tokens=["<|endoftext|>"], tie="first_seen").save(path)
    return path


class TestShow:
    def test_tokens_stand_between_bars_and_ids_below(self, run, tokenizer: Tokenizer, tokenizer_file: Path):
        text = "The cat\nsat\ton 日"
        result = run("show", text, "-t", tokenizer_file)
        assert result.exit_code == 0
        header, tokens, ids = result.stdout.splitlines()
        count = tokenizer.count(text)
        assert header == f"{tokenizer_file}: {count} tokens, {len(text.encode()) / count:.2f} bytes per token"
        assert tokens.replace("|", "").startswith("The␣cat⏎sat⇥on")
        assert len(tokens.split("|")) == tokenizer.count(text)
        assert ids == " ".join(map(str, tokenizer.encode(text)))

    def test_two_tokenizers(self, run, tokenizer_file: Path, other_file: Path):
        found = json.loads(run("show", "the mat", "-t", tokenizer_file, "-t", other_file, "--json").stdout)
        assert [one["tokenizer"] for one in found["tokenizers"]] == [str(tokenizer_file), str(other_file)]
        for one, path in zip(found["tokenizers"], (tokenizer_file, other_file), strict=True):
            assert one["ids"] == Tokenizer.load(path).encode("the mat")

    def test_the_first_tokens_and_their_text(self, run, tokenizer: Tokenizer, tokenizer_file: Path):
        text = "The other cat sat on the other mat."
        (found,) = json.loads(run("show", text, "-t", tokenizer_file, "--first", 3, "--json").stdout)["tokenizers"]
        assert found["ids"] == tokenizer.encode(text)[:3]
        assert found["shown_text"] == tokenizer.decode(tokenizer.encode(text)[:3])
        assert found["number_of_tokens"] == tokenizer.count(text)

    def test_variants(self, run, tokenizer: Tokenizer, tokenizer_file: Path):
        found = json.loads(run("show", "cat", "-t", tokenizer_file, "--variants", "--json").stdout)["variants"]
        assert [one["text"] for one in found] == ["cat", " cat", "Cat", " Cat"]
        assert [one["tokenizers"][0]["ids"] for one in found] == [
            tokenizer.encode(t) for t in ("cat", " cat", "Cat", " Cat")
        ]
        page = run("show", "cat", "-t", tokenizer_file, "--variants").stdout
        assert all(form in page for form in ("cat", "␣cat", "Cat", "␣Cat"))

    def test_standard_input(self, run, tokenizer: Tokenizer, tokenizer_file: Path):
        found = json.loads(run("show", "-", "-t", tokenizer_file, "--json", input="naïve 日本\r\n".encode()).stdout)
        assert found["text"] == "naïve 日本\r\n"
        result = run("show", "-", "-t", tokenizer_file, input=b"caf\xe9")
        assert result.exit_code == 1
        assert "standard input is not UTF-8 at byte 3" in result.stderr

    def test_the_empty_text(self, run, tokenizer_file: Path):
        result = run("show", "", "-t", tokenizer_file)
        assert result.exit_code == 0
        assert "0 tokens" in result.stdout

    def test_a_colour_for_each_token_on_a_terminal(self, run, tokenizer: Tokenizer, tokenizer_file: Path):
        env = {"FORCE_COLOR": "1", "TERM": "xterm-256color", "NO_COLOR": None}
        coloured = run("show", "The cat sat", "-t", tokenizer_file, env=env).stdout
        assert coloured.count("\x1b[30;48;5;") == tokenizer.count("The cat sat")

    def test_a_page(self, run, tokenizer: Tokenizer, tokenizer_file: Path, other_file: Path, tmp_path: Path):
        text, path = "a <b>cat</b> &\t日\x1b\n\nsat", tmp_path / "tokens.html"
        words = ("show", text, "-t", tokenizer_file, "-t", other_file, "--html", path)
        result = run(*words)
        assert result.exit_code == 0
        assert result.stdout == run(*words[:-2]).stdout
        page = path.read_text(encoding="utf-8")
        for file in (tokenizer_file, other_file):
            spans = re.findall(r'<span title="(\d+)">', page.split(f"<h2>{file}</h2>")[1].split("</pre>")[0])
            assert list(map(int, spans)) == Tokenizer.load(file).encode(text)
        shown = re.sub(r"</?span[^>]*>", "", page.split("<pre>\n")[1].split("</pre>")[0])
        assert unescape(shown) == "a <b>cat</b> &⇥\\xe6\\x97\\xa5␛⏎\n⏎\nsat"
        assert "<b>" not in page
        again = run(*words)
        assert again.exit_code == 1
        assert "--overwrite" in again.stderr
        assert run(*words, "--first", 1, "--overwrite").exit_code == 0
        assert path.read_text(encoding="utf-8").count("<span ") == 2

    def test_a_page_of_variants(self, run, tokenizer_file: Path, tmp_path: Path):
        result = run("show", "cat", "-t", tokenizer_file, "--variants", "--html", tmp_path / "a.html", "--json")
        assert len(json.loads(result.stdout)["variants"]) == 4
        page = (tmp_path / "a.html").read_text(encoding="utf-8")
        assert [heading.split(" · ")[0] for heading in re.findall("<h2>(.*)</h2>", page)] == [
            "cat",
            "␣cat",
            "Cat",
            "␣Cat",
        ]

    def test_nothing_in_a_text_reaches_the_terminal_as_a_command(self, run, tokenizer_file: Path):
        for command in ("show", "explain"):
            result = run(command, "\x1b[31mred\x07", "-t", tokenizer_file)
            assert result.exit_code == 0
            assert "\x1b" not in result.stdout
            assert "\x07" not in result.stdout


class TestExplain:
    def test_the_page(self, run, tokenizer: Tokenizer, tokenizer_file: Path):
        result = run("explain", " other", "-t", tokenizer_file)
        assert "cut by: letters" in result.stdout
        assert "rank" in result.stdout
        assert " ".join(map(str, tokenizer.encode(" other"))) in result.stdout

    def test_json(self, run, tokenizer: Tokenizer, tokenizer_file: Path):
        found = json.loads(run("explain", "the cat", "-t", tokenizer_file, "--json").stdout)
        assert [piece["text"] for piece in found["pieces"]] == ["the", " cat"]
        assert [id for piece in found["pieces"] for id in piece["ids"]] == tokenizer.encode("the cat")
        ranks = [merge["rank"] for merge in found["pieces"][1]["merges"]]
        assert ranks == sorted(ranks)


class TestDiff:
    def test_the_same(self, run, tokenizer_file: Path, tmp_path: Path):
        copy = tmp_path / "copy.json"
        copy.write_bytes(tokenizer_file.read_bytes())
        found = json.loads(run("diff", tokenizer_file, copy, "--json").stdout)
        assert found["same"] is True
        assert found["ids_changed"] == 0

    def test_the_first_merge_that_differs_and_whether_a_tie_decided_it(
        self, run, tokenizer_file: Path, other_file: Path
    ):
        first, second = Tokenizer.load(tokenizer_file), Tokenizer.load(other_file)
        rank = next(n for n, pair in enumerate(zip(first.merges, second.merges, strict=True)) if pair[0] != pair[1])
        found = json.loads(run("diff", tokenizer_file, other_file, "--json").stdout)
        assert found["same"] is False
        assert found["first_merge"]["rank"] == rank
        assert found["tie"] is True
        page = run("diff", tokenizer_file, other_file)
        assert page.exit_code == 0
        assert f"the merge at rank {rank}" in page.stdout
        assert "tie" in page.stdout

    def test_counts_on_a_text(self, run, tokenizer_file: Path, other_file: Path, tmp_path: Path):
        text = tmp_path / "text.txt"
        text.write_text("The cat sat on another mat.", encoding="utf-8")
        found = json.loads(run("diff", tokenizer_file, other_file, "--text", text, "--json").stdout)["text"]
        assert found["first"] == Tokenizer.load(tokenizer_file).count("The cat sat on another mat.")
        assert found["bytes"] == 27


class TestInfo:
    def test_a_tokenizer(self, run, tokenizer: Tokenizer, tokenizer_file: Path):
        (found,) = json.loads(run("info", tokenizer_file, "--json").stdout)["files"]
        assert found["kind"] == "tokenizer"
        assert found["fingerprint"] == tokenizer.fingerprint
        assert found["vocab_size"] == 400
        assert found["training"]["documents"] == 40
        assert tokenizer.fingerprint in run("info", tokenizer_file).stdout

    def test_what_a_file_is_does_not_depend_on_its_name(self, run, tokenizer_file: Path, tmp_path: Path):
        misnamed = tokenizer_file.rename(tmp_path / "weights.safetensors")
        (found,) = json.loads(run("info", misnamed, "--json").stdout)["files"]
        assert found["kind"] == "tokenizer"

    def test_one_bad_file_does_not_hide_the_others(self, run, tokenizer_file: Path, tmp_path: Path):
        (tmp_path / "page.html").write_text("<html>not found</html>", encoding="utf-8")
        result = run("info", tmp_path / "page.html", tokenizer_file, "--json")
        assert result.exit_code == 1
        bad, good = json.loads(result.stdout)["files"]
        assert "HTML" in bad["error"]
        assert good["kind"] == "tokenizer"
        assert result.stderr.startswith("error: ")

    def test_an_edited_tokenizer(self, run, tokenizer_file: Path):
        document = json.loads(tokenizer_file.read_text(encoding="utf-8"))
        merges = document["model"]["merges"]
        merges[0], merges[1] = merges[1], merges[0]
        tokenizer_file.write_text(json.dumps(document), encoding="utf-8")
        result = run("info", tokenizer_file)
        assert result.exit_code == 1
        assert "edited" in result.stderr


def check_named(found: dict, name: str) -> dict:
    return next(check for check in found["checks"] if check["name"] == name)


class TestVerify:
    def test_a_sound_tokenizer_trained_again(self, run, tokenizer: Tokenizer, corpus_folder: Path, tmp_path: Path):
        tok = tmp_path / "t.json"
        assert run("train", corpus_folder, "-n", 400, "--special", "<|endoftext|>", "-o", tok).exit_code == 0
        result = run("verify", tok, corpus_folder, "--json")
        found = json.loads(result.stdout)
        assert result.exit_code == 0
        assert found["ok"] is True
        assert check_named(found, "round trips")["numbers"]["documents"] == 5_000
        assert check_named(found, "training again")["ok"] is True
        assert check_named(found, "training text")["ok"] is True
        assert check_named(found, "held-out text")["ok"] is None  # these 5 documents say nothing

    def test_held_out_text_of_a_corpus(self, run, tmp_path: Path):
        assert run("train", "pydocs", "-n", 1_000, "-o", tmp_path / "t.json").exit_code == 0
        result = run("verify", tmp_path / "t.json", "pydocs", "--documents", 50, "--json")
        assert result.exit_code == 0
        check = check_named(json.loads(result.stdout), "held-out text")
        assert check["ok"] is True
        assert check["numbers"]["text"] == "pydocs, validation"
        low, high = check["numbers"]["expected"]
        assert low < check["numbers"]["bytes_per_token"] < high
        assert check_named(json.loads(result.stdout), "training text")["ok"] is True

    def test_specials_in_the_training_text_are_not_counted(self, run, tmp_path: Path):
        path = tmp_path / "text.txt"
        path.write_text("The cat<|x|>sat on<|x|>the mat. " * 20, encoding="utf-8")
        assert run("train", path, "-n", 300, "--special", "<|x|>", "-o", tmp_path / "t.json").exit_code == 0
        result = run("verify", tmp_path / "t.json", path, "--documents", 50, "--json")
        assert check_named(json.loads(result.stdout), "training text")["ok"] is True

    def test_files_without_splits(self, run, texts: list[str], tmp_path: Path):
        path = tmp_path / "all.txt"
        path.write_text("\n<|endoftext|>\n".join(texts), encoding="utf-8")
        assert run("train", path, "-n", 400, "-o", tmp_path / "t.json").exit_code == 0
        found = json.loads(run("verify", tmp_path / "t.json", path, "--documents", 50, "--json").stdout)
        assert check_named(found, "training again")["ok"] is True
        assert check_named(found, "held-out text")["ok"] is None
        # What Python trains on from files, their train split by hash, is found as well.
        train_tokenizer(path, 400).save(tmp_path / "u.json")
        found = json.loads(run("verify", tmp_path / "u.json", path, "--documents", 50, "--json").stdout)
        assert check_named(found, "training again")["ok"] is True

    def test_a_part_of_the_corpus_is_found_again(self, run, corpus_folder: Path, tmp_path: Path):
        words = ("train", corpus_folder, "-n", 380, "--max-documents", 7, "-o", tmp_path / "t.json")
        assert run(*words).exit_code == 0
        found = json.loads(run("verify", tmp_path / "t.json", corpus_folder, "--documents", 50, "--json").stdout)
        assert check_named(found, "training again")["ok"] is True

    def test_swapped_merges_are_found_by_training_again(self, run, corpus_folder: Path, tmp_path: Path):
        path = tmp_path / "t.json"
        assert run("train", corpus_folder, "-n", 400, "-o", path).exit_code == 0
        document = json.loads(path.read_text(encoding="utf-8"))
        merges = document["model"]["merges"]
        merges[5], merges[6] = merges[6], merges[5]
        del document["model"]["minigpt_tok"]["fingerprint"]
        path.write_text(json.dumps(document), encoding="utf-8")
        result = run("verify", path, corpus_folder, "--documents", 50)
        assert result.exit_code == 1
        assert "merge 6 is" in result.stdout
        assert "FAILED" in result.stdout
        assert "Traceback" not in result.stderr

    def test_other_text_is_not_taken_for_the_training_text(self, run, tokenizer_file: Path, tmp_path: Path):
        (tmp_path / "other.txt").write_text("The cat sat on the mat. " * 30, encoding="utf-8")
        result = run("verify", tokenizer_file, tmp_path / "other.txt", "--documents", 50, "--json")
        check = check_named(json.loads(result.stdout), "training again")
        assert check["ok"] is None
        assert "is not what the tokenizer was trained on" in check["found"]

    def test_a_character_tokenizer(self, run, texts: list[str], tmp_path: Path):
        train_tokenizer(iter(texts), 150, "character").save(tmp_path / "c.json")
        result = run("verify", tmp_path / "c.json", "--documents", 300, "--json")
        assert result.exit_code == 0
        assert check_named(json.loads(result.stdout), "merges")["numbers"]["unreachable"] == 0

    def test_a_vocabulary_that_lacks_bytes(self, tokenizer: Tokenizer):
        # As SmolLM2's: texts with these bytes are lost on purpose, and are left out.
        tokens = tuple(None if token == b"\xf0" else token for token in tokenizer.model.tokens)
        lacking = Tokenizer(BPEModel(**{**vars_of(tokenizer.model), "tokens": tokens}))
        check = check_round_trips(lacking, 200, seed=1)
        assert check.ok is True
        assert check.numbers["left_out"] > 0
        assert check.numbers["bytes_without_token"] == [0xF0]

    def test_decoding_token_by_token_fails(self, tokenizer: Tokenizer):
        class Broken(Tokenizer):
            def decode(self, ids, **options: object) -> str:
                return "".join(self.token_bytes(id).decode("utf-8", "replace") for id in ids)

        check = check_round_trips(Broken(tokenizer.model), 300, seed=0)
        assert check.ok is False
        assert "decode to another text" in check.found

    def test_merges_that_are_not_applied_fail(self, tokenizer: Tokenizer, texts: list[str], tmp_path: Path):
        class Broken(Tokenizer):
            def encode(self, text: str, **options: object) -> list[int]:
                return [self.model.base_ids[bytes([byte])] for byte in text.encode()]

            def count(self, text: str, **options: object) -> int:
                return len(self.encode(text))

        broken = Broken(tokenizer.model, tokenizer.training)
        check = check_compression(broken, texts * 10, "the text")
        assert check.ok is False
        assert "merges are not applied" in check.found
        check = check_training_tokens(broken, TrainingText(broken, open_corpus(iter(texts))))
        assert check.ok is False
        assert check_training_tokens(tokenizer, TrainingText(tokenizer, open_corpus(iter(texts)))).ok is True

    def test_an_overfitted_tokenizer_fails(self):
        text = "It was the best of times, it was the worst of times, it was the age of wisdom. " * 3
        overfitted = train_tokenizer(iter([text]), 400, pattern="none")
        check = check_compression(overfitted, [text] * 300, "the text")
        assert check.ok is False
        assert "overfitted" in check.found


def vars_of(model: BPEModel) -> dict:
    return {name: getattr(model, name) for name in model.__dataclass_fields__}


def test_sample_texts_are_the_same_every_time_and_hold_what_they_promise():
    texts = list(sample_texts(3_000, 0))
    assert texts == list(sample_texts(3_000, 0))
    assert texts != list(sample_texts(3_000, 1))
    joined = "".join(texts)
    for what in ("👩🏽‍🚀", "日本語", "हिन्दी", "العربية", "\r\n", "\x00", "\u200b", "<|endoftext|>", "\U0010ffff"):
        assert what in joined
    assert joined.encode("utf-8").decode("utf-8") == joined  # no surrogates
    assert "" in texts
    assert set("".join(sample_texts(100, 0, alphabet=["a", "é"]))) == {"a", "é"}


def test_the_expected_neighbourhood_rises_with_the_merges():
    values = [expected_bytes_per_token(merges) for merges in (0, 1, 50, 256, 300, 8_192, 9_000, 10**6)]
    assert values == sorted(values)
    assert values[0] == 1
    assert expected_bytes_per_token(32_768) == pytest.approx(4.2)  # about 4 for 32k on English


def test_no_module_of_the_command_line_is_too_long():
    folder = Path(__file__).resolve().parents[2] / "minigpt_tok" / "cli"
    for path in folder.glob("*.py"):
        assert len(path.read_text(encoding="utf-8").splitlines()) <= 500, path
