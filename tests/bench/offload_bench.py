"""Measures a model with only part of its experts in memory, and compares it with llama.cpp's mmap.

Usage: offload_bench.py MODEL.gguf [--expert-memory 4GiB] [--limit 5.25] [--generate 64]
                        [--peer-generate 16] [--prompt 512,2048] [--rounds 9]
                        [--readers uring,threads] [--prefetch on] [--policy NAME,NAME]
                        [--profile TRACE] [--threads 2] [--no-peer] [--data FILE] [--json]
       offload_bench.py MODEL.gguf --resident [--generate 64] [--prompt 512] [--rounds 9]
  (a build of //service:tidepool first, and an interpreter with llama-cpp-python, which tools/setup
  --peers makes, unless --no-peer; builds nothing itself)

Each process runs in a memory cgroup of --limit GiB, which includes its page cache (this needs root).
Before each run the model's files are dropped from the page cache. If the kernel kills a process because
of the limit, the report says so and the other runs continue. A round measures, in new processes:
- `tidepool bench` for each of --policy and of --readers: it decodes --generate tokens of one sequence.
  Before and after each run a probe reads the pack at random places with O_DIRECT for 10 s: records of
  one size, 8 at a time;
- llama.cpp (llama-cpp-python) with mmap on the same tokens, without repacked weights, because repacking
  copies the experts to memory, where they do not fit;
- for each length of --prompt, the time to the first token with both engines.
Every second round has the reverse order. The tables show medians and quartiles over the rounds. Each
ratio is computed from two runs of the same round. The bound is the speed of the probe (bytes per second,
mean of before and after) divided by the bytes that a token misses. A run also computes, so it should stay
below the bound, except for the error of the probe.

The policy static keeps the most used experts of --profile. Without --profile, a trace is recorded
first. With --resident all experts fit into memory, and rounds alternate between --expert-memory
100% (tiers that read nothing) and auto (no tiers). --data saves each measurement at once: a second
run with the same flags, or with more --rounds, continues where the first one stopped.

With the defaults, a round takes the time that llama.cpp needs for (--generate + a warm-up) tokens,
which is eight minutes at 0.2 tokens/s, plus a minute and a half. --peer-generate makes it shorter.
"""

import argparse
import importlib.util
import json
import mmap
import os
import pathlib
import random
import statistics
import subprocess
import sys
import tempfile
import threading
import time

from offload_runs import Measurements, Progress, note, quartiles, record_profile

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]
sys.path.insert(0, str(ROOT / "tests/integration"))
from memory_group import MemoryGroup  # noqa: E402 (its folder is not a package)

GIB = 1 << 30
PEER = "llama.cpp"
OURS = "tidepool"


def probe(pack, record_bytes, seconds, depth=8):
    """Returns the bytes per second of random reads of records."""
    file = os.open(pack, os.O_RDONLY | os.O_DIRECT)
    records = (os.fstat(file).st_size - record_bytes) // record_bytes
    done = [0] * depth
    end = time.perf_counter() + seconds

    def read(worker):
        buffer = mmap.mmap(-1, record_bytes)
        # Each probe reads other offsets, because a cache below the disk may still have the data of
        # the last probe.
        place = random.Random()
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


class Killed(Exception):
    """The kernel killed a process because it exceeded its memory limit."""


def run_json(command, group=None):
    """Returns the JSON object that the command prints."""
    before = group.kills() if group else 0
    result = subprocess.run([*(group.prefix() if group else []), *command], capture_output=True,
                            text=True)
    if result.returncode == -9 or (group and group.kills() > before):
        raise Killed
    if result.returncode != 0:
        reason = result.stderr.strip()[-500:] or f"it ended with {result.returncode}"
        raise SystemExit(f"offload_bench: {' '.join(command)} failed: {reason}")
    return json.loads(result.stdout)


def run_limited(args, command):
    for file in args.files:
        drop_from_page_cache(file)
    return run_json(command, args.group)


def bench(args, *flags):
    return run_limited(args, [args.tidepool, "bench", "--model", args.model, "-r", "1", "-t",
                              str(args.threads), "--json", *flags])


def offload_flags(args, policy):
    flags = ["--expert-memory", args.expert_memory, "--prefetch", args.prefetch,
             "--offload-policy", policy]
    return flags + (["--profile", args.profile] if policy == "static" else [])


