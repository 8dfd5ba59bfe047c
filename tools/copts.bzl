"""Compiler options of our own code: warnings are errors here and nowhere else."""

TIDEPOOL_COPTS = [
    "-Wall",
    "-Wextra",
    "-Werror",
    "-Wshadow",
    "-Wnon-virtual-dtor",
    "-Woverloaded-virtual",
    "-Wno-sign-compare",
    "-Wno-missing-field-initializers",
]
