"""Schemas whose keywords the notation of the text files lacks."""

NUMBER = {"type": "number"}
STRING = {"type": "string"}
INTEGER = {"type": "integer"}
BOOLEAN = {"type": "boolean"}


def text(low=None, high=None, **more):
    limits = {"minLength": low, "maxLength": high}
    return {"type": "string", **{key: value for key, value in limits.items() if value is not None}, **more}


def items(of, **more):
    return {"type": "array", "items": of, **more}


def closed(required, **properties):
    return {"type": "object", "properties": properties, "required": required.split(), "additionalProperties": False}


def opened(required, **properties):
    return {"type": "object", "properties": properties, "required": required.split()}


CONDITIONS = {
    "delivery": {**opened("method", method={"enum": ["pickup", "courier"]}, address=text(5, 100), store=text(2, 30)),
                 "if": {"properties": {"method": {"const": "courier"}}}, "then": {"required": ["address"]},
                 "else": {"required": ["store"]}},
    "tax_number": {**opened("country tax_id", country={"enum": ["DE", "AT", "CH"]}, tax_id=STRING),
                   "if": {"properties": {"country": {"const": "DE"}}},
                   "then": {"properties": {"tax_id": {"pattern": r"^\d{11}$"}}},
                   "else": {"properties": {"tax_id": {"pattern": r"^\d{9}$"}}}},
    "tls_listener": {**closed("port", port={"type": "integer", "minimum": 1, "maximum": 65535}, tls=BOOLEAN,
                              certificate=text(1), key=text(1)),
                     "dependentRequired": {"certificate": ["key"], "key": ["certificate"]}},
    "card_or_iban": {**closed("", card=text(12, 19), iban=text(15, 34), bic=text(8, 11)),
                     "dependentRequired": {"bic": ["iban"]},
                     "anyOf": [{"required": ["card"]}, {"required": ["iban"]}]},
    "spouse": {**opened("name status", name=text(1), status={"enum": ["single", "married"]}, spouse=text(1)),
               "if": {"properties": {"status": {"const": "married"}}}, "then": {"required": ["spouse"]},
               "else": {"properties": {"spouse": False}}},
    "backup": {**closed("target", target={"enum": ["s3", "disk"]}, bucket=text(3, 63), path=text(1), keep=INTEGER),
               "allOf": [{"if": {"properties": {"target": {"const": "s3"}}}, "then": {"required": ["bucket"]}},
                         {"if": {"properties": {"target": {"const": "disk"}}}, "then": {"required": ["path"]}}]},
    "old_dependencies": {"$schema": "http://json-schema.org/draft-07/schema#",
                         **opened("user", user=text(1), password=text(8), token=text(8)),
                         "dependencies": {"password": ["user"], "token": {"not": {"required": ["password"]}}}},
    "proxy": {**closed("mode", mode={"enum": ["none", "manual", "pac"]}, host=text(1), pac_url={
        "type": "string", "format": "uri"}, port={"type": "integer", "minimum": 1, "maximum": 65535}),
        "dependentSchemas": {"port": {"required": ["host"]}}},
    "ticket_price": {**closed("age price", age={"type": "integer", "minimum": 0, "maximum": 120},
                              price={"type": "number", "minimum": 0}),
                     "if": {"properties": {"age": {"maximum": 5}}}, "then": {"properties": {"price": {"const": 0}}}},
}

NEGATIONS = {
    "no_reserved_name": closed("name", name={"type": "string", "pattern": "^[a-z]+$",
                                             "not": {"enum": ["root", "admin", "daemon"]}}),
    "not_both": {**closed("", inline=text(1), file=text(1), url={"type": "string", "format": "uri"}),
                 "not": {"required": ["inline", "file"]}, "minProperties": 1},
    "any_but_null": closed("value", value={"not": {"type": "null"}}),
    "no_zero": closed("divisor", divisor={"type": "integer", "not": {"const": 0}}),
    "not_empty_object": {"type": "object", "additionalProperties": STRING, "not": {"maxProperties": 0}},
    "without_id": {**opened("name", name=text(1)), "not": {"required": ["id"]}},
    "no_url_in_text": closed("comment", comment={"type": "string", "not": {"pattern": "https?://"}}),
}

