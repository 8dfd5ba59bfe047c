"""Fewer experts in memory than the model has, beside llama.cpp's mmap and the disk's own speed.

Usage: offload_bench.py MODEL.gguf [--expert-memory 4GiB] [--limit 5.25] [--generate 64] [--prompt 512,2048]
                        [--rounds 3] [--readers uring,threads] [--prefetch on] [--policy NAME] [--threads 2]
                        [--no-peer] [--json]
       offload_bench.py MODEL.gguf --resident [--generate 64] [--prompt 512] [--rounds 9]
  (a build of //service:tidepool first, and tools/setup --peers unless --no-peer; builds nothing itself)

Whoever runs does so in a memory cgroup of --limit GiB, the page cache that it fills included (which
needs root); what is left of the files in the page cache is dropped before. Each round measures, in
fresh processes, one after the other:
- `tidepool bench` for each of --readers, decoding --generate tokens of one sequence, and before and
  after each the probe: O_DIRECT reads of one record's size at random places of the pack, 8 at a time;
- `tidepool bench` of the prompts, whose time is that to the first token;
- llama.cpp (llama-cpp-python) with mmap on the same tokens, without repacked weights: those are a
  copy of the experts in memory, and do not fit.
The bound is the probe's bytes per second, the mean of before and after, over the bytes that a token
misses; a run that also computes can come near it and not beyond by more than the probe errs. With
--resident all experts fit and the rounds alternate between --expert-memory 100% (tiers that read
nothing) and auto (none). Medians and quartiles over the rounds.
"""

import argparse
import json
import mmap
import os
import pathlib
import random
import statistics
import subprocess
import sys
import threading
import time

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]
sys.path.insert(0, str(ROOT / "tests/integration"))
from memory_group import MemoryGroup  # noqa: E402 (lies in a folder that is no package)

GIB = 1 << 30


