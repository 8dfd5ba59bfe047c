"""Which files tools/clang_checks checks, and when it checks them again."""

import importlib.machinery
import importlib.util
import pathlib
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.dont_write_bytecode = True


def load():
    loader = importlib.machinery.SourceFileLoader("clang_checks", str(ROOT / "tools/clang_checks"))
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader("clang_checks", loader))
    loader.exec_module(module)
    return module


FILES = {
    "engine/queue.h": '#include <mutex>\n#include "kernels/base/mutex.h"\nint n TIDEPOOL_GUARDED_BY(m);\n',
    "engine/queue.cc": '#include "engine/queue.h"\n',
    "engine/queue_more.cc": '#include "engine/queue.h"\n',
    "engine/plain.h": '#include "tidepool/v1/admin.grpc.pb.h"\n',
    "engine/user.cc": '#include "engine/plain.h"\n',
    "proto/tidepool/v1/admin.proto": "message A {}\n",
    "kernels/base/mutex.h": "#define TIDEPOOL_GUARDED_BY(mutex)\n",
    "tests/engine/queue_test.cc": '#include "engine/queue.h"\n',
    "tests/engine/lock_test.cc": "base::MutexLock lock(&m);\n",
}


class ClangChecksTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = pathlib.Path(folder.name)
        for name, text in FILES.items():
            (self.root / name).parent.mkdir(parents=True, exist_ok=True)
            (self.root / name).write_text(text)
        self.checks = self.load()

    def load(self):
        checks = load()
        checks.ROOT, checks.PASSED = self.root, self.root / "passed"
        return checks

    def test_threads_checks_whoever_can_hold_an_annotated_mutex(self):
        self.assertEqual([name for name in FILES if name.endswith(".cc") and self.checks.is_annotated(name)],
                         ["engine/queue.cc", "engine/queue_more.cc", "tests/engine/lock_test.cc"])

    def test_a_header_is_checked_through_the_source_of_its_name_or_one_that_includes_it(self):
        files = sorted(FILES)
        self.assertEqual(self.checks.sources_that_check(["engine/queue.h", "engine/plain.h"], files),
                         ["engine/queue.cc", "engine/user.cc"])
        self.assertEqual(self.checks.sources_that_check(["engine/queue.cc", "engine/queue.h"], files),
                         ["engine/queue.cc"])
        self.assertEqual(self.checks.sources_that_check(["engine/none.h"], files), [])

    def test_a_file_is_checked_again_when_it_or_an_include_or_the_settings_change(self):
        def passed(settings="flags"):
            return self.load().Passed("tidy", settings).has("engine/user.cc")
        self.assertFalse(passed())
        self.checks.Passed("tidy", "flags").add("engine/user.cc")
        self.assertTrue(passed())
        self.assertFalse(passed("other flags"))
        (self.root / "proto/tidepool/v1/admin.proto").write_text("message B {}\n")
        self.assertFalse(passed())

    def git(self, *arguments):
        identity = ["-c", "user.name=a", "-c", "user.email=a@b.c", "-c", "init.defaultBranch=main"]
        done = subprocess.run(["git", *identity, *arguments], cwd=self.root, check=True,
                              capture_output=True, text=True)
        return done.stdout.strip()

    def commit(self, message):
        self.git("commit", "-q", "--allow-empty", "-m", message)
        return self.git("rev-parse", "HEAD")

    def test_changes_are_those_of_the_branch_or_of_the_last_commit(self):
        self.git("init", "-q")
        self.git("add", "-A")
        first = self.commit("first")
        self.assertIsNone(self.checks.default_base(), "a clone without history")
        self.commit("second")
        self.assertEqual(self.checks.default_base(), first)
        (self.root / "engine/user.cc").write_text("int n;\n")
        self.assertEqual(self.checks.default_base(), "HEAD")
        self.git("checkout", "-q", "-b", "branch", first)
        self.commit("on the branch")
        self.commit("again")
        self.assertEqual(self.checks.default_base(), first)
        self.assertEqual(self.checks.changed_since(first), ["engine/user.cc"])
        with self.assertRaisesRegex(SystemExit, "no commit v1"):
            self.checks.changed_since("v1")

    def test_a_failed_file_is_not_remembered(self):
        passed = self.checks.Passed("tidy", "flags")
        run = lambda command: self.checks.run_each(["engine/user.cc"], passed, lambda name: command)
        self.assertFalse(run(["false"]))
        self.assertFalse(passed.has("engine/user.cc"))
        self.assertTrue(run(["true"]))
        self.assertTrue(passed.has("engine/user.cc"))
        self.assertTrue(run(["false"]), "it passed before, so it is not run")

    def test_files_left_out_for_time_do_not_count_as_passed(self):
        passed = self.checks.Passed("tidy", "flags")
        self.assertTrue(self.checks.run_each(["engine/user.cc"], passed, lambda name: ["true"], seconds=-1))
        self.assertFalse(passed.has("engine/user.cc"))


if __name__ == "__main__":
    unittest.main()
