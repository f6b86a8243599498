"""Where models run."""

import torch

from minigpt_tok.errors import ModelError


def choose_device(name: str) -> torch.device:
    """The device of a name; for `auto` a GPU where there is one, else the CPU.

    Raises:
        ModelError: there is no such device here.
    """
    if name == "auto":
        if torch.cuda.is_available():
            return torch.device("cuda")
        return torch.device("mps" if torch.backends.mps.is_available() else "cpu")
    try:
        device = torch.device(name)
        torch.empty(1, device=device)
    except (RuntimeError, AssertionError) as error:
        reason = (str(error).splitlines() or [""])[0]
        raise ModelError(
            f"the device {name!r} cannot be used here ({reason}); choose cpu, or auto for the best there is"
        ) from None
    return device
