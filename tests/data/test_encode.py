import concurrent.futures
import logging
import os
import signal
import subprocess
import sys
import time

import numpy as np
import pytest
from safetensors.numpy import load_file

from minigpt_tok import train_tokenizer
from minigpt_tok.data import engines, lanes
from minigpt_tok.data.corpora import open_corpus
from minigpt_tok.data.decode import decode_document, decode_documents
from minigpt_tok.data.encode import default_encoding_dir, encode_corpus
from minigpt_tok.data.id_file import IdFile, read_metadata
from minigpt_tok.data.shards import Shards
from minigpt_tok.errors import CorpusError, DataError, TokenizerError, TokenizerMismatchError

EOT = "<|endoftext|>"


def test_each_document_is_its_ids_then_the_separator(tmp_path, tokenizer, texts):
    files = encode_corpus({"train": texts, "test": texts[:1]}, tokenizer, tmp_path)
    assert files == {"train": tmp_path / "train.safetensors", "test": tmp_path / "test.safetensors"}
    file = IdFile(files["train"])
    file.verify()
    separator = tokenizer.special_tokens[EOT]
    assert [file.document(n).tolist() for n in range(len(texts))] == [[*tokenizer.encode(t), separator] for t in texts]
    assert file.document_bytes.tolist() == [len(text.encode()) for text in texts]
    metadata = file.metadata
    assert metadata.tokenizer_fingerprint == tokenizer.fingerprint
    assert metadata.vocab_size == tokenizer.vocab_size
    assert (metadata.separator, metadata.separator_id) == (EOT, separator)
    assert (metadata.split, metadata.n_documents) == ("train", len(texts))
    assert metadata.n_tokens == len(load_file(files["train"])["ids"])


def test_tokens_bytes_add_up_to_the_texts_bytes(tmp_path, tokenizer, plain_tokenizer, character_tokenizer, texts):
    for n, each in enumerate((tokenizer, plain_tokenizer, character_tokenizer)):
        file = IdFile(encode_corpus(texts, each, tmp_path / str(n))["train"])
        sizes = [int(each.byte_lengths[file.document(d)].sum()) for d in range(len(texts))]
        assert sizes == file.document_bytes.tolist()


def test_documents_come_back_byte_for_byte(tmp_path, tokenizer, other_tokenizer, plain_tokenizer, texts):
    for each in (tokenizer, plain_tokenizer):
        file = IdFile(encode_corpus(texts, each, tmp_path / str(each.vocab_size))["train"])
        assert [decode_document(file, each, n) for n in range(len(texts))] == texts
        assert list(decode_documents(file, each)) == texts
    with pytest.raises(TokenizerMismatchError, match=f"{plain_tokenizer.fingerprint}.*{other_tokenizer.fingerprint}"):
        decode_document(file, other_tokenizer, 0)
    with pytest.raises(DataError, match="no document 5"):
        decode_document(file, plain_tokenizer, 5)


def test_separators(tmp_path, tokenizer, plain_tokenizer, texts, caplog):
    with caplog.at_level(logging.INFO):
        file = IdFile(encode_corpus(texts, plain_tokenizer, tmp_path / "none")["train"])
    assert "has no <|endoftext|>; documents follow one another without a separator" in caplog.text
    assert (file.metadata.separator, file.metadata.separator_id) == ("", None)
    assert file.metadata.n_tokens == sum(map(plain_tokenizer.count, texts))
    file = IdFile(encode_corpus(texts, tokenizer, tmp_path / "off", separator=None)["train"])
    assert file.metadata.n_tokens == sum(map(tokenizer.count, texts))
    chat = train_tokenizer(texts, 300, special_tokens="chat")
    other = next(token for token in chat.special_tokens if token != EOT)
    file = IdFile(encode_corpus(texts, chat, tmp_path / "chat", separator=other)["train"])
    assert file.metadata.separator == other
    assert file.document(0)[-1] == chat.special_tokens[other]
    with pytest.raises(TokenizerError, match=r"'<sep>' is no special token.*with_special_tokens.*separator=None"):
        encode_corpus(texts, tokenizer, tmp_path / "x", separator="<sep>")


