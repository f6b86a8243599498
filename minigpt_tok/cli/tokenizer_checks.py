"""The sanity checks of a tokenizer that `minigpt-tok verify` runs, each a `Check` with what it found."""

from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Any

from minigpt_tok.amounts import counted
from minigpt_tok.bpe.extend import FOLLOWS_PARENT, parent_of
from minigpt_tok.bpe.ranks import unreachable_ids
from minigpt_tok.cli.printing import readable
from minigpt_tok.cli.sample_texts import sample_texts
from minigpt_tok.data.corpora import Corpus
from minigpt_tok.difference import difference
from minigpt_tok.errors import MiniGPTTokError, TokenizerError
from minigpt_tok.progress import Report
from minigpt_tok.tokenizer import Tokenizer
from minigpt_tok.train import train_tokenizer


@dataclass(frozen=True)
class Check:
    """One check: whether it holds (`None`: it could not be made, and `found` says why), and what was found."""

    name: str
    ok: bool | None
    found: str
    numbers: dict[str, Any]


# Round trips


def check_round_trips(tokenizer: Tokenizer, count: int, seed: int, report: Report | None = None) -> Check:
    """`decode(encode(x)) == x` for seeded texts with emoji and many scripts, and all ways of encoding agree."""
    characters = tokenizer.unit == "character"
    alphabet = sorted(token.decode("utf-8") for token in tokenizer.model.base_ids) if characters else None
    lacking = set() if characters else set(range(256)) - {token[0] for token in tokenizer.model.base_ids}
    size = done = left_out = 0
    for number, text in enumerate(sample_texts(count, seed, alphabet)):
        if report is not None and number % 100 == 0:
            report("round trips", number, count)
        raw = text.encode("utf-8")
        if not lacking.isdisjoint(raw):
            left_out += 1
            continue
        if (wrong := _wrong_with(tokenizer, text, raw)) is not None:
            shown = text if len(text) <= 200 else text[:200] + "…"
            found = f"text {number:,} of seed {seed}: {wrong}; the text is {shown!r}"
            return Check("round trips", False, found, {"documents": done, "seed": seed, "failed_text": text})
        done += 1
        size += len(raw)
    found = f"{counted(done, 'document')} ({counted(size, 'byte')}, seed {seed}) came back byte for byte"
    if lacking:
        found += f"; {counted(left_out, 'other')} with bytes that have no token ({len(lacking)} of 256), which encoding drops"
    numbers = {
        "documents": done,
        "bytes": size,
        "seed": seed,
        "left_out": left_out,
        "bytes_without_token": sorted(lacking),
    }
    return Check("round trips", None if not done else True, found, numbers)


def _wrong_with(tokenizer: Tokenizer, text: str, raw: bytes) -> str | None:
    ids = tokenizer.encode(text)
    if tokenizer.decode_bytes(ids) != raw:
        return "its ids decode to other bytes"
    if tokenizer.decode(ids) != text:
        return "its ids decode to another text"
    if int(tokenizer.byte_lengths[ids].sum()) != len(raw):
        return "the sizes of its tokens do not add up to its own"
    if tokenizer.encode_to_numpy(text).tolist() != ids:
        return "encoding to an array gives other ids"
    middle = len(text) // 2
    if list(tokenizer.encode_iter([text[:middle], text[middle:]])) != ids:
        return "encoding it in two parts gives other ids"
    return None


# What is in it


