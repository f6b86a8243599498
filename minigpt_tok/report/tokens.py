"""A page of tokens in colours, each with its id: what `minigpt-tok show` prints, to keep or to send.

It needs nothing else, no network and no script. Whatever comes from texts and files is escaped.
"""

from collections.abc import Iterable, Sequence
from pathlib import Path

from minigpt_tok.files import StrPath, write_text
from minigpt_tok.report.markup import marked_up

_STYLE = """
body { margin: 0 auto; max-width: 68rem; padding: 1.25rem 1rem 3rem; color: #1c1e21; background: #fff;
  font: 1rem/1.5 system-ui, sans-serif; }
h1 { font-size: 1.5rem; } h2 { font-size: 1rem; margin: 1.5rem 0 .25rem; overflow-wrap: anywhere; }
p { margin: .2rem 0; color: #5b6068; overflow-wrap: anywhere; }
pre { white-space: pre-wrap; overflow-wrap: anywhere; font: 1rem/1.9 ui-monospace, monospace; margin: .4rem 0; }
span { border-radius: .2rem; padding: .1rem 0; }
span:nth-child(5n+1) { background: #f9c0c0; } span:nth-child(5n+2) { background: #f9e2ae; }
span:nth-child(5n+3) { background: #bfe8c0; } span:nth-child(5n+4) { background: #b8dcf5; }
span:nth-child(5n+5) { background: #dcc6f0; }
"""

Section = tuple[str, str, Sequence[str], Sequence[int]]


def write_token_page(sections: Iterable[Section], path: StrPath) -> Path:
    """Write a page, whole or not at all.

    Args:
        sections: a heading, a line on it, the tokens' texts and their ids, for each.
        path: the file to write.
    """
    write_text(path, token_page(sections))
    return Path(path)


def token_page(sections: Iterable[Section]) -> str:
    """The page; `sections` as in `write_token_page`."""
    body = [
        # A newline right after <pre> is dropped by browsers, so one is put there to be dropped.
        f"<h2>{marked_up(heading)}</h2>\n<p>{marked_up(line)}</p>\n<pre>\n{_spans(tokens, ids)}</pre>\n"
        f"<p>{' '.join(map(str, ids))}</p>"
        for heading, line, tokens, ids in sections
    ]
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>Tokens</title>\n<style>{_STYLE}</style>\n</head>\n<body>\n<h1>Tokens</h1>\n"
        + "\n".join(body)
        + "\n</body>\n</html>\n"
    )


def _spans(tokens: Sequence[str], ids: Sequence[int]) -> str:
    return "".join(f'<span title="{id}">{_shown(token)}</span>' for token, id in zip(tokens, ids, strict=True))


def _shown(token: str) -> str:
    """A newline shows as its mark and breaks the line too; spaces are seen by the colour."""
    return marked_up(token.replace("\r", "␍")).replace("\n", "⏎\n").replace("\t", "⇥")
