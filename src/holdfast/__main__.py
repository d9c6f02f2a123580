"""`python -m holdfast`: the command `holdfast`, with the interpreter that is named."""

from .cli import main

if __name__ == "__main__":
    main()