def check_merges(tokenizer: Tokenizer) -> Check:
    """Every learned token can be reached: merging its own bytes gives it, or it is taken whole."""
    model = tokenizer.model
    if tokenizer.unit == "character":
        made = dict.fromkeys(model.merge_results)
        unreachable = [id for id in made if tokenizer.encode(tokenizer.vocab[id]) != [id]]
    else:
        unreachable = unreachable_ids(model)
    learned = len(tokenizer.learned_tokens)
    numbers = {"merges": len(tokenizer.merges), "learned_tokens": learned, "unreachable": len(unreachable)}
    if not unreachable:
        return Check("merges", True, f"each of {counted(learned, 'learned token')} comes out of its own bytes", numbers)
    shown = ", ".join(f"{id} {readable(model.tokens[id] or b'')}" for id in unreachable[:5])
    found = f"{counted(len(unreachable), 'token')} of {learned:,} cannot be reached by merging ({shown}"
    found += ", …)" if len(unreachable) > 5 else ")"
    if model.whole_piece:
        return Check("merges", True, f"{found}, but are taken where a piece is that token", numbers)
    # A trained tokenizer has no such token; published ones do, and are what they are, trained further or not.
    published = tokenizer.training is None or tokenizer.training.extends is not None
    return Check("merges", published, found, numbers)


def check_special_tokens(tokenizer: Tokenizer) -> Check:
    """Specials are plain text unless allowed, and then one id; a text with them comes back either way."""
    specials = tokenizer.special_tokens
    if not specials:
        return Check("special tokens", True, "there are none", {"special_tokens": 0})
    for token, id in specials.items():
        text = f"a{token}b"
        as_text, allowed = tokenizer.encode(text), tokenizer.encode(text, allowed_special="all")
        for what, wrong in (
            ("is taken for a boundary in plain text", id in as_text),
            ("is not its own id where it is allowed", allowed.count(id) != 1),
            ("does not come back", {tokenizer.decode(as_text), tokenizer.decode(allowed)} != {text}),
        ):
            if wrong and not _is_lossy(tokenizer, token, text):
                return Check("special tokens", False, f"{token!r} (id {id}) {what}", {"special_tokens": len(specials)})
    found = f"{counted(len(specials), 'special token')}: plain text unless allowed, then one id each"
    return Check("special tokens", True, found, {"special_tokens": len(specials)})


def _is_lossy(tokenizer: Tokenizer, special: str, text: str) -> bool:
    """Whether a special takes white space with it by its flags, or the vocabulary lacks bytes of the text."""
    token = next(token for token in tokenizer.model.added_tokens if token.content == special)
    lacks = any(bytes([byte]) not in tokenizer.model.base_ids for byte in text.encode("utf-8"))
    return token.lstrip or token.rstrip or token.single_word or (tokenizer.unit == "byte" and lacks)


def check_saving(tokenizer: Tokenizer) -> Check:
    """Saved and loaded again it has the same fingerprint."""
    try:
        again = Tokenizer.from_json(tokenizer.to_json())
    except MiniGPTTokError as error:
        return Check("saving", None, f"it cannot be saved in the own format: {error}", {})
    same = again.fingerprint == tokenizer.fingerprint
    found = f"saved and loaded again: {'the same fingerprint' if same else f'another fingerprint, {again.fingerprint}'}"
    return Check("saving", same, found, {})


# Training again

MOST_TRAINING_BYTES = 100_000_000  # encoded to count tokens


class TrainingText:
    """Whether a corpus begins with the text that a tokenizer was trained on, by the sizes in its training record.

    Attributes:
        is_all: whether the corpus's train split has no more documents than that.
        why: what was found, for the message.
    """

    def __init__(self, tokenizer: Tokenizer, corpus: Corpus) -> None:
        training = tokenizer.training
        self._read: Callable[[], Iterator[str]] | None = None
        self.is_all = False
        if training is None:
            self.why = "the tokenizer's file has no record of its training, so what it learned from is not known"
            return
        train = corpus.splits["train"]
        n_documents = n_bytes = 0
        for text in train:
            if n_documents == training.documents:
                break
            n_documents += 1
            n_bytes += len(text.encode("utf-8"))
        else:
            self.is_all = True
        if (n_documents, n_bytes) == (training.documents, training.bytes):
            self._read = lambda: islice(train, n_documents)
            self.why = f"{corpus.name}, train: {counted(n_documents, 'document')}, {counted(n_bytes, 'byte')}"
        else:
            begins = f"{counted(n_documents, 'document')} with {counted(n_bytes, 'byte')}"
            self.why = (
                f"{corpus.name} is not what the tokenizer was trained on: that had {counted(training.documents, 'document')} "
                f"with {counted(training.bytes, 'byte')}, this begins with {begins}"
            )

    @property
    def documents(self) -> Iterator[str] | None:
        """The training text from its beginning, or `None` where the corpus does not begin with it."""
        return None if self._read is None else self._read()


