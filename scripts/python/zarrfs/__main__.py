"""`python -m zarrfs ARGUMENTS` becomes the program `zarrfs`."""

import os
import sys

from ._program import ZarrfsError, program


def main() -> None:
    """Replaces this process by the program."""
    try:
        path = program()
    except ZarrfsError as error:
        sys.exit(f"zarrfs: {error}")
    os.execv(path, ["zarrfs", *sys.argv[1:]])


if __name__ == "__main__":
    main()
