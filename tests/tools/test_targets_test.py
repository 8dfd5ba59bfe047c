"""Which tests tools/test runs for a path."""

import pathlib
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools"))

import test_targets  # noqa: E402


class TestTargetsTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = pathlib.Path(folder.name)
        for name in ("engine/BUILD", "engine/kv/BUILD", "engine/kv/kv_cache.cc",
                     "engine/chat_template/BUILD", "engine/chat_template/jinja/lexer.cc",
                     "tests/engine/kv/BUILD", "tests/engine/kv/kv_cache_test.cc", "docs/http.md"):
            (self.root / name).parent.mkdir(parents=True, exist_ok=True)
            (self.root / name).touch()
        self.asked = []
        self.answers = {}

    def find(self, path):
        def query(expression):
            self.asked.append(expression)
            return self.answers.get(expression, [])
        return test_targets.targets_for(path, self.root, query)

    def test_a_test_folder_gives_all_tests_below_it(self):
        self.answers["tests(//tests/engine/...)"] = ["//tests/engine/kv:kv_cache_test"]
        self.assertEqual(self.find("tests/engine"), ["//tests/engine/kv:kv_cache_test"])

    def test_a_source_folder_gives_the_tests_of_its_mirror(self):
        self.answers["tests(//tests/engine/...)"] = ["//tests/engine/kv:kv_cache_test"]
        self.assertEqual(self.find("engine"), ["//tests/engine/kv:kv_cache_test"])

    def test_a_file_gives_the_tests_that_use_its_library(self):
        expression = "tests(rdeps(//tests/..., //engine/kv:kv_cache.cc, 2))"
        self.answers[expression] = ["//tests/engine/kv:kv_cache_test"]
        self.assertEqual(self.find("engine/kv/kv_cache.cc"), ["//tests/engine/kv:kv_cache_test"])

    def test_a_file_in_a_folder_without_a_build_file_belongs_to_the_package_above(self):
        expression = "tests(rdeps(//tests/..., //engine/chat_template:jinja/lexer.cc, 2))"
        self.answers[expression] = ["//tests/engine/chat_template:jinja_test"]
        self.assertEqual(self.find("engine/chat_template/jinja/lexer.cc"),
                         ["//tests/engine/chat_template:jinja_test"])

    def test_a_file_that_no_test_uses_directly_gives_the_tests_of_its_folder(self):
        self.answers["tests(//tests/engine/kv/...)"] = ["//tests/engine/kv:kv_cache_test"]
        self.assertEqual(self.find("engine/kv/kv_cache.cc"), ["//tests/engine/kv:kv_cache_test"])

    def test_a_path_without_tests_is_an_error_that_names_it(self):
        with self.assertRaisesRegex(ValueError, "no test belongs to docs/http.md"):
            self.find("docs/http.md")

    def test_a_missing_path_is_an_error_that_names_it(self):
        with self.assertRaisesRegex(ValueError, "engine/none.cc does not exist"):
            self.find("engine/none.cc")


if __name__ == "__main__":
    unittest.main()