UNIONS = {
    "shape": {"oneOf": [closed("kind radius", kind={"const": "circle"}, radius=NUMBER),
                        closed("kind width height", kind={"const": "rectangle"}, width=NUMBER, height=NUMBER),
                        closed("kind points", kind={"const": "polygon"},
                               points=items(items(NUMBER, minItems=2, maxItems=2), minItems=3))]},
    "geojson": {"oneOf": [closed("type coordinates", type={"const": "Point"}, coordinates={"$ref": "#/$defs/p"}),
                          closed("type coordinates", type={"const": "LineString"},
                                 coordinates=items({"$ref": "#/$defs/p"}, minItems=2)),
                          closed("type geometries", type={"const": "GeometryCollection"},
                                 geometries=items({"$ref": "#"}))],
                "$defs": {"p": items(NUMBER, minItems=2, maxItems=3)}},
    "id_or_name": {"oneOf": [opened("id", id={"type": "integer", "minimum": 1}), opened("name", name=text(1))]},
    "number_or_range": {"oneOf": [NUMBER, closed("from to", **{"from": NUMBER, "to": NUMBER}),
                                  items(NUMBER, minItems=1)]},
    "disjoint_by_pattern": {"oneOf": [{"type": "string", "pattern": "^v[0-9]+$"},
                                      {"type": "string", "pattern": "^[0-9a-f]{7,40}$"}]},
    "multiples": {"oneOf": [{"type": "integer", "multipleOf": 3}, {"type": "integer", "multipleOf": 5}]},
    "overlapping_any": closed("limit", limit={"anyOf": [{"type": "integer", "minimum": 0}, {"const": -1},
                                                        {"enum": ["auto", "none"]}]}),
    "nullable_union": closed("owner", owner={"anyOf": [closed("user", user=text(1)), closed("team", team=text(1)),
                                                       {"type": "null"}]}),
    "payment_event": {"oneOf": [
        opened("type data", type={"const": "charge.succeeded"}, data=opened("amount", amount=INTEGER)),
        opened("type data", type={"const": "charge.failed"}, data=opened("code", code=STRING)),
        opened("type data", type={"enum": ["payout.paid", "payout.failed"]}, data=opened("bank", bank=STRING))]},
    "any_of_required": {**closed("", email={"type": "string", "format": "email"}, phone=text(5, 20), name=text(1)),
                        "anyOf": [{"required": ["email"]}, {"required": ["phone"]}]},
    "json_rpc": {"oneOf": [
        closed("jsonrpc id result", jsonrpc={"const": "2.0"}, id={"type": ["integer", "string"]}, result=True),
        closed("jsonrpc id error", jsonrpc={"const": "2.0"}, id={"type": ["integer", "string", "null"]},
               error=opened("code message", code=INTEGER, message=STRING))]},
    "mixed_types": closed("a b", a={"type": ["string", "integer"], "minLength": 2, "minimum": 10},
                          b={"type": ["array", "boolean"], "items": STRING, "maxItems": 2}),
}

COMPOSITIONS = {
    "base_and_more": {"allOf": [{"$ref": "#/$defs/base"}, opened("price", price={"type": "number", "minimum": 0})],
                      "$defs": {"base": opened("id name", id=INTEGER, name=text(1, 40))}},
    "extended_closed": {"allOf": [{"$ref": "#/$defs/base"}, opened("level", level={"enum": ["info", "warn"]})],
                        "unevaluatedProperties": False,
                        "$defs": {"base": opened("at text", at={"type": "string", "format": "date-time"}, text=STRING)}},
    "limits_in_parts": {"allOf": [{"type": "number"}, {"minimum": 10}, {"maximum": 20}, {"multipleOf": 0.5}]},
    "string_in_parts": {"allOf": [text(8, 64), {"pattern": "[0-9]"}, {"pattern": "[a-z]"}, {"pattern": "[A-Z]"}]},
    "ref_with_siblings": closed("port", port={"$ref": "#/$defs/port", "minimum": 1024, "description": "No root."}),
    "mixin": {**opened("id", id=text(1)), "allOf": [{"$ref": "#/$defs/times"}, {"$ref": "#/$defs/tags"}],
              "$defs": {"times": opened("created", created={"type": "string", "format": "date"}),
                        "tags": opened("", tags=items(text(1, 20), maxItems=5))}},
}
COMPOSITIONS["ref_with_siblings"]["$defs"] = {"port": {"type": "integer", "minimum": 0, "maximum": 65535}}

