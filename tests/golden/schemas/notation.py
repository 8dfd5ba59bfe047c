"""Reads the entities of the text files.

    == payments                  a group: names after & refer to entities of the same group
    charge  Charges a card.      an entity and its description
      amount! int 1..99999       a required property with a type
      note opt str ..80 ="-"  A note.     one with a default and a description
    severity = enum off|warn     an entity that is another type than an object
    pattern tag ^v\\d+$ : v1 v22 : 1 v    a pattern, texts that match, texts that do not

Types: str RANGE, int RANGE *MULTIPLE, num, xnum (the minimum is excluded), bool, null, any, const VALUE,
enum A|B, @pattern, %format, &entity, opt TYPE (or null), list RANGE TYPE, uniq RANGE TYPE, map TYPE,
map @pattern TYPE (of the keys), map enum_name A|B TYPE, tuple TYPE / TYPE, tuple_ FIRST OTHERS,
either TYPE / TYPE, and { with properties on the next lines }.
"""

import dataclasses
import json
import re

RANGE = re.compile(r"(-?[\d.]*?)\.\.(-?[\d.]*)$")


@dataclasses.dataclass
class Node:
    kind: str
    low: float | int | None = None
    high: float | int | None = None
    step: int | None = None
    value: object = None  # of a constant; the values of an enum; the name of a pattern, format or entity
    parts: list = dataclasses.field(default_factory=list)


@dataclasses.dataclass
class Property:
    name: str
    required: bool
    type: Node
    default: object = None
    description: str = ""


@dataclasses.dataclass
class Entity:
    group: str
    name: str
    description: str
    type: Node


class Reader:

    def __init__(self, lines, patterns):
        self.lines = lines
        self.patterns = patterns
        self.tokens = []
        self.description = ""

    def next_line(self):
        line, _, self.description = self.lines.pop(0).strip().partition("  ")
        self.tokens = line.split()

    def limits(self, node):
        found = RANGE.match(self.tokens[0]) if self.tokens else None
        if found:
            self.tokens.pop(0)
            node.low, node.high = (json.loads(end) if end else None for end in found.groups())
        if self.tokens and re.fullmatch(r"\*\d+", self.tokens[0]):
            node.step = int(self.tokens.pop(0)[1:])
        return node

    def alternatives(self):
        parts = [self.type()]
        while self.tokens and self.tokens[0] == "/":
            self.tokens.pop(0)
            parts.append(self.type())
        return parts

    def properties(self):
        found = []
        while True:
            self.next_line()
            if self.tokens[0] == "}":
                self.tokens.pop(0)
                return found
            found.append(self.property())

    def property(self):
        name = self.tokens.pop(0)
        description = self.description
        result = Property(name.rstrip("!"), name.endswith("!"), self.type(), description=description)
        if self.tokens and self.tokens[0].startswith("="):
            result.default = json.loads(self.tokens.pop(0)[1:])
        assert not self.tokens, (name, self.tokens)
        return result

    def map(self):
        keys = None
        if self.tokens[0] == "enum_name":
            self.tokens.pop(0)
            keys = Node("enum", value=self.tokens.pop(0).split("|"))
        elif self.tokens[0][0] == "@" and len(self.tokens) > 1 and self.tokens[1] not in "/}":
            keys = Node("pattern", value=self.patterns[self.tokens.pop(0)[1:]])
        return Node("map", value=keys, parts=[self.type()])

    def type(self):
        word = self.tokens.pop(0)
        if word in ("str", "int", "num", "xnum", "list", "uniq"):
            node = self.limits(Node(word))
            if word in ("list", "uniq"):
                node.parts = [self.type()]
            return node
        if word in ("bool", "null", "any"):
            return Node(word)
        if word == "const":
            return Node("const", value=plain_values([self.tokens.pop(0)])[0])
        if word == "enum":
            values = self.tokens.pop(0).split("|")
            if self.tokens and self.tokens[0] == "str":
                self.tokens.pop(0)
                return Node("enum", value=values)
            return Node("enum", value=plain_values(values))
        if word == "opt":
            return Node("opt", parts=[self.type()])
        if word == "map":
            return self.map()
        if word == "tuple_":
            return Node("tuple_", parts=[self.type(), self.type()])
        if word in ("tuple", "either"):
            return Node(word, parts=self.alternatives())
        if word == "{":
            return Node("object", parts=self.properties())
        kind = {"@": "pattern", "%": "format", "&": "entity"}[word[0]]
        return Node(kind, value=self.patterns[word[1:]] if kind == "pattern" else word[1:])


def plain_values(words):
    """Numbers and booleans if all of them are."""
    try:
        return [json.loads(word) for word in words]
    except ValueError:
        return words


def read(path):
    """Returns the entities of a file, and the samples of its patterns: (matching, others) by pattern."""
    lines = [line.rstrip() for line in path.read_text().split("\n")]
    patterns, samples = {}, {}
    for line in lines:
        if line.startswith("pattern "):
            name, rest = line[8:].split(" ", 1)
            pattern, good, bad = rest.split(" : ")
            patterns[name] = pattern
            samples[pattern] = (good.split(), bad.split())
    lines = [line for line in lines if line and not line.startswith(("pattern ", "#"))]
    entities, group = [], ""
    while lines:
        if lines[0].startswith("=="):
            group = lines.pop(0)[3:]
            continue
        reader = Reader(lines, patterns)
        reader.next_line()
        name, description = reader.tokens.pop(0), reader.description
        if reader.tokens:
            reader.tokens.pop(0)
            entities.append(Entity(group, name, description, reader.type()))
            continue
        body = Node("object")
        while lines and lines[0].startswith(" "):
            reader.next_line()
            body.parts.append(reader.property())
        entities.append(Entity(group, name, description, body))
    return entities, samples
