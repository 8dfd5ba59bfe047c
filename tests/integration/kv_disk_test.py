"""--kv-disk: sessions whose KV was evicted, or whose worker has stopped, are not computed again."""

import pathlib
import shutil
import stat
import unittest

import harness
from harness import Client, run_tidepool

# Less KV memory than the sessions below need together.
TIGHT = ("--context", "512", "--kv-memory", "256KiB")
SESSIONS = 8


class KvDiskTest(unittest.TestCase):

    def setUp(self):
        self.folder = pathlib.Path(harness.scratch_folder()) / "cache"

    def tearDown(self):
        shutil.rmtree(self.folder, ignore_errors=True)

    def serve(self, *flags, model=harness.LLAMA, store=":memory:"):
        server = harness.serve(*flags, model=model, store=store)
        self.addCleanup(server.kill)
        client = Client(server)
        self.addCleanup(client.close)
        return server, client

    def on_disk(self, *flags, **more):
        return self.serve(*TIGHT, "--kv-disk", "16MiB", "--cache-dir", self.folder, *flags, **more)

    def turns(self, client, count, first=0):
        """Runs `count` turns of each session, one after the other. Returns the responses."""
        answers = []
        for turn in range(first, first + count):
            for number in range(SESSIONS):
                if turn == 0:
                    client.create_session(f"s{number}")
                answers.append(client.generate(
                    text=f"{number} {'kelp ' * 20}" if turn == 0 else f" and {turn}",
                    session=f"s{number}", max_tokens=40, temperature=1.0, seed=number))
        return answers

    def test_sessions_come_back_from_the_disk(self):
        _, roomy = self.serve("--context", "512")
        expected = self.turns(roomy, 3)

        def comes_back():
            shutil.rmtree(self.folder, ignore_errors=True)
            server, tight = self.on_disk()
            answers = self.turns(tight, 3)
            self.assertEqual([one.ids for one in answers], [one.ids for one in expected])
            disk = self.check_disk(server, tight)
            server.kill()
            # This small model computes so fast that the worker does not always read KV from the
            # disk. It reads the first time, when it does not know yet how long reading and
            # computing take.
            return min(answers[SESSIONS].usage.cached_tokens,
                       disk.restored_tokens_total) >= 3 * self.block
        # On a busy machine, the disk's thread may be too late to write or to read.
        harness.wait_met(comes_back, "a session comes back from the disk")

    def check_disk(self, server, tight):
        stats = tight.wait_idle()
        self.block = stats.kv_block_tokens
        held = stats.kv_blocks_total * self.block
        self.assertLess(held, SESSIONS * 140, "the memory holds all sessions at once")
        disk = stats.kv_disk
        self.assertGreater(disk.used_bytes, 0)
        self.assertLessEqual(disk.used_bytes, 16 << 20)
        self.assertEqual((disk.damaged_blocks_total, disk.failed_reads_total,
                          disk.failed_writes_total), (0, 0, 0))
        shown = run_tidepool("stats", "--server", server.address, "--once").stdout
        self.assertRegex(shown, r"KV disk .* in \d+ blocks; \d+ tokens read back")
        return disk

    def test_a_stop_keeps_kv_and_a_kill_loses_no_token(self):
        _, roomy = self.serve("--context", "512")
        expected = self.turns(roomy, 3)
        store = self.folder.parent / "kv_disk_test.db"
        self.addCleanup(lambda: store.unlink(missing_ok=True))
        server, client = self.on_disk(store=store)
        answers = self.turns(client, 1)
        self.assertEqual(server.stop(), 0)
        file, = self.folder.glob("*.kv")
        self.assertEqual(stat.S_IMODE(file.stat().st_mode), 0o600)

        server, client = self.on_disk(store=store)
        second = self.turns(client, 1, first=1)
        answers += second
        self.assertGreater(second[0].usage.cached_tokens, 90)
        server.kill()

        # This is the file that the killed process has left, with additional damage.
        with open(file, "r+b") as content:
            for place in range(5000, file.stat().st_size, 60000):
                content.seek(place)
                content.write(b"damage")
        _, client = self.on_disk(store=store)
        answers += self.turns(client, 1, first=2)
        self.assertEqual([answer.ids for answer in answers], [answer.ids for answer in expected])

    def test_errors_name_the_cause(self):
        self.on_disk()
        flags = ("serve", "--model", harness.LLAMA, "--store", ":memory:", "--listen", "127.0.0.1:0",
                 "--http", "127.0.0.1:0", "--kv-disk")
        for more, code, named in ((("16MiB", "--cache-dir", self.folder), 1, "--cache-dir"),
                                  (("1KiB", "--cache-dir", self.folder / "x"), 2, "--kv-disk"),
                                  (("1MiB", "--cache-dir", "/dev/null"), 2, "/dev/null")):
            result = run_tidepool(*flags, *more)
            self.assertEqual(result.returncode, code, result.stderr)
            self.assertEqual(len(result.stderr.splitlines()), 1, result.stderr)
            self.assertIn(named, result.stderr)
        self.assertFalse((self.folder / "x").exists())

    def test_memory_for_experts_is_planned_beside_it(self):
        result = run_tidepool("serve", "--model", harness.MOE, "--listen", "127.0.0.1:0",
                              "--http", "127.0.0.1:0", "--store", ":memory:", "--kv-disk", "1GiB",
                              "--cache-dir", self.folder, "--reserve-memory", "100000GiB")
        self.assertNotEqual(result.returncode, 0)
        self.assertIn("lower --kv-memory, --kv-disk or --reserve-memory", result.stderr)


if __name__ == "__main__":
    unittest.main(verbosity=2)
