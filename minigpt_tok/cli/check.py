"""`minigpt-tok check`."""

from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer

from minigpt_tok.cli.options import AsJson
from minigpt_tok.cli.printing import counted, print_json
from minigpt_tok.data.id_file import IdFile
from minigpt_tok.errors import FormatError, TokenizerMismatchError
from minigpt_tok.tokenizer import Tokenizer

EXAMPLE = "minigpt-tok check checkpoints/bpe/last.ckpt --tokenizer tokenizer.json --data data/encoded/wikitext-2/bpe"


def check(
    checkpoint: Annotated[Path, typer.Argument(metavar="CHECKPOINT", help="The checkpoint's file.", show_default=False)],
    tokenizer: Annotated[
        Path | None,
        typer.Option("--tokenizer", "-t", metavar="TOKENIZER", help="A tokenizer's file.", show_default=False),
    ] = None,
    data: Annotated[
        Path | None,
        typer.Option("--data", "-d", metavar="DATA", help="An id file, or the folder of an encoded corpus.", show_default=False),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Check that a checkpoint, a tokenizer and id files belong together.

    The checkpoint's tokenizer must hash to the fingerprint beside it, and the embedding have a row for each id. The
    tokenizer and the ids given must have the same fingerprint; if not, the first difference is named. The ids are hashed.
    The status is 0 if all belong together, and 1 if not.
    """
    from minigpt_tok.checkpoint import DATA_KEY, bound_tokenizer, read_checkpoint, verify_checkpoint
    from minigpt_tok.data.identity import data_fingerprint, id_metadata

    content = read_checkpoint(checkpoint, mapped=True)
    given = None if tokenizer is None else Tokenizer.load(tokenizer)
    results = _Results()

    def itself() -> str:
        bound = bound_tokenizer(content, str(checkpoint), like=given)
        if bound is None:
            raise TokenizerMismatchError(
                f"{checkpoint} has no tokenizer fingerprint, so nothing says with which tokenizer it was trained. If you know "
                "which, save it again with embed_fingerprint"
            )
        own = bound.tokenizer or (given if given is not None and given.fingerprint == bound.fingerprint else None)
        if own is None:
            return f"{bound.fingerprint}; the tokenizer itself is not in the checkpoint"
        verify_checkpoint(content, own)
        return f"{bound.fingerprint}, {own.vocab_size:,} ids"

    def with_tokenizer() -> str:
        assert given is not None
        verify_checkpoint(content, given)
        return f"{tokenizer} is the checkpoint's"

    def with_data() -> str:
        made_by = {metadata.tokenizer_fingerprint for metadata in id_metadata(data).values()}
        wanted = content.get("tokenizer_fingerprint")
        for path, metadata in id_metadata(data).items():
            if metadata.tokenizer_fingerprint != wanted:
                raise TokenizerMismatchError(
                    f"{path} was encoded with another tokenizer than the checkpoint's:\n  the checkpoint's  {wanted}\n"
                    f"  the ids'          {metadata.tokenizer_fingerprint}\nEncode the corpus with the checkpoint's tokenizer, "
                    "or train a model on these ids"
                )
            IdFile(path).verify()
        files = counted(len(id_metadata(data)), "id file")
        seen = "" if not made_by else _whether_trained_on(content.get(DATA_KEY), data_fingerprint, data)
        return f"{files} of {data}: ids of the checkpoint's tokenizer, whole{seen}"

    results.add("checkpoint", itself)
    if given is not None:
        results.add("tokenizer", with_tokenizer)
    if data is not None:
        results.add("data", with_data)
    if as_json:
        fingerprint = content.get("tokenizer_fingerprint")
        print_json({"checkpoint": checkpoint, "fingerprint": fingerprint, "ok": results.ok, "checks": results.found})
    else:
        for found in results.found:
            print(f"{'ok' if found['ok'] else 'FAILED':<6}  {found['name']}: {found['message']}")
    if not results.ok:
        raise typer.Exit(1)


def _whether_trained_on(trained_on: object, fingerprint_of: Callable[[Any], str], data: Path) -> str:
    if trained_on is None:
        return ""
    try:
        same = fingerprint_of(data) == trained_on
    except FormatError:
        raise
    except ValueError:  # no train split among them
        return ""
    return "; the model was trained on them" if same else "; the model was trained on other ids"


class _Results:
    """The checks made so far: what holds says what was found, what does not says why."""

    def __init__(self) -> None:
        self.found: list[dict[str, Any]] = []

    @property
    def ok(self) -> bool:
        return all(found["ok"] for found in self.found)

    def add(self, name: str, make: Callable[[], str]) -> None:
        try:
            message, ok = make(), True
        except (TokenizerMismatchError, FormatError) as error:
            message, ok = str(error), False
        self.found.append({"name": name, "ok": ok, "message": message})
