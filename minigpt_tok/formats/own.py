"""Our own file: a `tokenizer.json` for byte-level tokenizers, `character_bpe` for characters."""

from minigpt_tok.bpe.model import BPEModel
from minigpt_tok.bpe.trainer import Training
from minigpt_tok.files import StrPath
from minigpt_tok.formats import character, hf_json
from minigpt_tok.formats.hf_after import Carried


def save(
    path: StrPath, model: BPEModel, training: Training | None, fingerprint: str, carried: Carried | None = None
) -> None:
    """Write the own format, whole or not at all."""
    if model.unit == "character":
        character.save(path, model, fingerprint)
    else:
        hf_json.save(path, model, training, fingerprint, carried)


def to_json(model: BPEModel, training: Training | None, fingerprint: str, carried: Carried | None = None) -> str:
    """The text that `save` writes."""
    if model.unit == "character":
        return character.to_json(model, fingerprint)
    return hf_json.to_json(model, training, fingerprint, carried)