@pytest.fixture(scope="module")
def many_texts():
    random = np.random.default_rng(0)
    words = np.array(["the", "cat", "sat", "naïve", "日本", "\n", "theory", EOT, "  "])
    return [" ".join(random.choice(words, size)) for size in random.integers(1, 400, 300)]


def small_batches(monkeypatch):
    monkeypatch.setattr(engines, "BATCH_BYTES", 5_000)
    monkeypatch.setattr(engines, "_INLINE_SECONDS", 0.0)


def test_the_file_is_the_same_for_any_number_of_workers(tmp_path, tokenizer, many_texts, monkeypatch):
    once = encode_corpus(many_texts, tokenizer, tmp_path / "1", workers=1)["train"].read_bytes()
    small_batches(monkeypatch)
    assert encode_corpus(many_texts, tokenizer, tmp_path / "small", workers=1)["train"].read_bytes() == once
    for workers in (2, 3):
        assert (
            encode_corpus(many_texts, tokenizer, tmp_path / f"w{workers}", workers=workers)["train"].read_bytes()
            == once
        )
    with concurrent.futures.ThreadPoolExecutor(3) as executor:
        assert encode_corpus(many_texts, tokenizer, tmp_path / "e", executor=executor)["train"].read_bytes() == once


def test_any_executor_does_and_the_order_it_finishes_in_does_not_matter(tmp_path, tokenizer, many_texts, monkeypatch):
    small_batches(monkeypatch)

    class Backwards(concurrent.futures.Executor):
        """Runs what was submitted last first, when a result is asked for."""

        def __init__(self):
            self.jobs = []
            self.submitted = 0

        def submit(self, fn, /, *args, **kwargs):
            self.submitted += 1
            outer = self

            class Lazy(concurrent.futures.Future):
                def result(self, timeout=None):
                    while outer.jobs and not self.done():
                        job, future = outer.jobs.pop()
                        future.set_result(job())
                    return super().result(timeout)

            future = Lazy()
            self.jobs.append((lambda: fn(*args, **kwargs), future))
            return future

    executor = Backwards()
    files = encode_corpus(many_texts, tokenizer, tmp_path / "b", executor=executor)
    assert executor.submitted > 10
    assert list(decode_documents(IdFile(files["train"]), tokenizer)) == many_texts


class Failing(concurrent.futures.Executor):
    """Every so many jobs come back as an error that is not ours."""

    def __init__(self, every):
        self.every = every
        self.submitted = 0

    def submit(self, fn, /, *args, **kwargs):
        self.submitted += 1
        future = concurrent.futures.Future()
        if self.submitted % self.every == 0:
            future.set_exception(ValueError("not enough values to unpack"))
        else:
            future.set_result(fn(*args, **kwargs))
        return future


def test_what_an_executor_fails_at_is_given_to_it_again_a_few_times(tmp_path, tokenizer, many_texts, monkeypatch):
    once = encode_corpus(many_texts, tokenizer, tmp_path / "1", workers=1)["train"].read_bytes()
    small_batches(monkeypatch)
    executor = Failing(every=3)
    assert encode_corpus(many_texts, tokenizer, tmp_path / "e", executor=executor)["train"].read_bytes() == once
    assert executor.submitted > 10
    executor = Failing(every=1)
    with pytest.raises(DataError, match=r"could not encode the documents from 0 on \(ValueError: not enough values"):
        encode_corpus(many_texts, tokenizer, tmp_path / "f", executor=executor, workers=1)
    assert executor.submitted < 10


def test_a_script_without_a_guard_gets_one_error_that_says_what_to_do(tmp_path, tokenizer):
    tokenizer.save(tmp_path / "t.json")
    script = tmp_path / "script.py"
    script.write_text(
        "from minigpt_tok import Tokenizer, encode_corpus\nfrom minigpt_tok.data import engines\n"
        "engines.BATCH_BYTES, engines._INLINE_SECONDS = 100, 0.0\n"
        "encode_corpus(['some text ' * 20] * 50, Tokenizer.load('t.json'), 'out', workers=2)\n"
    )
    done = subprocess.run([sys.executable, script], cwd=tmp_path, capture_output=True, text=True, timeout=120)
    assert done.returncode == 1
    assert '__name__ == "__main__"' in done.stderr.splitlines()[-1]
    assert not list(tmp_path.glob("out/*"))


