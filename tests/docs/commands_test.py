"""The commands on the pages name programs, targets and flags that exist.

The tests of the pages run the commands of most sh blocks. This test checks the rest: inline commands, and commands
that no test can run. It finds the program of each command, and looks for each flag in the program's --help or in its
source. It reads the whole checkout.
"""

import functools
import os
import pathlib
import re
import shlex
import subprocess
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
TIDEPOOL = os.environ["TIDEPOOL_BINARY"]
MODEL = ROOT / "tests" / "golden" / "tiny" / "llama_f32.gguf"

PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]
SH_BLOCK = re.compile(r"^```sh\n(.*?)^```$", re.MULTILINE | re.DOTALL)
ANY_BLOCK = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)

# Commands in sh blocks of CONTRIBUTING.md that no test runs, and why.
NOT_RUN = {
    "tools/clang_checks": "tools/test runs it outside of Bazel",
    "tools/test": "it runs Bazel",
    "tests/golden/make_families.py": "it needs transformers, which only tools/setup --peers installs",
    "tests/proto/wire.py": "--renew writes a committed file; tests/proto/wire_test.py tests the rest",
}
# Programs in tests/bench that only other programs start.
HELPERS = {"llama_peer.py", "grammar_masks"}
# Scripts of other projects.
FOREIGN = {"convert_hf_to_gguf.py"}
# The flags of these scripts are parsed by other files.
PARSED_BY = {
    "tools/make_synthetic": "tools/synthetic/*",
    "tools/make_demo_moe": "tools/demo_moe/make.py",
}
COMMAND_FLAG = re.compile(r"^ +(?:(-\w), )?(--[\w-]+|-\w)", re.MULTILINE)


def split(text):
    """Returns the commands of a shell text as lists of words."""
    words = shlex.shlex(text.replace("\\\n", " "), posix=True, punctuation_chars=";|&()<>\n")
    words.whitespace, words.whitespace_split = " \t\r", True
    commands = [[]]
    for word in words:
        if set(word) <= set(";|&()<>\n"):
            commands.append([])
        else:
            commands[-1].append(word)
    return [strip(command) for command in commands]


def strip(words):
    """Returns the words of a command without what precedes the program."""
    while words and (words[0] in ("do", "!") or re.match(r"\w+=", words[0])):
        words = words[1:]
    if words and re.search(r"(^|/)python3?$", words[0]) and words[1:2] != ["-m"]:
        words = words[1:]
    return words


def commands(page):
    """Returns the commands in sh blocks of a page, and its inline commands."""
    text = page.read_text()
    found = [command for block in SH_BLOCK.findall(text) for command in split(block)]
    for span in re.findall(r"`([^`\n]+)`", ANY_BLOCK.sub("", text)):
        try:
            found.append(strip(shlex.split(span)))
        except ValueError:  # not a command but a text with a quote
            continue
    return [command for command in found if command]


@functools.cache
def tracked():
    files = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    return [ROOT / name for name in files.splitlines()]


@functools.cache
def tidepool_help(*words):
    result = subprocess.run([TIDEPOOL, *words, "--help"], capture_output=True, text=True, timeout=60)
    return result.stdout if result.returncode == 0 else None


@functools.cache
def tidepool_commands():
    return re.findall(r"^  (\w+) {2,}", tidepool_help(), re.MULTILINE)


def flags_of(words):
    """Returns the flags among `words`, without their values, and without negative numbers."""
    return [word.split("=")[0] for word in words if re.match(r"--?[A-Za-z]", word)]


def has_target(label):
    package, _, name = label.removeprefix("//").partition(":")
    build = ROOT / package / "BUILD"
    if not build.exists():
        return False
    # Some targets are made by a list comprehension over their names.
    return re.search(rf'"{re.escape(name or pathlib.Path(package).name)}"', build.read_text()) is not None


def source_of(program):
    pattern = PARSED_BY.get(program, program)
    paths = [path for path in ROOT.glob(pattern) if path.is_file()]
    if not paths and "/" not in program:
        paths = [path for path in tracked() if path.name == program]
    return "\n".join(path.read_text(errors="replace") for path in paths)


def check_tidepool(words):
    if not words or words[0] in ("--help", "--version"):
        return []
    if words[0] not in tidepool_commands():
        return [f"there is no command {words[0]}"]
    # "sessions" has subcommands. Its help lists their flags.
    known = {flag for pair in COMMAND_FLAG.findall(tidepool_help(words[0])) for flag in pair} | {"--help"}
    return [f"tidepool {words[0]} has no flag {flag}" for flag in flags_of(words[1:]) if flag not in known]


def check_bazel(words):
    if "--" in words:
        words = words[:words.index("--")]
    wrong = [f"there is no target {word}" for word in words if word.startswith("//") and not has_target(word)]
    configs = [word.removeprefix("--config=") for word in words if word.startswith("--config=")]
    rc = (ROOT / ".bazelrc").read_text()
    return wrong + [f".bazelrc has no {name}" for name in configs if not re.search(rf"^\w+:{name} ", rc, re.MULTILINE)]


