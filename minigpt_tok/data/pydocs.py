"""`pydocs`: English prose that every Python already has on disk, so that everything runs without a download.

Three kinds of documents: the language reference's topics (`pydoc_data.topics`), the docstrings of the standard
library's modules, classes and functions (indentation removed as `inspect.cleandoc` does), and the licence. Sources are
parsed, never imported or run. Each text occurs once.

The corpus is a function of the Python version alone: parts that some systems package apart from Python, or generate
for the machine, are left out (`_LEFT_OUT`).
"""

import ast
import functools
import logging
import sys
import sysconfig
import warnings
from collections.abc import Iterator
from pathlib import Path

from minigpt_tok.errors import CorpusError

log = logging.getLogger(__name__)

# Packaged apart by some systems, made for the machine, tests, or (pydoc_data) read in its own way.
_LEFT_OUT = frozenset(
    ("distutils", "ensurepip", "idlelib", "lib2to3", "pydoc_data", "test", "tkinter", "turtledemo", "venv")
)
_LEFT_OUT_FOLDERS = frozenset(("test", "tests", "__pycache__"))
_LICENCE_NAMES = ("LICENSE.txt", "LICENSE")


def documents() -> tuple[str, ...]:
    """All documents, in a fixed order, each text once.

    Raises:
        CorpusError: this Python came without the sources of its standard library.
    """
    return _documents(Path(sysconfig.get_path("stdlib")))


@functools.lru_cache(maxsize=2)  # some seconds to parse, a few megabytes to keep
def _documents(library: Path) -> tuple[str, ...]:
    sources = list(_sources(library))
    topics = list(_topics(library / "pydoc_data" / "topics.py"))
    if not sources or not topics:
        raise CorpusError(
            f"pydocs: this Python has no sources of its standard library at {library} (a stripped or zipped "
            "installation); install a full Python, or give text files of your own"
        )
    docstrings = (text for path in sources for text in _docstrings(path))
    return tuple(dict.fromkeys([*topics, *docstrings, *_licence(library)]))


def _sources(library: Path) -> Iterator[Path]:
    for name in sorted(sys.stdlib_module_names - _LEFT_OUT):
        if name.startswith("_sysconfigdata"):
            continue
        module, package = library / f"{name}.py", library / name
        if module.is_file():
            yield module
        elif package.is_dir():
            for path in sorted(package.rglob("*.py"), key=lambda path: path.relative_to(library).parts):
                if _LEFT_OUT_FOLDERS.isdisjoint(path.relative_to(library).parts):
                    yield path


def _parse(path: Path) -> ast.Module:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # invalid escapes and the like in old sources are not the caller's business
        return ast.parse(path.read_bytes())


def _docstrings(path: Path) -> Iterator[str]:
    try:
        tree = _parse(path)
    except (SyntaxError, ValueError) as error:
        log.warning("pydocs leaves out %s, which does not parse: %s", path, error)
        return
    for node in ast.walk(tree):
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)):
            text = ast.get_docstring(node)
            if text and not any("\ud800" <= character <= "\udfff" for character in text):  # a surrogate is no text
                yield text


def _topics(path: Path) -> Iterator[str]:
    """The values of the dictionary that `pydoc_data/topics.py` consists of."""
    if not path.is_file():
        return
    for node in _parse(path).body:
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Dict):
            yield from (text for _, text in sorted(ast.literal_eval(node.value).items()))


def _licence(library: Path) -> Iterator[str]:
    # Where `site` looks for it. Some systems keep it elsewhere; the corpus then does without.
    for path in (folder / name for folder in (library, library.parent) for name in _LICENCE_NAMES):
        if path.is_file():
            yield path.read_bytes().decode("utf-8", "replace")
            return
    log.info("pydocs has no licence text: there is none beside %s", library)
