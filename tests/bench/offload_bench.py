"""Decoding with fewer experts in memory than the model has, beside llama.cpp's mmap and the disk's own speed.

Usage: offload_bench.py MODEL.gguf [--expert-memory 4GiB] [--free 5.25] [--generate 64] [--rounds 3]
                        [--readers uring,threads] [--policy NAME] [--threads 2] [--no-peer] [--json]
  (a build of //service:tidepool first, and tools/setup --peers unless --no-peer; builds nothing itself)

A locked ballast leaves --free GiB of the machine's memory to whoever runs, so that the page cache
cannot hold what is not paid for. Each round measures, in fresh processes, one after the other:
- the probe: O_DIRECT reads of one record's size at random places of the pack, 8 at a time, 10 seconds;
- `tidepool bench` for each of --readers, decoding --generate tokens;
- llama.cpp (llama-cpp-python) decoding the same number of tokens with mmap.
The bound is the probe's bytes per second over the bytes that a token had to read on demand; a run that
also computes can come near it and not beyond. Medians and quartiles over the rounds.
"""

import argparse
import ctypes
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
GIB = 1 << 30


def available_bytes():
    for line in pathlib.Path("/proc/meminfo").read_text().splitlines():
        if line.startswith("MemAvailable:"):
            return int(line.split()[1]) * 1024
    raise SystemExit("offload_bench: /proc/meminfo has no MemAvailable")


class Ballast:
    """Holds all memory but `free` bytes."""

    def __init__(self, free):
        size = (available_bytes() - int(free)) // mmap.PAGESIZE * mmap.PAGESIZE
        self.memory = None
        if size <= 0:
            return
        self.memory = mmap.mmap(-1, size)
        libc = ctypes.CDLL(None, use_errno=True)
        address = ctypes.addressof(ctypes.c_char.from_buffer(self.memory))
        if libc.mlock(ctypes.c_void_p(address), ctypes.c_size_t(size)) != 0:
            raise SystemExit(f"offload_bench: cannot lock {size / GIB:.1f} GiB: "
                             f"{os.strerror(ctypes.get_errno())}; raise ulimit -l")


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


def run_json(command):
    result = subprocess.run(command, capture_output=True, text=True)
    if result.returncode != 0:
        raise SystemExit(f"offload_bench: {command[0]} failed: {result.stderr.strip()[-500:]}")
    return json.loads(result.stdout)


def run_tidepool(args, reader):
    command = [args.tidepool, "bench", "--model", args.model, "-p", "0", "-n", str(args.generate),
               "-r", "1", "-t", str(args.threads), "--expert-memory", args.expert_memory,
               "--expert-reader", reader, "--prefetch", args.prefetch, "--json"]
    if args.policy:
        command += ["--offload-policy", args.policy]
    report = run_json(command)
    result = report["results"][0]
    counted = result["offload"]
    read = counted["demand_bytes"] + counted["prefetch_bytes"]
    lookups = counted["hits"] + counted["misses"]
    record_bytes = report["offload"]["capacity_bytes"] / (
        report["offload"]["slots"] + report["offload"]["staging_records"])
    return {
        "tokens_per_s": result["tokens_per_s"]["median"],
        "peak_bytes": result["peak_rss_bytes"],
        "weight_bytes": report["offload"]["weight_bytes"],
        "capacity_bytes": report["offload"]["capacity_bytes"],
        # What `replay` counts for the same routing: a record for each miss.
        "demand_bytes_per_token": counted["misses"] * record_bytes / args.generate,
        "read_bytes_per_token": read / args.generate,
        "wasted_share": counted["prefetch_wasted_bytes"] / max(1, read),
        "hit_rate": counted["hits"] / max(1, lookups),
        "stall_share": counted["stall_seconds"] * result["tokens_per_s"]["median"] / args.generate,
    }


def run_peer(args):
    return run_json([sys.executable, str(HERE / "llama_peer.py"), args.model, "--prompt", "0",
                     "--generate", str(args.generate), "--threads", str(args.threads)]
                    )[f"tg{args.generate}"]


def quartiles(values):
    if len(values) == 1:
        return values * 3
    low, median, high = statistics.quantiles(values, n=4, method="inclusive")
    return [low, median, high]


def show(name, values, form="{:.2f}"):
    low, median, high = (form.format(value) for value in quartiles(values))
    print(f"{name:44} {median} ({low} to {high})")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model")
    parser.add_argument("--expert-memory", default="4GiB")
    parser.add_argument("--free", type=float, default=5.25, help="GiB left by the ballast; 0: no ballast")
    parser.add_argument("--generate", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--readers", default="uring,threads")
    parser.add_argument("--policy", default="")
    parser.add_argument("--prefetch", choices=["on", "off"], default="on")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--no-peer", action="store_true")
    parser.add_argument("--tidepool", default=str(ROOT / ".cache/bazel-bin/service/tidepool"))
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()

    pack = run_json([args.tidepool, "pack", "--model", args.model, "--json"])
    ballast = Ballast(args.free * GIB) if args.free else None
    readers = args.readers.split(",")
    rounds = []
    for number in range(args.rounds):
        print(f"round {number + 1} of {args.rounds}", file=sys.stderr)
        result = {"probe": probe(pack["out"], pack["record_bytes"])}
        for reader in readers:
            result[reader] = run_tidepool(args, reader)
            bound = result["probe"] / max(1, result[reader]["demand_bytes_per_token"])
            result[reader]["of_bound"] = result[reader]["tokens_per_s"] / bound
        if not args.no_peer:
            result["llama.cpp"] = run_peer(args)
        rounds.append(result)
    del ballast
    if args.json:
        print(json.dumps({"pack": pack, "rounds": rounds}))
        return
    show("probe, GB/s", [r["probe"] / 1e9 for r in rounds])
    for reader in readers:
        runs = [r[reader] for r in rounds]
        show(f"tidepool {reader}, tokens/s", [r["tokens_per_s"] for r in runs])
        show("  MB missed per token", [r["demand_bytes_per_token"] / 1e6 for r in runs], "{:.0f}")
        show("  MB read per token", [r["read_bytes_per_token"] / 1e6 for r in runs], "{:.0f}")
        show("  share of time that waits for the disk", [r["stall_share"] for r in runs])
        show("  share of the disk's bound", [r["of_bound"] for r in runs])
        show("  hit rate", [r["hit_rate"] for r in runs], "{:.3f}")
        show("  wasted share of bytes", [r["wasted_share"] for r in runs], "{:.3f}")
        show("  peak memory, GiB", [r["peak_bytes"] / GIB for r in runs])
    if not args.no_peer:
        show("llama.cpp mmap, tokens/s", [r["llama.cpp"] for r in rounds])
        show("ratio", [r[readers[0]]["tokens_per_s"] / r["llama.cpp"] for r in rounds])


if __name__ == "__main__":
    main()
