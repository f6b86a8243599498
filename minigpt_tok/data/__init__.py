"""Corpora, id files, datasets and their order: from text to batches.

Reading text: `corpora` (what a user names → splits of documents), with `text_files`, `wikitext`, `pydocs` and `hub`
behind it; `processed` keeps cleaned splits, `leakage` compares them. Ids: `encode` makes them, `id_file` reads and
writes them, `decode` and `exports` lead out. Batches: `token_dataset` over an id file, cut by a `packing`, in an
`order`, through a `loader`; `data_module` wires these up for Lightning.
"""
