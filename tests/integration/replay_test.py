"""replay: routing traces through placement policies."""

import json
import unittest

import harness
from command_test_case import CommandTest

POLICIES = ["adaptive", "tide", "lru", "static", "belady", "hindsight"]
FIELDS = {"policy", "slots_total", "lookups", "hits", "hit_rate", "misses", "promotions", "pass_throughs",
          "bytes_moved", "step_ms"}


def header(**more):
    return {"version": 1, "model": "made", "layers": 2, "experts": 8, "top_k": 2, "expert_bytes": 1000, **more}


def cycle(steps):
    """Returns the lines of a trace in which both layers use six experts in a cycle, two in each step."""
    return [{"request": "a", "phase": "decode", "step": step, "layer": layer,
             "ids": [[2 * step % 6, (2 * step + 1) % 6]]} for step in range(steps) for layer in (0, 1)]


class ReplayTest(CommandTest):

    def trace(self, lines, name="trace.jsonl"):
        path = harness.scratch_folder() / name
        path.write_text("".join(json.dumps(line) + "\n" for line in lines))
        return path

    def test_json_has_every_field(self):
        path = self.trace([header(), *cycle(30)])
        report = self.run_json("replay", "--trace", path, "--slots", "50%,12", "--policy", ",".join(POLICIES),
                               "--refresh-interval", "2", "--profile", path)
        results = report["results"]
        self.assertEqual([result["policy"] for result in results], POLICIES + POLICIES)
        self.assertEqual([result["slots_total"] for result in results], [8] * 6 + [12] * 6)
        by_policy = {result["policy"]: result for result in results[:6]}
        for result in results:
            self.assertEqual(set(result) - {"refresh_interval"}, FIELDS)
            self.assertEqual(result["lookups"], 30 * 2 * 2)
            self.assertEqual(result["hits"] + result["misses"], result["lookups"])
            self.assertEqual(result["promotions"] + result["pass_throughs"], result["misses"])
            self.assertAlmostEqual(result["hit_rate"], result["hits"] / result["lookups"])
            self.assertEqual(result["bytes_moved"], 1000 * result["misses"])
            self.assertGreater(result["step_ms"], 0)
            self.assertLessEqual(result["hits"], by_policy["belady"]["hits"] if result in results[:6] else 120)
        # Recency does not help on a cycle that is longer than the pool.
        self.assertLess(by_policy["lru"]["hits"], by_policy["adaptive"]["hits"])
        self.assertEqual(by_policy["static"]["hits"], by_policy["hindsight"]["hits"])
        # All twelve experts fit into the pool.
        self.assertEqual([r["hits"] for r in results[6:] if r["policy"] in ("belady", "hindsight")], [120, 120])

    def test_table_for_people(self):
        path = self.trace([header(), *cycle(5)])
        lines = self.run_well("replay", "--trace", path, "--slots", "4").stdout.splitlines()
        self.assertIn("2 layers of 8 experts, top-2", lines[0])
        self.assertEqual([line.split()[0] for line in lines[4:]],
                         ["adaptive", "tide", "lru", "static", "hindsight", "belady"])

    def test_records_of_several_sizes(self):
        path = self.trace([header(expert_bytes=[4096, 4096 << 20]), *cycle(40)])
        results = self.run_json("replay", "--trace", path, "--slots", "6", "--policy", "adaptive,lru,tide")["results"]
        for result in results:
            large, small = divmod(result["bytes_moved"], 4096 << 20)
            self.assertEqual(large + small / 4096, result["misses"])
        # A cycle of six with six slots: only the experts of the expensive layer are worth a slot.
        self.assertLess(results[0]["bytes_moved"], results[1]["bytes_moved"] / 2)
        lines = self.run_well("replay", "--trace", path, "--slots", "6").stdout.splitlines()
        self.assertIn("4.00 KiB to 4.00 GiB each", lines[0])

    def test_refusals(self):
        path = self.trace([header(), *cycle(5)])
        other = self.trace([header(layers=3)], "other.jsonl")
        self.refuse("replay", "--slots", "4", named="--trace")
        self.refuse("replay", "--trace", path, named="--slots")
        self.refuse("replay", "--trace", path, "--slots", "17", "--json", named=("17", "1 to 16"))
        self.refuse("replay", "--trace", path, "--slots", "4x", named=("--slots", "4x"))
        self.refuse("replay", "--trace", path, "--slots", "4", "--policy", "mru", "--json",
                    named=("mru", "adaptive", "belady"))
        self.refuse("replay", "--trace", path, "--slots", "4", "--profile", other, named=("other.jsonl is a profile with 3 layers", "2 of 8"))
        self.refuse("replay", "--trace", "/nowhere/t.jsonl", "--slots", "4", named="/nowhere/t.jsonl")
        path.write_text(path.read_text()[:-9])
        self.refuse("replay", "--trace", path, "--slots", "4", named=(str(path), "line 11", "truncated"))


if __name__ == "__main__":
    unittest.main()
