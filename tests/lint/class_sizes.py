"""Counts the members that each class of a C++ or Python file declares. For C++, it parses the text,
without a compiler."""

import ast
import re
from typing import NamedTuple

HEAD = re.compile(r"\b(?:class|struct)\s+(?:TIDEPOOL_\w+(?:\([^()]*\))?\s+)?(?:alignas\([^()]*\)\s+)?"
                  r"(\w[\w:]*(?:<[^<>{};]*>)?)\s*(?:final\s*)?(?::(?!:)[^{};()]*)?\{")
NO_MEMBER = re.compile(r"(using|friend|typedef|static_assert|enum|union|class|struct)\b|$")
ACCESS = re.compile(r"^\s*(?:(?:public|protected|private)\s*:(?!:)\s*)+")
TEMPLATE = re.compile(r"^template\s*<>?\s*(?:requires\b[^;{]*)?")
LITERAL = re.compile(r'"(?:\\.|[^"\\\n])*"' r"|'(?:\\.|[^'\\\n])'")


class ClassSize(NamedTuple):
    name: str
    line: int
    members: int  # data members that are not static
    methods: int  # functions and operators; no constructors, destructors or assignments
    comment: str  # above the class


def blank(code):
    """Returns the code with comments and literals blanked out. All other characters stay at their
    positions."""
    pattern = re.compile(r'//[^\n]*|R"(\w*)\(.*?\)\1"|' + LITERAL.pattern, re.DOTALL)
    return pattern.sub(lambda found: re.sub(r"[^\n]", " ", found[0])
                       if found[0].startswith("//") else re.sub(r"[^\n]", "0", found[0]), code)


def closing_brace(code, begin):
    """The position of the closing brace for the brace that opens just before `begin`."""
    depth, at = 1, begin
    while depth > 0 and at < len(code):
        depth += {"{": 1, "}": -1}.get(code[at], 0)
        at += 1
    return at - 1


def without_brackets(text, pair):
    """Removes brackets together with the text between them."""
    inner = re.compile(rf"\{pair[0]}[^{re.escape(pair)}]*\{pair[1]}")
    before = None
    while before != text:
        before, text = text, inner.sub(" ", text)
    return text


def statements(body):
    """Declarations of a class body, with `{}` for text in braces."""
    text, at = "", 0
    while at < len(body):
        letter = body[at]
        if letter == "{":
            at = closing_brace(body, at + 1) + 1
            text += "{}"
            rest = body[at:].lstrip()
            is_type = re.match(r"\s*(?:template\b.*>\s*)?(?:enum|union|class|struct)\b",
                               ACCESS.sub("", text))
            if not is_type and not rest.startswith((",", ";", "{", ")", "(")):
                yield text
                text = ""
        elif letter == ";":
            yield text
            text = ""
            at += 1
        else:
            text += letter
            at += 1


def declared(statement, name):
    """How many data members and methods a declaration adds to the class `name`."""
    text = ACCESS.sub("", statement)
    if re.search(r"operator\s*=\s*\(", text):
        return (0, 0)
    text = re.sub(r"\bTIDEPOOL_\w+(?:\s*\([^()]*\))?|\[\[.*?\]\]|\balignas\s*\([^()]*\)", "", text)
    text = re.sub(r"operator\s*(?:\(\s*\)|<=>|<<|>>|[^\s\w(]+)", "operator_", text)
    text = re.sub(r"->|<=|>=|<<", "", text)
    is_template = text.lstrip().startswith("template")
    text = without_brackets(text, "<>").strip()
    if is_template:
        text = TEMPLATE.sub("", text).strip()
    if NO_MEMBER.match(text):
        # `struct { ... } member;` declares a data member.
        data_member = re.match(r"(?:struct|class|union)\b[^{]*\{\}\s*\w", text)
        return (1, 0) if data_member else (0, 0)
    head = re.split(r"=(?!=)|\{", text)[0]
    if "(" in head:
        own = re.sub(r"<.*|.*::", "", name)
        return (0, 0) if re.match(rf"(?:\w+\s+)*~?{own}\s*\(", head) else (0, 1)
    if re.match(r"(?:\w+\s+)*static\b", text):
        return (0, 0)
    return (1 + without_brackets(without_brackets(text, "()"), "{}").count(","), 0)


def comment_above(code, at):
    lines = code[:code.rfind("\n", 0, at) + 1].split("\n")[:-1]
    above = []
    while lines and re.match(r"\s*(//|template\b)", lines[-1]):
        above.insert(0, lines.pop().strip().lstrip("/").strip())
    return " ".join(above)


def class_sizes(code):
    """Returns the size of each class and struct that `code` defines. Nested classes are
    separate."""
    text = blank(code)
    for head in HEAD.finditer(text):
        if re.search(r"enum\s*$", text[:head.start()]):
            continue
        body = text[head.end():closing_brace(text, head.end())]
        counts = [declared(statement, head[1]) for statement in statements(body)]
        yield ClassSize(head[1], text.count("\n", 0, head.start()) + 1,
                        sum(members for members, _ in counts),
                        sum(methods for _, methods in counts), comment_above(code, head.start()))


def own_nodes(node):
    """The nodes below `node`, except those of classes in it."""
    for child in ast.iter_child_nodes(node):
        if not isinstance(child, ast.ClassDef):
            yield child
            yield from own_nodes(child)


def assigned(method):
    """The names x that a method assigns as self.x."""
    first = [*method.args.posonlyargs, *method.args.args][:1]
    return {node.attr for node in own_nodes(method)
            if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store)
            and isinstance(node.value, ast.Name) and [node.value.id] == [one.arg for one in first]}


def python_comment_above(text, line):
    """The comment directly above the line with this number, as one line."""
    above = []
    for before in reversed(text.split("\n")[:line - 1]):
        if not before.strip().startswith("#"):
            break
        above.insert(0, before.strip().lstrip("#").strip())
    return " ".join(above)


def python_class_sizes(text):
    """Of each class that is defined in `text`. Data members are the fields with a type in the class, and
    all x that a method assigns as self.x. `__init__` is not a method; a property is one."""
    for node in ast.walk(ast.parse(text)):
        if not isinstance(node, ast.ClassDef):
            continue
        methods = [one for one in node.body if isinstance(one, (ast.FunctionDef, ast.AsyncFunctionDef))]
        fields = {one.target.id for one in node.body if isinstance(one, ast.AnnAssign)
                  and isinstance(one.target, ast.Name) and "ClassVar" not in ast.dump(one.annotation)}
        first_line = min([node.lineno, *(one.lineno for one in node.decorator_list)])
        yield ClassSize(node.name, node.lineno, len(fields.union(*map(assigned, methods))),
                        len({one.name for one in methods} - {"__init__"}),
                        python_comment_above(text, first_line))
