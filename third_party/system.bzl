"""Libraries that Debian's packages put under /usr (tools/setup lists the packages)."""

# Repository name: libraries to link. A binary links only those that it uses (--as-needed).
_LIBRARIES = {
    "absl": [
        "absl_bad_optional_access",
        "absl_bad_variant_access",
        "absl_base",
        "absl_city",
        "absl_civil_time",
        "absl_cord",
        "absl_cord_internal",
        "absl_hash",
        "absl_int128",
        "absl_low_level_hash",
        "absl_raw_hash_set",
        "absl_raw_logging_internal",
        "absl_status",
        "absl_statusor",
        "absl_str_format_internal",
        "absl_strerror",
        "absl_strings",
        "absl_strings_internal",
        "absl_synchronization",
        "absl_throw_delegate",
        "absl_time",
        "absl_time_zone",
    ],
    "benchmark": ["benchmark"],
    "boost_context": ["boost_context"],
    "googletest": [
        "gmock",
        "gtest",
        "gtest_main",
    ],
    "grpc": [
        "grpc++_reflection",
        "grpc++_error_details",
        "grpc++",
        "grpc",
        "gpr",
        "protobuf",
    ],
    "hiredis": ["hiredis"],
    "liburing": ["uring"],
    "openssl": [
        "ssl",
        "crypto",
    ],
    "pcre2": ["pcre2-8"],
    "prometheus": ["prometheus-cpp-core"],
    "spdlog": [
        "spdlog",
        "fmt",
    ],
    "sqlite": ["sqlite3"],
    "utf8proc": ["utf8proc"],
    "xxhash": ["xxhash"],
    "zstd": ["zstd"],
}

# Header-only libraries: nothing to link.
_HEADER_ONLY = [
    "boost",
    "nlohmann_json",
    "tomlplusplus",
]

def _build_file(libraries):
    return """
cc_library(
    name = "lib",
    linkopts = {linkopts},
    visibility = ["//visibility:public"],
)
""".format(linkopts = ["-Wl,--as-needed"] + ["-l" + library for library in libraries] + ["-lpthread"])

# Debian has googleapis's .proto files only in a jar.
_GOOGLEAPIS_JAR = "/usr/share/java/proto-google-common-protos.jar"
_GOOGLEAPIS_BUILD = """
# What gRPC's clients know of an error beside its code and message: include "google/rpc/status.pb.h".
genrule(
    name = "generate",
    srcs = {protos},
    outs = {sources} + {headers},
    cmd = "protoc -Iexternal/googleapis --cpp_out=$(RULEDIR) $(SRCS)",
)

cc_library(
    name = "rpc",
    srcs = {sources},
    hdrs = {headers},
    copts = ["-w"],
    includes = ["."],
    visibility = ["//visibility:public"],
    deps = ["@grpc//:lib"],
)
"""

def _googleapis_impl(context):
    if not context.path(_GOOGLEAPIS_JAR).exists:
        fail("%s is not there; run tools/setup --packages" % _GOOGLEAPIS_JAR)
    context.extract(_GOOGLEAPIS_JAR)
    stems = ["google/rpc/error_details", "google/rpc/status"]
    context.file("BUILD", _GOOGLEAPIS_BUILD.format(
        protos = [stem + ".proto" for stem in stems],
        sources = [stem + ".pb.cc" for stem in stems],
        headers = [stem + ".pb.h" for stem in stems],
    ))

_googleapis = repository_rule(implementation = _googleapis_impl, local = True)

def system_libraries():
    """Declares one repository, @NAME//:lib, for each library above, and @googleapis//:rpc."""
    _googleapis(name = "googleapis")
    for name, libraries in _LIBRARIES.items():
        native.new_local_repository(
            name = name,
            build_file_content = _build_file(libraries),
            path = "third_party/empty",
        )
    for name in _HEADER_ONLY:
        native.new_local_repository(
            name = name,
            build_file_content = _build_file([]),
            path = "third_party/empty",
        )
