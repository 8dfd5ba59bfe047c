"""Which headers each folder may include, and which .proto files may import which."""

import re

# A folder may include itself and the folders listed here. The longest prefix of a file's folder counts.
# Everything may include kernels/base.
ALLOWED = {
    "kernels/base": [],
    "kernels": ["kernels"],
    "kernels/reference": ["kernels"],
    "kernels/cpu": ["kernels"],
    "kernels/cuda": ["kernels"],
    "kernels/backends": ["kernels"],
    "moe/policy": ["kernels"],
    "moe/trace": ["moe/policy", "kernels"],
    "moe": ["kernels"],
    "moe/replay": ["moe", "kernels"],
    "engine/checkpoint": ["moe", "kernels"],
    "engine/tokenizer": ["engine/checkpoint", "kernels/base"],
    "engine/chat_template": ["engine/tokenizer", "kernels/base"],
    "engine/grammar": ["engine/tokenizer", "kernels/base"],
    "engine/grammar/schema": ["engine/grammar", "kernels/base"],
    "engine/model": ["engine/checkpoint", "engine/tokenizer", "moe", "kernels"],
    "engine/kv": ["engine/model", "moe", "kernels"],
    "engine/sampling": ["engine/grammar", "engine/tokenizer", "kernels"],
    "engine/loading": ["engine/kv", "engine/model", "engine/checkpoint", "engine/chat_template",
                       "engine/tokenizer", "moe", "kernels"],
    "engine/evaluation": ["engine/loading", "engine/model", "moe", "kernels"],
    "engine/scheduler": ["engine/grammar", "engine/kv", "engine/sampling", "engine/model", "kernels"],
    "engine": ["engine", "moe", "kernels"],
    "proto": ["tidepool"],
    "service/base": ["kernels/base", "tidepool"],
    "service/auth": ["service/base", "kernels/base"],
    "service/grpc": ["service/tools", "service/auth", "service/base", "engine", "moe", "kernels/base",
                     "tidepool"],
    "service/store": ["service/base", "kernels/base", "tidepool"],
    "service/tools": ["service/base", "engine/grammar", "engine/chat_template", "engine/tokenizer",
                      "kernels/base", "tidepool"],
    "service/worker": ["service/grpc", "service/tools", "service/auth", "service/base", "engine", "moe",
                       "kernels", "tidepool"],
    "service/front": ["service/store", "service/grpc", "service/tools", "service/auth", "service/base",
                      "engine/scheduler", "engine/sampling", "engine/tokenizer", "kernels/base",
                      "tidepool"],
    "service/http": ["service/front", "service/grpc", "service/tools", "service/auth", "service/base",
                     "engine/sampling", "engine/tokenizer", "kernels/base", "tidepool"],
    "service/cli": ["service", "engine", "moe", "kernels", "tidepool"],
    "service": ["service", "engine", "moe", "kernels", "tidepool"],
    "tools": ["tools", "engine", "kernels"],
    "tests": [""],
}

# Exceptions to ALLOWED: files that a folder must not include.
FORBIDDEN = {
    "moe": ["moe/replay"],
    "engine": ["moe/replay"],
    "service/grpc": ["engine/engine.h"],
}
# Only kernels/backends chooses a device. Tests may, too.
DEVICES = ["kernels/cpu", "kernels/cuda", "kernels/reference"]
DEVICE_USERS = ["kernels/backends", "tests"]

# The first part of the path of quoted headers that are not ours. grpc and google: generated code.
EXTERNAL = {"absl", "benchmark", "boost", "gmock", "google", "grpc", "gtest", "nlohmann", "toml++",
            "xxhash.h"}
OURS = {key.partition("/")[0] for key in ALLOWED} | {"tidepool"}

# Every kernel is compiled twice from the same source: for a GPU, and for the device that
# tests/kernels/cuda emulates. Its BUILD file sets these macros to headers of that device. So these
# two headers may include headers of tests, in builds of tests only.
MACROS = {
    "kernels/cuda/device.h": "TIDEPOOL_DEVICE_HEADER",
    "kernels/cuda/mma.h": "TIDEPOOL_MMA_HEADER",
}

INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*(?:"([^"\n]*)"|<([^>\n]*)>|(\w+))', re.MULTILINE)

IMPORT = re.compile(r'^[ \t]*import[ \t]+(?:public[ \t]+|weak[ \t]+)?"([^"\n]*)"', re.MULTILINE)


def longest_prefix(folder, table):
    while folder and folder not in table:
        folder = folder.rpartition("/")[0]
    return folder


def is_below(path, folder):
    return folder == "" or path == folder or path.startswith(folder + "/")


def fault_of(name, include):
    """What is wrong with a quoted include of file `name`, or None."""
    folder = name.rpartition("/")[0]
    root = include.partition("/")[0]
    if root in EXTERNAL:
        return None
    if root not in OURS or ".." in include.split("/"):
        return "unknown path"
    home = longest_prefix(folder, ALLOWED)
    devices = [device for device in DEVICES if is_below(include, device)]
    if devices and not any(is_below(folder, user) for user in DEVICE_USERS + devices):
        return "the header of a device"
    reachable = [home, "kernels/base", *ALLOWED[home]]
    banned = [path for room, paths in FORBIDDEN.items() if is_below(folder, room)
              and not is_below(folder, "moe/replay") for path in paths]
    if home != "tests":
        banned.append("tests")
    if (not any(is_below(include, path) for path in reachable)
            or any(is_below(include, path) for path in banned)):
        return "a room above its own"
    return None


def wrong_includes(name, text):
    """Lines that say which includes of the file `name` break the rules."""
    if not longest_prefix(name.rpartition("/")[0], ALLOWED):
        yield f"{name}: no rule for this folder in {__file__}"
        return
    for quoted, angle, macro in INCLUDE.findall(text):
        if quoted and (fault := fault_of(name, quoted)):
            yield f"{name} includes {quoted}: {fault}"
        if angle.partition("/")[0] in OURS:
            yield f"{name} includes {angle}: write our headers in quotes"
        if macro and MACROS.get(name) != macro:
            yield f"{name} includes the macro {macro}"


def wrong_imports(name, text):
    """Lines that say which imports of the .proto file `name` break the rules."""
    for imported in IMPORT.findall(text):
        if fault := fault_of(name, imported):
            yield f"{name} imports {imported}: {fault}"
