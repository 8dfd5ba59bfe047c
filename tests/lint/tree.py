"""The files of the checkout that git tracks or would track, and their text."""

import pathlib
import re
import subprocess

ROOT = pathlib.Path(__file__).resolve().parents[2]


def files(*suffixes):
    """The names of all files that end in one of `suffixes`, relative to ROOT. No suffixes: all files."""
    names = subprocess.run(["git", "-C", str(ROOT), "ls-files", "-z", "-co", "--exclude-standard"], check=True,
                           capture_output=True, text=True).stdout.split("\0")
    # git also lists submodules, and files that were just deleted.
    return [name for name in names if name.endswith(suffixes or "") and (ROOT / name).is_file()]


def python_files():
    """The names of all Python files. A script without a suffix counts, too."""
    scripts = [name for name in files() if "." not in pathlib.Path(name).name]
    return files(".py") + [name for name in scripts if re.match(rb"#!.*python", (ROOT / name).read_bytes())]


def read(name):
    """The text of a file. Bytes that are not UTF-8 are replaced."""
    return (ROOT / name).read_text(encoding="utf-8", errors="replace")
