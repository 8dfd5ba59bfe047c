"""Times llama.cpp (llama-cpp-python) on one model: the peer side of compare.py.

Usage: llama_peer.py MODEL.gguf --prompt 512 --generate 128 --threads 2
Prints one JSON object: {"pp512": tokens per second, "tg128": tokens per second}.

Calls llama_decode directly, so Python's share is a few microseconds a step; one warm-up comes first.
"""

import argparse
import json
import time

import llama_cpp


def open_context(path, context_length, batch, threads):
    llama_cpp.llama_backend_init()
    model_params = llama_cpp.llama_model_default_params()
    model_params.n_gpu_layers = 0
    model = llama_cpp.llama_model_load_from_file(path.encode(), model_params)
    params = llama_cpp.llama_context_default_params()
    params.n_ctx = context_length
    params.n_batch = batch
    params.n_ubatch = batch
    params.n_threads = threads
    params.n_threads_batch = threads
    return model, llama_cpp.llama_init_from_model(model, params)


def decode(context, tokens):
    array = (llama_cpp.llama_token * len(tokens))(*tokens)
    batch = llama_cpp.llama_batch_get_one(array, len(tokens))
    if llama_cpp.llama_decode(context, batch) != 0:
        raise RuntimeError("llama_decode failed")


def forget(context):
    llama_cpp.llama_memory_clear(llama_cpp.llama_get_memory(context), True)


def seconds_to_decode(context, batches):
    start = time.perf_counter()
    for tokens in batches:
        decode(context, tokens)
    llama_cpp.llama_synchronize(context)
    return time.perf_counter() - start


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("model")
    parser.add_argument("--prompt", type=int, default=512)
    parser.add_argument("--generate", type=int, default=128)
    parser.add_argument("--threads", type=int, default=2)
    args = parser.parse_args()

    @llama_cpp.llama_log_callback
    def silent(level, text, user_data):
        pass

    llama_cpp.llama_log_set(silent, None)
    size = max(args.prompt, args.generate) + 8
    model, context = open_context(args.model, size, args.prompt, args.threads)
    prompt = [(7 * i + 100) % 4096 for i in range(args.prompt)]
    single = [[(13 * i + 100) % 4096] for i in range(args.generate)]
    results = {}
    for warm in (True, False):
        forget(context)
        results[f"pp{args.prompt}"] = args.prompt / seconds_to_decode(context, [prompt])
        forget(context)
        results[f"tg{args.generate}"] = args.generate / seconds_to_decode(
            context, single[:8] if warm else single)
    print(json.dumps(results))
    llama_cpp.llama_free(context)
    llama_cpp.llama_model_free(model)


if __name__ == "__main__":
    main()
