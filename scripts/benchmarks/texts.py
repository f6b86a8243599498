"""The texts: English prose, Python source, and the Declaration of Human Rights in 25 languages."""

import gzip
import hashlib
import shutil
import sysconfig
from dataclasses import dataclass
from pathlib import Path

NAMES = ("prose", "python", "udhr2")
QUICK_BYTES = 4_000_000
# Text for the calls on short strings. The thousand characters are cut out of the prose.
SENTENCE = "The quick brown fox jumps over the lazy dog."
SPECIAL = "<|"  # some tokenizers take special tokens wherever they stand, so the texts have none


@dataclass(frozen=True)
class Text:
    """A file of UTF-8 text."""

    name: str
    path: Path
    size: int
    sha256: str


class Texts:
    """Makes texts in a folder when they are asked for.

    Args:
        data: the shared data.
        scratch: where the files go.
        quick: at most `QUICK_BYTES` of each.
    """

    def __init__(self, data: Path, scratch: Path, *, quick: bool) -> None:
        self._data = data
        self._scratch = scratch
        self._quick = quick
        self._made: dict[tuple[str, int | None], Text] = {}

    def get(self, name: str, limit: int | None = None) -> Text:
        """A text, or its beginning of at most `limit` bytes."""
        if (name, limit) not in self._made:
            self._made[name, limit] = self._cut(name, limit) if limit else self._make(name)
        return self._made[name, limit]

    def made(self) -> list[Text]:
        """What has been asked for so far."""
        return list(self._made.values())

    def _make(self, name: str) -> Text:
        path = self._scratch / f"{name}.txt"
        corpora = self._data / "corpora"
        if name == "prose":
            with gzip.open(corpora / "prose" / "gutenberg_100MB.txt.gz") as source, open(path, "wb") as target:
                if self._quick:
                    target.write(source.read(QUICK_BYTES))
                else:
                    shutil.copyfileobj(source, target, 1 << 20)
        elif name == "python":
            _write_python_source(path, QUICK_BYTES if self._quick else None)
        elif name == "udhr2":
            shutil.copyfile(corpora / "multilingual" / "udhr2_major_scripts.txt", path)
        else:
            raise ValueError(f"no text is called {name}")
        if self._quick:
            _end_at_newline(path, QUICK_BYTES)
        return _described(name, path)

    def _cut(self, name: str, limit: int) -> Text:
        whole = self.get(name)
        if whole.size <= limit:
            return whole
        path = self._scratch / f"{name}-{limit}.txt"
        with open(whole.path, "rb") as source:
            path.write_bytes(source.read(limit))
        _end_at_newline(path, limit)
        return _described(f"{name} (its beginning)", path)


def read(path: str | Path) -> str:
    """A text as it stands in its file, newlines too."""
    with open(path, encoding="utf-8", newline="") as file:
        return file.read()


def _described(name: str, path: Path) -> Text:
    with open(path, "rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    return Text(name, path, path.stat().st_size, digest)


def _write_python_source(path: Path, limit: int | None) -> None:
    """The standard library's modules, one after another by name, but for those with special tokens or not in UTF-8."""
    library = Path(sysconfig.get_paths()["stdlib"])
    with open(path, "wb") as target:
        for module in sorted(library.rglob("*.py")):
            if "site-packages" in module.parts or (limit is not None and target.tell() >= limit):
                continue
            source = module.read_bytes()
            try:
                text = source.decode("utf-8")
            except UnicodeDecodeError:
                continue
            if SPECIAL not in text:
                target.write(source)


def _end_at_newline(path: Path, limit: int) -> None:
    """Shorten a file to `limit` bytes at most, so that it ends with a whole line (and a whole character)."""
    content = path.read_bytes()[:limit]
    path.write_bytes(content[: content.rfind(b"\n") + 1] or content)
