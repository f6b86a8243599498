"""`compare_tokenizers`: the same model trained on each tokenizer, scored in bits per byte on one validation text.

What differs between models is the tokenizer, and with it the rows of the embedding; everything else is the same: the
body, the optimizer, the schedule by share of the budget, the seeds, the text and the evaluation. The budget is on one
axis, by default bytes of text seen as targets: then every model has read as much text, whatever its tokens hold. On
other axes other things are equal, and the report says which.

A batch has the same number of tokens for every model, so on a budget of bytes a model whose tokens hold more takes
fewer steps. That is part of what a tokenizer does to training; a budget of tokens gives equal steps and unequal text.

The folder of a comparison:

| path | what |
| --- | --- |
| `comparison.json` | all settings and results, every document's bits |
| `NAME/tokenizer.json` | each tokenizer |
| `NAME/encoded/SPLIT.safetensors` | the corpus in its ids |
| `NAME/seed-N/` | the run, as `fit` leaves it |

Run again with the same settings, it keeps what is there: encodings of the same text, runs that ended, and runs that
were interrupted from their last checkpoint on.
"""

import platform
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import lightning
import numpy as np
import torch

from minigpt_tok._version import __version__
from minigpt_tok.data.corpora import Corpus, Source, open_corpus
from minigpt_tok.data.encode import encode_corpus
from minigpt_tok.data.id_file import IdFile
from minigpt_tok.errors import CorpusError, DataError, ModelError, TokenizerError
from minigpt_tok.files import StrPath
from minigpt_tok.gpt.budget import Budget
from minigpt_tok.gpt.config import MiniGPTConfig
from minigpt_tok.gpt.options import TrainingOptions
from minigpt_tok.measure.comparison import RESULT, Comparison, Entry
from minigpt_tok.measure.compression import Compression, embedding_share, measure_compression
from minigpt_tok.measure.contenders import Contender, contenders
from minigpt_tok.measure.runs import Evaluation, evaluation_device, train_and_score
from minigpt_tok.measure.sampled import SampledSplit, sampled
from minigpt_tok.measure.token_text import EncodedSplit
from minigpt_tok.measure.windows import choose_stride
from minigpt_tok.progress import Report
from minigpt_tok.tokenizer import Tokenizer

_PROMPT_CHARACTERS = 40


