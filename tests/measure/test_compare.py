"""Whole comparisons on a small text with tiny models."""

import dataclasses
import json

import numpy as np
import pytest
import torch

from minigpt_tok import Tokenizer, TokenizerMismatchError, compare_tokenizers, train_tokenizer
from minigpt_tok.checkpoint import check, load_model
from minigpt_tok.data.id_file import IdFile
from minigpt_tok.errors import CorpusError, DataError, ModelError, TokenizerError
from minigpt_tok.gpt.options import TrainingOptions
from minigpt_tok.measure.bits_per_byte import bits_per_byte
from minigpt_tok.measure.compression import (
    attention_flops_per_byte,
    embedding_share,
    measure_compression,
    training_flops_per_byte,
)
from minigpt_tok.report.files import write_comparison

BODY = {"block_size": 16, "embedding_dim": 16, "num_heads": 2, "num_layers": 1, "dropout": 0.0}
OPTIONS = TrainingOptions(batch_size=4, validations=2, accelerator="cpu", learning_rate=1e-2)
WORDS = "the fox ran to the river and the owl saw the fox in the fog – über Nacht".split()  # noqa: SIM905


def documents(count: int, seed: int) -> list[str]:
    generator = np.random.default_rng(seed)
    return [" ".join(generator.choice(WORDS, size=12)) + ".\n" for _ in range(count)]


TEXTS = {"train": documents(60, 1), "validation": documents(12, 2), "test": ["日"]}
SETTINGS = {"vocab_sizes": [270, 290], "budget": "bytes=4000", "body": BODY, "options": OPTIONS, "workers": 1}


@pytest.fixture(scope="module", autouse=True)
def one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("comparison")


@pytest.fixture(scope="module")
def found(folder, one_thread):
    return compare_tokenizers(TEXTS, folder, **SETTINGS, byte_baseline=True, curve_bytes=300, prompt="the fox")


def test_every_tokenizer_has_its_row(found):
    assert [(entry.name, entry.kind) for entry in found.entries] == [
        ("characters", "characters"),
        ("bytes", "bytes"),
        ("bpe-270", "bpe"),
        ("bpe-290", "bpe"),
    ]
    assert [entry.vocab_size for entry in found.entries[1:]] == [256, 270, 290]


def test_every_model_has_seen_equal_bytes(found):
    for entry in found.entries:
        (run,) = entry.runs
        longest = max(len(word.encode()) for word in WORDS) + 2
        assert 4000 <= run.bytes < 4000 + longest


def test_scores_are_those_of_the_checkpoints_on_disk(found, folder):
    for entry in found.entries:
        model, tokenizer = load_model(folder / entry.runs[0].checkpoint)
        assert tokenizer.fingerprint == entry.fingerprint == Tokenizer.load(folder / entry.tokenizer).fingerprint
        data = folder / entry.name / "encoded" / "validation.safetensors"
        again = bits_per_byte(model, data, tokenizer, batch_size=3)
        assert again.bits == pytest.approx(entry.runs[0].score.bits, rel=1e-5)
        assert check(folder / entry.runs[0].checkpoint, tokenizer, folder / entry.name / "encoded").ok
        assert entry.compression == measure_compression(IdFile(data), tokenizer)


def test_scores_are_on_one_text_and_better_than_guessing(found):
    scores = [entry.runs[0].score for entry in found.entries]
    assert len({score.text_sha256 for score in scores}) == 1
    assert {score.bytes for score in scores} == {sum(len(text.encode()) for text in TEXTS["validation"])}
    for score in scores:
        assert score.bits_per_byte < np.log2(score.vocab_size) * score.tokens / score.bytes * 0.8
        assert (score.context, score.stride, score.separator) == ("sliding", 8, None)