def probe(pack, record_bytes, seconds=10, depth=8):
    """Bytes per second of random reads of records."""
    file = os.open(pack, os.O_RDONLY | os.O_DIRECT)
    records = (os.fstat(file).st_size - record_bytes) // record_bytes
    done = [0] * depth
    end = time.perf_counter() + seconds

    def read(worker):
        buffer = mmap.mmap(-1, record_bytes)
        place = random.Random(worker)
        while time.perf_counter() < end:
            done[worker] += os.preadv(file, [buffer], place.randrange(records) * record_bytes)

    start = time.perf_counter()
    threads = [threading.Thread(target=read, args=(worker,)) for worker in range(depth)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    os.close(file)
    return sum(done) / (time.perf_counter() - start)


def make_group(gib):
    try:
        return MemoryGroup(int(gib * GIB))
    except OSError as error:
        raise SystemExit(f"offload_bench: {error}; run as root, or with --limit 0") from None


def drop_from_page_cache(file):
    descriptor = os.open(file, os.O_RDONLY)
    os.fsync(descriptor)
    os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
    os.close(descriptor)


def run_json(command):
    result = subprocess.run(command, capture_output=True, text=True)
    if result.returncode != 0:
        reason = result.stderr.strip()[-500:] or f"it ended with {result.returncode}"
        raise SystemExit(f"offload_bench: {' '.join(command)} failed: {reason}")
    return json.loads(result.stdout)


def run_limited(args, command):
    for file in args.files:
        drop_from_page_cache(file)
    return run_json([*args.prefix, *command])


def bench(args, *flags):
    return run_limited(args, [args.tidepool, "bench", "--model", args.model, "-r", "1", "-t",
                     str(args.threads), "--json", *flags])


def run_decode(args, reader):
    flags = ["-p", "0", "-n", str(args.generate), "--expert-memory", args.expert_memory,
             "--expert-reader", reader, "--prefetch", args.prefetch]
    report = bench(args, *flags, *(["--offload-policy", args.policy] if args.policy else []))
    result, offload = report["results"][0], report["offload"]
    counted = result["offload"]
    read = counted["demand_bytes"] + counted["prefetch_bytes"]
    record_bytes = offload["capacity_bytes"] / (offload["slots"] + offload["staging_records"])
    speed = result["tokens_per_s"]["median"]
    return {
        "tokens_per_s": speed,
        "peak_bytes": result["peak_rss_bytes"],
        "weight_bytes": offload["weight_bytes"],
        "capacity_bytes": offload["capacity_bytes"],
        # What `replay` counts for the same routing: a record for each miss.
        "missed_bytes_per_token": counted["misses"] * record_bytes / args.generate,
        "read_bytes_per_token": read / args.generate,
        "wasted_share": counted["prefetch_wasted_bytes"] / max(1, read),
        "hit_rate": counted["hits"] / max(1, counted["hits"] + counted["misses"]),
        "stall_share": counted["stall_seconds"] * speed / args.generate,
    }


def run_prompts(args):
    """Of each length: seconds, and bytes read over the bytes of what was not resident."""
    report = bench(args, "-p", args.prompt, "-n", "0", "--expert-memory", args.expert_memory)
    offload = report["offload"]
    records = offload["slots"] + offload["staging_records"]
    missing = (offload["experts"] - offload["slots"]) * offload["capacity_bytes"] / records
    prompts = {}
    for result in report["results"]:
        length, counted = int(result["test"][2:]), result["offload"]
        prompts[length] = {
            "seconds": length / result["tokens_per_s"]["median"],
            "read_of_missing": (counted["demand_bytes"] + counted["prefetch_bytes"]) / missing,
            "stall_seconds": counted["stall_seconds"],
            "peak_bytes": result["peak_rss_bytes"],
        }
    return prompts


def run_peer(args, *tests):
    return run_limited(args, [sys.executable, str(HERE / "llama_peer.py"), args.model, "--threads",
                     str(args.threads), "--no-repack", *tests])


def note(line):
    print(line, file=sys.stderr, flush=True)


def quartiles(values):
    if len(values) == 1:
        return values * 3
    low, median, high = statistics.quantiles(values, n=4, method="inclusive")
    return [low, median, high]


def show(name, values, form="{:.2f}"):
    low, median, high = (form.format(value) for value in quartiles(values))
    print(f"{name:44} {median} ({low} to {high})")


def run_round(args, pack):
    def speed():
        return probe(pack["out"], pack["record_bytes"])

    result = {"probe": [speed()]}
    for reader in args.readers.split(",") if args.generate else []:
        run = result[reader] = run_decode(args, reader)
        result["probe"].append(speed())
        bound = statistics.mean(result["probe"][-2:]) / max(1, run["missed_bytes_per_token"])
        run["of_bound"] = run["tokens_per_s"] / bound
        note(f"{reader}: {run['tokens_per_s']:.2f} tokens/s, {run['of_bound']:.2f} of the bound")
    if args.generate and not args.no_peer:
        peer = run_peer(args, "--prompt", "0", "--generate", str(args.generate))
        result["llama.cpp"] = peer[f"tg{args.generate}"]
        note(f"llama.cpp: {result['llama.cpp']:.2f} tokens/s")
    if args.prompt:
        result["prompts"] = run_prompts(args)
        for length, run in result["prompts"].items() if not args.no_peer else []:
            peer = run_peer(args, "--prompt", str(length), "--generate", "0")
            run["llama.cpp"] = length / peer[f"pp{length}"]
            note(f"{length} tokens: {run['seconds']:.1f} s, llama.cpp {run['llama.cpp']:.1f} s")
    return result


def show_rounds(args, rounds):
    show("probe, GB/s", [speed / 1e9 for r in rounds for speed in r["probe"]])
    for reader in args.readers.split(",") if args.generate else []:
        runs = [r[reader] for r in rounds]
        show(f"tidepool {reader}, tokens/s", [r["tokens_per_s"] for r in runs])
        show("  MB missed per token", [r["missed_bytes_per_token"] / 1e6 for r in runs], "{:.0f}")
        show("  MB read per token", [r["read_bytes_per_token"] / 1e6 for r in runs], "{:.0f}")
        show("  share of the disk's bound", [r["of_bound"] for r in runs])
        show("  share of time that waits for the disk", [r["stall_share"] for r in runs])
        show("  hit rate", [r["hit_rate"] for r in runs], "{:.3f}")
        show("  wasted share of bytes", [r["wasted_share"] for r in runs], "{:.3f}")
        show("  peak memory beside weights and slots, MiB",
             [(r["peak_bytes"] - r["weight_bytes"] - r["capacity_bytes"]) / 2**20 for r in runs],
             "{:.0f}")
        if not args.no_peer:
            show("  times llama.cpp", [r[reader]["tokens_per_s"] / r["llama.cpp"] for r in rounds])
    if args.generate and not args.no_peer:
        show("llama.cpp mmap, tokens/s", [r["llama.cpp"] for r in rounds])
    for length in rounds[0].get("prompts", []):
        runs = [r["prompts"][length] for r in rounds]
        show(f"prompt of {length}, seconds", [r["seconds"] for r in runs])
        show("  that wait for the disk", [r["stall_seconds"] for r in runs])
        show("  bytes read over those not resident", [r["read_of_missing"] for r in runs], "{:.3f}")
        if not args.no_peer:
            show("  llama.cpp mmap, seconds", [r["llama.cpp"] for r in runs])


def measure_resident(args):
    """What tiers cost where nothing is read: speeds with them over speeds without."""
    tests = ["-p", args.prompt or "0", "-n", str(args.generate)]
    ratios = {}
    for number in range(args.rounds):
        note(f"pair {number + 1} of {args.rounds}")
        order = ["100%", "auto"] if number % 2 == 0 else ["auto", "100%"]
        speeds = {}
        for memory in order:
            report = bench(args, *tests, "--expert-memory", memory)
            assert ("slots" in report["offload"]) == (memory == "100%"), "not all experts fit"
            speeds[memory] = {r["test"]: r["tokens_per_s"]["median"] for r in report["results"]}
        for test, speed in speeds["auto"].items():
            ratios.setdefault(test, []).append(speeds["100%"][test] / speed)
    if args.json:
        print(json.dumps(ratios))
    for test, values in ratios.items() if not args.json else []:
        show(f"{test}, with tiers over without", values, "{:.3f}")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model")
    parser.add_argument("--expert-memory", default="4GiB")
    parser.add_argument("--limit", type=float, default=5.25, help="GiB of memory for each; 0: no limit")
    parser.add_argument("--generate", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--readers", default="uring,threads")
    parser.add_argument("--policy", default="")
    parser.add_argument("--prefetch", choices=["on", "off"], default="on")
    parser.add_argument("--prompt", default="", help="lengths, such as 512,2048")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--resident", action="store_true")
    parser.add_argument("--no-peer", action="store_true")
    parser.add_argument("--tidepool", default=str(ROOT / ".cache/bazel-bin/service/tidepool"))
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()

    args.prefix, args.files = [], []
    if args.resident:
        measure_resident(args)
        return
    pack = run_json([args.tidepool, "pack", "--model", args.model, "--json"])
    group = make_group(args.limit) if args.limit else None
    args.prefix = group.prefix() if group else []
    args.files = [args.model, pack["out"]]
    rounds = []
    for number in range(args.rounds):
        note(f"round {number + 1} of {args.rounds}")
        rounds.append(run_round(args, pack))
    if group:
        assert group.kills() == 0, "a process was killed for its memory"
        group.remove()
    if args.json:
        print(json.dumps({"pack": pack, "rounds": rounds}))
    else:
        show_rounds(args, rounds)


if __name__ == "__main__":
    main()
