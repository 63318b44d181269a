"""Runs the commands of the README and the manual.

usage: commands.py BINARY SCRATCH [PAGE...]

The commands of a page run in one directory, in the order of the page, and each must succeed:

- all lines of a block ```sh, and in a block ```console those behind a prompt, `$ ` or `# `;
- in the table of recipes of the README, the code in the second column.

Commands that a pattern of exceptions.ini matches are not run; a pattern that matches none is an error. The paths
/mnt, /data and /tmp are directories in SCRATCH.
"""

import configparser
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
RECIPES = "## A recipe for each tool"
PLACES = re.compile(r"(?:(?<=//)|(?<![\w./~]))/(mnt|data|tmp)(?=[/\s'\";):]|$)", re.MULTILINE)
PROMPT = re.compile(r"[$#] ")
# The prompt of root in a block of sh, where comments begin like it.
ROOT_PROMPT = re.compile(r"# (?=(?:mount|umount|install|systemctl|journalctl|mkdir) )")
HEREDOC = re.compile(r"<<-?\s*['\"]?(\w+)")
# The longest time of the commands of one page.
SECONDS = 120


class Command:
    def __init__(self, page, line, text):
        self.page, self.line, self.text = page, line, text


def is_open(text):
    """Whether the next line belongs to a command, too."""
    found = HEREDOC.search(text)
    # A script between quotes begins behind its first line; other quotes may be in comments.
    if text.split("\n")[0].endswith("'") and text.count("'") % 2:
        return True
    return text.endswith("\\") or (found and not text.endswith(f"\n{found.group(1)}"))


def joined(page, lines, has_prompts):
    """Returns the commands of numbered lines."""
    commands = []
    for number, line in lines:
        if commands and is_open(commands[-1].text):
            commands[-1].text += "\n" + line
        elif found := (PROMPT if has_prompts else ROOT_PROMPT).match(line):
            commands.append(Command(page, number, line[found.end() :]))
        elif not has_prompts and line.strip() and not line.startswith("#"):
            commands.append(Command(page, number, line))
    return commands


def of_blocks(page, text):
    commands, language, lines = [], None, []
    for number, line in enumerate(text.splitlines(), 1):
        if not line.startswith("```"):
            lines.append((number, line))
            continue
        if language is None:
            language, lines = line[3:].strip(), []
            continue
        if not language and any(PROMPT.match(line) for _, line in lines):
            language = "console"
        if not language:
            sys.exit(f"{page}:{number}: a block without a language, such as sh, console or text")
        if language in ("sh", "console"):
            commands += joined(page, lines, language == "console")
        elif language in ("bash", "python"):
            print(f"not run, a script: {page}:{lines[0][0]}: {lines[0][1]}")
        language, lines = None, []
    return commands


def of_recipes(page, text):
    _, _, section = text.partition(RECIPES)
    start = text.count("\n", 0, len(text) - len(section)) + 1
    commands = [Command(page, start, "zarrfs ocean.zarr /mnt/ocean")]
    for number, line in enumerate(section.split("\n## ")[0].splitlines(), start):
        cells = [cell.strip() for cell in line.split(" | ")]
        if not line.startswith("| ") or len(cells) < 2:
            continue
        tool = cells[0].removeprefix("| ")
        for code in re.findall(r"`([^`]+)`", cells[1]):
            commands.append(Command(page, number, f"{code} # recipe: {tool}"))
    return commands


def exceptions():
    config = configparser.RawConfigParser(delimiters=("=",))
    config.optionxform = str
    config.read(HERE / "exceptions.ini")
    patterns = []
    for reason in config.sections():
        for value in config[reason].values():
            patterns += [(reason, re.compile(line)) for line in value.split("\n") if line]
    return patterns


def script(commands, scratch):
    lines = ["set -eu"]
    for command in commands:
        text = PLACES.sub(lambda found: f"{scratch}/{found.group(1)}", command.text)
        if "# recipe:" in text:
            text = re.sub(r"(?<![\w./])M(?=/| |\"|$)", f"{scratch}/mnt/ocean", text)
        lines += [f"echo '{command.page}:{command.line}:' >&2", text]
    return "\n".join(lines) + "\n"


def mounts(scratch):
    table = Path("/proc/self/mounts").read_text().splitlines()
    return [line.split()[1] for line in table if line.split()[1].startswith(f"{scratch}/")]


def environment(scratch, binary):
    names = ("PATH", "LANG", "LD_LIBRARY_PATH")
    found = {name: os.environ[name] for name in names if name in os.environ}
    tools = [binary.parent, ROOT / "tests/views/.venv/bin", *found["PATH"].split(":")]
    return found | {
        "PATH": ":".join(map(str, tools)),
        "HOME": f"{scratch}/home",
        "TMPDIR": f"{scratch}/tmp",
        "XDG_RUNTIME_DIR": f"{scratch}/run",
        "MPLBACKEND": "agg",
    }


def run(page, commands, store, base, binary):
    """Runs the commands of a page; returns the failures."""
    scratch = base / page.replace("/", "-").removesuffix(".md")
    shutil.copytree(store, scratch)
    for name in ("mnt/ocean", "mnt/new", "mnt/old", "mnt/volume", "mnt/scene", "data", "tmp", "home", "run"):
        (scratch / name).mkdir(parents=True)
    (scratch / "run").chmod(0o700)
    shutil.copy(store / "ocean.zarr.zip", scratch / "data")
    try:
        done = subprocess.run(
            ["bash", "-c", script(commands, scratch)],
            cwd=scratch,
            env=environment(scratch, binary),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=SECONDS,
        )
        output, status = done.stdout, done.returncode
    except subprocess.TimeoutExpired as error:
        output, status = (error.stdout or b"").decode(), f"not done in {SECONDS} s"
    for point in reversed(mounts(scratch)):
        subprocess.run([binary, "umount", "--lazy", point])
    if status:
        last = re.findall(rf"^{re.escape(page)}:(\d+):$", output, re.MULTILINE)[-1:]
        return f"{page}:{''.join(last)}: {status}\n{output[-3000:]}"
    return None


def main():
    binary, base, wanted = Path(sys.argv[1]).resolve(), Path(sys.argv[2]), sys.argv[3:]
    pages = ["README.md", *sorted(f"src/manual/{path.name}" for path in (ROOT / "src/manual").glob("*.md"))]
    store = base / "stores"
    store.mkdir()
    subprocess.run([ROOT / "tests/views/.venv/bin/python", HERE / "make_store.py", store], check=True)
    shutil.make_archive(store / "ocean.zarr", "zip", store / "ocean.zarr")
    shutil.copytree(ROOT / "target/fixtures/n5/store", store / "volume.n5")
    patterns, used, failures, count = exceptions(), set(), [], 0
    for page in pages:
        text = (ROOT / page).read_text()
        commands = of_blocks(page, text) + (of_recipes(page, text) if page == "README.md" else [])
        kept = []
        for command in commands:
            matching = [entry for entry in patterns if entry[1].search(command.text)]
            used.update(matching)
            for reason, _ in matching[:1]:
                print(f"not run, {reason}: {page}:{command.line}: {command.text.splitlines()[0]}")
            if not matching:
                kept.append(command)
        if wanted and page not in wanted:
            continue
        count += len(kept)
        failure = kept and run(page, kept, store, base, binary)
        if failure:
            failures.append(failure)
    failures += [f"exceptions.ini: nothing matches {pattern.pattern}" for reason, pattern in patterns if (reason, pattern) not in used]
    print(f"{count} commands were run")
    for failure in failures:
        print(f"FAILED {failure}")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