ARRAYS = {
    "rgb": {"type": "array", "prefixItems": [{"type": "integer", "minimum": 0, "maximum": 255}] * 3, "items": False,
            "minItems": 3},
    "csv_row": {"type": "array", "prefixItems": [{"type": "string", "format": "date"}, text(1), NUMBER],
                "items": BOOLEAN, "minItems": 3, "maxItems": 6},
    "draft7_tuple": {"$schema": "http://json-schema.org/draft-07/schema#", "type": "array",
                     "items": [STRING, INTEGER], "additionalItems": False, "minItems": 2},
    "weekdays": closed("days", days=items({"enum": ["mo", "tu", "we", "th", "fr", "sa", "su"]}, uniqueItems=True,
                                          minItems=1)),
    "has_admin": closed("members", members=items({"enum": ["admin", "writer", "reader"]}, maxItems=5,
                                                 contains={"const": "admin"})),
    "one_primary": closed("emails", emails=items(closed("address primary", address=text(3), primary=BOOLEAN),
                                                 maxItems=4, contains={"properties": {"primary": {"const": True}}},
                                                 minContains=1, maxContains=1)),
    "matrix": closed("rows", rows=items(items(NUMBER, minItems=3, maxItems=3), minItems=3, maxItems=3)),
    "unique_tags": closed("tags", tags=items(text(1, 20), uniqueItems=True)),
    "unique_pair": closed("pair", pair=items(STRING, uniqueItems=True, maxItems=2)),
    "unique_ports": closed("ports", ports=items({"type": "integer", "minimum": 1, "maximum": 65535}, uniqueItems=True)),
    "unique_hosts": closed("hosts", hosts=items(closed("name", name=text(1)), uniqueItems=True, minItems=1)),
    "command_line": {"type": "array", "prefixItems": [text(1)], "items": text(0, 200), "minItems": 1, "maxItems": 20},
}

OBJECTS = {
    "headers": {"type": "object", "propertyNames": {"pattern": "^[A-Za-z][A-Za-z0-9-]*$"},
                "additionalProperties": text(0, 200)},
    "labels": {"type": "object", "patternProperties": {"^[a-z][a-z0-9_]{0,15}$": text(0, 63)},
               "additionalProperties": False, "maxProperties": 5},
    "extensions": {**closed("openapi", openapi={"const": "3.1.0"}, title=text(1)),
                   "patternProperties": {"^x-": True}},
    "typed_suffixes": {"type": "object", "patternProperties": {"_at$": {"type": "string", "format": "date-time"},
                                                               "_count$": {"type": "integer", "minimum": 0},
                                                               "^is_": BOOLEAN}, "additionalProperties": False},
    "translations": {"type": "object", "propertyNames": {"enum": ["de", "en", "fr", "es"]},
                     "additionalProperties": text(1), "minProperties": 1},
    "at_least_one": {**closed("", cpu=text(1), memory=text(1), disk=text(1)), "minProperties": 1},
    "one_or_two": {**closed("", red=INTEGER, green=INTEGER, blue=INTEGER), "minProperties": 1, "maxProperties": 2},
    "open_with_minimum": {"type": "object", "additionalProperties": NUMBER, "minProperties": 3},
    "free_form": {"type": "object"},
    "nested_maps": {"type": "object", "additionalProperties": {"type": "object", "additionalProperties": items(STRING)}},
    "odd_keys": closed("$id", **{"$id": text(1), "a b": NUMBER, "@type": STRING, "q\"uote": BOOLEAN, "\u00e9t\u00e9": INTEGER}),
    "numbers_as_keys": {"type": "object", "patternProperties": {"^[0-9]{3}$": {"$ref": "#/$defs/response"}},
                        "properties": {"default": {"$ref": "#/$defs/response"}}, "additionalProperties": False,
                        "$defs": {"response": closed("description", description=text(1), ref=text(1))}},
    "disabled_property": opened("name", name=text(1), legacy=False),
}

