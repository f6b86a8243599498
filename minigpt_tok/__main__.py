"""`python -m minigpt_tok` is `minigpt-tok`."""

from minigpt_tok.cli import main

if __name__ == "__main__":
    main()
