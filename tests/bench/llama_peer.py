"""Times llama.cpp (llama-cpp-python) on one model: the peer side of compare.py.

Usage: llama_peer.py MODEL.gguf --prompt 512 --generate 128 --batch 1,8 --threads 2 --flash-attn auto
Prints one JSON object of tokens per second: {"pp512": 299.1, "tg128": 110.9, "tg128@8": 405.0}.

Calls llama_decode directly, so Python takes only a few microseconds per step. A warm-up comes
first. Each test has its own context, which is just large enough. Prefill is one batch. A decode
batch has one row of every sequence, with logits. Every sequence has its own KV cells. The tokens
are the same as those of `tidepool bench -r 1`: pseudo-random ones of the whole vocabulary.
"""

import argparse
import json
import time

import llama_cpp

FLASH_ATTENTION = {"auto": -1, "off": 0, "on": 1}
WARM_UP_STEPS = 8


def open_context(model, sequences, tokens, batch, args):
    params = llama_cpp.llama_context_default_params()
    params.n_seq_max = sequences
    # llama.cpp gives cells to each sequence in blocks of 256.
    params.n_ctx = sequences * -(-tokens // 256) * 256
    params.n_batch = params.n_ubatch = batch
    params.n_threads = params.n_threads_batch = args.threads
    params.flash_attn_type = FLASH_ATTENTION[args.flash_attn]
    params.kv_unified = False
    params.swa_full = False  # as in llama.cpp's own programs: a window layer keeps only its window
    context = llama_cpp.llama_init_from_model(model, params)
    if not context:
        raise RuntimeError("llama_init_from_model failed")
    return context


def token_at(run, sequence, position, vocabulary):
    """Returns the same token as engine/evaluation/throughput.cc (SplitMix64)."""
    mask = (1 << 64) - 1
    x = (run << 48 | sequence << 32 | position) + 0x9E3779B97F4A7C15 & mask
    x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9 & mask
    x = (x ^ x >> 27) * 0x94D049BB133111EB & mask
    return (x ^ x >> 31) % vocabulary


def fill(batch, rows, last_only):
    """`rows` are (token, position, sequence), in order."""
    batch.n_tokens = len(rows)
    for index, (token, position, sequence) in enumerate(rows):
        batch.token[index] = token
        batch.pos[index] = position
        batch.n_seq_id[index] = 1
        batch.seq_id[index][0] = sequence
        batch.logits[index] = not last_only or index == len(rows) - 1


def decode(context, batch):
    if llama_cpp.llama_decode(context, batch) != 0:
        raise RuntimeError("llama_decode failed")


def forget(context):
    llama_cpp.llama_memory_clear(llama_cpp.llama_get_memory(context), True)


def seconds_of(context, batch, steps, rows_of_step, last_only):
    """Returns the seconds for `steps` batches, starting with an empty cache."""
    forget(context)
    rows = [rows_of_step(step) for step in range(steps)]
    start = time.perf_counter()
    for step in range(steps):
        fill(batch, rows[step], last_only)
        decode(context, batch)
    llama_cpp.llama_synchronize(context)
    return time.perf_counter() - start


def measure(model, args, sequences, tokens, prefill):
    """Returns the tokens per second of one test."""
    rows = tokens if prefill else sequences
    context = open_context(model, sequences, tokens, rows, args)
    batch = llama_cpp.llama_batch_init(rows, 0, 1)

    vocabulary = llama_cpp.llama_vocab_n_tokens(llama_cpp.llama_model_get_vocab(model))

    def rows_of_run(run):
        if prefill:
            return lambda step: [(token_at(run, 0, i, vocabulary), i, 0) for i in range(tokens)]
        return lambda step: [(token_at(run, s, step, vocabulary), step, s) for s in range(sequences)]

    steps = 1 if prefill else tokens
    seconds_of(context, batch, min(steps, WARM_UP_STEPS), rows_of_run(0), prefill)
    seconds = seconds_of(context, batch, steps, rows_of_run(1), prefill)
    llama_cpp.llama_batch_free(batch)
    llama_cpp.llama_free(context)
    return tokens * sequences / seconds


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model")
    parser.add_argument("--prompt", type=int, default=512)
    parser.add_argument("--generate", type=int, default=128)
    parser.add_argument("--batch", default="1", help="sequences at once, such as 1,8,32")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--flash-attn", choices=FLASH_ATTENTION, default="auto")
    parser.add_argument("--no-repack", action="store_true",
                        help="compute on the mapped file: repacked weights are a copy in memory")
    args = parser.parse_args()

    @llama_cpp.llama_log_callback
    def silent(level, text, user_data):
        pass

    llama_cpp.llama_log_set(silent, None)
    llama_cpp.llama_backend_init()
    model_params = llama_cpp.llama_model_default_params()
    model_params.n_gpu_layers = 0
    model_params.use_extra_bufts = not args.no_repack
    model = llama_cpp.llama_model_load_from_file(args.model.encode(), model_params)
    if not model:
        raise SystemExit(f"llama_peer: llama.cpp cannot load {args.model}")
    results = {}
    if args.prompt:
        results[f"pp{args.prompt}"] = measure(model, args, 1, args.prompt, True)
    for sequences in map(int, args.batch.split(",") if args.generate else []):
        name = f"tg{args.generate}" + ("" if sequences == 1 else f"@{sequences}")
        results[name] = measure(model, args, sequences, args.generate, False)
    print(json.dumps(results))
    llama_cpp.llama_model_free(model)


if __name__ == "__main__":
    main()
