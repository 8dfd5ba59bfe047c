"""The tree follows its own rules, such as the direction of includes, the sizes of files, and one
namespace per folder."""

import ast
import re
import unittest

from includes import wrong_imports, wrong_includes
from tree import ROOT, files, python_files, read


def without_texts(code):
    """C++ without comments and with empty literals, line by line."""
    code = re.sub(r'R"(\w*)\(.*?\)\1"', lambda raw: '""' + "\n" * raw[0].count("\n"), code,
                  flags=re.DOTALL)
    code = re.sub(r"//[^\n]*", "", code)
    code = re.sub(r'"(?:\\.|[^"\\\n])*"', '""', code)
    return re.sub(r"'(?:\\.|[^'\\\n])'", "0", code)


PARAMETER = re.compile(r"\s*(const\s+)?[\w:]+(<.*>)?(\s*(const)?\s*[&*]+\s*(const)?\s*|\s+)\w*"
                       r"(\[\])?\s*(=.*)?", re.DOTALL)
AFTER_PARAMETERS = re.compile(r"\s*(const\b|noexcept\b|override\b|final\b|\{|->|:|;|=\s*0)")


def split_parameters(code, begin):
    """The parts between commas in the parenthesis that opens before `begin`, and where it closes."""
    parts, depth, at = [""], 1, begin
    while at < len(code):
        letter = code[at]
        depth += letter in "([{<"
        depth -= letter in ")]}" or (letter == ">" and code[at - 1] != "-")
        if depth <= 0:
            break
        if letter == "," and depth == 1:
            parts.append("")
        else:
            parts[-1] += letter
        at += 1
    return parts, at


def long_signatures(code):
    """Names and counts of functions that are declared with more than five parameters."""
    for name in re.finditer(r"\b([A-Za-z_][\w:]*)\s*\(", code):
        parts, end = split_parameters(code, name.end())
        if (len(parts) > 5 and AFTER_PARAMETERS.match(code, end + 1)
                and all(PARAMETER.fullmatch(part) for part in parts)):
            yield name[1], len(parts)


def long_functions(code):
    """Lines and sizes of functions of more than 60 lines."""
    lines = [line.rstrip() for line in code.split("\n")]
    for end_of_head, line in enumerate(lines):
        if not re.match(r" {0,2}\S?.*\{$", line):
            continue
        begin = end_of_head
        while begin > 0 and lines[begin - 1].strip() and lines[begin - 1][-1] not in ";{}:":
            begin -= 1
        head = " ".join(part.strip() for part in lines[begin:end_of_head + 1])
        indent = len(lines[begin]) - len(lines[begin].lstrip())
        if (indent > 2 or "(" not in head or "=" in head.partition("(")[0] or re.search(r"[(,=]\s*\{$", head)
                or re.match(r"(namespace|struct|class|enum|union|extern|if|for|while|switch|else|do"
                            r"|return|case|\})\b", head)):
            continue
        size = 1
        while begin + size < len(lines) and not lines[begin + size].startswith(" " * indent + "}"):
            size += 1
        if size + 1 > 60:
            yield begin + 1, size + 1


def has_reason(text, line):
    """Whether the comment directly above a line says why the function that begins there is long."""
    lines = text.split("\n")
    begin = line - 1
    while begin > 0 and lines[begin - 1].startswith("//"):
        begin -= 1
    return "Long because " in " ".join(lines[begin:line - 1])


