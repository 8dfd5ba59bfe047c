#!/usr/bin/python3
"""Prints a table of the main kernels of kernels/cuda: registers, spilled bytes, shared memory and occupancy.

Compiles the kernels' files with nvcc for compute capabilities 8.0 and 9.0, and reads the report of
nvcc's assembler. It needs CUDA's compiler (tools/setup --cuda), but no GPU.
//tests/kernels/cuda:launch_sizes prints the number of threads and the bytes of shared memory with
which each kernel is started. Occupancy is the share of a multiprocessor's 64 warps that can run at
the same time. It is computed, not measured.

Usage: tools/gpu_sizes.py [--launches PROGRAM]
"""

import argparse
import concurrent.futures
import os
import pathlib
import re
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[1]
FILES = ("matmul_int8_small", "matmul_int8_super", "tensor_core_block", "tensor_core_k", "attention")
LAUNCHES = "//tests/kernels/cuda:launch_sizes"
# Shared memory of a multiprocessor in bytes. Multiprocessors of these compute capabilities have
# 65536 registers, and at most 64 warps and 32 blocks. A warp gets registers in units of 256. Shared
# memory is allocated in units of 128 bytes, and each block needs 1 KiB more.
SHARED_BYTES = {"sm_80": 164 << 10, "sm_90": 228 << 10}
REGISTERS, WARPS, BLOCKS, WARP_LANES = 65536, 64, 32, 32


def round_up(value, unit):
    return -(-value // unit) * unit


def occupancy(arch, threads, registers, shared):
    """Returns the share of a multiprocessor's warps that blocks of this size can use."""
    warps = -(-threads // WARP_LANES)
    by_registers = REGISTERS // round_up(registers * WARP_LANES, 256) // 4 * 4 // warps
    by_shared = SHARED_BYTES[arch] // round_up(shared + 1024, 128)
    return min(BLOCKS, WARPS // warps, by_registers, by_shared) * warps / WARPS


def short_name(name):
    """`void a::Kernel<(a::Type)4, 1>(a::Args)` is `Kernel<4, 1>`."""
    name = re.sub(r"\((?:\w+::)*\w+\)(\d+)", r"\1", name.replace("(anonymous namespace)::", ""))
    return re.match(r"(?:\w+ )?(?:\w+::)*(\w+(?:<[^>]*>)?)", name).group(1)


def parse(report):
    """Parses the output of nvcc --resource-usage. Returns {mangled name: (registers, spilled bytes,
    static shared bytes)}."""
    found = {}
    kernel = None
    spilled = 0
    for line in report.splitlines():
        if match := re.search(r"Compiling entry function '(\w+)'", line):
            kernel, spilled = match.group(1), 0
        elif match := re.search(r"(\d+) bytes spill stores, (\d+) bytes spill loads", line):
            spilled = max(int(match.group(1)), int(match.group(2)))
        elif (match := re.search(r"Used (\d+) registers", line)) and kernel:
            shared = re.search(r"(\d+) bytes smem", line)
            found[kernel] = (int(match.group(1)), spilled, int(shared.group(1)) if shared else 0)
    return found


def find_nvcc():
    for home in (os.environ.get("CUDA_HOME"), "/usr/local/cuda", ROOT / ".cache/cuda"):
        if home and (path := pathlib.Path(home) / "bin/nvcc").exists():
            return path
    sys.exit("gpu_sizes.py: no CUDA compiler: set CUDA_HOME or run tools/setup --cuda")


def flags():
    """The flags of tools/cuda.bzl, without those that name a GPU."""
    listed = re.search(r"^_FLAGS = \[(.*?)^\]", (ROOT / "tools/cuda.bzl").read_text(), re.MULTILINE | re.DOTALL).group(1)
    return [flag for flag in re.findall(r'^ *"(.*)",$', listed, re.MULTILINE) if not flag.startswith("-gencode")]


def compile_file(nvcc, arch, name):
    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run([nvcc, *flags(), f"-arch={arch}", "-cubin", "--resource-usage", "-I.", f"kernels/cuda/{name}.cu.cc",
                               "-o", f"{folder}/cubin"], cwd=ROOT, env={**os.environ, "TMPDIR": folder}, check=False,
                              capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"gpu_sizes.py: nvcc failed for {name}.cu.cc:\n{done.stderr}")
    return parse(done.stdout + done.stderr)


def measure():
    """{architecture: {short name: (registers, spilled bytes, static shared bytes)}}"""
    nvcc = find_nvcc()
    jobs = [(arch, name) for arch in SHARED_BYTES for name in FILES]
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        results = list(pool.map(lambda job: compile_file(nvcc, *job), jobs))
    sizes = {arch: {} for arch in SHARED_BYTES}
    for (arch, _), result in zip(jobs, results):
        names = subprocess.run(["c++filt"], input="\n".join(result), capture_output=True, text=True, check=True).stdout
        sizes[arch].update({short_name(name): size for name, size in zip(names.splitlines(), result.values())})
    return sizes


def table(launches, sizes):
    yield "| kernel | threads | shared memory | registers, sm_80 | occupancy | registers, sm_90 | occupancy |"
    yield "|---|---|---|---|---|---|---|"
    for line in launches:
        kernel, name, threads, shared = line.split("|")
        cells = []
        for arch, kernels in sizes.items():
            registers, spilled, static = kernels[kernel]
            share = occupancy(arch, int(threads), registers, int(shared) + static)
            cells += [f"{registers}, {spilled} bytes spilled" if spilled else f"{registers}", f"{100 * share:.0f} %"]
        yield f"| {name} | {threads} | {int(shared) / 1024:.1f} KiB | {' | '.join(cells)} |"
    for arch, kernels in sizes.items():
        spilling = sorted(kernel for kernel, size in kernels.items() if size[1] > 0)
        yield f"\n{arch}: {len(kernels)} kernels in these files; {len(spilling)} spill registers{': ' if spilling else ''}" \
              f"{', '.join(spilling)}."


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--launches", metavar="PROGRAM", help=f"the built program (default: build {LAUNCHES})")
    program = parser.parse_args().launches
    if program is None:
        subprocess.run(["bazel", "build", "--config=opt", LAUNCHES], cwd=ROOT, check=True)
        program = ROOT / ".cache/bazel-bin" / LAUNCHES[2:].replace(":", "/")
    launches = subprocess.run([program], check=True, capture_output=True, text=True).stdout.splitlines()
    print("\n".join(table(launches, measure())))


if __name__ == "__main__":
    main()