def beside_slots_bytes(report):
    """Returns the peak memory of the process, minus the shared weights and the memory for experts.
    The report must have only one test."""
    (result,), offload = report["results"], report["offload"]
    return result["peak_rss_bytes"] - offload["weight_bytes"] - offload["capacity_bytes"]


def run_decode(args, policy, reader):
    # One probe serves both the run before it and the run after it.
    before = args.probed or args.probe()
    args.probed = None
    report = bench(args, "-p", "0", "-n", str(args.generate), "--expert-reader", reader,
                   *offload_flags(args, policy))
    args.probed = args.probe()
    result, offload = report["results"][0], report["offload"]
    counted = result["offload"]
    read = counted["demand_bytes"] + counted["prefetch_bytes"]
    speed = result["tokens_per_s"]["median"]
    # These are the misses of `replay` for the same routing. Each miss reads one record.
    missed = counted["misses"] * offload["record_bytes"] / args.generate
    bound = statistics.mean([before, args.probed]) / max(1, missed)
    return {
        "tokens_per_s": speed,
        "probe": [before, args.probed],
        "of_bound": speed / bound,
        "beside_slots_bytes": beside_slots_bytes(report),
        "missed_bytes_per_token": missed,
        "read_bytes_per_token": read / args.generate,
        "wasted_share": counted["prefetch_wasted_bytes"] / max(1, read),
        "hit_rate": counted["hits"] / max(1, counted["hits"] + counted["misses"]),
        "stall_share": counted["stall_seconds"] * speed / args.generate,
    }


def run_prompt(args, length):
    """Returns the seconds to the first token, and the ratio of the bytes read to the bytes of the
    experts that are not in memory."""
    report = bench(args, "-p", str(length), "-n", "0", *offload_flags(args, args.policies[0]))
    result, offload = report["results"][0], report["offload"]
    counted = result["offload"]
    missing = (offload["experts"] - offload["slots"]) * offload["record_bytes"]
    return {
        "seconds": length / result["tokens_per_s"]["median"],
        "read_of_missing": (counted["demand_bytes"] + counted["prefetch_bytes"]) / max(1, missing),
        "stall_seconds": counted["stall_seconds"],
        "beside_slots_bytes": beside_slots_bytes(report),
    }


def run_resident(args, memory):
    tests = ["-p", args.prompt or "0", "-n", str(args.generate)]
    report = bench(args, *tests, "--expert-memory", memory)
    if ("slots" in report["offload"]) != (memory == "100%"):
        raise SystemExit("offload_bench: --resident, but not all experts fit into free memory")
    return {"tokens_per_s": {r["test"]: r["tokens_per_s"]["median"] for r in report["results"]}}


def run_peer(args, test, count):
    """`test` is "prompt" or "generate"."""
    args.probed = None
    counts = {"prompt": 0, "generate": 0, test: count}
    flags = [word for name, value in counts.items() for word in (f"--{name}", str(value))]
    speed = run_limited(args, [sys.executable, str(HERE / "llama_peer.py"), args.model, "--threads",
                               str(args.threads), "--no-repack", *flags])
    (speed,) = speed.values()
    return {"seconds": count / speed} if test == "prompt" else {"tokens_per_s": speed}


def sides(args):
    """Returns {test: {side: function that measures the test}} for one round."""
    if args.resident:
        return {"resident": {memory: lambda memory=memory: run_resident(args, memory)
                             for memory in ("100%", "auto")}}
    tests = {}
    if args.generate:
        tests["decode"] = {f"{policy}, {reader}": lambda p=policy, r=reader: run_decode(args, p, r)
                           for policy in args.policies for reader in args.readers}
        if args.peer:
            tests["decode"][PEER] = lambda: run_peer(args, "generate", args.peer_generate)
    for length in args.lengths:
        tests[f"pp{length}"] = {OURS: lambda length=length: run_prompt(args, length)}
        if args.peer:
            tests[f"pp{length}"][PEER] = lambda length=length: run_peer(args, "prompt", length)
    return tests


