"""Bits per byte, compression, and the comparison of tokenizers."""
