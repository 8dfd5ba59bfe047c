#!/usr/bin/env python3
"""Times masks of Tidepool beside llguidance's, in one run.

    bazel build --config=opt //tests/bench:grammar_masks
    tests/bench/masks_bench.py [--vocabulary smollm2|tekken] [--schemas FILE.jsonl] [--every N]

For each schema of tests/golden/schemas that both engines accept, it measures the time to compile
the schema and compute the first mask. Then it measures the masks before each token of the schema's
valid instances, compact and spaced. Times are CPU times. Both engines begin each schema without any
state of earlier schemas. llguidance is called from Python, which adds about one microsecond. Needs
tools/setup --peers.
"""

import argparse
import json
import pathlib
import random
import time

import grammar_peers
import numpy


def texts_of(line):
    for value in line.get("valid", []):
        yield json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()
        yield json.dumps(value, ensure_ascii=False).encode()


def time_peer(peer, schema, walks):
    """Returns the time to the first mask, and the times of all masks and of all tokens."""
    first, compile_us = peer.compile(schema)
    masks, tokens, first_us = [], [], None
    for ids in walks:
        matcher = first.deep_copy()
        for number in [*ids, None]:
            _, spent = peer.fill(matcher)
            masks.append(spent)
            if first_us is None:
                first_us = compile_us + spent
            if number is None:
                break
            begin = time.thread_time()
            accepted = matcher.consume_token(number)
            tokens.append(1e6 * (time.thread_time() - begin))
            if not accepted:
                raise grammar_peers.Refused("a valid instance is rejected")
    return first_us, masks, tokens


def time_tidepool(tidepool, schema, walks):
    answer = tidepool.ask(schema, walks, masks=False)
    if not all(walk["accepted"] for walk in answer["walks"]):
        raise grammar_peers.Refused("a valid instance is rejected")
    masks = [spent for walk in answer["walks"] for spent in walk["mask_us"]]
    tokens = [spent for walk in answer["walks"] for spent in walk["accept_us"]]
    return answer["compile_us"] + masks[0], masks, tokens


def row(name, results):
    first, masks, tokens = (numpy.concatenate([numpy.atleast_1d(one[i]) for one in results]) for i in range(3))
    at = numpy.percentile
    print(f"| {name} | {masks.mean():.1f} | {at(masks, 50):.1f} | {at(masks, 99):.0f} | {at(masks, 99.9):.0f} "
          f"| {masks.max():.0f} | {tokens.mean():.1f} | {at(first, 50) / 1000:.2f} | {at(first, 99) / 1000:.1f} |")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--vocabulary", choices=list(grammar_peers.VOCABULARIES), default="smollm2")
    parser.add_argument("--schemas", type=pathlib.Path, help="JSON lines with name, schema and valid, instead")
    parser.add_argument("--every", type=int, default=1, help="use each N-th schema only (default: 1)")
    parser.add_argument("--program", default=grammar_peers.ROOT / ".cache/bazel-bin/tests/bench/grammar_masks")
    options = parser.parse_args()
    vocabulary = grammar_peers.VOCABULARIES[options.vocabulary]()
    lines = grammar_peers.read_schemas()
    if options.schemas:
        lines = [json.loads(line) for line in options.schemas.read_text(encoding="utf-8").splitlines()]
    random.Random(1).shuffle(lines)
    peer, tidepool = grammar_peers.Peer(vocabulary), grammar_peers.Tidepool(options.program, vocabulary)
    results = {"Tidepool": [], "llguidance": []}
    refused = {"Tidepool": 0, "llguidance": 0}
    for line in lines[::options.every]:
        walks = [vocabulary.encode(text) for text in texts_of(line)] or [[]]
        both = {}
        for name, measure in (("Tidepool", lambda schema: time_tidepool(tidepool, schema, walks)),
                              ("llguidance", lambda schema: time_peer(peer, schema, walks))):
            try:
                both[name] = measure(line["schema"])
            except grammar_peers.Refused:
                refused[name] += 1
        if len(both) == 2:
            for name, result in both.items():
                results[name].append(result)
    tidepool.close()
    count = sum(len(one[1]) for one in results["Tidepool"])
    print(f"{len(vocabulary.tokens)} tokens, {len(results['Tidepool'])} schemas, {count} masks; "
          f"refused: {refused['Tidepool']} by Tidepool, {refused['llguidance']} by llguidance")
    print("| engine | mask avg us | p50 | p99 | p99.9 | max | token avg us | first mask p50 ms | p99 |")
    print("|---|---|---|---|---|---|---|---|---|")
    for name, result in results.items():
        row(name, result)


if __name__ == "__main__":
    main()
