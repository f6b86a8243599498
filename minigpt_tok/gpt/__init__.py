"""MiniGPT: the model, its training with Lightning, and generation."""