def measure(args, kept):
    tests = sides(args)
    runs = [(number, test, side) for number in range(args.rounds) for test in tests
            for side in (list(tests[test]) if number % 2 == 0 else reversed(tests[test]))
            if not kept.find(round=number, test=test, side=side)]
    progress = Progress(len(runs))
    for number, test, side in runs:
        progress.step(f"round {number + 1} of {args.rounds}, {test}, {side}")
        try:
            result = tests[test][side]()
        except Killed:
            result = {"killed": True}
            note("  ended by the memory limit")
        kept.add({"round": number, "test": test, "side": side, **result})


class Summary:
    """Rows of medians and quartiles over rounds. A killed run does not count."""

    def __init__(self, kept):
        self.kept, self.rows = kept, {}

    def values(self, test, side, key):
        """{round: value}."""
        return {record["round"]: record[key] for record in self.kept.find(test=test, side=side)
                if not record.get("killed")}

    def add(self, name, values, form="{:.2f}"):
        values = list(values)
        if values:
            self.rows[name] = {"quartiles": quartiles(values), "rounds": len(values), "form": form}

    def add_ratio(self, name, over, under, form="{:.2f}"):
        """Adds the ratio of two values()."""
        self.add(name, [over[n] / under[n] for n in sorted(over.keys() & under.keys())], form)

    def add_kills(self, test, side):
        runs = self.kept.find(test=test, side=side)
        kills = sum(record.get("killed", False) for record in runs)
        if kills:
            self.rows[f"{test}, {side}: ended by the memory limit"] = {"kills": kills,
                                                                      "rounds": len(runs)}

    def show(self):
        for name, row in self.rows.items():
            if "kills" in row:
                print(f"{name} in {row['kills']} of {row['rounds']} rounds")
                continue
            low, median, high = (row["form"].format(value) for value in row["quartiles"])
            print(f"{name:61} {median} ({low} to {high}), {row['rounds']}")


WHOLE = "{:.0f}"
OF_A_SIDE = (  # name of the row, key, unit, format
    ("tokens/s", "tokens_per_s", 1, "{:.2f}"),
    ("share of the probe's bound", "of_bound", 1, "{:.2f}"),
    ("MB missed per token", "missed_bytes_per_token", 1e6, WHOLE),
    ("MB read per token", "read_bytes_per_token", 1e6, WHOLE),
    ("hit rate", "hit_rate", 1, "{:.3f}"),
    ("wasted share of bytes", "wasted_share", 1, "{:.3f}"),
    ("share of time that waits for the disk", "stall_share", 1, "{:.2f}"),
    ("MiB beside weights and slots at the peak", "beside_slots_bytes", 1 << 20, WHOLE),
)
OF_A_PROMPT = (
    ("seconds that wait for the disk", "stall_seconds", 1, "{:.2f}"),
    ("bytes read over those not resident", "read_of_missing", 1, "{:.3f}"),
    OF_A_SIDE[-1],
)


def summarise_decode(args, summary):
    speed = {side: summary.values("decode", side, "tokens_per_s") for side in sides(args)["decode"]}
    ours = [side for side in speed if side != PEER]
    summary.add("probe, GB/s", [value / 1e9 for side in ours for pair in
                                summary.values("decode", side, "probe").values() for value in pair])
    for side in ours:
        for name, key, one, form in OF_A_SIDE:
            values = summary.values("decode", side, key).values()
            summary.add(f"{side}: {name}", [value / one for value in values], form)
        if args.peer:
            summary.add_ratio(f"{side}: times {PEER}", speed[side], speed[PEER])
    if args.peer:
        summary.add(f"{PEER} mmap: tokens/s", speed[PEER].values())
    for policy in args.policies:
        for reader in args.readers[1:]:
            summary.add_ratio(f"{policy}: {reader} over {args.readers[0]}",
                              speed[f"{policy}, {reader}"], speed[f"{policy}, {args.readers[0]}"])
    for reader in args.readers:
        for policy in args.policies[1:]:
            summary.add_ratio(f"{reader}: {args.policies[0]} over {policy}",
                              speed[f"{args.policies[0]}, {reader}"], speed[f"{policy}, {reader}"])