def test_costs_are_by_their_definitions(found):
    for entry in found.entries:
        held = entry.compression.bytes_per_token
        width, layers, block = BODY["embedding_dim"], BODY["num_layers"], BODY["block_size"]
        assert entry.embedding_parameters == entry.vocab_size * width
        assert entry.body_parameters == found.entries[0].body_parameters
        others = entry.body_parameters + entry.position_parameters
        assert entry.embedding_share == embedding_share(entry.vocab_size, width, others)
        assert entry.training_flops_per_byte == pytest.approx(
            training_flops_per_byte(entry.vocab_size, width, entry.body_parameters, held)
        )
        assert entry.attention_flops_per_byte == pytest.approx(attention_flops_per_byte(layers, width, block, held))
        assert entry.window_bytes == pytest.approx(block * held)
        assert entry.runs[0].flops == pytest.approx(entry.training_flops_per_byte * held * entry.runs[0].tokens)


def test_first_block_and_samples(found):
    text = "".join(TEXTS["validation"])
    for entry in found.entries:
        assert text.startswith(entry.first_block.rstrip("\ufffd"))
        assert entry.runs[0].sample.startswith("the fox")
        assert 100 < len(entry.runs[0].sample.encode()) < 900
    assert len(found.entries[0].first_block) == BODY["block_size"]
    assert len(found.entries[3].first_block) > len(found.entries[0].first_block)


def test_curves_are_on_a_sample_at_shares_of_the_budget(found):
    for entry in found.entries:
        curve = entry.runs[0].curve
        assert len(curve) == 2
        assert curve[0].bytes == pytest.approx(2000, rel=0.3)
        assert curve[-1].bytes == entry.runs[0].bytes
        assert curve[-1].flops == entry.runs[0].flops
        assert curve[-1].bits_per_byte != entry.runs[0].score.bits_per_byte
        assert curve[-1].bits_per_byte == pytest.approx(entry.runs[0].score.bits_per_byte, rel=0.3)


def test_json_tells_how_to_do_it_again(found, folder):
    plain = json.loads((folder / "comparison.json").read_text(encoding="utf-8"))
    assert plain == json.loads(json.dumps(found.to_plain()))
    settings = plain["settings"]
    assert settings["vocab_sizes"] == [270, 290]
    assert settings["body"] == {**BODY, "expansion_factor": 4, "pad_vocab_to": 1}
    assert settings["training"]["batch_size"] == 4
    assert plain["budget"] == "bytes=4000"
    train = IdFile(folder / "bpe-270" / "encoded" / "train.safetensors").metadata
    assert settings["text"]["train_sha256"] == train.text_sha256
    assert settings["text"]["validation_documents"] == "all"
    assert settings["made_with"]["torch"] == torch.__version__


def test_reports_are_written_beside_it(found, folder):
    written = write_comparison(found, folder)
    assert {path.name for path in written} == {
        "report.html", "comparison.json", "bits_per_byte.png", "curve_bytes.png", "curve_flops.png", "curve_seconds.png",
    }  # fmt: skip
    page = (folder / "report.html").read_text(encoding="utf-8")
    for entry in found.entries:
        assert f"{entry.bits_per_byte:.4f}" in page


def test_run_again_it_keeps_what_is_there(found, folder, monkeypatch):
    before = {path: path.stat().st_mtime_ns for path in folder.rglob("*") if path.suffix in (".ckpt", ".safetensors")}
    assert len(before) == 4 * 3
    stages = []
    again = compare_tokenizers(
        TEXTS, folder, **SETTINGS, byte_baseline=True, curve_bytes=300, prompt="the fox",
        progress=lambda stage, done, total: stages.append(stage),
    )  # fmt: skip
    assert {path: path.stat().st_mtime_ns for path in before} == before
    assert not any("trained" in stage for stage in stages)
    assert "bpe-270: bits per byte" in stages
    for old, new in zip(found.entries, again.entries, strict=True):
        assert new.runs[0].score.bits == pytest.approx(old.runs[0].score.bits, rel=1e-6)
        assert new.runs[0].curve == old.runs[0].curve
        assert new.runs[0].sample == old.runs[0].sample


