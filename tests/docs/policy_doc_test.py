"""Runs the commands of docs/policy.md, on one of the traces that each of them makes, and checks the figure.

bazel is replaced by the programs that it would run; policy_bench runs for a moment only. policy_plot.py needs
matplotlib, and is not run without it. The curves of the committed figure are compared with the script in any case.
"""

import importlib.util
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

RUNFILES = pathlib.Path.cwd()
PAGE = RUNFILES / "docs" / "policy.md"
TIDEPOOL = RUNFILES / "service" / "tidepool"
BENCH = RUNFILES / "tests" / "bench"
# Called like bazel. Of the traces of a folder, only the smallest is kept.
BAZEL = f"""#!/bin/sh
set -e
[ "$1 $2" = "run --config=opt" ]
case "$3" in
  //tests/bench:make_traces)
    [ "$4" = -- ]
    "{BENCH}/make_traces" "$5" "$6" "$7"
    cd "$5"
    rm -- $(ls -S | head -n -1) ;;
  //tests/bench:policy_bench) exec "{BENCH}/policy_bench" --benchmark_min_time=0.01 ;;
  *) echo "unknown target $3" >&2; exit 1 ;;
esac
"""


def program(path, text):
    path.write_text(text)
    path.chmod(0o755)


def policy_plot():
    spec = importlib.util.spec_from_file_location("policy_plot", BENCH / "policy_plot.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


class Axes:
    """The part of a figure with one pair of axes, as matplotlib writes it."""

    def __init__(self, text):
        self.text = text
        self.to_x, self.to_y = self.read_ticks("x"), self.read_ticks("y")

    def read_ticks(self, axis):
        """Returns the function from a position in the file to a value of the axis."""
        ticks = re.findall(rf'<g id="{axis}tick_\d+">.*?<use [^>]*\b{axis}="([\d.]+)".*?<!-- ([\u2212\d.]+) -->',
                           self.text, re.DOTALL)
        (begin, first), (end, last) = [
            (float(position), float(value.replace("\u2212", "-"))) for position, value in (ticks[0], ticks[-1])]
        return lambda position: first + (float(position) - begin) * (last - first) / (end - begin)

    def curve(self, color):
        """Returns the (x, y) of a line's points."""
        paths = re.findall(rf'<path d="([^"]*)" clip-path="[^"]*" style="fill: none; [^"]*\bstroke: {color}[;"]',
                           self.text)
        assert len(paths) == 1, f"{len(paths)} lines of color {color}"
        return [(self.to_x(x), self.to_y(y)) for x, y in re.findall(r"[ML] ([\d.]+) ([\d.]+)", paths[0])]

    def dot(self, color):
        found = re.search(rf'<use [^>]*\bx="([\d.]+)" y="([\d.]+)" style="fill: {color};', self.text)
        return self.to_x(found[1]), self.to_y(found[2])


def interpolate(points, x):
    """Returns y at x. Interpolates, because matplotlib leaves out points on a straight line between
    others."""
    for (x0, y0), (x1, y1) in zip(points, points[1:]):
        if x0 - 1e-3 <= x <= x1 + 1e-3:
            return y0 + (y1 - y0) * (x - x0) / (x1 - x0)
    raise AssertionError(f"no line at {x}")


class PolicyPageTest(unittest.TestCase):

    def setUp(self):
        scratch = tempfile.TemporaryDirectory()
        self.addCleanup(scratch.cleanup)
        self.folder = pathlib.Path(scratch.name)
        self.page = PAGE.read_text()

    def run_line(self, line):
        line = line.replace("/tmp/", f"{self.folder}/").replace(".cache/bazel-bin/service/tidepool", str(TIDEPOOL))
        programs = self.folder / "bin"
        programs.mkdir(exist_ok=True)
        program(programs / "bazel", BAZEL)
        program(programs / "python3", f'#!/bin/sh\nexec "{sys.executable}" "$@"\n')
        result = subprocess.run(["bash", "-e", "-c", line], cwd=RUNFILES, capture_output=True, text=True, timeout=600,
                                env=os.environ | {"PATH": f"{programs}:{os.environ['PATH']}"})
        self.assertEqual(result.returncode, 0, f"{line}\n{result.stdout}{result.stderr}")
        return result.stdout

    def test_every_command_runs(self):
        block = re.search(r"^```sh\n(.*?)^```$", self.page, re.MULTILINE | re.DOTALL)[1]
        tables, ran = [], []
        for line in block.splitlines():
            if "policy_plot.py" in line and not importlib.util.find_spec("matplotlib"):
                continue
            output = self.run_line(line)
            ran.append(line)
            if "replay_table" in line:
                tables.append(output)
        self.assertEqual([name for name in ("make_traces", "replay_table", "policy_bench")
                          if not any(name in line for line in ran)], [])
        # Four seeds of one set of traces and three of the other, one trace each, with four numbers of slots.
        self.assertEqual([len(re.findall(r"^\| \w+ \| [\d.]+ % ", table, re.MULTILINE)) for table in tables], [16, 12])
        for table in tables:
            self.assertIn("adaptive against the better of lru and tide: mean ", table)

    def test_the_figure_is_that_of_its_script(self):
        plot = policy_plot()
        left, right = map(Axes, (PAGE.parent / "policy.svg").read_text().split('<g id="axes_2">'))
        self.assertAlmostEqual(interpolate(left.curve("#888888"), 1), plot.PRICE, places=3)
        self.assertIn(f"a price of {plot.PRICE}.", self.page)
        for name, (color, hazards) in plot.EXPERTS.items():
            gains = plot.gains(hazards)
            for axes, values in ((left, hazards), (right, gains)):
                for forward, value in enumerate(values, 1):
                    self.assertAlmostEqual(interpolate(axes.curve(color), forward), value, places=3, msg=name)
            forward, gain = right.dot(color)
            self.assertAlmostEqual(forward, gains.index(max(gains)) + 1, places=3, msg=name)
            self.assertAlmostEqual(gain, max(gains), places=3, msg=name)

    def test_the_picture_exists(self):
        for picture in re.findall(r"!\[[^\]]*\]\(([^)]+)\)", self.page):
            self.assertTrue(os.path.exists(PAGE.parent / picture), picture)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
