"""Corpora, id files, datasets and their order: from text to batches.

Reading text: `corpora` (what a user names → splits of documents), with `local_files`, `source_file`, `text_files`,
`tables`, `wikitext`, `pydocs`, `hub` and `mixture` behind it; `processed` keeps cleaned splits, `leakage` and
`near_duplicates` compare them. Ids: `encode` makes them, by an engine of `engines` and through `shards`; `estimate` says
beforehand what that takes; `hub_encoding` makes them in a data set of `datasets`; `id_file` reads them and `id_writer` writes
them, both as `id_format` says; `decode` and `exports` lead out. Batches: `token_dataset` over an id file, cut by a
`packing`, in an `order`, through a `loader`; `data_module` wires these up for Lightning.
"""
