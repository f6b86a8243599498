"""`report.html`: a comparison on one page that needs nothing else, no network, no script; light or dark as the reader's.

Whatever comes from texts, files or models is escaped. Wide tables scroll by themselves, so the page fits a phone.
"""

from collections.abc import Iterable, Sequence
from pathlib import Path

from minigpt_tok.amounts import counted
from minigpt_tok.files import StrPath, write_text
from minigpt_tok.measure.comparison import AXES, Comparison, Entry
from minigpt_tok.report.markup import marked_up
from minigpt_tok.report.numbers import between, duration, short
from minigpt_tok.report.plots import figures, to_svg

REPORT = "report.html"
_LISTED = 20  # elements of a list among the settings; comparison.json has all

_STYLE = """
:root { color-scheme: light dark; --ink: #1c1e21; --paper: #ffffff; --soft: #5b6068; --line: #d8dbe0; --box: #f4f5f7;
  --best: #e4f2e7; }
@media (prefers-color-scheme: dark) { :root { --ink: #e6e7e9; --paper: #16181b; --soft: #a0a5ad; --line: #3a3e45;
  --box: #202327; --best: #1f3526; } }
* { box-sizing: border-box; }
body { margin: 0 auto; max-width: 68rem; padding: 1.25rem 1rem 3rem; color: var(--ink); background: var(--paper);
  font: 1rem/1.5 system-ui, sans-serif; }
h1 { font-size: 1.5rem; line-height: 1.25; margin: .5rem 0; } h2 { font-size: 1.15rem; margin: 2rem 0 .5rem; }
h3 { font-size: 1rem; margin: 1.25rem 0 .25rem; overflow-wrap: anywhere; }
p { margin: .4rem 0; max-width: 48rem; } .soft { color: var(--soft); }
.verdict { border-left: .25rem solid #0072b2; padding: .35rem .8rem; background: var(--box); margin: .5rem 0; }
.verdict.open { border-color: #999; }
.wide { overflow-x: auto; border: 1px solid var(--line); border-radius: .4rem; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; font-size: .9rem; width: 100%; }
th, td { padding: .4rem .65rem; text-align: right; white-space: nowrap; border-bottom: 1px solid var(--line); }
th { vertical-align: bottom; font-weight: 600; color: var(--soft); white-space: normal; } tr:last-child td { border-bottom: 0; }
th:first-child, td:first-child, .facts td { text-align: left; } td:first-child { font-weight: 600; }
tr.best td { background: var(--best); }
.facts td { white-space: normal; overflow-wrap: anywhere; vertical-align: top; }
.facts td:first-child { white-space: nowrap; font-weight: 400; color: var(--soft); }
.plots { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(22rem, 100%), 1fr)); gap: 1rem; }
figure { margin: 0; } figure svg { width: 100%; height: auto; display: block; }
figcaption { color: var(--soft); font-size: .85rem; }
pre { background: var(--box); border-radius: .4rem; padding: .7rem .8rem; margin: .3rem 0; white-space: pre-wrap;
  overflow-wrap: anywhere; font: .85rem/1.45 ui-monospace, monospace; max-height: 22rem; overflow-y: auto; }
code { font: .85em ui-monospace, monospace; overflow-wrap: anywhere; }
"""

_CAPTIONS = {
    "bits_per_byte": "The score at the end, every run with its 95% interval.",
    "curve_bytes": "On the way, against the text seen.",
    "curve_flops": "Against training compute.",
    "curve_seconds": "Against training time on this machine.",
}


def write_comparison_report(comparison: Comparison, folder: StrPath) -> Path:
    """Write `report.html` into a folder, whole or not at all."""
    path = Path(folder) / REPORT
    write_text(path, comparison_page(comparison))
    return path


def comparison_page(comparison: Comparison) -> str:
    """The page as one string of HTML."""
    title = f"{comparison.corpus}: tokenizers compared"
    drawn = figures(comparison)
    about = (
        f"The same model trained on each tokenizer: {comparison.budget_in_words}, "
        f"{counted(len(comparison.seeds), 'seed')}, scored in bits per byte on one validation text."
    )
    sampled = (
        "Curves are scored on a sample of the validation text, so they do not end at the scores of the first plot and the "
        "table, which are on all that was chosen of it."
    )
    body = [
        f"<h1>{marked_up(title)}</h1>",
        f'<p class="soft">{marked_up(about)}</p>',
        *(
            f'<p class="verdict{"" if verdict.difference.is_shown else " open"}">{marked_up(verdict.text)}</p>'
            for verdict in comparison.verdicts
        ),
        "<h2>Results</h2>",
        _results(comparison),
        *(f'<p class="soft">{marked_up(caveat)}</p>' for caveat in comparison.caveats),
        "<h2>Scores and curves</h2>",
        '<div class="plots">',
        *(
            f"<figure>{to_svg(figure, name)}<figcaption>{marked_up(_CAPTIONS[name])}</figcaption></figure>"
            for name, figure in drawn.items()
        ),
        "</div>",
        f'<p class="soft">{marked_up(sampled)}</p>',
        "<h2>What the tokenizers make of the text</h2>",
        _compression(comparison),
        "<h2>What they cost the model</h2>",
        _costs(comparison),
        f"<h2>The first {comparison.block_size} tokens of the validation text</h2>",
        '<p class="soft">What a model sees at once.</p>',
        *_texts((entry.name, entry.first_block) for entry in comparison.entries),
        "<h2>What the models write</h2>",
        f"<p>From the prompt <code>{marked_up(comparison.prompt)}</code>, all with the same settings.</p>",
        *_texts(
            (_run_name(entry, seed), run.sample) for entry in comparison.entries for seed, run in enumerate(entry.runs)
        ),
        "<h2>How it was made</h2>",
        _facts(_settings(comparison)),
        "<h3>Tokenizers by SHA-256</h3>",
        _facts(
            (entry.name, f"{entry.fingerprint} ({entry.vocab_size:,} ids, pattern {entry.pattern}, {entry.tokenizer})")
            for entry in comparison.entries
        ),
        "<p class='soft'>The file comparison.json beside this page has every number, and every document's bits.</p>",
    ]
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{marked_up(title)}</title>\n<style>{_STYLE}</style>\n</head>\n<body>\n"
        + "\n".join(body)
        + "\n</body>\n</html>\n"
    )