def summarise_prompt(args, summary, length):
    test = f"pp{length}"
    seconds = {side: summary.values(test, side, "seconds") for side in sides(args)[test]}
    summary.add(f"prompt of {length}: seconds to the first token", seconds[OURS].values())
    for name, key, one, form in OF_A_PROMPT:
        values = summary.values(test, OURS, key).values()
        summary.add(f"prompt of {length}: {name}", [value / one for value in values], form)
    if args.peer:
        summary.add(f"prompt of {length}: {PEER} mmap, seconds", seconds[PEER].values())
        summary.add_ratio(f"prompt of {length}: {PEER}'s time over ours", seconds[PEER],
                          seconds[OURS])


def summarise(args, kept):
    summary = Summary(kept)
    if args.resident:
        speeds = {memory: summary.values("resident", memory, "tokens_per_s")
                  for memory in ("100%", "auto")}
        for test in sorted({test for round_ in speeds["auto"].values() for test in round_}):
            with_tiers, without = ({number: speed[test] for number, speed in speeds[memory].items()}
                                   for memory in ("100%", "auto"))
            summary.add_ratio(f"{test}: with tiers over without", with_tiers, without, "{:.3f}")
        return summary
    if args.generate:
        summarise_decode(args, summary)
    for length in args.lengths:
        summarise_prompt(args, summary, length)
    for test, of_test in sides(args).items():
        for side in of_test:
            summary.add_kills(test, side)
    return summary


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("--expert-memory", default="4GiB")
    parser.add_argument("--limit", type=float, default=5.25, help="GiB of memory for each; 0: no limit")
    parser.add_argument("--generate", type=int, default=64)
    parser.add_argument("--peer-generate", type=int, help="tokens of llama.cpp (default: --generate)")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--readers", default="uring,threads")
    parser.add_argument("--policy", default="adaptive", help="one or more; prompts take the first")
    parser.add_argument("--profile", help="a routing trace (--trace-experts) for static")
    parser.add_argument("--prefetch", choices=["on", "off"], default="on")
    parser.add_argument("--prompt", default="", help="lengths, such as 512,2048")
    parser.add_argument("--probe-seconds", type=float, default=10)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--resident", action="store_true")
    parser.add_argument("--no-peer", dest="peer", action="store_false")
    parser.add_argument("--data", type=pathlib.Path, help="JSON lines of all measurements")
    parser.add_argument("--tidepool", default=str(ROOT / ".cache/bazel-bin/service/tidepool"))
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    settings = {name: value for name, value in vars(args).items()
                if name not in ("rounds", "data", "json")}
    # Never mix results of two builds or two models.
    for name in ("model", "tidepool"):
        try:
            settings[f"{name}_time"] = os.stat(settings[name]).st_mtime
        except OSError as error:
            parser.error(f"{error.filename}: {error.strerror}")
    args.peer_generate = args.peer_generate or args.generate
    args.policies, args.readers = args.policy.split(","), args.readers.split(",")
    args.lengths = [int(length) for length in args.prompt.split(",") if length]
    if args.peer and not args.resident and not importlib.util.find_spec("llama_cpp"):
        parser.error(f"{sys.executable} has no llama_cpp; run with that of tools/setup --peers, or "
                     "with --no-peer")
    return args, settings


def prepare(args, scratch):
    """Prepares what runs share: the pack, the cgroup, the probe, the profile."""
    args.group, args.files, args.probed = None, [], None
    if args.resident:
        return
    pack = run_json([args.tidepool, "pack", "--model", args.model, "--json"])
    args.probe = lambda: probe(pack["out"], pack["record_bytes"], args.probe_seconds)
    args.files = [args.model, pack["out"]]
    if "static" in args.policies and not args.profile:
        note("recording the profile of static")
        args.profile = str(record_profile(args.tidepool, args.model, args.threads,
                                          pathlib.Path(scratch) / "profile.jsonl.zst"))
    args.group = make_group(args.limit) if args.limit else None


def main():
    args, settings = parse_arguments()
    kept = Measurements(args.data, settings)
    with tempfile.TemporaryDirectory() as scratch:
        try:
            prepare(args, scratch)
            measure(args, kept)
        finally:
            if args.group:
                args.group.remove()
    summary = summarise(args, kept)
    if args.json:
        print(json.dumps({"settings": settings, "summary": summary.rows,
                          "measurements": kept.records}))
    else:
        summary.show()
    if any(record.get("killed") and record["side"] != PEER for record in kept.records):
        raise SystemExit("offload_bench: Tidepool was ended by the memory limit")


if __name__ == "__main__":
    main()
