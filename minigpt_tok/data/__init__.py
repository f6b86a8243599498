"""Corpora, id files, datasets and their order: from text to batches."""
