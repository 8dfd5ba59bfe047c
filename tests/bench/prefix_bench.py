"""Compares the time to the first token of sessions that share a system prompt with that of sessions
that do not.

Usage: prefix_bench.py MODEL.gguf [--tokens 1000] [--sessions 50] [--cold 5] [--threads 2] [--json]

The sessions run one after another: first --cold sessions with different system prompts, then
--sessions sessions with the same one. Each asks one short question. The exit code is 1 if the
sessions that find the shared prompt get their first token less than five times sooner than the
others.
"""

import argparse
import json
import random
import statistics
import sys
import time

from serving_rig import harness

PROMISED = 5.0  # times sooner
WORDS = "the tide boat net harbour lamp rope gull salt fog bell stone wind oar sail".split()


def system_prompt(client, tokens, seed):
    """Returns a text that has this number of tokens, or a few more."""
    draw = random.Random(seed)
    text = ""
    while True:
        text += " ".join(draw.choices(WORDS, k=10)) + ". "
        made = client.inference.Tokenize(harness.inference_pb.TokenizeRequest(text=text))
        if len(made.token_ids) >= tokens:
            return text


def ask(client, name, system):
    """Returns (seconds to the first token, usage) of a new session's first turn."""
    client.create_session(name)
    begun = time.perf_counter()
    first = None
    for message in client.stream(session=name, max_tokens=4, chat=[
            ("system", system), ("user", f"Who is {name}?")]):
        if first is None and message.token_ids:
            first = time.perf_counter() - begun
        usage = message.usage
    return first, usage


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("--tokens", type=int, default=1000)
    parser.add_argument("--sessions", type=int, default=50)
    parser.add_argument("--cold", type=int, default=5)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()

    server = harness.serve(model=args.model, threads=args.threads)
    client = harness.Client(server)
    ask(client, "warm-up", "You are brief.")
    cold = [ask(client, f"cold-{number}", system_prompt(client, args.tokens, seed=number))
            for number in range(args.cold)]
    shared = system_prompt(client, args.tokens, seed=args.cold)
    turns = [ask(client, f"shared-{number}", shared) for number in range(args.sessions)]
    client.close()
    server.kill()
    cold_s = statistics.median(seconds for seconds, _ in cold)
    warm_s = statistics.median(seconds for seconds, _ in turns[1:])
    sooner = cold_s / warm_s
    prompts = sum(usage.prompt_tokens for _, usage in turns)
    cached = sum(usage.cached_tokens for _, usage in turns)
    if args.json:
        print(json.dumps({"cold_s": cold_s, "first_s": turns[0][0], "shared_s": warm_s,
                          "times_sooner": sooner, "prompt_tokens": prompts,
                          "cached_tokens": cached}))
    else:
        print(f"first token: {1e3 * cold_s:.0f} ms with a system prompt of its own, "
              f"{1e3 * warm_s:.0f} ms with the shared one, {sooner:.1f} times sooner (medians)")
        print(f"{args.sessions} sessions: {prompts} prompt tokens, of which {cached} were cached and "
              f"{prompts - cached} computed")
    if sooner < PROMISED:
        sys.exit(f"{sooner:.1f} times sooner is less than the {PROMISED:g} times that are promised")


if __name__ == "__main__":
    main()
