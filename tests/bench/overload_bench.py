"""Measures goodput and latency of a server at its capacity, and at three times this load.

Usage: overload_bench.py [--model MODEL.gguf] [--threads 2] [--prompt 128] [--output 64]
                         [--seconds 60] [--search-seconds 10] [--json]

The capacity is the best goodput of closed loops of 8, 16, 32, 64 and 128 callers. Then requests
come at random times at that rate, and at three times that rate, for --seconds each. Refused
requests are not sent again. The load generator runs on the same processors as the server: "client"
is the share of a core that the load generator uses.
"""

import argparse
import json

from serving_rig import harness, load, ms, note, print_row

CALLERS = (8, 16, 32, 64, 128)
TIMES = (1, 3)
COLUMNS = ("load", "offered/s", "refused", "goodput/s", "of peak", "tokens/s", "first p50 ms",
           "first p99 ms", "token p50 ms", "token p99 ms", "client")
WIDTHS = (len("128 callers"), *map(len, COLUMNS[1:]))


def request_flags(args, run):
    """Returns the flags of a run's requests. Each run sends other prompts, so none is cached."""
    return "-p", args.prompt, "-n", args.output, "--seed", run


def find_capacity(args, server):
    """Returns the best goodput in requests per second, and all reports."""
    reports = []
    for run, callers in enumerate(CALLERS):
        note(f"capacity: {callers} callers")
        reports.append(load(server, *request_flags(args, run), "--concurrency", callers,
                            "--warm-up", "3s", "--duration", f"{args.search_seconds}s"))
    return max(report["goodput"]["requests_per_s"] for report in reports), reports


def row(name, report, offered, peak):
    goodput = report["goodput"]
    refused = sum(report["requests"]["refused"].values()) / max(1, report["requests"]["sent"])
    return (name, f"{offered:.1f}", f"{100 * refused:.1f} %", f"{goodput['requests_per_s']:.1f}",
            f"{100 * goodput['requests_per_s'] / peak:.1f} %", f"{goodput['tokens_per_s']:.0f}",
            *(f"{ms(report, latency, quantile):.1f}"
              for latency in ("first_token_s", "inter_token_s") for quantile in ("p50", "p99")),
            f"{report['client_cpu_share']:.2f}")


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default=str(harness.LLAMA))
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--prompt", type=int, default=128)
    parser.add_argument("--output", type=int, default=64)
    parser.add_argument("--seconds", type=int, default=60)
    parser.add_argument("--search-seconds", type=int, default=10)
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()

    server = harness.serve(model=args.model, threads=args.threads)
    peak, search = find_capacity(args, server)
    reports = {}
    for times in TIMES:
        note(f"{times} x capacity for {args.seconds} s")
        # The warm-up fills the queue if the load exceeds the capacity.
        reports[times] = load(server, *request_flags(args, len(CALLERS) + times),
                              "--rate", f"{times * peak:.3f}", "--duration", f"{args.seconds}s",
                              "--warm-up", "10s")
    server.kill()
    if args.json:
        print(json.dumps({"peak_requests_per_s": peak, "search": search, "overload": reports}))
        return
    print_row(COLUMNS, WIDTHS)
    for callers, report in zip(CALLERS, search):
        print_row(row(f"{callers} callers", report, report["goodput"]["requests_per_s"], peak),
                  WIDTHS)
    for times, report in reports.items():
        print_row(row(f"{times} x", report, times * peak, peak), WIDTHS)
    kept = reports[3]["goodput"]["requests_per_s"] / peak
    slower = ms(reports[3], "inter_token_s", "p99") / ms(reports[1], "inter_token_s", "p99")
    print(f"at 3 x capacity: goodput {100 * kept:.1f} % of peak, inter-token p99 {slower:.2f} times "
          "that at 1 x")


if __name__ == "__main__":
    main()
