"""A pack cannot be completed, because the disk is full or the program is killed. Then no part of it
is left, and the next start writes the whole pack."""

import os
import pathlib
import subprocess
import unittest

import harness
import synthetic_model
from command_test_case import CommandTest

MIB = 1 << 20
TOKENS = ("--tokens", "5,6,7", "--max-tokens", "8", "--temperature", "0")
EXPERT_MEMORY = ("--expert-memory", "32MiB")
# Fractions of the pack that are written when SIGKILL is sent.
KILL_AT = (0, 0.05, 0.2, 0.4, 0.6, 0.8, 0.95)


def written_bytes(process):
    """Returns how many bytes a process has written until now, or 0 if it has ended."""
    try:
        lines = pathlib.Path(f"/proc/{process.pid}/io").read_text().splitlines()
        return int(dict(line.split(": ") for line in lines)["wchar"])
    except (OSError, KeyError, ValueError):
        return 0


class PackTest(CommandTest):

    @classmethod
    def setUpClass(cls):
        cls.model = synthetic_model.make(harness.scratch_folder() / "model.gguf",
                                         *synthetic_model.LARGE)

    def mount(self, size):
        """Creates a folder in memory that has this number of bytes of space."""
        if os.geteuid() != 0:
            self.skipTest("mounting a file system needs root")
        folder = harness.scratch_folder()
        mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", folder],
                                 capture_output=True, text=True)
        if mounted.returncode != 0:
            self.skipTest(f"no file system can be mounted: {mounted.stderr.strip()}")
        self.addCleanup(subprocess.run, ["umount", folder], check=True)
        return folder

    def whole_answer(self):
        return self.run_json("generate", "--model", self.model, *TOKENS)["token_ids"]

    def test_a_full_disk(self):
        cache = self.mount(8 * MIB)
        into = ("--cache-dir", cache)
        named = (str(cache), ".tidepack", "No space left on device", "--cache-dir DIR", "bytes)")
        self.refuse("pack", "--model", self.model, *into, code=1, named=named)
        self.assertEqual(os.listdir(cache), [])
        self.refuse("generate", "--model", self.model, *TOKENS, *EXPERT_MEMORY, *into, code=1,
                    named=named)
        self.assertEqual(os.listdir(cache), [])
        self.refuse("serve", "--model", self.model, "--store", ":memory:", "--listen",
                    "127.0.0.1:0", "--http", "off", *EXPERT_MEMORY, *into, code=1, named=named)
        self.assertEqual(os.listdir(cache), [])
        subprocess.run(["mount", "-o", "remount,size=500m", cache], check=True)
        answer = self.run_json("generate", "--model", self.model, *TOKENS, *EXPERT_MEMORY, *into)
        self.assertEqual(answer["token_ids"], self.whole_answer())
        self.assertGreater(answer["usage"]["expert_misses"], 0)
        self.assertEqual(len(os.listdir(cache)), 1)

    def kill_midway(self, folder, pack_bytes, share):
        """Sends SIGKILL while the pack is written. Returns whether it arrived before the pack was complete."""
        process = harness.Process("pack", "--model", self.model, "--cache-dir", folder)
        harness.wait_until(
            lambda: written_bytes(process) > share * pack_bytes or not process.running(),
            "a part of the pack is written", timeout=120)
        process.kill()
        return process.wait() == -9 and not os.listdir(folder)

    def check_kills(self, folder, used_bytes):
        elsewhere = harness.scratch_folder()
        pack = pathlib.Path(self.run_json("pack", "--model", self.model, "--cache-dir",
                                          elsewhere)["out"])
        size, before = pack.stat().st_size, used_bytes()
        midway = kills = 0
        # On a busy machine, the pack may be complete before the signal is sent.
        while kills < len(KILL_AT) or (midway < 3 and kills < 10 * len(KILL_AT)):
            share = KILL_AT[kills % len(KILL_AT)]
            kills += 1
            midway += self.kill_midway(folder, size, share)
            # If the pack exists, it was completed before the signal. No other file is next to it.
            for name in os.listdir(folder):
                self.assertEqual(name, pack.name)
                self.assertEqual((folder / name).read_bytes(), pack.read_bytes())
                (folder / name).unlink()
            self.assertEqual(used_bytes(), before, f"killed at {share}")
        print(f"killed midway {midway} of {kills} times")
        self.assertGreaterEqual(midway, 3)
        answer = self.run_json("generate", "--model", self.model, *TOKENS, *EXPERT_MEMORY,
                               "--cache-dir", folder)
        self.assertEqual(answer["token_ids"], self.whole_answer())
        self.assertEqual(os.listdir(folder), [pack.name])
        self.assertEqual((folder / pack.name).read_bytes(), pack.read_bytes())

    def test_a_kill_leaves_nothing(self):
        self.check_kills(harness.scratch_folder(), lambda: 0)

    def test_a_kill_keeps_no_room(self):
        # No other process writes to this file system. So the number of its free blocks also shows
        # whether files without names are left.
        folder = self.mount(500 * MIB)

        def used():
            room = os.statvfs(folder)
            return (room.f_blocks - room.f_bfree) * room.f_frsize

        self.check_kills(folder, used)


if __name__ == "__main__":
    unittest.main()
