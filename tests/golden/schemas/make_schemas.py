#!/usr/bin/env python3
"""Makes schemas.jsonl: schemas as people use them, with valid and invalid instances.

    make_schemas.py [--check]

api.txt, config.txt, extract.txt and tools.txt have the entities (notation.py), styles.py writes them as schemas,
and special.py has further schemas. instances.py finds the instances. jsonschema confirms every label. Needs
tools/setup --tests.

A line is {"name", "schema", "valid": [...], "invalid": [{"instance", "because"}]}. The properties of an instance are
in the order that docs/structured_output.md states: as in `properties`, then the others.
"""

import argparse
import json
import pathlib
import random
import zlib

import instances
import notation
import special
import styles

FOLDER = pathlib.Path(__file__).parent
# The ways to use the entities of each file, in turns.
USES = {
    "api": (("request", "openapi"), ("request", "page"), ("openapi", "patch"), ("request", "pydantic")),
    "config": (("config", "named"), ("config", "request"), ("config", "openapi")),
    "extract": (("strict", "pydantic"), ("strict", "extraction"), ("pydantic", "extraction"), ("strict", "openapi")),
    "tools": (("mcp", "strict"), ("mcp", "request"), ("mcp", "pydantic")),
}
WRAPPED = {"page": styles.page, "patch": styles.patch, "extraction": styles.extraction, "named": styles.named}
MAX_INSTANCE_BYTES = 900


def entity_schemas(file, entities):
    groups = {}
    for entity in entities:
        groups.setdefault(entity.group, {})[entity.name] = entity
    for group, members in groups.items():
        whole = [name for name, entity in members.items() if entity.description]
        for turn, name in enumerate(whole):
            for use in USES[file][turn % len(USES[file])]:
                schema = WRAPPED[use](members, name) if use in WRAPPED else styles.plain(members, name, use)
                if schema is not None:
                    yield f"{file}/{group}/{name}/{use}", schema
        for at in range(0, len(whole) - 1, 4):
            names = whole[at:at + 3]
            if file == "tools":
                yield f"tools/{group}/{names[0]}/call", styles.call(members, names)
            elif file != "config":
                yield f"{file}/{group}/{names[0]}/events", styles.events(members, names, group)


def schemas():
    patterns = {}
    made = []
    for file in USES:
        entities, samples = notation.read(FOLDER / f"{file}.txt")
        patterns.update(samples)
        made += entity_schemas(file, entities)
    made += ((f"special/{name}", schema) for name, schema in special.SPECIAL.items())
    return made, patterns


def line_of(name, schema, patterns):
    sampler = instances.Sampler(schema, patterns, random.Random(zlib.crc32(name.encode())))
    own = special.INSTANCES.get(name.removeprefix("special/"))
    valid = sampler.valid(2) if own is None else own
    for value in valid:
        sampler.validator.validate(value)
    invalid = sampler.invalid(valid, 3) if valid else []
    invalid = [one for one in invalid if len(json.dumps(one)) < MAX_INSTANCE_BYTES]
    return {"name": name, "schema": schema, "valid": valid, "invalid": invalid}


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--check", action="store_true", help="compare with schemas.jsonl and write nothing")
    check = parser.parse_args().check
    made, patterns = schemas()
    lines = [line_of(name, schema, patterns) for name, schema in made]
    text = "".join(json.dumps(line, ensure_ascii=False, separators=(",", ":")) + "\n" for line in lines)
    target = FOLDER / "schemas.jsonl"
    for line in lines:
        if not line["valid"] or not line["invalid"]:
            print(f"{line['name']}: {len(line['valid'])} valid and {len(line['invalid'])} invalid instances")
    print(f"{len(lines)} schemas, {sum(len(line['valid']) for line in lines)} valid and "
          f"{sum(len(line['invalid']) for line in lines)} invalid instances, {len(text.encode())} bytes")
    if check:
        raise SystemExit(0 if target.read_text(encoding="utf-8") == text else "schemas.jsonl differs")
    target.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