def check_training_again(tokenizer: Tokenizer, text: TrainingText, report: Report | None = None) -> Check:
    """Training on the same text with the recorded options gives the same merges."""
    training = tokenizer.training
    documents = text.documents
    if training is None or documents is None:
        return Check("training again", None, text.why, {})
    switches = {name: value for name, value in training.recipe.items() if name != "name" and value is not None}
    if training.extends is not None:
        parent = Tokenizer(parent_of(tokenizer.model, training.extends))
        if parent.fingerprint != training.extends["fingerprint"]:
            found = f"it says that it extends {training.extends['fingerprint']}, and begins with {parent.fingerprint}"
            return Check("training again", False, found, {})
        switches = {name: value for name, value in switches.items() if name not in FOLLOWS_PARENT} | {"extend": parent}
    try:
        again = train_tokenizer(
            documents,
            training.vocab_size,
            training.recipe["name"],
            list(training.special_tokens),
            progress=report,
            **switches,
        )
    except TokenizerError as error:
        return Check("training again", False, f"the recorded options do not train: {error}", {})
    names = ("this tokenizer", "training again")
    first_merge = difference(tokenizer, again, names=names).first_merge if again.merges != tokenizer.merges else None
    numbers = {"merges": len(tokenizer.merges), "first_different_merge": first_merge and first_merge.rank + 1}
    if first_merge is None:
        return Check(
            "training again", True, f"all {counted(len(again.merges), 'merge')} are the same, on {text.why}", numbers
        )
    sides = [" + ".join(pair) if pair is not None else "no merge" for pair in (first_merge.first, first_merge.second)]
    found = f"merge {first_merge.rank + 1:,} is {sides[0]} in the file, and {sides[1]} in training again on {text.why}"
    return Check("training again", False, found, numbers)


def check_training_tokens(tokenizer: Tokenizer, text: TrainingText, report: Report | None = None) -> Check:
    """The training text encodes to exactly as many tokens as training left, by the replacements it made."""
    name = "training text"
    training = tokenizer.training
    documents = text.documents
    if training is None or documents is None:
        return Check(name, None, text.why, {})
    if training.bytes > MOST_TRAINING_BYTES:
        return Check(name, None, f"not encoded, since it is large: {training.bytes:,} bytes", {})
    added = tokenizer.model.added_ids
    tokens = n_bytes = 0
    for document in documents:
        # In training, they split the text and are not counted.
        tokens += sum(id not in added for id in tokenizer.encode(document, allowed_special="all"))
        n_bytes += len(document.encode("utf-8"))
        if report is not None:
            report("encoded bytes", n_bytes, training.bytes)
    expected = training.curve[-1] if training.curve else training.base_tokens
    numbers = {"tokens": tokens, "recorded_tokens": expected}
    if tokens == expected:
        return Check(name, True, f"encodes to {counted(tokens, 'token')}, exactly what training left of it", numbers)
    found = f"encodes to {counted(tokens, 'token')}, and training left {expected:,}: encoding does not apply the merges as trained"
    return Check(name, False, found, numbers)


# Compression

