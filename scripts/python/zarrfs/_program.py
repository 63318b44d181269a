"""The program: where it is, its arguments, its messages."""

from __future__ import annotations

import json
import logging
import os
import shutil
import signal
import subprocess
import sysconfig
from pathlib import Path
from typing import Any, Dict, Iterator, List, Mapping, Optional, Sequence, Union

PathLike = Union[str, "os.PathLike[str]"]
"""A path, or a URL."""

Option = Union[None, bool, int, float, PathLike, Sequence[PathLike]]
"""The value of an option. True is an option without a value; None and False leave it out; a list repeats it."""

# Seconds in which an interrupted program takes away what it has begun.
_END_SECONDS = 10

_log = logging.getLogger("zarrfs")


class ZarrfsError(Exception):
    """A command of zarrfs failed. The text is the message of the program."""

    def __init__(self, message: str, exit_code: Optional[int] = None, kind: str = "other") -> None:
        super().__init__(message)
        self.exit_code = exit_code
        """The exit code of the program; None if it was not run."""
        self.kind = kind
        """What has failed, such as "not_found" or "timed_out": a `kind` of `zarrfs help json`."""

    def __reduce__(self) -> "tuple[Any, ...]":
        return type(self), (str(self), self.exit_code, self.kind)


def program() -> str:
    """Returns the path of the program: the one of this package if it is there, else the one on the PATH."""
    for directory in _script_directories():
        path = os.path.join(directory, "zarrfs")
        if os.path.isfile(path) and os.access(path, os.X_OK):
            return path
    found = shutil.which("zarrfs")
    if found is None:
        message = "the program `zarrfs` is neither beside this Python nor on the PATH: pip install zarrfs"
        raise ZarrfsError(message, kind="not_found")
    return found


def _script_directories() -> Iterator[str]:
    """Where pip puts programs: of the environment, of the user, and of `pip install --target`."""
    yield sysconfig.get_path("scripts")
    if f"{os.name}_user" in sysconfig.get_scheme_names():
        yield sysconfig.get_path("scripts", f"{os.name}_user")
    yield str(Path(__file__).resolve().parents[1] / "bin")


def option_arguments(options: Mapping[str, Option]) -> List[str]:
    """Returns the arguments of options: `disk_cache="/c"` is `--disk-cache=/c`."""
    arguments = []
    for name, value in options.items():
        flag = "--" + name.replace("_", "-")
        # The functions of this package print no documents: they read them.
        if value is None or value is False or name == "json":
            continue
        if value is True:
            arguments.append(flag)
        elif isinstance(value, (str, int, float, os.PathLike)):
            arguments.append(f"{flag}={_text(value)}")
        else:
            arguments.extend(f"{flag}={_text(item)}" for item in value)
    return arguments


def _text(value: Union[int, float, PathLike]) -> str:
    return os.fspath(value) if isinstance(value, os.PathLike) else str(value)


def run(command: str, *arguments: PathLike) -> bytes:
    """Runs a command and returns what it prints. Warnings go to the logger `zarrfs`.

    Raises `ZarrfsError` if it fails. An exception such as KeyboardInterrupt ends the program first.
    """
    line = [program(), command, *(os.fspath(argument) for argument in arguments)]
    pipe = subprocess.PIPE
    process = None
    # Not `with`, which waits for the program if an interrupt comes before its first statement.
    try:
        process = subprocess.Popen(line, stdin=subprocess.DEVNULL, stdout=pipe, stderr=pipe)
        out, err = process.communicate()
    except BaseException:
        if process is not None:
            _interrupt(process)
        raise
    message = _message(err.decode(errors="replace"))
    if process.returncode != 0:
        code = process.returncode
        raise ZarrfsError(message or f"{command}: exit code {code}", code, _kind(code, out))
    if message:
        _log.warning("%s", message)
    return out


def run_json(command: str, *arguments: PathLike) -> Dict[str, Any]:
    """Runs a command with --json and returns the document that it prints. Raises as `run`."""
    document: Dict[str, Any] = json.loads(run(command, "--json", *arguments))
    return document


# The exit code for wrong arguments, which has no document.
_USAGE = 2


def _kind(code: int, out: bytes) -> str:
    """The kind of a failure: that of the document that a command with --json prints."""
    if code == _USAGE:
        return "usage"
    try:
        document = json.loads(out)
    except ValueError:
        return "other"
    is_error = isinstance(document, dict) and document.get("schema") == "zarrfs.error/1"
    return str(document["kind"]) if is_error else "other"


def _interrupt(process: "subprocess.Popen[bytes]") -> None:
    process.send_signal(signal.SIGINT)
    try:
        process.wait(_END_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    for pipe in (process.stdout, process.stderr):
        if pipe is not None:
            pipe.close()


def _message(text: str) -> str:
    """Returns the message without the name of the program and without the usage of the command."""
    text = text.split("\n\nUsage:")[0].strip()
    lines = []
    for line in text.splitlines():
        for prefix in ("zarrfs: ", "error: "):
            if line.startswith(prefix):
                line = line[len(prefix) :]
        lines.append(line)
    return "\n".join(lines)
