import dataclasses
import json

import numpy as np
import pytest
import torch

from minigpt_tok.data import exports
from minigpt_tok.data.id_file import IdFile
from minigpt_tok.data.id_format import IdFileMetadata
from minigpt_tok.data.id_writer import write_id_file
from minigpt_tok.errors import DataError


def test_each_form_holds_the_ids_and_the_tokenizer_is_named_beside_it(id_file, tmp_path, tokenizer):
    file = IdFile(id_file)
    exports.export_bin(file, tmp_path / "train.bin")
    exports.export_npy(file, tmp_path / "train.npy")
    exports.export_pt(file, tmp_path / "train.pt")
    assert np.fromfile(tmp_path / "train.bin", dtype=np.uint16).tolist() == file.ids.tolist()
    array = np.load(tmp_path / "train.npy", mmap_mode="r")
    assert array.dtype == file.ids.dtype
    assert array.tolist() == file.ids.tolist()
    tensor = torch.load(tmp_path / "train.pt", weights_only=True)
    assert tensor.dtype == torch.long
    assert tensor.tolist() == file.ids.tolist()
    for name in ("train.bin", "train.npy", "train.pt"):
        assert json.loads((tmp_path / f"{name}.json").read_text())["tokenizer_fingerprint"] == tokenizer.fingerprint


def test_nanogpts_form_cannot_hold_large_vocabularies(tmp_path):
    metadata = IdFileMetadata(
        tokenizer_fingerprint="f", tokenizer_fingerprint_version=1, vocab_size=65_537, corpus="c", split="train"
    )
    write_id_file(tmp_path / "x.safetensors", [("a", np.array([65_536]))], metadata)
    with pytest.raises(DataError, match=r"16-bit ids, and the vocabulary has 65,537; export \.npy"):
        exports.export_bin(IdFile(tmp_path / "x.safetensors"), tmp_path / "x.bin")
    assert not (tmp_path / "x.bin").exists()
    exports.export_npy(IdFile(tmp_path / "x.safetensors"), tmp_path / "x.npy")
    assert np.load(tmp_path / "x.npy").tolist() == [65_536]
    write_id_file(
        tmp_path / "y.safetensors", [("a", np.array([65_535]))], dataclasses.replace(metadata, vocab_size=65_536)
    )
    exports.export_bin(IdFile(tmp_path / "y.safetensors"), tmp_path / "y.bin")
    assert np.fromfile(tmp_path / "y.bin", dtype="<u2").tolist() == [65_535]
