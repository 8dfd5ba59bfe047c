"""What the benchmarks of serving share: servers, and `tidepool bench --server` against them.

They are run from anywhere, with the interpreter that tools/setup made (.cache/venv/bin/python), after
a build of //service:tidepool; none builds anything itself.
"""

import json
import os
import pathlib
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests/integration"))
os.chdir(ROOT)
os.environ.setdefault("TIDEPOOL_BINARY", str(ROOT / ".cache/bazel-bin/service/tidepool"))

import harness  # noqa: E402 (finds its files in the current folder)


def note(text):
    print(text, file=sys.stderr, flush=True)


def load(server, *flags):
    """The report of `tidepool bench --server`."""
    result = harness.run_tidepool("bench", "--server", server.address, "--json", *flags,
                                  timeout=1200)
    if result.returncode != 0:
        raise SystemExit(f"{' '.join(map(str, flags))}: {result.stderr.strip()}")
    return json.loads(result.stdout)


def ms(report, latency, quantile):
    seconds = report[latency]
    return float("nan") if seconds is None else 1e3 * seconds[quantile]


def print_row(cells, widths):
    print("  ".join(f"{cell:>{width}}" for cell, width in zip(cells, widths)))
