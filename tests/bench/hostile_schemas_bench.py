"""Measures how much 50 hostile schemas at once slow down the other streams of a server.

Usage: hostile_schemas_bench.py [--model MODEL.gguf] [--threads 2] [--rounds 3] [--json]

Four streams without a constraint generate all the time. In each round, they run alone, then beside
50 requests without a constraint, then beside 50 requests with different schemas that are large to
compile or slow to follow. "p99" is the time between two tokens of the four streams. Run it on a
machine that does nothing else.
"""

import argparse
import json
import statistics
import threading
import time

from serving_rig import ROOT, harness, note

import grpc

REQUESTS = 50
STREAMS = 4
SECONDS = 8
ANSWER_TOKENS = 4


def nested_one_of(depth, extra):
    schema = {"type": "string", "maxLength": extra}
    for _ in range(depth):
        schema = {"oneOf": [{"type": "object", "properties": {"a": schema, "b": schema}},
                            {"type": "array", "items": schema}]}
    return schema


def hostile_schemas():
    """Returns different schemas. A server refuses some of them."""
    text = {"type": "string"}
    for number in range(REQUESTS // 10):
        yield nested_one_of(8, number)
        yield {"type": "string", "allOf": [{"pattern": f"[a-z]{{{i + 1}}}[0-9]"} for i in range(35 + number)]}
        yield {"type": "object", "minProperties": 40, "maxProperties": 200, "additionalProperties": False,
               "properties": {f"key_{number}_{i}": text for i in range(400)}}
        yield {"enum": [f"value {i} of list {number}" for i in range(20_000)]}
        yield {"type": "object", "properties": {
            f"a_long_name_{number}_{i}": {"type": "object", "properties": {f"q{j}": text for j in range(20)}}
            for i in range(400)}}
        yield {"type": "string", "pattern": f"(a|b)*a(a|b){{{300 + number}}}$"}
        yield {"type": "string", "pattern": f"^((ab|a|b){{1,{900 + number}}}c){{1,1000}}$"}
        yield {"$ref": "#/$defs/d0", "$defs": {
            f"d{i}": {"anyOf": [*({"type": "array", "items": {"$ref": f"#/$defs/d{(i * 7 + j + number) % 200}"}}
                                  for j in range(5)), {"type": "null"}]} for i in range(200)}}
        yield {"type": "array", "contains": {"minimum": number}, "minContains": 1000, "maxContains": 1500,
               "maxItems": 3000}
        yield {"type": "object", "patternProperties": {
            f"^[a-{chr(98 + i % 20)}]+{number + i}.*": {"type": "integer"} for i in range(20)}}


class Streams:
    """Streams that start again when they end, with the times between their tokens."""

    def __init__(self, server):
        self.server = server
        self.gaps = []
        self.measuring = False
        self.stopping = False
        self.threads = [threading.Thread(target=self.run, args=(number,)) for number in range(STREAMS)]
        for thread in self.threads:
            thread.start()

    def run(self, number):
        client = harness.Client(self.server)
        while not self.stopping:
            last = None
            request = harness.make_request(text=f"Stream {number}: once", max_tokens=400)
            request.stopping.ignore_eos = True
            for message in client.inference.Generate(request, timeout=600):
                now = time.perf_counter()
                if not message.token_ids:
                    continue
                if self.measuring and last is not None:
                    self.gaps.append(now - last)
                last = now
                if self.stopping:
                    break
        client.close()

    def p99_ms(self, beside):
        """Returns the 99th percentile while `beside` runs, and at least for SECONDS."""
        self.gaps.clear()
        self.measuring = True
        begin = time.monotonic()
        beside()
        time.sleep(max(0.0, SECONDS - (time.monotonic() - begin)))
        self.measuring = False
        return 1e3 * statistics.quantiles(self.gaps, n=100)[98]

    def stop(self):
        self.stopping = True
        for thread in self.threads:
            thread.join()


def send_all(server, schemas):
    """Sends a request for each schema (or None), all at once, and reads them. Returns the number of refusals."""
    refused = []

    def send(schema):
        client = harness.Client(server)
        request = harness.make_request(text="Answer:", max_tokens=ANSWER_TOKENS)
        if schema is not None:
            request.json_schema = schema
        try:
            list(client.inference.Generate(request, timeout=600))
        except grpc.RpcError:
            refused.append(schema)
        client.close()

    threads = [threading.Thread(target=send, args=(schema,)) for schema in schemas]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return len(refused)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default=str(ROOT / ".cache/models/SmolLM2-135M-Instruct.Q4_1.gguf"))
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    hostile = [json.dumps(schema) for schema in hostile_schemas()]
    rows = {"alone": [], "plain": [], "hostile": []}
    for number in range(args.rounds):
        # A new server, so that no schema is compiled yet.
        server = harness.serve(model=args.model, threads=args.threads)
        streams = Streams(server)
        time.sleep(2)
        refusals = []
        rows["alone"].append(streams.p99_ms(lambda: None))
        rows["plain"].append(streams.p99_ms(lambda: send_all(server, [None] * REQUESTS)))
        rows["hostile"].append(streams.p99_ms(lambda: refusals.append(send_all(server, hostile))))
        streams.stop()
        server.stop()
        note(f"round {number + 1}: p99 {', '.join(f'{name} {times[-1]:.1f} ms' for name, times in rows.items())}; "
             f"{refusals[0]} of {REQUESTS} schemas are refused")
    result = {name: statistics.median(times) for name, times in rows.items()}
    if args.json:
        print(json.dumps(result))
    else:
        print(f"p99 between tokens: {result['alone']:.1f} ms alone, {result['plain']:.1f} ms beside {REQUESTS} plain "
              f"requests, {result['hostile']:.1f} ms beside {REQUESTS} hostile schemas: "
              f"{result['hostile'] / result['plain']:.2f} x plain")


if __name__ == "__main__":
    main()