def test_runs_with_other_settings_are_not_mixed_in(found, folder, tmp_path):
    with pytest.raises(ModelError, match="another budget; choose another folder"):
        compare_tokenizers(TEXTS, folder, **{**SETTINGS, "budget": "bytes=5000"})
    with pytest.raises(ModelError, match="another config"):
        compare_tokenizers(TEXTS, folder, **{**SETTINGS, "body": {**BODY, "block_size": 8}})
    with pytest.raises(ModelError, match="another options"):
        compare_tokenizers(TEXTS, folder, **{**SETTINGS, "options": dataclasses.replace(OPTIONS, learning_rate=0.1)})


def test_ids_of_other_tokenizers_are_not_mixed_in(found, folder):
    other = {**TEXTS, "train": [text.upper() for text in TEXTS["train"]]}
    with pytest.raises(TokenizerMismatchError, match="overwrite"):
        compare_tokenizers(other, folder, **SETTINGS)


def test_overwriting_replaces_runs(tmp_path):
    quick = {**SETTINGS, "vocab_sizes": [], "budget": "bytes=900"}
    compare_tokenizers(TEXTS, tmp_path / "a", **{**quick, "budget": "bytes=500"})
    again = compare_tokenizers(TEXTS, tmp_path / "a", **quick, overwrite=True)
    fresh = compare_tokenizers(TEXTS, tmp_path / "b", **quick)
    assert again.entries[0].runs[0].bytes == 900
    assert again.entries[0].runs[0].score.bits == fresh.entries[0].runs[0].score.bits


def test_runs_on_other_text_of_the_same_characters_are_not_mixed_in(tmp_path):
    quick = {**SETTINGS, "vocab_sizes": [], "budget": "bytes=500"}
    compare_tokenizers(TEXTS, tmp_path, **quick)
    with pytest.raises(ModelError, match="another data"):
        compare_tokenizers({**TEXTS, "train": TEXTS["train"][::-1]}, tmp_path, **quick)


def test_documents_run_on_for_all_alike_unless_a_separator_is_asked_for(tmp_path):
    given = train_tokenizer({"train": TEXTS["train"]}, 270, special_tokens=["<|endoftext|>"])
    quick = {**SETTINGS, "vocab_sizes": [], "budget": "bytes=300"}
    found = compare_tokenizers(TEXTS, tmp_path, **quick, with_tokenizers=[given])
    assert [entry.runs[0].score.separator for entry in found.entries] == [None, None]


def test_seeds_separators_given_tokenizers_and_a_sample_of_the_text(tmp_path):
    given = train_tokenizer({"train": TEXTS["train"]}, 270, special_tokens=["<|endoftext|>"])
    given.save(tmp_path / "published.json")
    stages = []
    found = compare_tokenizers(
        TEXTS,
        tmp_path / "out",
        with_tokenizers=[tmp_path / "published.json"],
        separator="<|endoftext|>",
        budget="tokens=300",
        body=BODY,
        options=OPTIONS,
        seeds=[3, 5],
        context="blocks",
        validation_bytes=400,
        workers=1,
        progress=lambda stage, done, total: stages.append((stage, done, total)),
    )
    characters, published = found.entries
    assert (published.name, published.kind, published.fingerprint) == ("published", "given", given.fingerprint)
    assert [run.seed for run in published.runs] == [3, 5]
    assert published.runs[0].score.bits != published.runs[1].score.bits
    assert {run.tokens for entry in found.entries for run in entry.runs} == {300}
    assert published.runs[0].score.separator == "<|endoftext|>"
    assert characters.runs[0].score.separator is None
    assert published.runs[0].score.bytes <= 400
    assert published.runs[0].score.document_bytes.tolist() == characters.runs[0].score.document_bytes.tolist()
    assert published.runs[0].score.context == "blocks"
    assert len(found.settings["text"]["validation_documents"]) == published.runs[0].score.documents
    assert found.prompt
    assert "".join(TEXTS["validation"]).startswith(found.prompt)
    assert not found.prompt.endswith(" ")
    assert found.verdicts[0].difference.seeds == (2, 2)
    names = {stage for stage, _, _ in stages}
    assert {"characters: encoded bytes", "published, seed 5: bits per byte"} <= names
    assert "characters, seed 3: trained tokens" in names


