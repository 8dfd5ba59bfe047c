"""Damages session stores and exports, depending on a seed (store_flips.py). All damage is reported.

    store_flips_test.py [CASES]

CASES: number of cases of each kind. The seed is printed, and may be given as TIDEPOOL_TEST_SEED.
"""

import os
import sys
import time
import unittest

import store_flips

CASES = int(sys.argv.pop(1)) if len(sys.argv) > 1 else 20
SEED = int(os.environ.get("TIDEPOOL_TEST_SEED", time.time_ns() % 1_000_000))


class StoreFlipsTest(unittest.TestCase):

    def test_no_damage_is_silent(self):
        self.assertTrue(store_flips.run(CASES, SEED))


if __name__ == "__main__":
    unittest.main(verbosity=2)
