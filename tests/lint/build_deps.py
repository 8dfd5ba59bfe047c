"""Compares the deps of C++ targets in BUILD files with the headers that their files include.

BUILD files are evaluated as Python, which their language is a part of. Headers of libraries
(deps that begin with @) are not compared.
"""

import builtins
import sys
from typing import NamedTuple

from includes import INCLUDE, fault_of

# The generated headers of this target have no file in the tree.
PROTO, PROTO_ROOTS = "//proto:proto", ("tidepool/", "grpc/health/")
RULES = ("cc_binary", "cc_library", "cc_test", "cuda_library", "device_test", "fuzz_target",
         "grpc_cc_library")
# Every kernel is compiled twice, with headers that macros name (see MACROS in includes.py).
SEVERAL_DEVICES = ("kernels/cuda", "tests/kernels/cuda")


class Target(NamedTuple):
    package: str
    files: set  # of srcs and hdrs
    headers: set  # that other targets can include
    deps: set
    is_linked_whole: bool  # others may depend on it without a use of its headers
    line: int  # of its rule; a list comprehension makes several targets with one list of deps


def label(package, text):
    """The full form of a label."""
    if text.startswith("@"):
        return text
    if text.startswith("//"):
        folder, _, name = text[2:].partition(":")
        return f"//{folder}:{name or folder.rpartition('/')[2]}"
    return f"//{package}:{text.lstrip(':')}"


def path(package, text):
    """The file that a label means."""
    folder, _, name = label(package, text)[2:].partition(":")
    return f"{folder}/{name}" if folder else name


class Rules(dict):
    """The names that a BUILD file can use. Each unknown function records its calls."""

    def __init__(self):
        super().__init__(calls=[], glob=lambda *_, **__: [], load=lambda *_: None,
                         select=lambda table: sum(table.values(), []))

    def __missing__(self, name):
        if hasattr(builtins, name):
            raise KeyError(name)
        return lambda *_, **values: self["calls"].append((name, values, sys._getframe(1).f_lineno))


def targets_of(package, text):
    """{label: Target} of the C++ rules in a BUILD file."""
    rules, found = Rules(), {}
    exec(compile(text, f"{package}/BUILD", "exec"), rules)  # our own file
    for rule, values, line in rules["calls"]:
        if rule not in RULES:
            continue
        srcs = [*values.get("srcs", [])]
        if rule == "fuzz_target":
            srcs = [values["name"] + ".cc", "replay_corpus.cc"]
        headers = [*values.get("hdrs", []), *values.get("textual_hdrs", [])]
        found[label(package, ":" + values["name"])] = Target(
            package, {path(package, one) for one in [*srcs, *headers]},
            {path(package, one) for one in headers},
            {label(package, one) for one in values.get("deps", [])},
            values.get("alwayslink", False) or not headers and rule != "grpc_cc_library", line)
    return found


def layer_faults(targets):
    """Lines about deps of packages whose headers a target must not include."""
    for name, target in targets.items():
        for dep in sorted(target.deps):
            folder = "tidepool" if dep == PROTO else dep[2:].partition(":")[0]
            if dep.startswith("//") and not folder.startswith("third_party") and (
                    fault := fault_of(f"{target.package}/BUILD", f"{folder}/x.h")):
                yield f"{name} depends on {dep}: {fault}"


def owners_of(targets):
    """{header: labels of the targets that have it in hdrs}."""
    owners = {}
    for name, target in targets.items():
        for header in target.headers:
            owners.setdefault(header, set()).add(name)
    return owners


def used_owners(target, owners, read):
    """A set of labels for each header that a target includes: the targets that have this header."""
    for name in target.files:
        for header, _, _ in INCLUDE.findall(read(name)):
            if not header or header in target.files:
                continue
            if header.startswith(PROTO_ROOTS):
                yield {PROTO}
            elif header in owners:
                yield owners[header]


def dep_faults(targets, read):
    """Yields (label, dep, is_missing). `read` returns the text of a file, or "" if there is none."""
    owners, used_in_rule, checked = owners_of(targets), {}, []
    for name, target in targets.items():
        if target.package in SEVERAL_DEVICES or not target.files:
            continue
        used = list(used_owners(target, owners, read))
        checked.append((name, target))
        used_in_rule.setdefault((target.package, target.line), set()).update(*used)
        for candidates in used:
            if name not in candidates and not candidates & target.deps:
                yield name, sorted(candidates)[0], True
    for name, target in checked:
        for dep in sorted(target.deps - used_in_rule[target.package, target.line]):
            if dep in targets and not targets[dep].is_linked_whole:
                yield name, dep, False
