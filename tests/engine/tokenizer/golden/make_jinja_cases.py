"""Makes jinja_cases.json: what Jinja, as Hugging Face transformers sets it up, makes of small
templates.

    python make_jinja_cases.py [--check]

Needs transformers with jinja2. The cases are in jinja_cases.txt. The script adds what they print,
or the kind of error.
"""

import json
import pathlib

import golden_file
import jinja2
from transformers.utils.chat_template_utils import _compile_jinja_template as compile_template

HERE = pathlib.Path(__file__).resolve().parent

VARIABLES = {
    "s": "Hello, World", "e": "", "u": " \u00e9t\u00e9 \u4e2d\u6587 \U0001f600 \u00a0", "n": 7, "neg": -7, "z": 0, "f": 2.5, "t": True,
    "no": False, "nil": None, "xs": [3, 1, 2], "words": ["b", "A", "c"], "empty": [], "none_d": {},
    "d": {"b": 1, "a": "two", "c": [1, {"x": None}], "items": "mine"}, "lines": "one\ntwo\r\nthree\n\nfive",
    "people": [{"name": "Ann", "age": 30, "ok": True}, {"name": "Bob", "age": 25, "ok": False}, {"name": "Cy"}],
    "staff": [{"n": "Eve", "team": "b", "pay": 3}, {"n": "Dan", "team": "A", "pay": 1}, {"n": "Bo", "team": "B", "pay": 2}],
    "quote": "it's \"quoted\"\\ \n\t\x01\u200b", "sp": "  padded\t\n", "greek": "\u039f\u0394\u039f\u03a3 \u00df \u01c6",
    "tree": [{"v": 1, "kids": [{"v": 2, "kids": []}, {"v": 3, "kids": [{"v": 4, "kids": []}]}]}, {"v": 5, "kids": []}],
    "html": "<a href=\"x\">'&'</a>", "nested": [[1, [2, 3]], [4, [5, 6]]], "long": "the quick brown fox jumps over the lazy dog",
    "schema": {"type": "object", "properties": {"p": {"type": ["string", "null"], "enum": ["x", "y"]}}, "required": ["p"]},
}


def outcome(source):
    """Returns what the template prints, or the name of the error's class."""
    try:
        return {"text": compile_template(source).render(**VARIABLES)}
    except (jinja2.exceptions.TemplateError, TypeError, ValueError, ArithmeticError, LookupError,
            AttributeError, AssertionError, SyntaxError, RecursionError) as error:
        return {"error": type(error).__name__}


def read_cases():
    """Returns the sources by group. A line "= NAME" starts a group. "expressions" groups have one
    expression per line, which is put into braces. Other groups have one template per line, with the
    escapes \\n and \\t."""
    group, is_expression = "", False
    for line in (HERE / "jinja_cases.txt").read_text().split("\n"):
        if line.startswith("= "):
            group = line[2:]
            is_expression = group.startswith("expressions")
        elif line and not line.startswith("# "):
            yield group, "{{ " + line + " }}" if is_expression else line.replace("\\n", "\n").replace("\\t", "\t")


def main():
    cases = [{"group": group, "source": source} | outcome(source) for group, source in read_cases()]
    golden = {"jinja2": jinja2.__version__, "variables": VARIABLES, "cases": cases}
    lines = ",\n".join(json.dumps(case, ensure_ascii=False) for case in cases)
    head = json.dumps({key: golden[key] for key in ("jinja2", "variables")}, ensure_ascii=False)
    golden_file.write_or_check(HERE / "jinja_cases.json", head[:-1] + ', "cases": [\n' + lines + "\n]}\n", __doc__)
    print(len(cases), "cases,", sum("error" in case for case in cases), "of them errors")
    for case in cases:
        if "error" in case:
            print(case["error"], case["source"])


if __name__ == "__main__":
    main()
