"""Bits per byte against what it is by definition, computed here token by token in plain Python."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from measure.toy_models import END, STORIES, Uniform, Unigram, WholeContext, by_definition

from minigpt_tok.data.encode import encode_corpus
from minigpt_tok.data.id_file import IdFile
from minigpt_tok.data.token_dataset import TokenDataset
from minigpt_tok.errors import DataError
from minigpt_tok.gpt.config import MiniGPTConfig
from minigpt_tok.gpt.model import MiniGPT
from minigpt_tok.measure.bits_per_byte import BitsPerByte, _nats, bits_per_byte

# The tests that cannot be fooled


@pytest.mark.parametrize("own_context", [False, True])
@pytest.mark.parametrize("separator", [None, END])
@pytest.mark.parametrize("padded", [None, 1024])
def test_uniform_model_scores_log2_of_the_vocabulary_per_token(encoded, byte_level, own_context, separator, padded):
    tokenizer = byte_level(END, merges=20, text=" ".join(STORIES))
    split = encoded(STORIES, tokenizer, separator)
    tokens = sum(len(tokenizer.encode(story)) for story in STORIES)
    n_bytes = sum(len(story.encode()) for story in STORIES)
    model = Uniform(tokenizer.vocab_size, padded)
    score = bits_per_byte(model, split, tokenizer, block_size=8, own_context=own_context)
    assert score.bits_per_byte == pytest.approx(math.log2(tokenizer.vocab_size) * tokens / n_bytes, rel=1e-12)
    assert score.token_perplexity == pytest.approx(tokenizer.vocab_size)
    assert (score.tokens, score.bytes, score.documents) == (tokens, n_bytes, len(STORIES))
    assert score.special_tokens == (len(STORIES) if separator else 0)
    assert score.characters == sum(len(story) for story in STORIES)


@pytest.mark.parametrize("context", ["sliding", "blocks"])
def test_model_that_knows_the_text_scores_the_charge_for_the_first_token_alone(encoded, characters_of, context):
    text = "abcdefghijklmnopqrstuvwxyz0123456789"
    tokenizer = characters_of(text)
    split = encoded([text], tokenizer)
    follows = dict(zip(split.ids.tolist(), split.ids.tolist()[1:], strict=False))

    def knows(ids: torch.Tensor) -> torch.Tensor:
        logits = torch.full((*ids.shape, len(text)), -torch.inf)
        for row, column in np.ndindex(*ids.shape):
            logits[row, column, follows.get(int(ids[row, column]), 0)] = 0.0
        return logits

    score = bits_per_byte(knows, split, tokenizer, block_size=5, context=context)
    assert score.bits == math.log2(36)
    assert (score.charged, score.scored) == (1, 36)


def test_model_that_knows_the_text_and_a_separator_scores_nothing(encoded, byte_level):
    tokenizer = byte_level(END)
    split = encoded(["abcdefghijklmno"], tokenizer, END)
    ids = [*split.ids[-1:].tolist(), *split.ids.tolist()]
    follows = torch.zeros(257, dtype=torch.int64)
    follows[ids[:-1]] = torch.tensor(ids[1:])

    def knows(ids: torch.Tensor) -> torch.Tensor:
        return torch.where(torch.nn.functional.one_hot(follows[ids], 257) == 1, 0.0, -torch.inf)

    for count_special in (False, True):
        score = bits_per_byte(knows, split, tokenizer, block_size=4, count_special=count_special)
        assert (score.bits, score.charged) == (0.0, 0)


def test_model_without_context_scores_the_same_under_any_block_and_stride(encoded, byte_level):
    tokenizer = byte_level(merges=10, text=" ".join(STORIES))
    split = encoded(STORIES, tokenizer)
    model = Unigram(tokenizer.vocab_size)
    scores = [
        bits_per_byte(model, split, tokenizer, block_size=block, stride=stride).bits
        for block, stride in [(1, 1), (7, 1), (7, 3), (7, 7), (64, 32), (10_000, 5_000)]
    ]
    scores.append(bits_per_byte(model, split, tokenizer, block_size=9, context="blocks").bits)
    assert scores == pytest.approx([scores[0]] * len(scores), rel=1e-12)
    costs = -torch.log_softmax(model.logits.double(), dim=0).numpy() / math.log(2)
    assert scores[0] == pytest.approx(math.log2(tokenizer.vocab_size) + costs[split.ids[1:]].sum(), rel=1e-6)


@pytest.mark.parametrize("own_context", [False, True])
@pytest.mark.parametrize("separator", [None, END])
def test_same_score_under_any_batch_size_and_split_over_devices(encoded, byte_level, own_context, separator):
    tokenizer = byte_level(END, merges=10, text=" ".join(STORIES))
    split = encoded(STORIES, tokenizer, separator)
    model = WholeContext(tokenizer.vocab_size, 12)
    scores = [
        bits_per_byte(model, split, tokenizer, batch_size=size, own_context=own_context) for size in (1, 2, 7, 1000)
    ]
    for count in (1, 2, 3, 50):
        parts = [
            bits_per_byte(model, split, tokenizer, own_context=own_context, part=(number, count))
            for number in range(count)
        ]
        scores.append(BitsPerByte.joined(parts[::-1]))
    for score in scores[1:]:
        assert score.bits == pytest.approx(scores[0].bits, rel=1e-6)
        assert score.document_bits == pytest.approx(scores[0].document_bits, rel=1e-5)
        assert (score.scored, score.charged) == (scores[0].scored, scores[0].charged)


@pytest.mark.parametrize("separator", [None, END])
def test_same_score_under_any_order_of_documents_each_in_its_own_context(encoded, byte_level, separator):
    tokenizer = byte_level(END, merges=10, text=" ".join(STORIES))
    model = WholeContext(tokenizer.vocab_size, 12)
    order = [3, 0, 9, 1, 8, 2, 7, 5, 4, 6]

    def score(documents: list[str], own_context: bool) -> BitsPerByte:
        return bits_per_byte(model, encoded(documents, tokenizer, separator), tokenizer, own_context=own_context)

    whole, shuffled = score(STORIES, True), score([STORIES[n] for n in order], True)
    assert shuffled.bits == pytest.approx(whole.bits, rel=1e-6)
    assert shuffled.document_bits == pytest.approx(whole.document_bits[order], rel=1e-5)
    # In the stream the context of a document's beginning is the document before it, and the score says so.
    in_stream = score(STORIES, False)
    assert in_stream.bits != pytest.approx(whole.bits, rel=1e-4)
    assert "the stream" in in_stream.context_description
    assert "each document" in whole.context_description


def test_character_and_byte_views_of_one_model_add_up_to_the_same_bits(encoded, characters_of, byte_level):
    """A character's probability is the product of its bytes' by the chain rule, so both views give the same bits."""
    text = "aé日🦊aa日éa🦊🦊é日日a"
    characters, raw = characters_of(text), byte_level()
    generator = torch.Generator().manual_seed(2)
    probabilities = torch.softmax(torch.randn(4, 4, generator=generator).double(), dim=-1)  # of the next, by the last
    alphabet = [characters.vocab[id] for id in range(4)]

    def by_character(ids: torch.Tensor) -> torch.Tensor:
        return probabilities[ids].log()

    def next_bytes(seen: bytes) -> torch.Tensor:
        """The distribution of the next byte: of the characters that fit the bytes so far, those that go on with it."""
        whole = seen.decode("utf-8", "ignore")
        begun = seen[len(whole.encode()) :]
        given = probabilities[characters.encode(whole[-1])[0]]
        odds = torch.zeros(256, dtype=torch.float64)
        for id, character in enumerate(alphabet):
            encoding = character.encode()
            if encoding.startswith(begun):
                odds[raw.encode(character)[len(begun)]] += given[id]
        return odds / odds.sum()

    def by_byte(ids: torch.Tensor) -> torch.Tensor:
        logits = torch.zeros(*ids.shape, 256, dtype=torch.float64)
        for row, column in np.ndindex(*ids.shape):
            logits[row, column] = next_bytes(raw.decode_bytes(ids[row, : column + 1])).log()
        return logits

    as_characters = bits_per_byte(by_character, encoded([text], characters), characters, block_size=1000)
    as_bytes = bits_per_byte(by_byte, encoded([text], raw), raw, block_size=1000)
    first = math.log2(4) - math.log2(256)  # the first character has one byte; each view is charged for its own guess
    assert as_characters.bits - as_bytes.bits == pytest.approx(first, rel=1e-6)
    for score in (as_characters, as_bytes):
        assert score.bits_per_byte * score.bytes == pytest.approx(score.bits_per_character * score.characters)
        assert score.bytes == len(text.encode())
        assert score.characters == len(text)


@settings(max_examples=60, suppress_health_check=[HealthCheck.too_slow], deadline=None)
@given(
    documents=st.lists(st.text(alphabet="ab é日", min_size=1, max_size=25), min_size=1, max_size=5),
    block=st.integers(1, 9).flatmap(lambda block: st.tuples(st.just(block), st.integers(1, block))),
    separated=st.booleans(),
    own_context=st.booleans(),
    count_special=st.booleans(),
    batch_size=st.integers(1, 5),
)
def test_equals_the_definition(
    encoded, byte_level, documents, block, separated, own_context, count_special, batch_size
):
    tokenizer = byte_level(END, "<|other|>", merges=3, text="aba abab é日é日")
    split = encoded(documents, tokenizer, END if separated else None)
    model = WholeContext(tokenizer.vocab_size, block[0])
    options = {"own_context": own_context, "count_special": count_special}
    score = bits_per_byte(model, split, tokenizer, stride=block[1], batch_size=batch_size, **options)
    assert score.bits == pytest.approx(by_definition(model, split, tokenizer, *block, **options), rel=1e-5)


# The rest of the rules


def test_stride_is_half_a_block_unless_given_and_named_in_the_result(encoded, byte_level):
    tokenizer = byte_level(merges=10, text=" ".join(STORIES))
    split = encoded(STORIES, tokenizer)
    model = WholeContext(tokenizer.vocab_size, 12)
    score = bits_per_byte(model, split, tokenizer)
    assert (score.context, score.stride, score.block_size) == ("sliding", 6, 12)
    assert score.bits == bits_per_byte(model, split, tokenizer, stride=6).bits
    blocks = bits_per_byte(model, split, tokenizer, context="blocks")
    assert (blocks.context, blocks.stride) == ("blocks", 12)
    assert "blocks" in blocks.context_description
    assert "stride 6" in score.context_description


def test_special_tokens_are_context_but_cost_nothing_unless_counted(encoded, byte_level):
    tokenizer = byte_level(END)
    split = encoded(["ab", "cde"], tokenizer, END)
    model = Unigram(257)
    costs = -torch.log_softmax(model.logits.double(), dim=0).numpy() / math.log(2)
    without = bits_per_byte(model, split, tokenizer, block_size=4)
    counted = bits_per_byte(model, split, tokenizer, block_size=4, count_special=True)
    assert without.bits == pytest.approx(sum(costs[id] for id in tokenizer.encode("abcde")), rel=1e-6)
    assert counted.bits - without.bits == pytest.approx(2 * costs[tokenizer.special_tokens[END]], rel=1e-5)
    assert (without.scored, counted.scored) == (5, 7)
    assert counted.bytes == without.bytes == 5


def test_documents_keep_their_bits_and_bytes(encoded, byte_level):
    tokenizer = byte_level(END)
    split = encoded(STORIES, tokenizer, END)
    model = Unigram(257)
    score = bits_per_byte(model, split, tokenizer, block_size=8)
    costs = -torch.log_softmax(model.logits.double(), dim=0).numpy() / math.log(2)
    assert score.document_bits == pytest.approx([costs[tokenizer.encode(story)].sum() for story in STORIES], rel=1e-6)
    assert score.document_bytes.tolist() == [len(story.encode()) for story in STORIES]
    assert score.interval is not None
    assert score.interval.contains(score.bits_per_byte)
    assert score.interval == score.bootstrap(seed=0)
    assert score.bootstrap(level=0.5).low > score.interval.low


def test_empty_documents_and_documents_of_one_token(encoded, characters_of):
    tokenizer = characters_of("ab")
    split = encoded(["a", "", "ab", "", "b"], tokenizer)
    score = bits_per_byte(Uniform(2), split, tokenizer, block_size=4, own_context=True)
    assert score.document_bits.tolist() == [1, 0, 2, 0, 1]
    assert score.charged == 3


def test_dropout_is_off_inside_and_each_module_is_as_before_afterwards(encoded, characters_of):
    class Dropped(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = torch.nn.Dropout(0.9)
            self.frozen = torch.nn.Dropout(0.9).eval()
            self.grad = True

        def forward(self, ids: torch.Tensor) -> torch.Tensor:
            self.grad = torch.is_grad_enabled()
            return self.frozen(self.inner(torch.zeros(*ids.shape, 2) + torch.tensor([0.0, 1.0])))

    tokenizer = characters_of("ab")
    model = Dropped()
    score = bits_per_byte(model, encoded(["abababab"], tokenizer), tokenizer, block_size=4)
    assert score.bits == pytest.approx(
        1 + 4 * -math.log2(math.e / (1 + math.e)) + 3 * -math.log2(1 / (1 + math.e)), rel=1e-6
    )
    assert (model.training, model.inner.training, model.frozen.training) == (True, True, False)
    assert not model.grad
    assert torch.is_grad_enabled()


def test_half_precision_logits_are_normalized_in_full(encoded, characters_of):
    tokenizer = characters_of("ab")
    logits = torch.tensor([0.5, 4.0], dtype=torch.bfloat16)
    score = bits_per_byte(lambda ids: logits.expand(*ids.shape, 2), encoded(["bb"], tokenizer), tokenizer, block_size=4)
    assert score.bits == pytest.approx(1 + math.log2(1 + math.exp(-3.5)), rel=1e-6)


def test_large_vocabularies_lose_no_digits():
    generator = torch.Generator().manual_seed(1)
    logits = 3 * torch.randn(20, 50_000, generator=generator) + 7
    targets = torch.randint(0, 50_000, (20,), generator=generator)
    expected = -torch.log_softmax(logits.double(), dim=-1).gather(1, targets[:, None])[:, 0]
    assert torch.max(torch.abs(_nats(logits.clone(), targets) - expected)) < 5e-9


def test_many_logits_are_normalized_in_pieces(encoded, byte_level, monkeypatch):
    tokenizer = byte_level()
    split = encoded(STORIES, tokenizer)
    model = WholeContext(256, 12)
    whole = bits_per_byte(model, split, tokenizer).bits
    monkeypatch.setattr("minigpt_tok.measure.bits_per_byte._CPU_ELEMENTS", 256 * 3)
    assert bits_per_byte(model, split, tokenizer).bits == pytest.approx(whole, rel=1e-9)


def test_progress_counts_every_predicted_token(encoded, characters_of):
    tokenizer = characters_of("ab")
    seen = []
    bits_per_byte(
        Uniform(2),
        encoded(["ab" * 10], tokenizer),
        tokenizer,
        block_size=4,
        batch_size=2,
        progress=lambda *a: seen.append(a),
    )
    assert seen[-1] == ("bits per byte", 19, 19)
    assert [done for _, done, _ in seen] == sorted(done for _, done, _ in seen)


def test_plain_form_holds_no_array_and_names_the_context(encoded, byte_level):
    import json

    tokenizer = byte_level()
    score = bits_per_byte(Unigram(256), encoded(STORIES, tokenizer), tokenizer, block_size=8)
    plain = json.loads(json.dumps(score.to_plain(with_documents=True)))
    assert plain["bits_per_byte"] == score.bits_per_byte
    assert plain["context"] == "sliding"
    assert plain["fingerprint"] == tokenizer.fingerprint
    assert "does not compare across tokenizers" in plain["token_perplexity_note"]
    assert len(plain["document_bits"]) == len(STORIES)
    assert "document_bits" not in score.to_plain()


def test_parts_are_no_scores_until_joined(encoded, byte_level):
    tokenizer = byte_level()
    split = encoded(STORIES, tokenizer)
    parts = [bits_per_byte(Unigram(256), split, tokenizer, block_size=8, part=(n, 3)) for n in range(3)]
    other = bits_per_byte(Unigram(256), split, tokenizer, block_size=7, part=(1, 3))
    with pytest.raises(DataError, match="join all parts"):
        _ = parts[0].bits_per_byte
    with pytest.raises(DataError, match="each part is needed once"):
        BitsPerByte.joined(parts[:2])
    with pytest.raises(DataError, match="block_size differ"):
        BitsPerByte.joined([parts[0], other, parts[2]])
    with pytest.raises(DataError, match="no parts"):
        BitsPerByte.joined([])
    assert "part of a score" in str(parts[0])
    assert "bits per byte" in str(BitsPerByte.joined(parts))


def test_special_at_the_very_beginning_is_neither_predicted_nor_charged(encoded, byte_level):
    tokenizer = byte_level(END)
    split = encoded(["ab"], tokenizer)
    split.ids = np.concatenate([np.array([tokenizer.special_tokens[END]], dtype=np.uint16), split.ids])
    split.document_ends = split.document_ends + 1
    plain = bits_per_byte(Uniform(257), split, tokenizer, block_size=4)
    assert (plain.scored, plain.charged) == (2, 0)
    assert plain.bits == pytest.approx(2 * math.log2(257), rel=1e-12)
    assert bits_per_byte(Uniform(257), split, tokenizer, block_size=4, count_special=True).charged == 1


def test_sum_over_documents_is_exact_so_their_order_cannot_matter(encoded, byte_level):
    tokenizer = byte_level()
    score = bits_per_byte(Uniform(256), encoded(["a", "b", "c"], tokenizer), tokenizer, block_size=4)
    for bits in ([1e16, 1.0, 1.0], [1.0, 1e16, 1.0], [1.0, 1.0, 1e16]):
        assert replace(score, document_bits=np.array(bits)).bits == 1e16 + 2


def test_id_file_its_path_and_its_blocks_give_one_score(tmp_path, byte_level):
    tokenizer = byte_level(END, merges=10, text=" ".join(STORIES))
    texts = [story + str(number) for number, story in enumerate(STORIES)]
    paths = encode_corpus({"train": texts}, tokenizer, tmp_path, workers=1)
    model = WholeContext(tokenizer.vocab_size, 8)
    score = bits_per_byte(model, paths["train"], tokenizer)
    assert (score.corpus, score.split, score.separator) == ("texts", "train", END)
    assert score.bits == bits_per_byte(model, str(paths["train"]), tokenizer).bits
    assert score.bits == bits_per_byte(model, IdFile(paths["train"]), tokenizer).bits
    # The dataset's own blocks, and the tail they leave out, are no matter.
    blocks = TokenDataset(paths["train"], 5, tokenizer=tokenizer)
    assert score.bits == bits_per_byte(model, blocks, tokenizer).bits
    assert score.bytes == sum(len(text.encode()) for text in texts)
    without = encode_corpus({"train": texts}, tokenizer, tmp_path / "without", separator=None, workers=1)
    assert bits_per_byte(model, without["train"], tokenizer).charged == 1


def test_minigpt_is_scored_as_any_other_callable(encoded, byte_level):
    tokenizer = byte_level(END, merges=10, text=" ".join(STORIES))
    split = encoded(STORIES, tokenizer, END)
    torch.manual_seed(3)
    shape = {"block_size": 12, "embedding_dim": 8, "num_heads": 2, "num_layers": 1, "dropout": 0.5}
    model = MiniGPT(MiniGPTConfig(tokenizer.vocab_size, **shape, pad_vocab_to=64))
    torch.nn.init.normal_(model.token_embedding.weight)  # as the weights begin, every id is about as likely
    assert model.token_embedding.num_embeddings > tokenizer.vocab_size
    score = bits_per_byte(model, split, tokenizer)
    assert model.training
    model.eval()
    as_callable = bits_per_byte(lambda ids: model(ids), split, tokenizer, block_size=12)
    assert score.bits == pytest.approx(as_callable.bits, rel=1e-6)
    expected = by_definition(model, split, tokenizer, 12, 6, own_context=False, count_special=False)
    assert score.bits == pytest.approx(expected, rel=1e-5)
    assert score.bits_per_byte != pytest.approx(math.log2(tokenizer.vocab_size) * score.tokens / score.bytes, rel=0.05)
