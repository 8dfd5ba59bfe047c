"""Measures the cost of a constraint, and whether requests without a constraint are as fast as with
an older binary.

Usage: constraint_bench.py MODEL.gguf [--old BINARY] [--streams 8] [--tokens 192] [--rounds 15]
                           [--threads 2] [--json]

Each round generates --tokens tokens in each of --streams requests at once: without a constraint, with
a schema of objects, and with a schema of a long string, whose masks are the largest. In one round, all
prompts, seeds and numbers of tokens are equal. With --old, a server of that binary runs beside the other one
and generates without a constraint. Every second round has the reverse order. Before the first round,
each kind runs once, so grammars are compiled.

The ratios are speeds in one round: "plain" to the old binary's, the others to "plain". They are
computed from elapsed time and from the server's CPU time, which depends less on other load.
"""

import argparse
import json
import os
import pathlib
import statistics
import threading
import time

from serving_rig import harness, note, print_row

OBJECTS = {
    "type": "array", "minItems": 1000,
    "items": {
        "type": "object",
        "properties": {"name": {"type": "string", "maxLength": 20}, "kind": {"enum": ["cat", "dog"]},
                       "legs": {"type": "integer", "minimum": 0, "maximum": 8},
                       "tags": {"type": "array", "items": {"type": "string", "maxLength": 10}, "maxItems": 3}},
        "required": ["name", "kind", "legs", "tags"], "additionalProperties": False}}
TEXT = {"type": "string", "minLength": 100_000}
SCHEMAS = {"plain": None, "objects": json.dumps(OBJECTS), "text": json.dumps(TEXT)}
TICKS = os.sysconf("SC_CLK_TCK")


class Bench:
    """A server and the requests to it."""

    def __init__(self, binary, args):
        harness.BINARY = pathlib.Path(binary).resolve()
        self.server = harness.serve(model=args.model, threads=args.threads)
        self.args = args
        self.client = harness.Client(self.server)

    def cpu_seconds(self):
        fields = pathlib.Path(f"/proc/{self.server.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / TICKS

    def send(self, number, seed, schema, lengths):
        request = harness.make_request(text=f"List {number} of animals in a story:", temperature=1,
                                       max_tokens=self.args.tokens, seed=seed)
        if schema is None:
            request.stopping.ignore_eos = True
        else:
            request.json_schema = schema
        answer = self.client.inference.Complete(request, timeout=600)
        lengths.append(answer.usage.completion_tokens)

    def run(self, schema, number):
        """Returns tokens per second, and tokens per second of CPU time. Each round has its own seeds,
        so masks of earlier rounds are of little use."""
        lengths = []
        threads = [threading.Thread(target=self.send,
                                    args=(stream, number * self.args.streams + stream, schema, lengths))
                   for stream in range(self.args.streams)]
        cpu, begin = self.cpu_seconds(), time.perf_counter()
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        elapsed, cpu = time.perf_counter() - begin, self.cpu_seconds() - cpu
        if lengths != [self.args.tokens] * self.args.streams:
            raise SystemExit(f"constraint_bench: responses of {lengths} tokens")
        return sum(lengths) / elapsed, sum(lengths) / cpu


def measure(args):
    """Returns {kind: [(tokens per second, tokens per second of CPU time) of each round]}."""
    new = Bench(os.environ["TIDEPOOL_BINARY"], args)
    sides = {kind: lambda number, schema=schema: new.run(schema, number) for kind, schema in SCHEMAS.items()}
    if args.old:
        old = Bench(args.old, args)
        sides = {"old": lambda number: old.run(None, number), **sides}
    rows = {kind: [] for kind in sides}
    for number in range(args.rounds + 1):
        for kind in sides if number % 2 == 0 else reversed(sides):
            speeds = sides[kind](number)
            if number > 0:
                rows[kind].append(speeds)
        if number > 0:
            note(f"round {number}: " + ", ".join(f"{kind} {row[-1][0]:.0f} tokens/s" for kind, row in rows.items()))
    return rows


def spread(values):
    low, middle, high = statistics.quantiles(values, n=4, method="inclusive")
    return f"{middle:.3f} ({low:.3f}-{high:.3f})"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("--old", help="another tidepool, to compare with")
    parser.add_argument("--streams", type=int, default=8)
    parser.add_argument("--tokens", type=int, default=192)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()

    rows = measure(args)
    if args.json:
        print(json.dumps(rows))
        return
    widths = (8, 10, 22, 22)
    print_row(("kind", "tokens/s", "ratio of speeds", "of CPU time"), widths)
    for kind, speeds in rows.items():
        base = rows.get("old" if kind == "plain" else "plain")
        ratios = ["", ""]
        if base and kind != "old":
            ratios = [spread([mine[i] / other[i] for mine, other in zip(speeds, base)]) for i in (0, 1)]
        print_row((kind, f"{statistics.median(speed for speed, _ in speeds):.0f}", *ratios), widths)


if __name__ == "__main__":
    main()
