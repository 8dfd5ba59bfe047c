"""tools/layout: every source file has a row that says what the file holds."""

import importlib.machinery
import importlib.util
import pathlib
import subprocess
import tempfile
import unittest

ROOT = pathlib.Path.cwd()
TOOL = ROOT / "tools/layout"
LOADER = importlib.machinery.SourceFileLoader("layout", str(TOOL))
layout = importlib.util.module_from_spec(importlib.util.spec_from_loader("layout", LOADER))
LOADER.exec_module(layout)


class LayoutTest(unittest.TestCase):

    def test_every_file_begins_with_a_comment(self):
        for folder in layout.FOLDERS:
            for name, text in layout.describe(ROOT, folder).items():
                with self.subTest(name):
                    self.assertTrue(text, f"{name} must begin with a comment that says what it holds")

    def test_prints_the_first_paragraph(self):
        self.assertEqual(layout.beginning("// Lease: a lease.\n// More.\n//\n// Details.\n#include\n", "//"),
                         "Lease: a lease. More.")
        self.assertEqual(layout.beginning("// A lease.\n#include <a>\n", "//"), "A lease.")
        self.assertEqual(layout.beginning("#include <a>\n// Later.\n", "//"), "")
        self.assertEqual(layout.beginning("# Runs the\n# tests.\n#   run FILE\n", "#"), "Runs the tests.")
        self.assertEqual(layout.beginning('"""Runs the\ntests.\n\n    run FILE\n"""\n', "#"), "Runs the tests.")

    def test_a_header_comes_before_its_source(self):
        with tempfile.TemporaryDirectory() as folder:
            root = pathlib.Path(folder)
            (root / "a").mkdir()
            for name in ("b.cc", "b.h", "c.cu.cc"):
                (root / "a" / name).write_text(f"// {name} is this.\n", encoding="utf-8")
            (root / "a/d.yaml").write_text("# A manifest.\n", encoding="utf-8")
            (root / "a/e").write_text("#!/bin/sh\n# A script.\n", encoding="utf-8")
            (root / "a/f.txt").write_text("# Data.\n", encoding="utf-8")
            self.assertEqual(layout.describe(root, "a"),
                             {"a/b": "b.h is this.", "a/c": "c.cu.cc is this.", "a/d.yaml": "A manifest.",
                              "a/e": "A script."})

    def test_prints_one_folder_and_refuses_others(self):
        run = lambda *folders: subprocess.run([TOOL, *folders], capture_output=True, text=True)
        self.assertIn("service/store/lease: ", run("service/store").stdout)
        self.assertNotIn("engine/", run("service/store").stdout)
        refused = run("service/nothing")
        self.assertEqual(refused.returncode, 1)
        self.assertIn("service/nothing is not a folder", refused.stderr)


if __name__ == "__main__":
    unittest.main()
