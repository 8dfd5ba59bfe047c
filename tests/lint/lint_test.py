"""The tree keeps its own rules: direction of includes, sizes of files, one namespace per folder."""

import pathlib
import re
import subprocess
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]

# A folder may include itself and what stands here; the longest prefix of a file's folder counts.
# Everything may include kernels/base.
ALLOWED = {
    "kernels/base": [],
    "kernels": ["kernels"],
    "kernels/reference": ["kernels"],
    "kernels/cpu": ["kernels"],
    "moe": ["kernels"],
    "engine/checkpoint": ["moe", "kernels"],
    "engine/tokenizer": ["engine/checkpoint", "kernels/base"],
    "engine/model": ["engine/checkpoint", "engine/tokenizer", "moe", "kernels"],
    "engine": ["engine", "moe", "kernels"],
    "proto": [],
    "service/store": ["service/store", "kernels/base", "tidepool"],
    "service/worker": ["service", "engine", "moe", "kernels/base", "tidepool"],
    "service/front": ["service", "engine", "moe", "kernels/base", "tidepool"],
    "service/cli": ["service", "engine", "moe", "kernels", "tidepool"],
    "service": ["service", "engine", "moe", "kernels", "tidepool"],
    "tools": ["tools", "engine", "kernels"],
    "tests": [""],
}

# A worker does not know fronts, and neither knows the command line.
FORBIDDEN = {
    "service/worker": ["service/front", "service/cli", "service/store"],
    "service/front": ["service/cli"],
    "service/store": ["service/front", "service/worker", "service/cli"],
    "engine/model": ["engine/engine.h"],
}

INCLUDE = re.compile(r'^\s*#include\s+"([^"]+)"', re.MULTILINE)


def tracked(*suffixes):
    names = subprocess.run(
        ["git", "-C", str(ROOT), "ls-files", "-co", "--exclude-standard"],
        check=True, capture_output=True, text=True).stdout.split("\n")
    return [name for name in names if name.endswith(suffixes) and (ROOT / name).exists()]


def longest_prefix(folder, table):
    while folder and folder not in table:
        folder = folder.rpartition("/")[0]
    return folder


def is_below(path, folder):
    return folder == "" or path == folder or path.startswith(folder + "/")


class LintTest(unittest.TestCase):

    def test_includes_point_right(self):
        wrong = []
        files = tracked(".h", ".cc", ".cu")
        self.assertGreater(len(files), 10)
        for name in files:
            folder = name.rpartition("/")[0]
            home = longest_prefix(folder, ALLOWED)
            self.assertTrue(home, f"{name}: no rule for this folder in {__file__}")
            for include in INCLUDE.findall((ROOT / name).read_text()):
                if not include.partition("/")[0] in {key.partition("/")[0] for key in ALLOWED} | {"tidepool"}:
                    continue
                ok = (is_below(include, home) or is_below(include, "kernels/base")
                      or any(is_below(include, allowed) for allowed in ALLOWED[home]))
                bad = any(is_below(include, banned) for banned in FORBIDDEN.get(home, []))
                if not ok or bad or (is_below(include, "tests") and home != "tests"):
                    wrong.append(f"{name} includes {include}")
        self.assertEqual(wrong, [])

    def test_files_stay_readable(self):
        long = []
        for name in tracked(".h", ".cc", ".cu", ".py", ".proto"):
            lines = (ROOT / name).read_text().count("\n")
            if lines > 500:
                long.append(f"{name}: {lines} lines")
        self.assertEqual(long, [])

    def test_no_big_files(self):
        big = [name for name in tracked("") if (ROOT / name).stat().st_size > 2 << 20]
        self.assertEqual(big, [])

    def test_headers_are_guarded(self):
        wrong = []
        for name in tracked(".h"):
            guard = "TIDEPOOL_" + re.sub(r"[^A-Z0-9]", "_", name.upper()) + "_"
            text = (ROOT / name).read_text()
            if f"#ifndef {guard}\n#define {guard}\n" not in text:
                wrong.append(f"{name}: expected the guard {guard}")
        self.assertEqual(wrong, [])

    def test_no_environment_reads_in_libraries(self):
        wrong = []
        for name in tracked(".h", ".cc"):
            if name.startswith(("kernels/", "moe/", "engine/")) and "getenv" in (ROOT / name).read_text():
                wrong.append(name)
        self.assertEqual(wrong, [])


if __name__ == "__main__":
    unittest.main()
