"""Everything published must come out of both: the C++ core, and the readable Python that stands in for it."""

import pytest

from minigpt_tok.bpe import fast


@pytest.fixture(params=["core", "python"], autouse=True)
def engine(request, monkeypatch):
    """Runs a test by the core and by the readable Python."""
    if request.param == "python":
        monkeypatch.setattr(fast, "core", None)
    elif fast.core is None:
        pytest.skip("the C++ core is not there: it needs a compiler when the package is installed")
    return request.param