def test_another_tokenizers_ids_are_not_overwritten(tmp_path, tokenizer, other_tokenizer, texts):
    before = encode_corpus({"train": texts, "test": texts}, tokenizer, tmp_path)["train"].read_bytes()
    with pytest.raises(TokenizerMismatchError) as error:
        encode_corpus(texts, other_tokenizer, tmp_path)
    for part in (tokenizer.fingerprint, other_tokenizer.fingerprint, "overwrite=True"):
        assert part in str(error.value)
    assert (tmp_path / "train.safetensors").read_bytes() == before
    (tmp_path / "train.safetensors").unlink()
    with pytest.raises(TokenizerMismatchError, match=r"test\.safetensors"):  # one split is enough
        encode_corpus(texts, other_tokenizer, tmp_path)
    files = encode_corpus(texts, other_tokenizer, tmp_path, overwrite=True)
    assert IdFile(files["train"]).metadata.tokenizer_fingerprint == other_tokenizer.fingerprint
    assert not (tmp_path / "test.safetensors").exists()  # or two tokenizers' ids would lie in one folder


def test_a_file_of_something_else_is_not_overwritten(tmp_path, tokenizer, texts):
    (tmp_path / "validation.safetensors").write_bytes(b"precious")
    with pytest.raises(DataError, match=r"validation\.safetensors is in the way.*overwrite=True"):
        encode_corpus(texts, tokenizer, tmp_path)
    assert (tmp_path / "validation.safetensors").read_bytes() == b"precious"


def test_a_finished_split_is_kept_if_it_is_whole_and_of_the_same_text(tmp_path, tokenizer, texts, caplog):
    path = encode_corpus(texts, tokenizer, tmp_path)["train"]
    first, whole = path.stat().st_mtime_ns, path.read_bytes()
    with caplog.at_level(logging.INFO):
        encode_corpus(texts, tokenizer, tmp_path)
    assert "it is kept" in caplog.text
    assert path.stat().st_mtime_ns == first
    for damaged in (whole[:-2], whole[:-1] + bytes([whole[-1] ^ 1])):
        path.write_bytes(damaged)
        encode_corpus(texts, tokenizer, tmp_path)
        assert path.read_bytes() == whole
    assert "encoded again" in caplog.text
    encode_corpus(texts, tokenizer, tmp_path, separator=None)
    assert read_metadata(path).separator_id is None
    encode_corpus([*texts, "more"], tokenizer, tmp_path)
    assert read_metadata(path).n_documents == len(texts) + 1
    encode_corpus([texts[1], texts[0], *texts[2:]], tokenizer, tmp_path)
    assert decode_document(IdFile(path), tokenizer, 0) == texts[1]


def test_splits_of_an_earlier_corpus_are_said(tmp_path, tokenizer, texts, caplog):
    encode_corpus({"train": texts, "test": texts}, tokenizer, tmp_path)
    encode_corpus({"train": texts}, tokenizer, tmp_path)
    assert not caplog.text
    encode_corpus(open_corpus({"train": texts}, name="new"), tokenizer, tmp_path)
    assert "test.safetensors is of another corpus, texts, and is left from an earlier encoding" in caplog.text


def test_empty_splits_make_no_file_and_an_empty_corpus_is_refused(tmp_path, tokenizer, texts, caplog):
    assert list(encode_corpus({"train": texts, "test": [""]}, tokenizer, tmp_path / "a")) == ["train"]
    assert "test has no documents" in caplog.text
    with pytest.raises(CorpusError, match="no documents"):
        encode_corpus(["", ""], tokenizer, tmp_path / "b")
    assert not list((tmp_path).glob("b/*"))


@pytest.mark.parametrize("workers", [None, 1, 2])
def test_characters_that_the_tokenizer_lacks_name_the_place_and_leave_nothing(
    tmp_path, character_tokenizer, texts, workers, monkeypatch
):
    small_batches(monkeypatch)
    corpus = open_corpus([*texts * 20, "ж", *texts], name="mine")
    with pytest.raises(TokenizerError, match=rf"mine, train, document {20 * len(texts)} \(counted from 0\): .*ж"):
        encode_corpus(corpus, character_tokenizer, tmp_path, workers=workers)
    assert list(tmp_path.iterdir()) == []


