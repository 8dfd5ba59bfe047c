"""Fuzz targets: they need clang and --config=fuzz, so //... leaves them out."""

load("//tools:copts.bzl", "TIDEPOOL_COPTS")

def fuzz_target(name, deps):
    native.cc_binary(
        name = name,
        testonly = True,
        srcs = [name + ".cc"],
        copts = TIDEPOOL_COPTS,
        linkopts = ["-fsanitize=fuzzer"],
        tags = ["manual"],
        deps = deps,
    )