def test_what_cannot_be_compared_is_said_before_anything_is_trained(tmp_path, monkeypatch):
    monkeypatch.setattr("minigpt_tok.measure.runs.fit", lambda *a, **k: pytest.fail("trained"))

    def compare(texts=TEXTS, **more):
        compare_tokenizers(texts, tmp_path, **{**SETTINGS, **more})

    with pytest.raises(CorpusError, match="no validation text"):
        compare({"train": TEXTS["train"]})
    with pytest.raises(CorpusError, match="no validation text"):
        compare({"train": TEXTS["train"], "validation": [""]})
    with pytest.raises(TokenizerError, match=r"(?s)prompt '日a\?' cannot be encoded by characters.*'\?'"):
        compare(prompt="日a?")
    with pytest.raises(TokenizerError, match="prompt is empty"):
        compare(prompt="")
    with pytest.raises(ModelError, match="leave it out"):
        compare(body={"vocab_size": 300})
    with pytest.raises(ModelError, match="has no depth"):
        compare(body={"depth": 3})
    with pytest.raises(DataError, match="each once"):
        compare(seeds=[1, 1])
    with pytest.raises(DataError, match="each once"):
        compare(seeds=[])
    with pytest.raises(DataError, match="stride is 17"):
        compare(stride=17)
    with pytest.raises(DataError, match="'sliding' or 'blocks'"):
        compare(context="all")
    with pytest.raises(ModelError, match="no budget by 'words'"):
        compare(budget="words=3")
    with pytest.raises(DataError, match="no more"):
        compare(vocab_sizes=[5000])


def test_tokenizers_that_lose_bytes_are_refused_before_anything_is_trained(tmp_path, monkeypatch):
    monkeypatch.setattr("minigpt_tok.measure.runs.fit", lambda *a, **k: pytest.fail("trained"))
    vocab = {number: bytes([byte]) for number, byte in enumerate(byte for byte in range(256) if byte != ord("x"))}
    lossy = Tokenizer.from_vocab_and_merges(vocab, [])
    with pytest.raises(DataError, match="drops or changes bytes"):
        compare_tokenizers(
            {"train": ["xyz " * 99, "zyx " * 99], "validation": ["xyz " * 20]},
            tmp_path,
            with_tokenizers=[lossy],
            workers=1,
        )


@pytest.mark.parametrize("packing", ["document", "best_fit", "bos_aligned"])
def test_every_packing_can_be_compared(tmp_path, packing):
    separated = {"special_tokens": ["<|endoftext|>"], "separator": "<|endoftext|>"}
    settings = {**SETTINGS, "vocab_sizes": [270], "options": dataclasses.replace(OPTIONS, packing=packing)}
    arguments = {**settings, **separated, "curve_bytes": 300, "prompt": "the fox", "budget": "bytes=1500"}
    if packing == "bos_aligned":  # characters have no separator that a block could begin with
        with pytest.raises(DataError, match="has no separator between documents"):
            compare_tokenizers(TEXTS, tmp_path, **arguments)
        return
    result = compare_tokenizers(TEXTS, tmp_path, **arguments)
    scores = [run.score for entry in result.entries for run in entry.runs]
    assert len(scores) == 2
    assert all(0 < score.bits_per_byte < 12 for score in scores)
    # Models that never saw two documents at once are scored document by document.
    assert {score.own_context for score in scores} == {packing == "document"}
