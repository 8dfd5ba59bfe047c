"""Measures how long prompts affect the time between tokens of other streams.

Usage: long_prompt_bench.py MODEL.gguf [--callers 4] [--prompt 1500] [--pairs 5] [--seconds 15]
                            [--threads 2] [--json]

Each of --callers clients decodes one stream after another. Each pair has two runs: one with these
clients alone, and one in which new prompts of --prompt tokens also arrive, one after another. Every
second pair has the reverse order. The report has median and 99th percentile of the time between two
messages with tokens in the callers' streams, and the time to the first token of the prompts. The
clients run on the same processors as the server.
"""

import argparse
import json
import random
import statistics
import threading
import time

from serving_rig import decode_until, fresh_prompt, harness, note


def quantile(values, share):
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


def send_prompts(server, end, seed, tokens, firsts):
    """Sends prompts one after the other; appends the seconds to their first tokens to `firsts`."""
    client = harness.Client(server)
    draw = random.Random(seed)
    while time.perf_counter() < end:
        begun = time.perf_counter()
        for message in client.stream(ids=fresh_prompt(draw, tokens), max_tokens=1):
            if message.token_ids:
                firsts.append(time.perf_counter() - begun)
    client.close()


def run(args, server, number, beside_prompts):
    """Returns (seconds between tokens, seconds to the first token of each prompt)."""
    gaps, firsts = [], []
    end = time.perf_counter() + args.seconds
    threads = [threading.Thread(target=decode_until,
                                args=(server, end, 1_000 * number + caller, gaps, 200))
               for caller in range(args.callers)]
    if beside_prompts:
        threads.append(threading.Thread(
            target=send_prompts, args=(server, end, -1 - number, args.prompt, firsts)))
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if not gaps or (beside_prompts and not firsts):
        raise SystemExit(f"long_prompt_bench: nothing came within {args.seconds} s; give more "
                         f"--seconds")
    return gaps, firsts


def measure(args, server):
    run(args, server, 0, beside_prompts=True)  # the server learns how long its steps take
    rows = []
    for number in range(1, args.pairs + 1):
        row = {}
        for beside in (False, True) if number % 2 else (True, False):
            gaps, firsts = run(args, server, 2 * number + beside, beside)
            name = "beside" if beside else "alone"
            row[name] = {"p50_s": quantile(gaps, 0.5), "p99_s": quantile(gaps, 0.99),
                         "tokens": len(gaps)}
            if beside:
                row["prompts"], row["first_token_s"] = len(firsts), statistics.median(firsts)
        rows.append(row)
        note(f"pair {number}: p99 {1e3 * row['alone']['p99_s']:.0f} ms alone, "
             f"{1e3 * row['beside']['p99_s']:.0f} ms beside {row['prompts']} prompts")
    return rows


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("--callers", type=int, default=4)
    parser.add_argument("--prompt", type=int, default=1500)
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--seconds", type=int, default=15)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()

    server = harness.serve(model=args.model, threads=args.threads)
    rows = measure(args, server)
    server.kill()
    if args.json:
        print(json.dumps({"pairs": rows}))
        return
    for name in ("alone", "beside"):
        p50, p99 = (statistics.median(row[name][key] for row in rows) for key in ("p50_s", "p99_s"))
        print(f"between tokens, {name:6}: p50 {1e3 * p50:.0f} ms, p99 {1e3 * p99:.0f} ms")
    first = statistics.median(row["first_token_s"] for row in rows)
    print(f"first token of a prompt of {args.prompt}: {first:.2f} s "
          f"(medians of {args.pairs} pairs)")


if __name__ == "__main__":
    main()
