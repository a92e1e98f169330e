# SPDX-License-Identifier: Apache-2.0
"""``python -m plimsoll ARGS`` is the command line ``plimsoll ARGS``."""

import os
import sys

from plimsoll import _program


def main() -> None:
    """Turns this process into the command line: arguments, streams and exit code are its own."""
    os.execve(_program.path(), ["plimsoll", *sys.argv[1:]], _program.environment())


if __name__ == "__main__":
    main()
