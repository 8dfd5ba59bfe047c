"""Measures how much streams whose clients do not read slow down the streams of other clients.

Usage: back_pressure_bench.py [--readers 8] [--callers 8] [--pairs 5] [--seconds 8] [--json]

Each pair has two runs of --callers callers against one server with the tiny model. In one run, the
server also has --readers streams of 16,000 tokens and logprobs=20, whose clients have stopped
reading. Every second pair has the reverse order. Prints the medians of the callers' tokens per
second.
"""

import argparse
import json
import statistics

from serving_rig import harness, load, note

import long_context  # noqa: E402 (serving_rig has named its folder)

CONTEXT = 16_384


def open_stalled(server, count):
    """Opens `count` streams whose clients do not read. Closing the result closes them."""
    clients = [harness.Client(server) for _ in range(count)]
    streams = []
    for number, client in enumerate(clients):
        request = harness.make_request(text=f"Reader {number}", max_tokens=16_000)
        request.logprobs, request.top_logprobs = True, 20
        streams.append(client.inference.Generate(request))
        next(streams[-1])
    harness.wait_until(lambda: harness.stall_of(clients[0]), "the streams stop", 120)

    def close():
        for stream, client in zip(streams, clients):
            stream.cancel()
            client.close()
        with_nobody = harness.Client(server)
        with_nobody.wait_idle()
        with_nobody.close()
    return close


def measure(args, server, stalled):
    close = open_stalled(server, args.readers) if stalled else lambda: None
    report = load(server, "-p", "64", "-n", "256", "--concurrency", args.callers, "--warm-up", "1s",
                  "--duration", f"{args.seconds}s")
    close()
    return report["goodput"]["tokens_per_s"]


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--readers", type=int, default=8)
    parser.add_argument("--callers", type=int, default=8)
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--seconds", type=int, default=8)
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()

    model = long_context.write(harness.scratch_folder() / "long.gguf", CONTEXT)
    server = harness.serve(model=model, threads=2)
    measure(args, server, stalled=False)  # warms it up
    pairs = []
    for number in range(args.pairs):
        speeds = {}
        for stalled in (False, True) if number % 2 == 0 else (True, False):
            speeds[stalled] = measure(args, server, stalled)
        pairs.append((speeds[False], speeds[True]))
        note(f"pair {number + 1}: {speeds[False]:.0f} tokens/s alone, {speeds[True]:.0f} beside "
             f"{args.readers} streams that nobody reads")
    server.kill()
    alone, beside = (statistics.median(column) for column in zip(*pairs))
    result = {"tokens_per_s": alone, "tokens_per_s_beside_stalled": beside,
              "difference": beside / alone - 1, "pairs": pairs}
    if args.json:
        print(json.dumps(result))
    else:
        print(f"median of {args.pairs}: {alone:.0f} tokens/s alone, {beside:.0f} beside "
              f"{args.readers} streams that nobody reads: {100 * result['difference']:+.1f} %")


if __name__ == "__main__":
    main()
