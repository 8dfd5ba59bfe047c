"""The deps of each C++ target are the targets whose headers its files include, and keep to the layers."""

import unittest

from build_deps import dep_faults, layer_faults, targets_of
from tree import ROOT, files, read

SAMPLE = """
load("//tools:cc.bzl", "cc_library", "cc_test")

package(default_visibility = ["//visibility:public"])

cc_library(
    name = "a",
    srcs = ["a.cc"],
    hdrs = ["a.h"],
    deps = [":b", "@absl//:lib"] + select({":on": [":registered"], "//conditions:default": []}),
)

cc_library(name = "b", hdrs = ["b.h"])

cc_library(name = "registered", srcs = ["registered.cc"])

[cc_test(name = name, srcs = [name + ".cc"], deps = [":a", ":b"]) for name in [
    "c_test",
    "d_test",
]]
"""
FILES = {
    "moe/a.h": '#include "absl/status/status.h"\n#include "moe/b.h"\n',
    "moe/a.cc": '#include "moe/a.h"\n',
    "moe/c_test.cc": '#include "moe/a.h"\n',
    "moe/d_test.cc": '#include "moe/b.h"\n',
}


def all_targets():
    targets = {}
    for name in files("BUILD"):
        if not name.startswith("third_party/"):
            targets.update(targets_of(name.rpartition("/")[0], read(name)))
    return targets


def text_of(name):
    """The text of a file, or "" if there is none, as for generated files."""
    return read(name) if (ROOT / name).is_file() else ""


def faults(sample, texts):
    return set(dep_faults(targets_of("moe", sample), lambda name: texts.get(name, "")))


class BuildDepsTest(unittest.TestCase):

    def test_deps_are_the_included_targets(self):
        targets = all_targets()
        self.assertGreater(len(targets), 100)
        wrong = [f"{name}: {'add' if is_missing else 'remove'} {dep} "
                 f"({'its' if is_missing else 'none of its'} headers are included)"
                 for name, dep, is_missing in sorted(set(dep_faults(targets, text_of)))]
        self.assertEqual(wrong, [])

    def test_deps_keep_to_the_layers(self):
        self.assertEqual(list(layer_faults(all_targets())), [])

    def test_the_sample_is_right(self):
        self.assertEqual(faults(SAMPLE, FILES), set())

    def test_missing_deps_are_found(self):
        self.assertEqual(faults(SAMPLE.replace('":b", "@absl', '"@absl'), FILES), {("//moe:a", "//moe:b", True)})
        proto = {**FILES, "moe/a.cc": '#include "tidepool/v1/admin.pb.h"\n'}
        self.assertEqual(faults(SAMPLE, proto), {("//moe:a", "//proto:proto", True)})

    def test_superfluous_deps_are_found(self):
        self.assertEqual(faults(SAMPLE, {**FILES, "moe/a.h": ""}), {("//moe:a", "//moe:b", False)})
        # Both tests have the same list, so each of its deps must be used by one of them.
        self.assertEqual(faults(SAMPLE, {**FILES, "moe/d_test.cc": ""}),
                         {("//moe:c_test", "//moe:b", False), ("//moe:d_test", "//moe:b", False)})

    def test_deps_on_upper_layers_are_found(self):
        for dep, count in (("//engine", 1), ("//moe/policy:residency", 0), ("//kernels/cuda:headers", 1),
                           ("//proto", 1), ("//tests/fakes:clock", 1), ("@absl//:lib", 0)):
            targets = targets_of("moe/trace", f'cc_library(name = "a", deps = ["{dep}"])')
            self.assertEqual(len(list(layer_faults(targets))), count, dep)


if __name__ == "__main__":
    unittest.main()
