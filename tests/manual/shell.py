"""Types lines in a shell on a terminal, with TAB behind each, and prints the words that the shell then has.

usage: shell.py BINARY SHELL LINE...

Prints one line for each: the words, separated by the unit separator.
"""

import os
import pty
import re
import select
import shlex
import signal
import sys
import tempfile
import time
from pathlib import Path

# The time limit of one answer.
SECONDS = 30
END = "end-of-words"
# The time limit of a shell for a completion; after it, the next completion is tried.
PAUSES = (0.5, 2, 6)
# Prints the words of a line in a form that no prompt has.
PRINT = """#!/bin/sh
printf 'words:'
for word; do printf '%s\\037' "$word"; done
echo end-of-words
"""
SHELLS = {
    "bash": (
        ["bash", "--norc", "--noprofile", "-i"],
        'PS1="ready> "; bind "set enable-bracketed-paste off"; bind "set bell-style none"; '
        'eval "$(zarrfs completions bash)"\n',
    ),
    "zsh": (
        ["zsh", "-f", "-i"],
        'PS1="ready> "; autoload -Uz compinit; compinit -u -D; unset zle_bracketed_paste; bindkey -e; '
        'eval "$(zarrfs completions zsh)"\n',
    ),
    "fish": (
        ["fish", "--no-config", "--private", "-i"],
        "function fish_prompt; echo 'ready> '; end; zarrfs completions fish | source\n",
    ),
}


class Terminal:
    def __init__(self, command, environment):
        # A session of its own, whose controlling terminal this is.
        self.process, self.master = pty.fork()
        if self.process == 0:
            os.execvpe(command[0], command, environment)
        self.output = ""

    def type(self, text):
        os.write(self.master, text.encode())

    def read_until(self, pattern, quiet=None):
        """Reads until a pattern is in the output, or until nothing comes for `quiet` seconds."""
        end = time.monotonic() + SECONDS
        while not (pattern and re.search(pattern, self.output)):
            wait = quiet or end - time.monotonic()
            ready, _, _ = select.select([self.master], [], [], max(wait, 0))
            if not ready:
                if quiet:
                    return None
                raise SystemExit(f"no answer: {self.output[-2000:]!r}")
            self.output += os.read(self.master, 65536).decode(errors="replace")
        return re.search(pattern, self.output)

    def close(self):
        os.close(self.master)
        os.kill(self.process, signal.SIGKILL)
        os.waitpid(self.process, 0)


def completed(terminal, line, quiet):
    """Returns the words after TAB, which may take `quiet` seconds."""
    terminal.output = ""
    terminal.type(line)
    terminal.read_until(None, quiet=0.1)
    terminal.type("\t")
    terminal.read_until(None, quiet)
    # At the beginning of the line, a command that prints it.
    terminal.type("\x01words \x05\n")
    found = terminal.read_until(rf"words:(?!')(.*?){END}")
    return found.group(1).rstrip("\x1f").split("\x1f")


def main():
    binary, shell, lines = sys.argv[1], sys.argv[2], sys.argv[3:]
    command, setup = SHELLS[shell]
    with tempfile.TemporaryDirectory() as home:
        printer = Path(home) / "words"
        printer.write_text(PRINT)
        printer.chmod(0o755)
        environment = {
            "PATH": f"{Path(binary).parent}:{home}:/usr/local/bin:/usr/bin:/bin",
            "HOME": home,
            "TERM": "xterm",
            "COLUMNS": "500",
            "LC_ALL": "C.UTF-8",
        }
        if runtime := os.environ.get("XDG_RUNTIME_DIR"):
            environment["XDG_RUNTIME_DIR"] = runtime
        terminal = Terminal(command, environment)
        try:
            terminal.read_until(None, quiet=0.5)
            terminal.type(setup)
            terminal.read_until(None, quiet=1.5)
            for line in lines:
                for quiet in PAUSES:
                    words = completed(terminal, line, quiet)
                    # A busy machine needs longer.
                    if words != shlex.split(line):
                        break
                print("\x1f".join(words))
        finally:
            terminal.close()


main()
