"""Finds valid and invalid instances of a schema by trying values. jsonschema decides whether they
are valid."""

import copy
import datetime
import ipaddress
import json
import re

import jsonschema

WORDS = ("Harbour lights", "Quarterly figures are up.", "M\u00fcller & S\u00f6hne", "a \"quoted\" word", "x", "\u6771\u4eac",
         "line one\nline two", "C:\\temp", "It rained all day, so we stayed in and wrote code.", "caf\u00e9 \u2615",
         "north-east", "42", "Ada Lovelace", "tab\there", "ok", "SELECT 1", "\U0001F680 launch", "50 % off / today")
KEYS = ("alpha", "build", "team", "zone", "primary", "note", "size", "x1")
FORMATS = {
    "date": (("2024-02-29", "1999-12-31"), ("2023-02-29", "31.12.1999")),
    "date-time": (("2025-06-01T12:30:00Z", "2026-11-05T08:00:00.250+01:00"), ("2025-06-01 12:30", "2025-13-01T00:00:00Z")),
    "time": (("08:30:00Z", "23:59:59+02:00"), ("25:00:00Z", "8 am")),
    "duration": (("P3DT4H", "PT15M"), ("3 days", "P")),
    "email": (("ada@example.org", "o.k+news@mail.example.com"), ("ada.example.org", "@example.org")),
    "hostname": (("example.org", "db-1.internal"), ("-bad-.org", "a b.org")),
    "ipv4": (("192.168.0.12", "8.8.8.8"), ("256.1.1.1", "10.0.0")),
    "ipv6": (("2001:db8::1", "::1"), ("2001:db8:::1", "::g")),
    "uri": (("https://example.org/a?b=1#c", "mailto:ada@example.org"), ("example.org/a b", "//x")),
    "uri-reference": (("/a/b?c", "https://example.org/"), ("a b", "\\x")),
    "uuid": (("123e4567-e89b-12d3-a456-426614174000",), ("123e4567-e89b", "123e4567-e89b-12d3-a456-42661417400g")),
    "json-pointer": (("/a/0/b~1c", ""), ("a/b", "/~2")),
}

checker = jsonschema.FormatChecker(formats=())


def fails(function, *errors):
    def check(value):
        if not isinstance(value, str):
            return True
        try:
            function(value)
            return True
        except (ValueError, *errors):
            return False
    return check


def check_time(value):
    if not re.fullmatch(r"(?:[01]\d|2[0-3]):[0-5]\d:[0-5]\d(?:\.\d+)?(?:Z|[+-][01]\d:[0-5]\d)", value, re.ASCII):
        raise ValueError(value)


def check_date_time(value):
    datetime.date.fromisoformat(value[:10])
    if value[10:11] != "T":
        raise ValueError(value)
    check_time(value[11:])


def matches(pattern):
    def check(value):
        if not re.fullmatch(pattern, value, re.ASCII):
            raise ValueError(value)
    return check


for format_name, check_format in {
        "date": datetime.date.fromisoformat, "date-time": check_date_time, "time": check_time,
        "duration": matches(r"P(?=.)(?:\d+D)?(?:T(?=.)(?:\d+H)?(?:\d+M)?(?:\d+S)?)?"),
        "email": matches(r"[A-Za-z0-9.+-]+@[A-Za-z0-9-]+(?:\.[A-Za-z0-9-]+)+"),
        "hostname": matches(r"[a-z0-9](?:[a-z0-9-]*[a-z0-9])?(?:\.[a-z0-9](?:[a-z0-9-]*[a-z0-9])?)*"),
        "ipv4": ipaddress.IPv4Address, "ipv6": ipaddress.IPv6Address,
        "uri": matches(r"[A-Za-z][A-Za-z0-9+.-]*:[^\s\\]+"), "uri-reference": matches(r"[^\s\\]*"),
        "uuid": matches(r"[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}"),
        "json-pointer": matches(r"(?:/(?:[^~/]|~[01])*)*")}.items():
    checker.checks(format_name)(fails(check_format))


