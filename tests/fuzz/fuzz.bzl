"""Fuzz targets, each with a test that an ordinary build compiles and runs."""

load("//tools:cc.bzl", "cc_binary", "cc_test")

def fuzz_target(name, deps, tags = []):
    """Declares a fuzz target and the test of its corpus.

    Args:
      name: NAME_fuzz, of NAME_fuzz.cc and corpus/NAME_fuzz. It needs clang and --config=fuzz, so
        //... leaves it out. NAME_corpus_test runs it once on each file of the corpus.
      deps: of both.
      tags: of the test.
    """
    cc_binary(
        name = name,
        testonly = True,
        srcs = [name + ".cc"],
        linkopts = ["-fsanitize=fuzzer"],
        tags = ["manual"],
        deps = deps,
    )
    corpus = "corpus/" + name
    cc_test(
        name = name.replace("_fuzz", "_corpus_test"),
        size = "small",
        srcs = [
            name + ".cc",
            "replay_corpus.cc",
        ],
        args = ["tests/fuzz/" + corpus],
        data = native.glob([corpus + "/**"]),
        tags = tags,
        deps = deps,
    )
