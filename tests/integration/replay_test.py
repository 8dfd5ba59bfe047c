"""replay: routing traces through placement policies."""

import json
import unittest

import harness
from command_test_case import CommandTest

POLICIES = ["adaptive", "tide", "lru", "static", "belady", "hindsight"]
FIELDS = {"policy", "slots_total", "lookups", "hits", "hit_rate", "misses", "promotions", "pass_throughs",
          "bytes_moved", "step_ms"}
TIER_FIELDS = FIELDS - {"bytes_moved"} | {"copied", "computed_on_cpu", "copied_for_later", "tokens_per_s", "device_busy",
                                          "copy_busy", "cpu_busy", "copy_wait"}
# A copy takes 30 us.
COSTS = {"about": "made", "expert_bytes": 2_000_000, "device_step_us": 100, "device_layer_us": 50, "device_call_us": 10,
         "device_expert_us": 5, "device_expert_row_us": 1, "copy_latency_us": 10, "copy_bytes_per_s": 1e11,
         "cpu_call_us": 20, "cpu_expert_us": 40, "cpu_expert_row_us": 10}


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
        # Each layer has a cycle of six experts, and there are six slots. Only the experts of the
        # expensive layer are worth a slot.
        self.assertLess(results[0]["bytes_moved"], results[1]["bytes_moved"] / 2)
        lines = self.run_well("replay", "--trace", path, "--slots", "6").stdout.splitlines()
        self.assertIn("4.00 KiB to 4.00 GiB each", lines[0])

    def costs(self, **more):
        path = harness.scratch_folder() / "costs.json"
        path.write_text(json.dumps({**COSTS, **more}))
        return path

    def test_device_costs_predict_a_speed(self):
        path = self.trace([header(), *cycle(100)])
        report = self.run_json("replay", "--trace", path, "--slots", "4,16", "--policy", "adaptive,tide,lru,static",
                               "--device-costs", self.costs())
        self.assertEqual(report["device_costs"], COSTS)
        self.assertEqual(report["slot_bytes"], COSTS["expert_bytes"])
        for result in report["results"]:
            self.assertEqual(set(result) - {"refresh_interval"}, TIER_FIELDS)
            self.assertEqual(result["copied"] + result["computed_on_cpu"], result["misses"])
            self.assertLessEqual(result["copied_for_later"], result["computed_on_cpu"])
            for resource in ("device_busy", "copy_busy", "cpu_busy", "copy_wait"):
                self.assertTrue(0 <= result[resource] <= 1, result)
        # If all experts are in slots, a step consists of two layers. Each makes one call, which
        # computes two experts for one row.
        static = report["results"][7]
        self.assertEqual(static["hits"], static["lookups"])
        step_us = 2 * (50 + 10 + 2 * (5 + 1)) + 100
        self.assertAlmostEqual(static["step_ms"], step_us / 1000)
        self.assertAlmostEqual(static["tokens_per_s"], 1e6 / step_us)
        self.assertEqual(static["device_busy"], 1)
        self.assertLess(report["results"][3]["tokens_per_s"], static["tokens_per_s"])

    def test_faster_copies_are_preferred_to_the_cpu(self):
        path = self.trace([header(), *cycle(100)])
        def result(**more):
            return self.run_json("replay", "--trace", path, "--slots", "4", "--policy", "static", "--device-costs",
                                 self.costs(**more))["results"][0]
        slow_cpu, fast_cpu = result(cpu_expert_us=5000), result(cpu_call_us=1, cpu_expert_us=1, cpu_expert_row_us=1)
        self.assertGreater(slow_cpu["copied"], 10 * slow_cpu["computed_on_cpu"])
        self.assertGreater(fast_cpu["computed_on_cpu"], 10 * fast_cpu["copied"])

    def test_table_of_a_device(self):
        path = self.trace([header(), *cycle(5)])
        lines = self.run_well("replay", "--trace", path, "--slots", "4", "--device-costs",
                              self.costs()).stdout.splitlines()
        self.assertIn("1.91 MiB each", lines[0])
        self.assertIn("costs.json", lines[1])
        self.assertIn("tokens/s", lines[4])
        self.assertEqual([line.split()[0] for line in lines[5:]],
                         ["adaptive", "tide", "lru", "static", "hindsight", "belady"])

    def test_refusals_of_device_costs(self):
        path = self.trace([header(), *cycle(5)])
        command = ("replay", "--trace", path, "--slots", "4", "--json", "--device-costs")
        self.refuse(*command, self.costs(), "--read-bandwidth", "1GB", named=("--read-bandwidth", "--device-costs"))
        self.refuse(*command, "/nowhere/c.json", named="/nowhere/c.json")
        self.refuse(*command, path, named=(str(path), "not a JSON object"))
        self.refuse(*command, self.costs(cpu_call_us=-1), named=("costs.json", "cpu_call_us", "0 to 1e+09"))
        self.refuse(*command, self.costs(gpu_us=1), named=("costs.json", "gpu_us"))

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
