"""Compiler options of our own code. Only here, warnings are errors."""

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
