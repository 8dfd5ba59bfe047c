"""Writes entities as JSON schemas, in the styles of the programs that generate schemas."""

import dataclasses


@dataclasses.dataclass
class Style:
    closed: bool = False            # additionalProperties: false
    defs: str | None = "$defs"      # where other entities are; None: inside of their users
    null: str = "type"              # how null joins a type: "type" or "anyOf"
    union: str = "anyOf"            # of entities
    describe: bool = False
    titles: bool = False
    patterns: bool = True
    strict: bool = False            # every property is required, as OpenAI's strict mode demands
    dialect: str | None = None
    old_tuples: bool = False


DRAFT7 = "http://json-schema.org/draft-07/schema#"
STYLES = {
    "request": Style(closed=True),
    "openapi": Style(null="anyOf", union="oneOf", describe=True),
    "mcp": Style(defs=None, describe=True, patterns=False, dialect=DRAFT7),
    "strict": Style(closed=True, strict=True, describe=True),
    "pydantic": Style(null="anyOf", titles=True),
    "config": Style(closed=True, defs="definitions", describe=True, dialect=DRAFT7, union="oneOf", old_tuples=True),
}
SCALARS = {"str": "string", "int": "integer", "num": "number", "xnum": "number", "bool": "boolean", "null": "null"}


class Writer:

    def __init__(self, entities, style):
        self.entities = entities  # of the group, by name
        self.style = style
        self.defs = {}
        self.open = []

    def scalar(self, node):
        schema = {"type": SCALARS[node.kind]}
        low, high = ("minLength", "maxLength") if node.kind == "str" else ("minimum", "maximum")
        if node.low is not None:
            schema["exclusiveMinimum" if node.kind == "xnum" else low] = node.low
        if node.high is not None:
            schema[high] = node.high
        if node.step is not None:
            schema["multipleOf"] = node.step
        return schema

    def values(self, node):
        if node.kind == "const":
            return {"const": node.value}
        names = {str: "string", int: "integer"}
        kinds = {names.get(type(value)) for value in node.value}
        return {**({"type": kinds.pop()} if len(kinds) == 1 and None not in kinds else {}), "enum": node.value}

    def list(self, node):
        schema = {"type": "array", "items": self.write(node.parts[0])}
        if node.low is not None:
            schema["minItems"] = node.low
        if node.high is not None:
            schema["maxItems"] = node.high
        if node.kind == "uniq":
            schema["uniqueItems"] = True
        return schema

    def tuple(self, node):
        prefix = [self.write(part) for part in node.parts]
        first, others = ("items", "additionalItems") if self.style.old_tuples else ("prefixItems", "items")
        if node.kind == "tuple_":
            return {"type": "array", first: prefix[:1], others: prefix[1], "minItems": 1}
        return {"type": "array", first: prefix, others: False, "minItems": len(prefix)}

    def map(self, node):
        value, keys = self.write(node.parts[0]), node.value
        if keys is None:
            return {"type": "object", "additionalProperties": value}
        if keys.kind == "enum":
            return {"type": "object", "propertyNames": {"enum": keys.value}, "additionalProperties": value}
        return {"type": "object", "patternProperties": {keys.value: value}, "additionalProperties": False}

    def nullable(self, node):
        inner = self.write(node.parts[0])
        if self.style.null == "type" and isinstance(inner.get("type"), str) and "enum" not in inner:
            return {**inner, "type": [inner["type"], "null"]}
        return {"anyOf": [inner, {"type": "null"}]}

    def object(self, node):
        schema = {"type": "object", "properties": {}}
        required = []
        for one in node.parts:
            part = one.type
            if self.style.strict and not one.required and part.kind != "opt":
                part = dataclasses.replace(part, kind="opt", parts=[part])
            value = self.write(part)
            if self.style.titles and "$ref" not in value:
                value = {**value, "title": one.name.replace("_", " ").title()}
                if part.kind == "opt":
                    value["default"] = None
            if self.style.describe and one.description and "$ref" not in value:
                value = {**value, "description": one.description}
            if self.style.describe and one.default is not None and not self.style.strict:
                value = {**value, "default": one.default}
            schema["properties"][one.name] = value
            if one.required or self.style.strict:
                required.append(one.name)
        if required:
            schema["required"] = required
        if self.style.closed:
            schema["additionalProperties"] = False
        return schema

    def entity(self, name):
        own = self.entities[name].type
        recursive = name in self.open
        if self.style.defs is None and not recursive and not refers(own, name, self.entities):
            self.open.append(name)
            schema = self.write(own)
            self.open.pop()
            return schema
        place = self.style.defs or "$defs"
        if name not in self.defs:
            self.defs[name] = None
            self.open.append(name)
            self.defs[name] = self.write(own)
            self.open.pop()
            if self.style.titles:
                self.defs[name]["title"] = name.replace("_", " ").title().replace(" ", "")
        return {"$ref": f"#/{place}/{name}"}

    def write(self, node):
        if node.kind in SCALARS:
            return self.scalar(node)
        if node.kind in ("const", "enum"):
            return self.values(node)
        if node.kind == "any":
            return {"type": ["string", "number", "boolean", "null"]} if self.style.strict else {}
        if node.kind == "pattern":
            return {"type": "string", **({"pattern": node.value} if self.style.patterns else {})}
        if node.kind == "format":
            return {"type": "string", "format": node.value}
        if node.kind == "entity":
            return self.entity(node.value)
        if node.kind == "either":
            tagged = all(part.kind == "entity" for part in node.parts)
            return {self.style.union if tagged else "anyOf": [self.write(part) for part in node.parts]}
        return {"list": self.list, "uniq": self.list, "tuple": self.tuple, "tuple_": self.tuple, "map": self.map,
                "opt": self.nullable, "object": self.object}[node.kind](node)

    def finish(self, schema):
        place = self.style.defs or "$defs"
        head = {"$schema": self.style.dialect} if self.style.dialect else {}
        return {**head, **schema, **({place: self.defs} if self.defs else {})}


