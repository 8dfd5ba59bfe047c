"""A test case that runs one command after the other."""

import json
import unittest

from harness import run_tidepool


class CommandTest(unittest.TestCase):

    def run_well(self, *arguments, **more):
        result = run_tidepool(*arguments, **more)
        self.assertEqual(result.returncode, 0, result.stderr)
        return result

    def run_json(self, *arguments, **more):
        """Returns stdout as an object. It must be one JSON object."""
        return json.loads(self.run_well(*arguments, "--json", **more).stdout)

    def refuse(self, *arguments, named=(), code=2, **more):
        """Checks that the command fails with `code`, prints nothing on stdout, and prints one line
        on stderr that contains `named`."""
        result = run_tidepool(*arguments, **more)
        self.assertEqual(result.returncode, code, f"{arguments}: {result.stdout}{result.stderr}")
        self.assertEqual(result.stdout, "", arguments)
        self.assertEqual(len(result.stderr.splitlines()), 1, result.stderr)
        for name in (named,) if isinstance(named, str) else named:
            self.assertIn(name, result.stderr)