def test_progress_is_in_bytes_over_all_splits(tmp_path, tokenizer, many_texts, monkeypatch):
    small_batches(monkeypatch)
    calls = []
    corpus = {"train": many_texts, "test": many_texts[:50]}
    encode_corpus(corpus, tokenizer, tmp_path, workers=1, progress=lambda *call: calls.append(call))
    done = [bytes_done for _, bytes_done, _ in calls]
    assert done == sorted(done)
    assert done[-1] == sum(len(text.encode()) for split in corpus.values() for text in split)
    assert [split for split, _, _ in calls] == sorted((split for split, _, _ in calls), reverse=True)
    assert len(calls) > 20


def test_workers_must_be_some(tmp_path, tokenizer, texts):
    with pytest.raises(DataError, match="workers is 0"):
        encode_corpus(texts, tokenizer, tmp_path, workers=0)


def test_memory_stays_bounded(tmp_path, tokenizer, monkeypatch):
    monkeypatch.setattr(engines, "BATCH_BYTES", 20_000)
    read = written = most = 0
    write = Shards.write

    def counting(shards, ids, lengths, texts):
        nonlocal written
        write(shards, ids, lengths, texts)
        written += len(texts)

    class Again:
        def __iter__(self):
            nonlocal read, most
            for n in range(400):
                read += 1
                most = max(most, read - written)
                yield f"text {n} " * 200

    monkeypatch.setattr(Shards, "write", counting)
    with concurrent.futures.ThreadPoolExecutor(2) as executor:
        encode_corpus(Again(), tokenizer, tmp_path, workers=2, executor=executor)
    in_a_batch = 20_000 // len("text 0 " * 200) + 1
    assert 20 < most < (2 * 2 + lanes._WRITTEN_AT_ONCE + 2) * in_a_batch


KILLED = """
import os, signal, sys, time
signal.signal(signal.SIGINT, signal.default_int_handler)  # shells let what they start in the background ignore it
from minigpt_tok import Tokenizer, encode_corpus
from minigpt_tok.data import engines, lanes
engines.BATCH_BYTES, engines._INLINE_SECONDS = 2000, 0.0
def texts():
    for n in range(10_000):
        if n == 200:
            print("working", flush=True)
        yield "some text to encode " * 30
if __name__ == "__main__":
    encode_corpus(texts(), Tokenizer.load("t.json"), "out", workers=2)
"""


def children_of(pid):
    found = subprocess.run(["ps", "-o", "pid=", "--ppid", str(pid)], capture_output=True, text=True).stdout
    return [int(child) for child in found.split()]


def is_running(pid):
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rsplit(")", 1)[1].split()[0] not in "ZX"
    except FileNotFoundError:
        return False


@pytest.mark.skipif(sys.platform != "linux", reason="looks at processes through /proc and ps")
@pytest.mark.parametrize("kill", [signal.SIGKILL, signal.SIGINT])
def test_a_run_that_is_killed_leaves_no_file_and_no_process(tmp_path, tokenizer, kill):
    tokenizer.save(tmp_path / "t.json")
    (tmp_path / "run.py").write_text(KILLED.replace("range(10_000)", "range(40_000)"))
    run = subprocess.Popen([sys.executable, "run.py"], cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    assert run.stdout.readline() == b"working\n"
    deadline = time.monotonic() + 30
    while len(children := children_of(run.pid)) < 2 and time.monotonic() < deadline:
        time.sleep(0.05)
    time.sleep(0.5)
    os.kill(run.pid, kill)
    assert run.wait(30) != 0
    run.stdout.close()
    while any(map(is_running, children)) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not any(map(is_running, children))
    assert not list(tmp_path.glob("out/*.safetensors"))


def test_where_encodings_belong(tokenizer, character_tokenizer):
    assert (
        default_encoding_dir("data", "wikitext-2", tokenizer, "hf-300").as_posix() == "data/encoded/wikitext-2/hf-300"
    )
    assert (
        default_encoding_dir("data", "my/corpus", character_tokenizer, "x").as_posix() == "data/encoded/my-corpus/char"
    )
    default = default_encoding_dir("data", "c", tokenizer)
    assert default.name == f"bpe-{tokenizer.vocab_size}-{tokenizer.fingerprint[:8]}"
    with pytest.raises(CorpusError, match="cannot name a folder"):
        default_encoding_dir("data", "..", tokenizer)