def check_path(word):
    """Checks that the word is a file or folder of the checkout, or a target."""
    path = word.rstrip("/")
    if (ROOT / path).exists() or list(ROOT.glob(path)):
        return []
    label = path if ":" in path else ":".join(path.rsplit("/", 1))
    return [] if has_target(label) else [f"there is no {word}"]


def check_script(words):
    source = source_of(words[0])
    if not source:
        return check_path(words[0]) if "/" in words[0] else [f"there is no {words[0]}"]
    wrong = [f"{words[0]} has no flag {flag}" for flag in flags_of(words[1:])
             if not re.search(rf"(?<![\w-]){re.escape(flag)}(?![\w-])", source)]
    for word in words[1:]:
        if word.startswith(("tests/", "tools/")):
            wrong += check_path(word)
    return wrong


def check_grpcurl(words):
    method = re.fullmatch(r"tidepool\.v1\.(\w+)/(\w+)", words[-1])
    if not method:
        return []
    protos = "\n".join(path.read_text() for path in (ROOT / "proto" / "tidepool" / "v1").glob("*.proto"))
    service = re.search(rf"^service {method[1]} {{(.*?)^}}", protos, re.MULTILINE | re.DOTALL)
    return [] if service and f"rpc {method[2]}(" in service[1] else [f"there is no method {words[-1]}"]


def check(words):
    """Returns what is wrong with a command, or nothing if the program is not one of ours."""
    program, rest = words[0], words[1:]
    if program in ("tidepool", ".cache/bazel-bin/service/tidepool"):
        return check_tidepool(rest)
    if program == "bazel":
        return check_bazel(rest)
    if program == "grpcurl":
        return check_grpcurl(words)
    if program.startswith(("tests/", "tools/")) or (program.endswith(".py") and program not in FOREIGN):
        return check_script(words)
    if program in tidepool_commands() and rest and rest[0].startswith("--"):
        return check_tidepool(words)
    return []


class CommandsTest(unittest.TestCase):

    def test_every_command_exists(self):
        checked = 0
        for page in PAGES:
            for words in commands(page):
                with self.subTest(page=page.name, command=" ".join(words)):
                    self.assertEqual(check(words), [])
                checked += words[0] == "tidepool" or words[0].startswith(("tests/", "tools/"))
        self.assertGreater(checked, 150)

    def test_wrong_commands_are_found(self):
        for command in ("tidepool serv --model x", "tidepool serve --modell x", "bench --servers x",
                        "bazel run --config=opt //tests/bench:no_bench",
                        "bazel test --config=fast //tests/bench:scripts_test",
                        "tests/bench/no.py", "no.py", "tools/setup --all", "compare.py --round 9",
                        "tools/make_synthetic --dens x", "tools/test tests/engine/model:no_test",
                        "python3 tests/bench/replay_table.py --folder x",
                        "grpcurl -plaintext 127.0.0.1:50051 tidepool.v1.Admin/SetNothing"):
            self.assertNotEqual(check(strip(shlex.split(command))), [], command)

    def test_every_page_with_sh_blocks_has_a_test(self):
        tests = "\n".join(path.read_text() for path in (ROOT / "tests" / "docs").glob("*_test.py")
                          if path != pathlib.Path(__file__).resolve())
        for page in PAGES:
            if page.name != "CONTRIBUTING.md" and SH_BLOCK.search(page.read_text()):
                self.assertRegex(tests, rf'"{re.escape(page.name)}"|/{re.escape(page.name)}"', page.name)

    def test_every_benchmark_is_on_a_page(self):
        text = "\n".join(page.read_text() for page in PAGES)
        folder = ROOT / "tests" / "bench"
        scripts = [path.name for path in folder.glob("*.py") if "argparse.ArgumentParser" in path.read_text()]
        programs = re.findall(r'cc_binary\(\n    name = "(\w+)"', (folder / "BUILD").read_text())
        self.assertGreater(min(len(scripts), len(programs)), 5)
        self.assertEqual([name for name in scripts + programs if name not in text and name not in HELPERS], [])

    def test_contributing_runs(self):
        ran, not_run = [], set()
        for words in (command for block in SH_BLOCK.findall((ROOT / "CONTRIBUTING.md").read_text())
                      for command in split(block) if command):
            if words[0] in NOT_RUN:
                not_run.add(words[0])
                continue
            self.assertEqual(words[0], "tidepool", words)
            with tempfile.TemporaryDirectory() as folder:
                here = [word.replace("/tmp", folder).replace("DIR", str(MODEL)) for word in words[1:]]
                result = subprocess.run([TIDEPOOL, *here], capture_output=True, text=True, timeout=120)
                self.assertEqual(result.returncode, 0, f"{words}\n{result.stderr}")
                files = {path.name for path in pathlib.Path(folder).rglob("*.npy")}
            self.assertLessEqual({"embedding.npy", "layer.0.npy", "layer.0.attention.npy", "norm.npy"}, files)
            ran.append(words)
        self.assertEqual(len(ran), 1)
        self.assertEqual(not_run, set(NOT_RUN))


if __name__ == "__main__":
    unittest.main()