STRINGS = {
    "password": {"type": "string", "pattern": "^(?=.*[a-z])(?=.*[A-Z])(?=.*[0-9]).{8,32}$"},
    "mixed_formats": closed("id", id={"type": "string", "format": "uuid"}, mail={"type": "string", "format": "email"},
                            host={"type": "string", "format": "hostname"}, v4={"type": "string", "format": "ipv4"},
                            v6={"type": "string", "format": "ipv6"}, at={"type": "string", "format": "time"},
                            span={"type": "string", "format": "duration"},
                            pointer={"type": "string", "format": "json-pointer"}),
    "secret": closed("user password", user=text(1), password={"type": "string", "format": "password"}),
    "upload": closed("name data", name=text(1), data={"type": "string", "format": "binary"}),
    "phone_format": closed("phone", phone={"type": "string", "format": "phone"}),
    "color_format": closed("color", color={"type": "string", "format": "color"}),
    "regex_format": closed("match", match={"type": "string", "format": "regex"}),
    "unanchored": closed("line", line={"type": "string", "pattern": "error: [0-9]+"}),
    "latin_letters": closed("name", name={"type": "string", "pattern": "^[A-Z\u00c0-\u00de][A-Za-z\u00c0-\u00ff '-]{1,40}$"}),
    "backreference": closed("tag", tag={"type": "string", "pattern": r"^<([a-z]+)>[a-z ]*</\1>$"}),
    "word_boundary": closed("line", line={"type": "string", "pattern": r"\bTODO\b"}),
    "long_text": closed("essay", essay=text(200, 4000)),
    "html_or_markdown": closed("body", body={"anyOf": [{"type": "string", "pattern": "^<"}, {"type": "string", "pattern": "^# "}]}),
    "many_choices": closed("zone", zone={"enum": [f"{area}{number}" for area in ("eu-west-", "us-east-", "ap-south-", "sa-")
                                                  for number in range(1, 31)]}),
}

NUMBERS = {
    "price": closed("price", price={"type": "number", "minimum": 0, "multipleOf": 0.01}),
    "percent": closed("share", share={"type": "number", "exclusiveMinimum": 0, "maximum": 100}),
    "int32": closed("id", id={"type": "integer", "format": "int32", "minimum": 0}),
    "int64_and_double": closed("id ratio", id={"type": "integer", "format": "int64"}, ratio={"type": "number", "format": "double"}),
    "even": closed("port", port={"type": "integer", "minimum": 2, "maximum": 1000, "multipleOf": 2}),
    "angle": closed("degrees", degrees={"type": "number", "minimum": -180, "exclusiveMaximum": 180}),
    "draft4_exclusive": {"$schema": "http://json-schema.org/draft-04/schema#",
                         **closed("ratio", ratio={"type": "number", "minimum": 0, "exclusiveMinimum": True})},
    "small_set": closed("bits", bits={"enum": [8, 16, 32, 64]}),
    "version_number": closed("version", version={"type": "number", "enum": [1, 1.1, 2]}),
}