def long_python_functions(text):
    """Lines and sizes of functions of more than 60 lines."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            size = node.end_lineno - node.lineno + 1
            if size > 60:
                yield node.lineno, size


class LintTest(unittest.TestCase):

    def test_includes_point_right(self):
        names = files(".h", ".cc", ".cu", ".inc")
        self.assertGreater(len(names), 10)
        wrong = []
        for name in names:
            wrong += wrong_includes(name, read(name))
        protos = files(".proto")
        self.assertTrue(protos)
        for name in protos:
            wrong += wrong_imports(name, read(name))
        self.assertEqual(wrong, [])

    def test_wrong_imports_are_found(self):
        name = "proto/tidepool/v1/a.proto"
        for line in ('import "tidepool/v1/b.proto";', 'import public "google/protobuf/any.proto";'):
            self.assertEqual(list(wrong_imports(name, line + "\n")), [], line)
        for line in ('import "service/a.proto";', '  import public "engine/a.proto";', 'import "a.proto";',
                     'import "tidepool/../service/a.proto";'):
            self.assertEqual(len(list(wrong_imports(name, "// x\n" + line + "\n"))), 1, line)

    def test_wrong_includes_are_found(self):
        for name, line in [
                ("moe/a.cc", '#include "kernels/backend.h"'),
                ("moe/replay/a.cc", '#include "moe/expert_scheduler.h"'),
                ("moe/trace/a.h", '#include "moe/policy/residency.h"'),
                ("kernels/backends/a.cc", '#include "kernels/cuda/cuda_backend.h"'),
                ("kernels/cuda/a.h", '#include "kernels/cuda/device.h"'),
                ("kernels/cuda/mma.h", "#include TIDEPOOL_MMA_HEADER"),
                ("engine/a.inc", '#include "absl/status/status.h"'),
                ("tests/moe/a.cc", '#include "moe/replay/replay.h"'),
                ("service/cli/a.cc", '#include "moe/replay/replay.h"'),
        ]:
            self.assertEqual(list(wrong_includes(name, line + "\n")), [], (name, line))
        for name, line, reason in [
                ("moe/a.cc", '#include "engine/engine.h"', "above"),
                ("moe/a.cc", '#include"engine/engine.h"', "above"),
                ("moe/a.cc", '#  include "engine/engine.h"', "above"),
                ("moe/a.cc", '  # include "engine/engine.h"', "above"),
                ("moe/a.inc", '#include "engine/engine.h"', "above"),
                ("moe/a.cc", '#include <kernels/backend.h>', "in quotes"),
                ("moe/a.cc", '#include "../service/x.h"', "unknown"),
                ("moe/a.cc", '#include "moe/../service/x.h"', "unknown"),
                ("moe/a.cc", '#include "neighbor.h"', "unknown"),
                ("moe/a.cc", "#include SOME_HEADER", "macro"),
                ("kernels/cuda/a.h", "#include TIDEPOOL_MMA_HEADER", "macro"),
                ("moe/a.cc", '#include "moe/replay/replay.h"', "above"),
                ("moe/device/a.cc", '#include "moe/replay/replay.h"', "above"),
                ("moe/trace/a.cc", '#include "moe/replay/replay.h"', "above"),
                ("moe/trace/a.cc", '#include "moe/expert_scheduler.h"', "above"),
                ("moe/policy/a.cc", '#include "moe/trace/trace.h"', "above"),
                ("engine/model/a.cc", '#include "moe/replay/replay.h"', "above"),
                ("service/grpc/a.cc", '#include "engine/engine.h"', "above"),
                ("engine/a.cc", '#include "tests/fakes/scripted_model.h"', "above"),
                ("kernels/ops.cc", '#include "kernels/cuda/cuda_ops.h"', "device"),
                ("kernels/cpu/a.cc", '#include "kernels/cuda/cuda_ops.h"', "device"),
                ("kernels/cuda/a.cc", '#include "kernels/cpu/cpu_backend.h"', "device"),
                ("engine/a.cc", '#include "kernels/cuda/cuda_ops.h"', "device"),
                ("elsewhere/a.cc", '#include "kernels/backend.h"', "no rule"),
        ]:
            found = list(wrong_includes(name, "// x\n" + line + "\n"))
            self.assertEqual(len(found), 1, (name, line, found))
            self.assertIn(reason, found[0])

    def test_files_stay_readable(self):
        # Clients generate their stubs from this file, so its messages cannot move to another one.
        most = {"proto/tidepool/v1/inference.proto": 600}
        long = []
        for name in files(".h", ".cc", ".cu", ".proto") + python_files():
            lines = read(name).count("\n")
            if lines > most.get(name, 500):
                long.append(f"{name}: {lines} lines")
        self.assertEqual(long, [])

    def test_functions_stay_readable(self):
        self.assertEqual(list(long_signatures("void F(int a, int b, C<D, E> c, int* d,\n  int e);")), [])
        self.assertEqual(list(long_signatures("int F(A a, A b, A c, A d, A e, const A& f) {")),
                         [("F", 6)])
        self.assertEqual(list(long_functions("void F() {\n" + "  x();\n" * 58 + "}\n")), [])
        self.assertEqual(list(long_functions("x\n\nvoid F(int a,\n       int b) {\n" + "  x();\n" * 58
                                             + "}\n")), [(3, 61)])
        wrong = []
        for name in files(".h", ".cc"):
            if name.startswith("third_party/"):
                continue
            text = read(name)
            code = without_texts(text)
            wrong += [f"{name}: {function} has {count} parameters"
                      for function, count in long_signatures(code)]
            wrong += [f"{name}:{line}: a function of {size} lines"
                      for line, size in long_functions(code)
                      if not (name.startswith("tests/") and has_reason(text, line))]
        for name in python_files():
            wrong += [f"{name}:{line}: a function of {size} lines"
                      for line, size in long_python_functions(read(name))]
        self.assertEqual(wrong, [])

    def test_reasons_and_python_functions_are_read(self):
        self.assertTrue(has_reason("x\n// Long because it is\n// a table.\nF() {\n", 4))
        self.assertFalse(has_reason("// Long because of x.\n\nF() {\n", 3))
        self.assertEqual(list(long_python_functions("def f():\n" + "    x()\n" * 59)), [])
        self.assertEqual(list(long_python_functions("\ndef f():\n" + "    x()\n" * 60)), [(2, 61)])
        self.assertIn("tools/smoke", python_files())

    def test_no_big_files(self):
        big = [name for name in files() if (ROOT / name).stat().st_size > 2 << 20]
        self.assertEqual(big, [])

    def test_no_merge_is_half_done(self):
        wrong = [name for name in files()
                 if re.search(rb"^(<{7}|>{7}) ", (ROOT / name).read_bytes(), re.MULTILINE)]
        self.assertEqual(wrong, [], "conflict markers")

    def test_headers_are_guarded(self):
        wrong = []
        for name in files(".h"):
            guard = "TIDEPOOL_" + re.sub(r"[^A-Z0-9]", "_", name.upper()) + "_"
            text = read(name)
            if f"#ifndef {guard}\n#define {guard}\n" not in text:
                wrong.append(f"{name}: expected the guard {guard}")
        self.assertEqual(wrong, [])

    def test_cpp_rules_have_our_options(self):
        """//tools:cc.bzl makes warnings errors. The rules for generated code do not use it."""
        wrong = []
        for name in files("BUILD", ".bzl"):
            text = read(name)
            if name.startswith(("proto/", "third_party/", "tools/cc.bzl", "tools/cuda.bzl")):
                continue
            loaded = re.findall(r'"(cc_\w+)"', "".join(re.findall(r'^load\("//tools:cc.bzl".*$', text, re.MULTILINE)))
            used = re.findall(r"\b((?:native\.)?cc_(?:binary|library|test))\(", text)
            wrong += [f"{name}: load {rule} from //tools:cc.bzl" for rule in sorted(set(used) - set(loaded))]
        self.assertEqual(wrong, [])

    def test_no_environment_reads_in_libraries(self):
        wrong = []
        for name in files(".h", ".cc"):
            if name.startswith(("kernels/", "moe/", "engine/")) and "getenv" in read(name):
                wrong.append(name)
        self.assertEqual(wrong, [])

    def test_a_filter_of_tests_names_no_size(self):
        """Bazel treats a test's size and timeout like tags of the test."""
        taken = {"small", "medium", "large", "enormous", "short", "moderate", "long", "eternal"}
        filters = re.findall(r"^ *(?:\[.*&& )?filters=(.*)$", read("tools/test"), re.MULTILINE)
        self.assertTrue(filters)
        self.assertEqual(taken & set(re.findall(r"\w+", " ".join(filters))), set())


if __name__ == "__main__":
    unittest.main()