# Bytes per token of English by the number of merges, for the pattern gpt2: means of encyclopedia articles held out from
# training on others, and of novels under the same tokenizer. Either is within 15% of it.
NEIGHBOURHOOD = {
    0: 1.0, 16: 1.2, 64: 1.55, 256: 2.05, 512: 2.35, 1024: 2.65, 2048: 3.0, 4096: 3.35, 8192: 3.7, 16384: 4.0, 32768: 4.2,
    65536: 4.4, 131072: 4.55, 262144: 4.7,
}  # fmt: skip
LOWEST, HIGHEST = 0.5, 1.5  # times that
BARELY_MERGED = 1.05  # bytes per token: below it next to no merge is applied, however few there are
FEWEST_BYTES, MOST_BYTES = 50_000, 8_000_000  # of held-out text: fewer say nothing, more say no more


def expected_bytes_per_token(merges: int) -> float:
    """What English text has, between the rows of `NEIGHBOURHOOD` straight lines."""
    sizes = list(NEIGHBOURHOOD)
    if merges >= sizes[-1]:
        return NEIGHBOURHOOD[sizes[-1]]
    at = bisect_left(sizes, merges)
    if sizes[at] == merges:
        return NEIGHBOURHOOD[merges]
    before, after = sizes[at - 1], sizes[at]
    share = (merges - before) / (after - before)
    return NEIGHBOURHOOD[before] + share * (NEIGHBOURHOOD[after] - NEIGHBOURHOOD[before])


def check_compression(tokenizer: Tokenizer, texts: Iterable[str], name: str, report: Report | None = None) -> Check:
    """Held-out bytes per token, against the neighbourhood that as many merges have.

    The lower bound is on bytes per token, the upper on characters per token, so that scripts whose letters take three
    bytes stay inside. Where the training record says that the training text itself compresses less, less is expected.
    """
    tokens = n_bytes = characters = 0
    try:
        for text in _up_to(texts, MOST_BYTES):
            tokens += tokenizer.count(text)
            n_bytes += len(text.encode("utf-8"))
            characters += len(text)
            if report is not None:
                report("held-out bytes", n_bytes, None)
    except TokenizerError as error:
        return Check("held-out text", False, f"{name} cannot be encoded: {error}", {})
    if n_bytes < FEWEST_BYTES:
        per_token = n_bytes / tokens if tokens else None
        found = f"{name} has {counted(n_bytes, 'byte')}, too few to judge by ({FEWEST_BYTES:,} are needed)"
        return Check("held-out text", None, found, {"text": name, "bytes": n_bytes, "bytes_per_token": per_token})
    expected = expected_bytes_per_token(len(tokenizer.merges))
    training = tokenizer.training
    on_training = None
    if training is not None and training.bytes:
        on_training = training.bytes / (training.curve[-1] if training.curve else training.base_tokens)
    reached = min(expected, on_training or expected)
    low, high = max(LOWEST * reached, min(BARELY_MERGED, 0.7 * reached)), HIGHEST * expected
    found = f"{n_bytes / tokens:.3f} bytes per token on {name} ({n_bytes:,} bytes); expected {low:.2f} to {high:.2f}"
    if on_training is not None:
        found += f", {on_training:.3f} on the training text"
    ok = True
    if n_bytes / tokens < low:
        ok = False
        found += ". Much lower: merges are not applied, or the text is of another kind than the training text"
    elif characters / tokens > high:
        ok = False
        found += ". Much higher: the tokenizer is overfitted; perhaps it was trained on this text, or on very little"
    numbers = {
        "text": name,
        "bytes": n_bytes,
        "tokens": tokens,
        "bytes_per_token": n_bytes / tokens,
        "characters_per_token": characters / tokens,
        "expected": [low, high],
        "on_training_text": on_training,
    }
    return Check("held-out text", ok, found, numbers)


def _up_to(texts: Iterable[str], most_bytes: int) -> Iterator[str]:
    size = 0
    for text in texts:
        yield text
        size += len(text.encode("utf-8"))
        if size >= most_bytes:
            return


def all_ok(checks: Iterable[Check]) -> bool:
    """Whether no check failed."""
    return all(check.ok is not False for check in checks)