def compare_tokenizers(
    corpus: Source,
    out_dir: StrPath,
    *,
    vocab_sizes: Sequence[int] = (),
    with_tokenizers: Iterable[StrPath | Tokenizer] = (),
    byte_baseline: bool = False,
    recipe: str = "hf",
    special_tokens: Sequence[str] = (),
    switches: Mapping[str, Any] | None = None,
    separator: str | None = None,
    budget: Budget | str = "bytes=5e6",
    body: Mapping[str, Any] | None = None,
    options: TrainingOptions | None = None,
    seeds: Sequence[int] = (0,),
    context: str = "sliding",
    stride: int | None = None,
    own_context: bool | None = None,
    validation_bytes: int | None = None,
    curve_bytes: int = 32_768,
    prompt: str | None = None,
    sample_bytes: int = 300,
    temperature: float = 0.8,
    workers: int | None = None,
    overwrite: bool = False,
    command: str = "minigpt_tok.compare_tokenizers",
    progress: Report | None = None,
) -> Comparison:
    """Compare tokenizers by what the same model makes of a text through them.

    Always with the character baseline: characters without merges. `minigpt_tok.report.files.write_comparison` makes
    the report and the plots of what this gives.

    Args:
        corpus: anything that `open_corpus` takes. Merges are learned and models trained on its train split; what is
            scored is its validation split.
        out_dir: the comparison's folder.
        vocab_sizes: of BPE, special tokens included; all from one training run.
        with_tokenizers: others, published ones say: files of any known format, or tokenizers.
        byte_baseline: bytes without merges, too.
        recipe, special_tokens, switches: of the BPE, as `train_tokenizer` takes them.
        separator: a special token to put after each document for those tokenizers that have it. `None`: documents run
            on, for all alike.
        budget: of each run: `bytes=…`, `characters=…`, `tokens=…`, `flops=…` or `seconds=…`.
        body: of `MiniGPTConfig`: `block_size`, `embedding_dim`, `num_heads`, `num_layers`, …
        options: of training; its seed is replaced by each of `seeds`, its `validations` are the points of the curves.
        seeds: a run for each; several show how much luck there is.
        context, stride, own_context: of the evaluation, see `bits_per_byte`. Documents by themselves (`own_context`) if
            models are trained so, with packing `document`, unless you say otherwise.
        validation_bytes: score at most so much of the validation split, in whole documents taken evenly from it.
        curve_bytes: likewise for the points of the curves.
        prompt: what every model writes on from; by default the beginning of the validation text.
        sample_bytes: about how much it writes.
        temperature: of that.
        workers: processes that encode; `None` for all cores.
        overwrite: replace encodings and runs in `out_dir` that were made with other settings.
        command: what to name as the maker in files and report.
        progress: called with (stage, done, of how much); stages in bytes end in ` bytes`.

    Raises:
        CorpusError: there is no text, or no validation split.
        DataError: sizes or limits that make no sense, or a tokenizer that drops or changes bytes.
        TokenizerError: the prompt has characters that a tokenizer lacks, or an argument of training cannot be.
        TokenizerMismatchError: `out_dir` has ids of other tokenizers.
        ModelError: a body, a budget or options that cannot work, or a run with other settings in `out_dir`.
    """
    root = Path(out_dir)
    budget = Budget.parse(budget) if isinstance(budget, str) else budget
    options = options or TrainingOptions()
    shape = _checked_shape(body)
    block_size = MiniGPTConfig(1, **shape).block_size
    choose_stride(context, stride, block_size)
    if not seeds or len(set(seeds)) != len(seeds):
        raise DataError(f"seeds are {list(seeds)}; give at least one, each once")
    opened = _with_validation(open_corpus(corpus))
    compared = contenders(
        opened,
        vocab_sizes=vocab_sizes,
        with_tokenizers=with_tokenizers,
        byte_baseline=byte_baseline,
        recipe=recipe,
        special_tokens=special_tokens,
        switches=dict(switches or {}),
        progress=None if progress is None else _named(progress, "tokenizer"),
    )
    prompt = _prompt(opened, prompt, compared)
    evaluation = Evaluation(
        context=context,
        stride=stride,
        own_context=options.packing == "document" if own_context is None else own_context,
        batch_size=options.batch_size,
        prompt=prompt,
        sample_bytes=sample_bytes,
        temperature=temperature,
    )
    # All that can fail for want of text or bytes comes before the first hour of training.
    trained = Corpus(
        opened.name,
        {split: opened.splits[split] for split in ("train", "validation")},
        opened.documents,
        opened.assign,
    )
    encoded = []
    for contender in compared:
        folder = root / contender.name
        paths = encode_corpus(
            trained,
            contender.tokenizer,
            folder / "encoded",
            separator=separator if separator in contender.tokenizer.special_tokens else None,
            workers=workers,
            overwrite=overwrite,
            progress=None if progress is None else _encoding(progress, contender.name),
            command=command,
        )
        contender.tokenizer.save(folder / "tokenizer.json")
        whole = IdFile(paths["validation"])
        validation = whole if validation_bytes is None else sampled(whole, validation_bytes)
        encoded.append((contender, validation, measure_compression(validation, contender.tokenizer)))

    entries = []
    for contender, validation, compression in encoded:
        entries.append(
            _entry(
                root,
                contender,
                validation,
                compression,
                shape=shape,
                budget=budget,
                options=options,
                seeds=seeds,
                curve_sample=sampled(validation, curve_bytes),
                evaluation=evaluation,
                overwrite=overwrite,
                progress=progress,
            )
        )
    first = encoded[0][1]
    comparison = Comparison(
        corpus=opened.name,
        budget=str(budget),
        budget_axis=budget.axis,
        block_size=block_size,
        prompt=prompt,
        seeds=tuple(seeds),
        settings={
            "command": command,
            "recipe": recipe,
            "switches": {name: _plain(value) for name, value in (switches or {}).items()},
            "special_tokens": list(special_tokens),
            "separator": separator,
            "vocab_sizes": list(vocab_sizes),
            "byte_baseline": byte_baseline,
            "body": {
                name: value for name, value in MiniGPTConfig(1, **shape).to_plain().items() if name != "vocab_size"
            },
            "training": {name: value for name, value in options.to_plain().items() if name != "seed"},
            "text": {
                "train_sha256": IdFile(root / compared[0].name / "encoded" / "train.safetensors").metadata.text_sha256,
                "validation_sha256": first.metadata.text_sha256,
                "validation_bytes": validation_bytes,
                "validation_documents": first.chosen.tolist() if isinstance(first, SampledSplit) else "all",
                "curve_bytes": curve_bytes,
            },
            "samples": {"bytes": sample_bytes, "temperature": temperature},
            "made_with": _made_with(options),
        },
        entries=tuple(entries),
    )
    comparison.save(root / RESULT)
    return comparison


