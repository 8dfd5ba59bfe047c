"""Functions that the serving benchmarks share: servers, and `tidepool bench --server` as the load
generator.

Build //service:tidepool first, because the benchmarks build nothing. Run them with the interpreter
that tools/setup installs (.cache/venv/bin/python), from any folder.
"""

import json
import os
import pathlib
import random
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests/integration"))
os.chdir(ROOT)
os.environ.setdefault("TIDEPOOL_BINARY", str(ROOT / ".cache/bazel-bin/service/tidepool"))

import harness  # noqa: E402 (finds its files in the current folder)

IDS = range(1_000, 40_000)  # plain words of any large vocabulary


def note(text):
    print(text, file=sys.stderr, flush=True)


def load(server, *flags):
    """Returns the report of `tidepool bench --server`."""
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


def fresh_prompt(draw, tokens):
    return draw.choices(IDS, k=tokens)


def decode_until(server, end, seed, gaps, max_tokens):
    """Runs one stream after the other; appends the seconds between tokens to `gaps`."""
    client = harness.Client(server)
    draw = random.Random(seed)
    while time.perf_counter() < end:
        last = None
        stream = client.stream(ids=fresh_prompt(draw, 16), max_tokens=max_tokens)
        for message in stream:
            now = time.perf_counter()
            if now >= end:
                stream.cancel()
                break
            if message.token_ids and last is not None:
                gaps.append(now - last)
            last = now
    client.close()