def _results(comparison: Comparison) -> str:
    several = len(comparison.seeds) > 1
    heads = ["tokenizer", "bits per byte", "95% interval"]
    heads += ["lowest to highest of the seeds"] if several else []
    heads += [
        "bits per character",
        "token perplexity, not comparable",
        "time",
        f"{AXES['bytes']}",
        "tokens seen",
        "FLOPs",
    ]
    rows = []
    for entry in comparison.entries:
        first = entry.runs[0]
        spread = entry.spread
        cells = [entry.name, f"{entry.bits_per_byte:.4f}", between(entry.interval)]
        cells += [f"{spread[0]:.4f} to {spread[1]:.4f}"] if spread else []
        cells += [
            f"{entry.bits_per_byte * first.score.bytes / first.score.characters:.4f}",
            f"{first.score.token_perplexity:,.2f}",
            duration(entry.seconds),
            short(first.bytes),
            short(first.tokens),
            short(first.flops),
        ]
        rows.append((cells, entry is comparison.ranked[0]))
    return _table(heads, rows)


def _compression(comparison: Comparison) -> str:
    heads = [
        "tokenizer",
        "vocabulary",
        "bytes per token",
        "characters per token",
        "tokens per word",
        "fewer tokens than characters",
        "Rényi efficiency",
    ]
    rows = []
    for entry in comparison.entries:
        cut = entry.compression
        reduction = round(cut.reduction_percent, 1) + 0.0  # no minus before a zero
        cells = [
            entry.name,
            f"{entry.vocab_size:,}",
            f"{cut.bytes_per_token:.3f}",
            f"{cut.characters_per_token:.3f}",
            f"{cut.tokens_per_word:.3f}",
            f"{reduction:.1f}%",
            f"{cut.renyi_efficiency:.3f}",
        ]
        rows.append((cells, False))
    return _table(heads, rows)


def _costs(comparison: Comparison) -> str:
    heads = [
        "tokenizer",
        "parameters of the body",
        "of positions",
        "of the embedding, tied to the head",
        "its share",
        f"{comparison.block_size:,} tokens hold",
        "in characters",
        "training FLOPs per byte",
        "attention FLOPs per byte",
    ]
    rows = []
    for entry in comparison.entries:
        cells = [
            entry.name,
            f"{entry.body_parameters:,}",
            f"{entry.position_parameters:,}",
            f"{entry.embedding_parameters:,}",
            f"{entry.embedding_share:.1%}",
            f"{entry.window_bytes:,.0f} bytes",
            f"{entry.window_characters:,.0f}",
            short(entry.training_flops_per_byte),
            short(entry.attention_flops_per_byte),
        ]
        rows.append((cells, False))
    return _table(heads, rows)


def _settings(comparison: Comparison) -> Iterable[tuple[str, str]]:
    score = comparison.entries[0].runs[0].score
    yield "corpus", comparison.corpus
    yield (
        "validation text",
        f"{counted(score.documents, 'document')}, {counted(score.bytes, 'byte')}, {counted(score.characters, 'character')}",
    )
    yield "context", score.context_description
    yield "budget", comparison.budget
    yield "seeds", ", ".join(map(str, comparison.seeds))
    yield from _flat(comparison.settings, "")


def _flat(settings: dict[str, object], before: str) -> Iterable[tuple[str, str]]:
    for name, value in settings.items():
        title = f"{before}{name.replace('_', ' ')}"
        if isinstance(value, dict):
            yield from _flat(value, f"{title}: ")
        elif isinstance(value, (list, tuple)):
            more = f", … ({len(value):,} in all)" if len(value) > _LISTED else ""
            yield title, ", ".join(map(str, value[:_LISTED])) + more or "–"
        else:
            yield title, "–" if value is None else str(value)


def _run_name(entry: Entry, number: int) -> str:
    return entry.name if len(entry.runs) == 1 else f"{entry.name}, seed {entry.runs[number].seed}"


def _texts(named: Iterable[tuple[str, str]]) -> list[str]:
    # A newline right after <pre> is dropped by browsers, so one is put there to be dropped.
    return [f"<h3>{marked_up(name)}</h3><pre>\n{marked_up(text)}</pre>" for name, text in named]


def _table(heads: Sequence[str], rows: Iterable[tuple[Sequence[str], bool]]) -> str:
    head = "".join(f"<th>{marked_up(cell)}</th>" for cell in heads)
    lines = (
        f"<tr{' class=best' if best else ''}>{''.join(f'<td>{marked_up(cell)}</td>' for cell in cells)}</tr>"
        for cells, best in rows
    )
    return f'<div class="wide"><table><thead><tr>{head}</tr></thead><tbody>{"".join(lines)}</tbody></table></div>'


def _facts(facts: Iterable[tuple[str, str]]) -> str:
    lines = (f"<tr><td>{marked_up(name)}</td><td>{marked_up(value)}</td></tr>" for name, value in facts)
    return f'<div class="wide"><table class="facts"><tbody>{"".join(lines)}</tbody></table></div>'
