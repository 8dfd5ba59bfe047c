"""The occupancy that tools/gpu_sizes.py computes, and what it reads from CUDA's compiler."""

import pathlib
import sys
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools"))

import gpu_sizes  # noqa: E402

REPORT = """ptxas info    : 0 bytes gmem
ptxas info    : Compiling entry function '_Z1aPf' for 'sm_90'
ptxas info    : Function properties for _Z1aPf
    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Used 40 registers, used 1 barriers, 400 bytes cmem[0]
ptxas info    : Compiling entry function '_Z1bPf' for 'sm_90'
ptxas info    : Function properties for _Z1bPf
    24 bytes stack frame, 20 bytes spill stores, 24 bytes spill loads
ptxas info    : Used 168 registers, used 1 barriers, 512 bytes smem, 400 bytes cmem[0]
"""


class GpuSizesTest(unittest.TestCase):
    def test_occupancy_is_that_of_the_scarcest_resource(self):
        for arch, threads, registers, shared, expected in (
                ("sm_80", 256, 32, 0, 1),
                ("sm_80", 128, 255, 0, 8 / 64),
                ("sm_80", 32, 16, 0, 0.5),  # 32 blocks
                ("sm_80", 128, 32, 80 << 10, 8 / 64),
                ("sm_90", 128, 32, 80 << 10, 8 / 64),
                ("sm_90", 128, 32, 75 << 10, 12 / 64),
                ("sm_90", 128, 168, 0, 12 / 64)):
            with self.subTest(arch=arch, threads=threads, registers=registers, shared=shared):
                self.assertEqual(gpu_sizes.occupancy(arch, threads, registers, shared), expected)

    def test_reads_registers_spills_and_static_shared_memory(self):
        self.assertEqual(gpu_sizes.parse(REPORT), {"_Z1aPf": (40, 0, 0), "_Z1bPf": (168, 24, 512)})

    def test_names_lose_namespaces_and_types(self):
        for name, short in (("void a::b::Kernel<(a::Type)4, 1>(a::Args, int)", "Kernel<4, 1>"),
                            ("void a::(anonymous namespace)::Kernel<(a::Type)4>(a::Args)", "Kernel<4>"),
                            ("a::(anonymous namespace)::Merge(a::Args)", "Merge")):
            self.assertEqual(gpu_sizes.short_name(name), short)

    def test_a_row_has_both_architectures(self):
        sizes = {"sm_80": {"K<4>": (128, 0, 0)}, "sm_90": {"K<4>": (168, 24, 0)}}
        rows = list(gpu_sizes.table(["K<4>|a product|128|2048"], sizes))
        self.assertEqual(rows[2], "| a product | 128 | 2.0 KiB | 128 | 25 % | 168, 24 bytes spilled | 19 % |")
        self.assertIn("sm_90: 1 kernels in these files; 1 spill registers: K<4>.", rows[-1])

    def test_flags_name_no_gpu(self):
        self.assertIn("-fmad=false", gpu_sizes.flags())
        self.assertFalse([flag for flag in gpu_sizes.flags() if "gencode" in flag])


if __name__ == "__main__":
    unittest.main()
