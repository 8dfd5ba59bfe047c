"""Measures how a short request and a long prompt delay each other, and how both slow down running
streams.

Usage: prefill_sharing_bench.py MODEL.gguf [--old BINARY] [--prompt 4000] [--pairs 7] [--callers 4]
                                [--stream-seconds 15] [--streams-only] [--threads 2] [--json]

Each server measures, in turn within a pair:
- alone: the seconds to the first token of a long prompt;
- beside: the same, with a request of one token sent a tenth of that time later, and the seconds to
  the first token of that request;
- streams: the time between tokens of --callers streams while prompts of a quarter of --prompt
  tokens arrive, two at a time (99th percentile).
With --old, servers of both binaries run side by side and take turns, every second pair the other
way round. The clients run on the same processors as the servers.
"""

import argparse
import json
import os
import pathlib
import random
import statistics
import threading
import time

from serving_rig import decode_until, fresh_prompt, harness, note


def first_token(client, prompt):
    begun = time.perf_counter()
    for message in client.stream(ids=prompt, max_tokens=1):
        if message.token_ids:
            return time.perf_counter() - begun
    raise SystemExit("prefill_sharing_bench: a stream without a token")


class Bench:
    """One server and its measurements."""

    def __init__(self, name, binary, args):
        harness.BINARY = pathlib.Path(binary).resolve()
        self.name = name
        self.server = harness.serve(model=args.model, threads=args.threads)
        self.args = args
        self.draw = random.Random(name)
        self.client = harness.Client(self.server)
        self.other = harness.Client(self.server)
        for _ in range(2):  # the server learns how long its steps take
            first_token(self.client, fresh_prompt(self.draw, 1000))

    def alone(self):
        return first_token(self.client, fresh_prompt(self.draw, self.args.prompt))

    def beside(self, delay):
        """Returns (seconds of the long prompt, seconds of the short request)."""
        longs = []
        prompt = fresh_prompt(self.draw, self.args.prompt)
        short = fresh_prompt(self.draw, 8)
        thread = threading.Thread(target=lambda: longs.append(first_token(self.client, prompt)))
        thread.start()
        time.sleep(delay)
        waited = first_token(self.other, short)
        thread.join()
        return longs[0], waited

    def streams(self):
        """Returns the 99th percentile of the seconds between two tokens of a stream."""
        gaps = []
        end = time.perf_counter() + self.args.stream_seconds

        def decode(seed):
            decode_until(self.server, end, seed, gaps, max_tokens=400)

        def prompts(seed):
            client, draw = harness.Client(self.server), random.Random(seed)
            while time.perf_counter() < end:
                first_token(client, fresh_prompt(draw, self.args.prompt // 4))
            client.close()

        seeds = [self.draw.random() for _ in range(self.args.callers + 2)]
        threads = [threading.Thread(target=decode if i < self.args.callers else prompts, args=(seed,))
                   for i, seed in enumerate(seeds)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        ordered = sorted(gaps)
        return ordered[int(0.99 * len(ordered))], statistics.median(ordered)

    def run(self):
        row = {}
        if not self.args.streams_only:
            alone = self.alone()
            long, short = self.beside(alone / 10)
            row = {"alone_s": alone, "long_s": long, "short_s": short,
                   "short_share": short / alone, "long_ratio": long / alone}
        if self.args.stream_seconds > 0:
            row["p99_s"], row["p50_s"] = self.streams()
        return row


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("--old", help="another tidepool, to compare with")
    parser.add_argument("--prompt", type=int, default=4000)
    parser.add_argument("--pairs", type=int, default=7)
    parser.add_argument("--callers", type=int, default=4)
    parser.add_argument("--stream-seconds", type=int, default=15)
    parser.add_argument("--streams-only", action="store_true")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()

    benches = [Bench("new", os.environ["TIDEPOOL_BINARY"], args)]
    if args.old:
        benches.append(Bench("old", args.old, args))
    rows = {bench.name: [] for bench in benches}
    for pair in range(args.pairs):
        for bench in benches if pair % 2 == 0 else reversed(benches):
            rows[bench.name].append(bench.run())
            note(f"pair {pair + 1}, {bench.name}: " +
                 ", ".join(f"{key} {value:.3f}" for key, value in rows[bench.name][-1].items()))
    for bench in benches:
        bench.server.kill()
    if args.json:
        print(json.dumps(rows))
        return
    for name, measured in rows.items():
        medians = {key: statistics.median(row[key] for row in measured) for key in measured[0]}
        if "alone_s" in medians:
            print(f"{name}: first token of the short request after "
                  f"{100 * medians['short_share']:.1f} % of the long prompt's "
                  f"{medians['alone_s']:.2f} s; the long prompt takes "
                  f"{100 * (medians['long_ratio'] - 1):+.1f} %")
        if "p99_s" in medians:
            print(f"{name}: between tokens beside prompts: p50 {1e3 * medians['p50_s']:.0f} ms, "
                  f"p99 {1e3 * medians['p99_s']:.0f} ms")
    if args.old and args.stream_seconds > 0:
        ratios = [new["p99_s"] / old["p99_s"] for new, old in zip(rows["new"], rows["old"])]
        print(f"p99 between tokens, new over old in each pair: median "
              f"{statistics.median(ratios):.2f}, from {min(ratios):.2f} to {max(ratios):.2f}")


if __name__ == "__main__":
    main()