RECURSIONS = {
    "file_tree": {"$ref": "#/$defs/node", "$defs": {"node": closed(
        "name", name=text(1, 50), size=INTEGER, children=items({"$ref": "#/$defs/node"}))}},
    "linked_list": closed("value", value=INTEGER, next={"anyOf": [{"$ref": "#"}, {"type": "null"}]}),
    "json_value": {"$defs": {"v": {"anyOf": [{"type": "null"}, BOOLEAN, NUMBER, STRING, items({"$ref": "#/$defs/v"}),
                                             {"type": "object", "additionalProperties": {"$ref": "#/$defs/v"}}]}},
                   **closed("payload", payload={"$ref": "#/$defs/v"})},
    "menu": {"$id": "https://example.org/menu", "type": "array", "items": {"$anchor": "item", **closed(
        "title", title=text(1), link={"type": "string", "format": "uri-reference"}, sub=items({"$ref": "#item"}))}},
    "even_odd": {"$ref": "#/$defs/even", "$defs": {
        "even": {"type": "array", "prefixItems": [{"const": "e"}, {"$ref": "#/$defs/odd"}], "items": False},
        "odd": {"type": "array", "prefixItems": [{"const": "o"}, {"$ref": "#/$defs/even"}], "items": False}}},
    "logic": {"$ref": "#/$defs/f", "$defs": {"f": {"oneOf": [
        closed("var", var={"type": "string", "pattern": "^[a-z]$"}), closed("not", **{"not": {"$ref": "#/$defs/f"}}),
        closed("and", **{"and": items({"$ref": "#/$defs/f"}, minItems=2)}),
        closed("or", **{"or": items({"$ref": "#/$defs/f"}, minItems=2)})]}}},
    "remote_ref": closed("user", user={"$ref": "https://example.org/schemas/user.json"}),
}

SPECIAL = {f"{group}/{name}": schema for group, members in (
    ("conditions", CONDITIONS), ("negations", NEGATIONS), ("unions", UNIONS), ("compositions", COMPOSITIONS),
    ("arrays", ARRAYS), ("objects", OBJECTS), ("strings", STRINGS), ("numbers", NUMBERS),
    ("recursions", RECURSIONS)) for name, schema in members.items()}

# Valid instances that the generator cannot find, by the name of the schema.
INSTANCES = {
    "conditions/tax_number": [{"country": "DE", "tax_id": "12345678901"}, {"country": "CH", "tax_id": "123456789"}],
    "negations/no_reserved_name": [{"name": "ada"}, {"name": "rooted"}],
    "unions/disjoint_by_pattern": ["v12", "deadbeef"],
    "unions/multiples": [9, 20, -6],
    "compositions/limits_in_parts": [10, 12.5, 20],
    "compositions/string_in_parts": ["Passw0rd1", "abcDEF 123 \u00e9"],
    "strings/password": ["Secret123", "aB3$ \u00fcber long"],
    "strings/unanchored": [{"line": "fatal error: 42 in line 3"}, {"line": "error: 7"}],
    "strings/latin_letters": [{"name": "\u00c9milie du Ch\u00e2telet"}, {"name": "O'Brien"}],
    "strings/backreference": [{"tag": "<b>bold text</b>"}],
    "strings/word_boundary": [{"line": "// TODO later"}],
    "strings/html_or_markdown": [{"body": "<p>Hello</p>"}, {"body": "# Title"}],
    "strings/phone_format": [{"phone": "+1 555 0100"}],
    "objects/typed_suffixes": [{"created_at": "2026-03-01T10:00:00Z", "is_open": True, "view_count": 3}, {}],
    "objects/headers": [{"Accept": "text/html", "X-Trace": "abc"}],
    "objects/numbers_as_keys": [{"default": {"description": "error"}, "404": {"description": "none", "ref": "x"}}],
    "objects/odd_keys": [{"$id": "x", "a b": 1.5, "@type": "Thing", "q\"uote": True, "\u00e9t\u00e9": 3}],
    "objects/labels": [{"app": "web", "tier": "front"}, {}],
    "objects/translations": [{"de": "Hallo", "fr": "Salut"}],
    "objects/extensions": [{"openapi": "3.1.0", "title": "API", "x-internal": {"a": [1]}}],
    "recursions/even_odd": [["e", ["o", ["e"]]], ["e"]],
    "recursions/remote_ref": [],
    "strings/long_text": [{"essay": "All work and no play makes a dull day. " * 8}],
    "numbers/price": [{"price": 19.5}, {"price": 5}],
}
