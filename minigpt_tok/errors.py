"""The exceptions that a user can cause. Each message says what is wrong, where, and what to do.

All derive from `MiniGPTTokError`, so the command line shows exactly these (and `OSError`) as one message without a
traceback. Wrong values are `ValueError`s too, so callers may catch them in the ordinary way.
"""


class MiniGPTTokError(Exception):
    """Base of every error that a user's input or files can cause."""


class TokenizerError(MiniGPTTokError, ValueError):
    """An argument, a text or an id that a tokenizer cannot work with."""


class FormatError(MiniGPTTokError, ValueError):
    """A file that is broken, edited, or of another kind than it was taken for.

    Messages quote what is in the file; the middle of a very long one is left out.
    """

    LONGEST = 800  # characters

    def __init__(self, message: str) -> None:
        if len(message) > self.LONGEST:
            message = f"{message[: self.LONGEST // 2]} … {message[-self.LONGEST // 2 :]}"
        super().__init__(message)


class CorpusError(MiniGPTTokError, ValueError):
    """A corpus that cannot be found or read, or that holds nothing to work on."""


class DataError(MiniGPTTokError, ValueError):
    """An id file, a packing or an order that does not fit what is asked of it."""


class ModelError(MiniGPTTokError, ValueError):
    """A model's configuration, a budget or a generation request that cannot work."""


class MissingDependencyError(MiniGPTTokError, ImportError):
    """A library of an optional extra that is not installed."""


class TokenizerMismatchError(MiniGPTTokError, ValueError):
    """Two artefacts that were made with different tokenizers, or one whose tokenizer cannot be established."""
