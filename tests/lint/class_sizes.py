"""Counts the members that each class of a C++ file declares. It parses the text, without a
compiler."""

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
