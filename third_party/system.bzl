"""Libraries that Debian's packages put under /usr (tools/setup lists the packages)."""

# Repository name: libraries to link. Only those that a binary uses end up in it (--as-needed).
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
    "xxhash": ["xxhash"],
    "zstd": ["zstd"],
}

# Header-only libraries: nothing to link.
_HEADER_ONLY = [
    "boost",
    "cli11",
    "nlohmann_json",
]

def _build_file(libraries):
    return """
cc_library(
    name = "lib",
    linkopts = {linkopts},
    visibility = ["//visibility:public"],
)
""".format(linkopts = ["-Wl,--as-needed"] + ["-l" + library for library in libraries] + ["-lpthread"])

def system_libraries():
    """Declares one repository, @NAME//:lib, for each library above."""
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
