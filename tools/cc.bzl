"""The C++ rules of our own code: with its warnings, which are errors only here, and precompiled headers."""

_WARNINGS = [
    "-Wall",
    "-Wextra",
    "-Werror",
    "-Wshadow",
    "-Wnon-virtual-dtor",
    "-Woverloaded-virtual",
    "-Wno-sign-compare",
    "-Wno-missing-field-initializers",
]

# False warnings about the standard library and Abseil, which suppress them by pragmas. GCC 12 loses these in a
# precompiled header.
_FALSE_WARNINGS = [
    "-Wno-array-bounds",
    "-Wno-maybe-uninitialized",
    "-Wno-stringop-overflow",
    "-Wno-stringop-overread",
]

_ABSEIL = "@absl//:lib"
_GOOGLETEST = "@googletest//:lib"
_JSON = "@nlohmann_json//:lib"

def _precompiled_header(attributes):
    """The header of tools/precompiled for a rule: it contains only headers of libraries in its deps."""
    deps = attributes.get("deps", [])
    copts = attributes.get("copts", [])
    if type(deps) != "list" or type(copts) != "list" or not attributes.get("srcs"):
        return None

    # GCC reads the header itself if a macro or an instruction set is not the same, or for a shared library
    # (-fPIC). `--copt=-Winvalid-pch` shows it.
    if attributes.get("local_defines") or [o for o in copts if o.startswith("-D") or o.startswith("-m")]:
        return None
    if _ABSEIL not in deps and _GOOGLETEST not in deps:
        return None
    if _GOOGLETEST in deps:
        return "googletest_json" if _JSON in deps else "googletest"
    return "json" if _JSON in deps else "abseil"

def _ours(attributes):
    """The attributes of a rule with our options."""
    attributes = dict(attributes)
    header = _precompiled_header(attributes)
    attributes["copts"] = _WARNINGS + attributes.get("copts", [])
    if header:
        enabled = "//tools/precompiled:enabled"
        attributes["copts"] += select({
            enabled: _FALSE_WARNINGS + ["-include", "$(BINDIR)/tools/precompiled/%s.h" % header],
            "//conditions:default": [],
        })
        attributes["deps"] += select({
            enabled: ["//tools/precompiled:" + header],
            "//conditions:default": [],
        })
    return attributes

def cc_library(**attributes):
    native.cc_library(**_ours(attributes))

def cc_binary(**attributes):
    native.cc_binary(**_ours(attributes))

def cc_test(**attributes):
    native.cc_test(**_ours(attributes))
