"""A theme of integration tests: real processes and real clients."""

_COMMON_DATA = [
    "command_test_case.py",
    "harness.py",
    "//proto:files",
    "//service:tidepool",
    "//tests/golden:tiny",
    "//tests/golden:tokenizers",
]

def integration_test(theme, size, name = None, arguments = [], data = [], real_model = False, tags = [], env = {}):
    """Runs THEME_test.py against //service:tidepool.

    Args:
      theme: what is tested.
      size: Bazel's test size, for two cores.
      name: name of the target (default: THEME_test).
      arguments: arguments of THEME_test.py.
      data: files that it reads in addition to those that every theme reads.
      real_model: whether it runs SmolLM2, which is too slow under a sanitizer.
      tags: tags in addition to "grpc".
      env: environment variables in addition to the paths of the program and the model.
    """
    environment = {"TIDEPOOL_BINARY": "$(location //service:tidepool)"}
    environment.update(env)
    models = []
    if real_model:
        models = ["//third_party/models:smollm2"]
        environment["TIDEPOOL_TEST_MODEL"] = "$(location //third_party/models:smollm2)"
    native.sh_test(
        name = name or theme + "_test",
        size = size,
        srcs = ["run.sh"],
        args = ["tests/integration/%s_test.py" % theme] + arguments,
        data = _COMMON_DATA + [theme + "_test.py"] + data + models,
        env = environment,
        tags = ["grpc"] + tags + (["no-asan"] if real_model and "no-asan" not in tags else []),
    )