def refers(node, name, entities, seen=()):
    """Returns whether an entity's type contains the entity again."""
    for part in node.parts:
        part = getattr(part, "type", part)
        if part.kind == "entity":
            if part.value == name:
                return True
            if part.value not in seen and refers(entities[part.value].type, name, entities, (*seen, part.value)):
                return True
        elif refers(part, name, entities, seen):
            return True
    return False


def plain(entities, name, style):
    writer = Writer(entities, STYLES[style])
    if refers(entities[name].type, name, entities):
        schema = writer.entity(name)
        if style == "config":  # up to draft 7, nothing beside $ref counts
            schema = {"allOf": [schema]}
    else:
        schema = writer.write(entities[name].type)
    if STYLES[style].describe and entities[name].description:
        schema = {"description": entities[name].description, **schema}
    return writer.finish(schema)


def page(entities, name):
    writer = Writer(entities, STYLES["openapi"])
    item = writer.entity(name)
    return writer.finish({"type": "object", "properties": {
        "object": {"const": "list"}, "data": {"type": "array", "items": item, "maxItems": 100},
        "has_more": {"type": "boolean"}, "next_cursor": {"type": ["string", "null"]}},
        "required": ["object", "data", "has_more"]})


def patch(entities, name):
    schema = plain(entities, name, "request")
    if schema.get("type") != "object":
        return None
    schema.pop("required", None)
    return {**schema, "minProperties": 1}


def extraction(entities, name):
    """Returns a schema for all entities of this kind in a text, each with its place in the text."""
    writer = Writer(entities, STYLES["strict"])
    item = writer.entity(name)
    return writer.finish({"type": "object", "properties": {
        "found": {"type": "boolean"},
        "items": {"type": "array", "items": {"type": "object", "properties": {
            "page": {"type": "integer", "minimum": 1}, "quote": {"type": "string", "maxLength": 200}, "value": item},
            "required": ["page", "quote", "value"], "additionalProperties": False}}},
        "required": ["found", "items"], "additionalProperties": False})


def named(entities, name):
    """Returns a schema for a configuration file with an entity for each name, and settings."""
    writer = Writer(entities, STYLES["config"])
    value = writer.entity(name)
    return writer.finish({"type": "object", "properties": {
        "version": {"enum": [1, 2]}, "extends": {"type": "array", "items": {"type": "string"}},
        name + "s": {"type": "object", "patternProperties": {"^[a-z][a-z0-9_-]*$": value},
                     "additionalProperties": False}},
        "required": ["version", name + "s"], "additionalProperties": False})


def events(entities, names, group):
    """Returns a schema for one of several entities, which a tag distinguishes."""
    writer = Writer(entities, STYLES["request"])
    branches = [{"type": "object", "properties": {
        "type": {"const": f"{group}.{name}"}, "id": {"type": "string", "format": "uuid"}, "data": writer.entity(name)},
        "required": ["type", "id", "data"], "additionalProperties": False} for name in names]
    return writer.finish({"oneOf": branches})


def call(entities, names):
    """Returns a schema for a call of one of several tools, as an agent writes it."""
    writer = Writer(entities, STYLES["request"])
    branches = [{"type": "object", "properties": {"tool": {"const": name}, "arguments": writer.entity(name)},
                 "required": ["tool", "arguments"], "additionalProperties": False} for name in names]
    return writer.finish({"type": "object", "properties": {
        "thought": {"type": "string", "maxLength": 500}, "action": {"anyOf": branches}},
        "required": ["thought", "action"], "additionalProperties": False})
