#!/usr/bin/env python3
"""Compares masks with llguidance's, token by token, on random outputs of schemas.

The schemas are those of schemas/schemas.jsonl and of the JSON Schema Test Suite. Every mask must be
equal, for each schema of schemas that both engines accept. `only_here`, `only_there` and
`without_differences` state the exceptions.

    bazel build --config=opt //tests/bench:grammar_masks
    tests/golden/check_masks.py [--vocabulary smollm2|tekken] [--every N] [--program FILE]

Needs tools/setup --tests and --peers.
"""

import argparse
import itertools
import json
import pathlib
import random
import re
import sys
import zlib

import numpy

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "bench"))
import grammar_peers  # noqa: E402

WALKS = 2
STEPS = 25
STRUCTURE = b'{}[]",:-0123456789tfn '  # first bytes of tokens that the walks prefer
MIN_SCHEMAS = 500  # that both engines accept
SUITE = grammar_peers.ROOT / ".cache/json_schema_suite/draft2020-12"


def read_schemas():
    for line in grammar_peers.read_schemas():
        yield line["name"], line["schema"]
    for path in sorted(SUITE.glob("*.json")):
        for group in json.loads(path.read_text(encoding="utf-8")):
            if isinstance(group["schema"], bool):  # llguidance takes no options beside these
                continue
            yield f"{path.stem} | {group['description']}", group["schema"]


def without_differences(schema):
    """Returns the schema without keywords that the engines deliberately interpret differently.

    Both have regular expressions of their own for formats. Multiples can end in .0 only here.
    """
    if isinstance(schema, list):
        return [without_differences(part) for part in schema]
    if not isinstance(schema, dict):
        return schema
    return {key: without_differences(value) for key, value in schema.items()
            if not (key == "format" and isinstance(value, str))
            and not (key == "multipleOf" and schema.get("type") != "integer")}


def only_here(before, token):
    """Returns whether only Tidepool allows a token, because it allows all of JSON's escapes: \\/
    and every \\uXXXX."""
    return re.search(rb"\\(?:[u/]|\Z)", before[-5:] + token) is not None


def only_there(before, token):
    """Returns whether only llguidance allows a token: -0 as an integer with limits."""
    return before.endswith(b"-") and token.startswith(b"0")


def bits(mask, size):
    return numpy.unpackbits(numpy.frombuffer(mask, numpy.uint8), bitorder="little")[:size]


def choose(allowed, vocabulary, chance):
    """Chooses a token. Half of the time, it is a token of JSON's structure, so that outputs make
    progress."""
    if chance.random() < 0.5:
        some = chance.sample(list(allowed), min(40, len(allowed)))
        structural = [number for number in some if vocabulary.tokens[number][:1] and
                      vocabulary.tokens[number][0] in STRUCTURE]
        if structural:
            return int(chance.choice(structural))
    return int(chance.choice(allowed))


def peer_walk(peer, first, chance):
    """Returns the tokens of an output, and the mask before each of them and after the last."""
    matcher, ids, masks = first.deep_copy(), [], []
    size = len(peer.vocabulary.tokens)
    while True:
        masks.append(peer.fill(matcher)[0])
        allowed = numpy.flatnonzero(bits(masks[-1], size))
        if len(ids) == STEPS or len(allowed) == 0:
            return ids, masks
        number = choose(allowed, peer.vocabulary, chance)
        if number == peer.vocabulary.end:
            return ids, masks
        matcher.consume_token(number)
        ids.append(number)


def difference(ids, masks, walk, vocabulary):
    """Returns the first difference as text, or None."""
    for at, (theirs, ours) in enumerate(zip(masks, walk["masks"])):
        left, right = (bits(mask, len(vocabulary.tokens)) for mask in (theirs, bytes.fromhex(ours)))
        if (left == right).all():
            continue
        # llguidance gives only the best token if its text is forced.
        if left.sum() == 1 and (left <= right).all():
            continue
        before = b"".join(vocabulary.tokens[number] for number in ids[:at])[-60:]
        ours_only, theirs_only = numpy.flatnonzero(right > left), numpy.flatnonzero(left > right)
        if (all(only_here(before, vocabulary.tokens[number]) for number in ours_only)
                and all(only_there(before, vocabulary.tokens[number]) for number in theirs_only)):
            continue
        only = {name: [vocabulary.tokens[number] for number in numbers[:5]]
                for name, numbers in (("llguidance", theirs_only), ("Tidepool", ours_only))}
        return f"after {before!r} only {only}"
    return None


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--vocabulary", choices=list(grammar_peers.VOCABULARIES), default="smollm2")
    parser.add_argument("--every", type=int, default=1, help="use each N-th schema only (default: 1)")
    parser.add_argument("--verbose", action="store_true", help="print the reasons of refusals")
    parser.add_argument("--program", default=grammar_peers.ROOT / ".cache/bazel-bin/tests/bench/grammar_masks")
    options = parser.parse_args()
    vocabulary = grammar_peers.VOCABULARIES[options.vocabulary]()
    peer, tidepool = grammar_peers.Peer(vocabulary), grammar_peers.Tidepool(options.program, vocabulary)
    same, masks_compared, refused, different = 0, 0, [], []
    for name, schema in itertools.islice(read_schemas(), None, None, options.every):
        schema = without_differences(schema)
        chance = random.Random(zlib.crc32(name.encode()))
        try:
            first, _ = peer.compile(schema)
            walks = [peer_walk(peer, first, chance) for _ in range(WALKS)]
            answer = tidepool.ask(schema, [ids for ids, _ in walks], masks=True)
        except grammar_peers.Refused as error:
            refused.append((name, str(error)))
            continue
        found = [difference(ids, masks, walk, vocabulary) for (ids, masks), walk in zip(walks, answer["walks"])]
        masks_compared += sum(len(masks) for _, masks in walks)
        if any(found):
            different.append((name, next(text for text in found if text)))
        else:
            same += 1
    tidepool.close()
    for name, text in different + (refused if options.verbose else []):
        print(f"{name}: {text}")
    print(f"{len(vocabulary.tokens)} tokens: {same} schemas have equal masks ({masks_compared} masks), "
          f"{len(different)} differ, {len(refused)} are refused by one of the engines")
    if options.every == 1 and same < MIN_SCHEMAS:
        print(f"fewer than {MIN_SCHEMAS} schemas were compared")
        return 1
    return 1 if different else 0


if __name__ == "__main__":
    sys.exit(main())
