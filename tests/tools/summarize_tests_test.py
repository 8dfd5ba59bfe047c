"""The counts and the table of slowest tests that tools/test ends with."""

import contextlib
import io
import json
import pathlib
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools"))

import summarize_tests  # noqa: E402


def result(label, milliseconds, status="PASSED", **more):
    return {"id": {"testResult": {"label": label}},
            "testResult": {"status": status, "testAttemptDurationMillis": str(milliseconds),
                           "executionInfo": {}, **more}}


class SummarizeTestsTest(unittest.TestCase):
    def summarize(self, events, *options):
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "events.json"
            path.write_text("\n".join(json.dumps(event) for event in events))
            printed = io.StringIO()
            with contextlib.redirect_stdout(printed):
                code = summarize_tests.main([*options, str(path)])
        return code, printed.getvalue().splitlines()

    def test_counts_targets_without_cases_as_one_each(self):
        code, lines = self.summarize([result("//a:x", 10), result("//a:y", 10)], "--passed=demo")
        self.assertEqual((code, lines[-1]), (0, "3 passed, 0 failed, 0 skipped"))

    def test_names_a_target_that_failed_or_was_not_built(self):
        broken = {"id": {"targetCompleted": {"label": "//a:z"}}, "completed": {"success": False}}
        code, lines = self.summarize([result("//a:x", 10, "TIMEOUT"), broken])
        self.assertEqual(code, 1)
        self.assertIn("failed: //a:x TIMEOUT", lines)
        self.assertIn("failed: //a:z was not built", lines)

    def test_a_failed_script_says_the_last_line_of_its_log(self):
        with tempfile.TemporaryDirectory() as folder:
            log = pathlib.Path(folder) / "test.log"
            log.write_text("a table\nx_test failed: two tokens differ\n\n")
            xml = pathlib.Path(folder) / "test.xml"
            xml.write_text('<testsuite><testcase name="a/x"><error message="exited with error code 1">'
                           '</error></testcase></testsuite>')
            outputs = [{"name": path.name, "uri": path.as_uri()} for path in (log, xml)]
            _, lines = self.summarize([result("//a:x", 10, "FAILED", testActionOutput=outputs),
                                       result("//a:y", 10, "TIMEOUT", testActionOutput=outputs[:1])])
        self.assertIn("failed: //a:x FAILED: x_test failed: two tokens differ", lines)
        self.assertIn("failed: //a:y TIMEOUT: x_test failed: two tokens differ", lines)
        self.assertEqual(lines[-1], "0 passed, 2 failed, 0 skipped")

    def test_a_failed_case_is_named(self):
        with tempfile.TemporaryDirectory() as folder:
            xml = pathlib.Path(folder) / "test.xml"
            xml.write_text('<testsuite><testcase classname="A" name="B"><failure/></testcase>'
                           '<testcase classname="A" name="C"/></testsuite>')
            outputs = [{"name": xml.name, "uri": xml.as_uri()}]
            _, lines = self.summarize([result("//a:x", 10, "FAILED", testActionOutput=outputs)])
        self.assertIn("failed: //a:x A.B", lines)
        self.assertEqual(lines[-1], "1 passed, 1 failed, 0 skipped")

    def test_nothing_run_is_a_failure(self):
        self.assertEqual(self.summarize([])[0], 1)

    def test_lists_the_slowest_first_and_leaves_out_cached_results(self):
        _, lines = self.summarize([
            result("//a:quick", 1000), result("//a:slow", 61500),
            result("//a:cached", 99000, cachedLocally=True),
            result("//a:elsewhere", 99000, executionInfo={"cachedRemotely": True})])
        self.assertEqual(lines[:3], ["slowest of 2 tests that ran (62 s in all):",
                                     "    61.5 s  //a:slow", "     1.0 s  //a:quick"])

    def test_checks_outside_bazel_are_in_the_table(self):
        code, lines = self.summarize([result("//a:quick", 1000)], "--passed=demo=7",
                                     "--failed=-Wthread-safety=3")
        self.assertEqual(code, 1)
        self.assertEqual(lines, ["slowest of 3 tests that ran (11 s in all):", "     7.0 s  demo",
                                 "     3.0 s  -Wthread-safety", "     1.0 s  //a:quick",
                                 "failed: -Wthread-safety", "2 passed, 1 failed, 0 skipped"])


if __name__ == "__main__":
    unittest.main()