def _entry(
    root: Path,
    contender: Contender,
    validation: EncodedSplit,
    compression: Compression,
    *,
    shape: dict[str, Any],
    budget: Budget,
    options: TrainingOptions,
    seeds: Sequence[int],
    curve_sample: EncodedSplit,
    evaluation: Evaluation,
    overwrite: bool,
    progress: Report | None,
) -> Entry:
    """Train and score one tokenizer's models."""
    tokenizer = contender.tokenizer
    config = MiniGPTConfig(tokenizer.vocab_size, **shape)
    folder = root / contender.name
    runs = []
    for seed in seeds:
        run, model = train_and_score(
            folder / f"seed-{seed}",
            folder / "encoded",
            tokenizer,
            config=config,
            options=TrainingOptions.from_plain({**options.to_plain(), "seed": seed}),
            budget=budget,
            validation=validation,
            curve_sample=curve_sample,
            evaluation=evaluation,
            bytes_per_token=compression.bytes_per_token,
            root=root,
            overwrite=overwrite,
            progress=None if progress is None else _named(progress, _run_name(contender.name, seed, seeds)),
        )
        runs.append(run)
    held = compression.bytes_per_token
    others = model.body_parameters + model.position_parameters
    return Entry(
        name=contender.name,
        kind=contender.kind,
        fingerprint=tokenizer.fingerprint,
        tokenizer=f"{contender.name}/tokenizer.json",
        pattern=tokenizer.pattern,
        vocab_size=tokenizer.vocab_size,
        compression=compression,
        body_parameters=model.body_parameters,
        position_parameters=model.position_parameters,
        embedding_parameters=model.embedding_parameters,
        embedding_share=embedding_share(model.token_embedding.num_embeddings, config.embedding_dim, others),
        training_flops_per_byte=model.flops_per_token / held,
        attention_flops_per_byte=model.attention_flops_per_token / held,
        window_bytes=config.block_size * held,
        window_characters=config.block_size * compression.characters_per_token,
        first_block=tokenizer.decode(np.asarray(validation.ids[: config.block_size]).tolist(), skip_special=True),
        runs=tuple(runs),
    )


def _checked_shape(body: Mapping[str, Any] | None) -> dict[str, Any]:
    """The body's options, refused before anything is trained if a model cannot be made of them."""
    shape = dict(body or {})
    if "vocab_size" in shape:
        raise ModelError("body has vocab_size, which each tokenizer brings along; leave it out")
    MiniGPTConfig.from_plain({"vocab_size": 1, **shape})
    return shape


def _with_validation(corpus: Corpus) -> Corpus:
    for split in ("train", "validation"):
        if split not in corpus.splits or next(iter(corpus.splits[split]), None) is None:
            raise CorpusError(
                f"{corpus.name} has no {split} text (its splits: {', '.join(corpus.splits)}), and a comparison needs "
                "some to train on and other text to score; give more documents, or {'train': …, 'validation': …}"
            )
    return corpus


def _prompt(corpus: Corpus, prompt: str | None, compared: Sequence[Contender]) -> str:
    """The prompt, which every tokenizer must be able to encode."""
    if prompt is None:
        text = next(iter(corpus.splits["validation"])).lstrip()
        line = text.split("\n", 1)[0]
        # Whole words, where there are any.
        prompt = line[:_PROMPT_CHARACTERS].rsplit(" ", 1)[0] if len(line) > _PROMPT_CHARACTERS else line
        prompt = prompt or text[:1] or next(iter(corpus.splits["validation"]))[:1]
    for contender in compared:
        try:
            ids = contender.tokenizer.encode(prompt)
        except TokenizerError as error:
            raise TokenizerError(f"the prompt {prompt!r} cannot be encoded by {contender.name}: {error}") from None
        if not ids:
            raise TokenizerError("the prompt is empty, and character tokenizers have nothing else to begin with")
    return prompt


def _named(progress: Report, name: str) -> Report:
    def report(stage: str, done: int, total: int | None) -> None:
        progress(f"{name}: {stage}", done, total)

    return report


def _encoding(progress: Report, name: str) -> Report:
    return lambda _split, done, total: progress(f"{name}: encoded bytes", done, total)


def _run_name(name: str, seed: int, seeds: Sequence[int]) -> str:
    return name if len(seeds) == 1 else f"{name}, seed {seed}"


def _plain(value: Any) -> Any:
    return sorted(value) if isinstance(value, (set, frozenset)) else value


def _made_with(options: TrainingOptions) -> dict[str, Any]:
    return {
        "minigpt_tok": __version__,
        "python": platform.python_version(),
        "torch": torch.__version__,
        "lightning": lightning.__version__,
        "numpy": np.__version__,
        "system": f"{platform.system()} {platform.machine()}",
        "device": str(evaluation_device(options.accelerator)),
        "threads": torch.get_num_threads(),
    }
