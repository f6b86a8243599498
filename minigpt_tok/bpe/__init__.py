"""The BPE algorithm: named patterns, recipes, the trainer and the encoder."""