def merged(a, b):
    """Returns one schema for both, which need not be exact, because the instances are checked."""
    if a is False or b is False:
        return False
    if a is True or b is True:
        return a if b is True else b
    result = {**a, **{key: value for key, value in b.items() if key not in ("properties", "required", "items")}}
    if "properties" in a or "properties" in b:
        own, more = a.get("properties", {}), b.get("properties", {})
        result["properties"] = {key: merged(own.get(key, True), more.get(key, True)) if key in own and key in more
                                else own.get(key, more.get(key)) for key in {**own, **more}}
    if "required" in a or "required" in b:
        result["required"] = [*a.get("required", []), *(key for key in b.get("required", [])
                                                        if key not in a.get("required", []))]
    if "items" in a or "items" in b:
        result["items"] = b.get("items", a.get("items"))
    if a.get("additionalProperties") is False or b.get("additionalProperties") is False:
        result["additionalProperties"] = False
    return result


class Sampler:

    def __init__(self, root, patterns, random):
        self.root = root
        self.patterns = patterns
        self.random = random
        self.validator = jsonschema.validators.validator_for(root, default=jsonschema.Draft202012Validator)(
            root, format_checker=checker)

    def resolve(self, ref):
        if ref == "#item":
            return self.root["items"]
        schema = self.root
        for key in ref[2:].split("/") if len(ref) > 1 else []:
            schema = schema[key]
        return schema

    def flat(self, schema):
        """Returns the schema without references and combinations. It chooses one of the
        branches."""
        while isinstance(schema, dict):
            rest = dict(schema)
            if "$ref" in schema:
                more = self.resolve(rest.pop("$ref"))
            elif "allOf" in schema:
                more = True
                for part in rest.pop("allOf"):
                    more = merged(more, self.flat(part))
            elif "anyOf" in schema or "oneOf" in schema:
                more = self.random.choice(rest.pop("anyOf" if "anyOf" in schema else "oneOf"))
            elif "if" in schema:
                condition = rest.pop("if")
                then, other = rest.pop("then", True), rest.pop("else", True)
                more = merged(condition, then) if self.random.random() < 0.5 else other
            else:
                return schema
            schema = merged(rest, more)
        return schema

    def sample(self, schema, depth=0):
        schema = self.flat(schema)
        if schema is True or schema == {}:
            return self.random.choice([self.random.choice(WORDS), 7, -0.5, True, None])
        if "const" in schema:
            return schema["const"]
        if "enum" in schema:
            return self.random.choice(schema["enum"])
        kind = schema.get("type")
        if kind is None:
            kind = ("object" if "properties" in schema or "required" in schema else "array" if "items" in schema
                    else "number" if "minimum" in schema else "string")
        if isinstance(kind, list):
            kind = self.random.choice(kind)
        return {"object": self.object, "array": self.array, "string": self.string, "integer": self.number,
                "number": self.number, "boolean": lambda *_: self.random.random() < 0.5,
                "null": lambda *_: None}[kind](schema, depth)

    def object(self, schema, depth):
        properties, required = schema.get("properties", {}), schema.get("required", [])
        result = {}
        for key, value in properties.items():
            if key in required or (value is not False and self.random.random() < (0.55 if depth < 3 else 0.1)):
                result[key] = self.sample(value, depth + 1)
        others = schema.get("additionalProperties", True)
        for key in required:
            if key not in properties:
                result[key] = self.sample(others, depth + 1)
        patterns = schema.get("patternProperties", {})
        if others is True and not patterns and self.random.random() < 0.85:
            return result
        for _ in range(self.random.randint(0, 2) + schema.get("minProperties", 0)):
            key, value = self.random.choice(KEYS), others
            if patterns and (others is False or self.random.random() < 0.8):
                pattern, value = self.random.choice(list(patterns.items()))
                key = self.random.choice(self.patterns[pattern][0] if pattern in self.patterns else KEYS)
            elif "propertyNames" in schema:
                key = self.sample({"type": "string", **schema["propertyNames"]})
            if key not in properties and value is not False:
                result[key] = self.sample(value, depth + 1)
        return result

    def array(self, schema, depth):
        low = schema.get("minItems", 0)
        size = self.random.randint(low, max(low, min(schema.get("maxItems", 99), low + (2 if depth < 2 else 1))))
        prefix, others = schema.get("prefixItems", []), schema.get("items", True)
        if isinstance(others, list):
            prefix, others = others, schema.get("additionalItems", True)
        result = [self.sample(prefix[i] if i < len(prefix) else others, depth + 1) for i in range(size)
                  if i < len(prefix) or others is not False]
        if "contains" in schema and result:
            result[0] = self.sample(schema["contains"], depth + 1) if "const" in schema["contains"] else result[0]
        return result

    def string(self, schema, _):
        if "pattern" in schema:
            return self.random.choice(self.patterns.get(schema["pattern"], (WORDS, ()))[0])
        if schema.get("format") in FORMATS:
            return self.random.choice(FORMATS[schema["format"]][0])
        low, high = schema.get("minLength", 0), schema.get("maxLength", 10000)
        text = self.random.choice(WORDS)
        while len(text) < low:
            text += " " + self.random.choice(WORDS)
        return text[:high]

    def number(self, schema, _):
        low = schema.get("minimum", schema.get("exclusiveMinimum", -100))
        high = schema.get("maximum", schema.get("exclusiveMaximum", max(low, 0) + 1000))
        step = schema.get("multipleOf", 1)
        if isinstance(low, bool) or isinstance(high, bool):
            return 0.5
        choices = [low, high, round((low + high) / 2) // step * step, self.random.randint(int(low), int(high)) // step * step]
        if schema.get("type") == "number" and step == 1:
            choices += [round(low + (high - low) * share, 2) for share in (0.25, 0.381, 0.9)]
        return self.random.choice(choices)

    def valid(self, count):
        """Different valid instances, with as many properties as possible first."""
        found = {}
        for _ in range(60):
            try:
                value = self.sample(self.root)
            except RecursionError:
                continue
            if self.validator.is_valid(value):
                found.setdefault(json.dumps(value), value)
        ranked = sorted(found.values(), key=lambda value: abs(len(json.dumps(value)) - 260))
        return ranked[:count]

    def invalid(self, valid, count):
        """Invalid instances near the valid ones, with different reasons."""
        found = {}
        for _ in range(150):
            value = copy.deepcopy(self.random.choice(valid))
            value = self.spoiled(value)
            error = jsonschema.exceptions.best_match(self.validator.iter_errors(value))
            if error is None:
                continue
            place = "".join("/" + str(step).replace("~", "~0").replace("/", "~1") for step in error.absolute_path)
            found.setdefault(error.validator, (value, f"{error.validator} at {json.dumps(place)}"))
        pairs = list(found.values())
        self.random.shuffle(pairs)
        return [{"instance": value, "because": because} for value, because in pairs[:count]]

    def spoiled(self, value):
        if isinstance(value, dict) and value and self.random.random() < 0.75:
            key = self.random.choice(list(value))
            if self.random.random() < 0.2:
                del value[key]
            else:
                value[key] = self.spoiled(value[key])
            return value
        if isinstance(value, list) and value and self.random.random() < 0.75:
            at = self.random.randrange(len(value))
            value[at] = self.spoiled(value[at])
            return value
        wrong = [None, "unexpected", 12345678, -7.25, {}, []]
        if isinstance(value, dict):
            return self.random.choice([{**value, "unexpected": 1}, {}, list(value), "{}"])
        if isinstance(value, list):
            return self.random.choice([[*value, None], value * 40, value[:1] * 2, value[1:], {"0": value}])
        if isinstance(value, bool) or value is None:
            return self.random.choice(["true", 0, *wrong])
        if isinstance(value, str):
            bad = [text for good, others in [*self.patterns.values(), *FORMATS.values()] if value in good for text in others]
            return self.random.choice([*bad, *bad, "", value + "!", value * 60, value.upper(), value + " ", value[:-1], 1, None])
        return self.random.choice([value + 0.5, -value - 1, value + 10**9, str(value), value * 0.001, *wrong])
