"""tools/make_synthetic streams to disk: for a gigabyte, it needs no more memory than for a quarter
of a gigabyte."""

import os
import pathlib
import subprocess
import tempfile
import unittest

MAKE_SYNTHETIC = pathlib.Path(os.environ["MAKE_SYNTHETIC"]).resolve()
MB = 10**6
# For other layer sizes, the peak differs by the memory that the allocator keeps.
NOISE = 16 * MB


class SyntheticMemoryTest(unittest.TestCase):

    def make(self, layers, *flags):
        """Returns the size of an olmoe with this number of layers, and the peak memory of its
        creation."""
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "model.gguf"
            with subprocess.Popen([MAKE_SYNTHETIC, "--moe", "olmoe", "--layers", str(layers),
                                   "--type", "Q4_K", "--out", path, *flags],
                                  stdout=subprocess.DEVNULL, stderr=subprocess.PIPE) as process:
                errors = process.stderr.read().decode()
                _, status, usage = os.wait4(process.pid, 0)  # the only way to a child's own peak
                process.returncode = os.waitstatus_to_exitcode(status)
            self.assertEqual(process.returncode, 0, errors)
            self.assertEqual(list(path.parent.iterdir()), [path])
            return path.stat().st_size, usage.ru_maxrss * 1024

    def check(self, *flags):
        _, small_peak = self.make(1, *flags)
        size, peak = self.make(4, *flags)
        print(f"{size / MB:.0f} MB, peak {peak / MB:.0f} MB; a quarter: {small_peak / MB:.0f} MB")
        self.assertGreater(size, 1000 * MB)
        self.assertLess(peak, 200 * MB)
        self.assertLess(peak, small_peak + NOISE)

    def test_a_random_router(self):
        self.check()

    def test_a_router_with_skew_and_persistence(self):
        self.check("--skew", "0.5", "--persistence", "0.6")


if __name__ == "__main__":
    unittest.main()
