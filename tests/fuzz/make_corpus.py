"""Makes corpus/: a few valid inputs of every kind for each fuzz target, so that short runs reach
deep code.

    python make_corpus.py

Needs protoc, zstd, and the gguf package (tools/setup --peers). Texts are written in this script.
protoc encodes the protocol messages from text. The models have random weights, one layer and a few
kilobytes.
"""

import json
import pathlib
import subprocess

import gguf
import numpy as np

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]
CORPUS = HERE / "corpus"

TEMPLATES = {
    "chatml": "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m['content'] | trim }}<|im_end|>\n{% endfor %}",
    "macro": "{% macro m(a, b=2) %}[{{ a }}{{ varargs }}{{ kwargs.k }}{{ caller(a) if caller }}]{% endmacro %}"
             "{{ m(1, 3, 4, k=5) }}{% call(x) m('q') %}{{ x }}{% endcall %}",
    "loops": "{% for k, v in d.items() recursive %}{{ loop.index }}{{ loop.previtem }}{{ loop.cycle(1, 2) }}"
             "{{ loop.changed(k) }}{{ loop({}) }}{% if k %}{% continue %}{% endif %}{% break %}{% else %}x{% endfor %}",
    "blocks": "{% set ns = namespace(a=1) %}{% set ns.b | upper %}x{% endset %}{% with q = ns.b %}{{ q }}{% endwith %}"
              "{% filter indent(2) | replace('x', 'y') %}x{% endfilter %}{% raw %}{{ }}{% endraw %}{# c #}",
    "formats": "{{ '%5.2f|%-4s|%(k)r' % d }}{{ '{:>8}{0[k]!r}{:,}'.format(d, 1234) }}{{ '%s' | format(n) }}",
    "filters": "{{ xs | sort(reverse=true) | map('string') | join(', ') }}{{ d | tojson(indent=2) }}{{ xs | batch(2, 0)"
               " | list }}{{ messages | groupby('role') }}{{ messages | selectattr('role', 'eq', 'user') | first }}",
    "strings": "{{ messages[1].content.strip().split('x', 1)[-1][::-1] | title }}{{ 'a-b'.partition('-') }}{{ 'x'.zfill(3) }}",
    "numbers": "{{ 7 // 2 + 2 ** 3 - -7 % 3 }}{{ 0x1F }}{{ 1.5e3 | round(1) | int }}{{ '12' | int(base=8) is odd }}",
    "raise": "{{ raise_exception('no ' ~ messages[0].role) if n > 5 and n is not none }}{{ strftime_now('%d %b') }}",
    "given": "{{ messages[0].x[0] }}{{ tools }}{{ q }}\n---\n" + json.dumps(
        {"messages": [{"role": "user", "x": [1.5, None]}], "tools": [{"f": True}], "template_kwargs": {"q": "\u00e9"}}),
}

HTTP = {
    "completion": 'p{"model":"m","prompt":["a","b"],"n":2,"seed":-1,"stop":["x"],"logit_bias":{"5":-1.5},"logprobs":3,'
                  '"stream":true,"stream_options":{"include_usage":true},"top_k":-1,"suffix":null,"best_of":2}',
    "ids": 'p{"prompt":[[1,2],[3]],"max_tokens":7,"echo":false,"stop_token_ids":[4],"priority":-3}',
    "chat": 'c{"messages":[{"role":"user","content":[{"type":"text","text":"\\u00e9"}]},{"role":"assistant",'
            '"tool_calls":[{"id":"a","function":{"name":"f","arguments":"{\\"x\\":[1]}"}}]},{"role":"tool",'
            '"content":"2","tool_call_id":"a"}],"tools":[{"type":"function","function":{"name":"f","parameters":{}}}],'
            '"tool_choice":"auto","logprobs":true,"top_logprobs":2,"chat_template_kwargs":{"a":null}}',
    "scored": 'p{"prompt":"a","max_tokens":0,"echo":true,"logprobs":1,"prompt_logprobs":2,"return_token_ids":true,'
              '"logit_bias":{"a":1},"min_tokens":0}',
    "samplers": 'p{"prompt":"a","typical_p":0.5,"top_n_sigma":-1,"xtc_probability":1,"xtc_threshold":0.1,'
                '"dry_multiplier":0.8,"dry_base":2,"dry_allowed_length":0,"dry_penalty_last_n":-1,'
                '"dry_sequence_breakers":["x"],"bad_words":["a"],"allowed_token_ids":[1,2]}',
    "tokenize": 'x{"prompt":"a","add_special_tokens":false,"return_token_strs":true}',
    "detokenize": 'x{"tokens":[1,2]}',
    "template": 'x{"messages":[{"role":"developer","content":"a"}],"continue_final_message":true}',
    "wrong": 'c{"mesages":[],"temperature":"x","n":1e9}',
    "page": "wllm.example:443\nhttps://chat.example\nauthorization, x-stainless-os",
}

# The format of response_parser_fuzz.cc: the syntax, flags, then the response.
RESPONSES = {
    "tags": '\x02\x03<think>\na\n</think>\n\nHm.\n<tool_call>\n{"name": "f", "arguments": {"a": "<tool_call>"}}\n'
            '</tool_call>\n<tool_call>x</tool_call>',
    "llama": '\x03\x01 {"name":"f","parameters":{"a":"}"}}; {"name":"g"}',
    "mistral_list": '\x04\x01[TOOL_CALLS] [{"name":"f","arguments":{}},{"name":"g","id":"123456789"}]',
    "mistral_args": '\x05\x01[TOOL_CALLS]f[ARGS]{"a":1}[TOOL_CALLS]g[CALL_ID]123456789[ARGS]{}',
    "qwen_xml": '\x06\x07a</think><tool_call>\n<function=f>\n<parameter=a>\nx</parameter>\n</parameter>\n<parameter=n>\n'
                "[{'b': True}]\n</parameter>\n</function>\n</tool_call>",
    "glm_xml": '\x07\x01<tool_call>f\n<arg_key>a</arg_key>\n<arg_value>x</arg_value>\n<arg_key>n</arg_key>\n'
               '<arg_value>[1]</arg_value>\n</tool_call>',
    "pythonic": "\x08\x01[f(a='x\\n', n=[1, {'b': None}]), g()]",
    "deepseek_v3": '\x09\x01<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>f\n```json\n{"a": "```"}\n```'
                   '<｜tool▁call▁end｜><｜tool▁calls▁end｜>',
    "deepseek_v31": '\x0a\x01<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>f<｜tool▁sep｜>{"a": 1}<｜tool▁call▁end｜><｜tool▁calls▁end｜>',
    "dsml": '\x0b\x01<｜DSML｜function_calls>\n<｜DSML｜invoke name="f">\n<｜DSML｜parameter name="a" string="true">x'
            '</｜DSML｜parameter>\n</｜DSML｜invoke>\n</｜DSML｜function_calls>',
    "harmony": '\x0c\x01<|channel|>analysis<|message|>a<|end|><|start|>assistant<|channel|>commentary to=functions.f '
               '<|constrain|>json<|message|>{"a": 1}<|call|>',
    "granite": '\x0d\x01<|tool_call|>[{"name": "f", "arguments": {"a": 1}}]',
    "seed_xml": '\x0f\x01<seed:tool_call>\n<function=f>\n<parameter=a>x</parameter>\n<parameter=n>[1, None]</parameter>\n'
                '</function>\n</seed:tool_call>',
    "command_r": '\x10\x01Hm.\nAction: ```json\n[\n{"tool_name": "f", "parameters": {"a": "]```"}},\n{"tool_name": "g"}\n]```',
}

# The format of call_grammar_fuzz.cc: the syntax, flags, then the tools.
CALL_TOOLS = {
    "tags": '\x00\x01[{"type": "function", "function": {"name": "f", "parameters": {"type": "object", "properties": '
            '{"a": {"enum": ["x", 1]}, "b": {"type": "boolean"}}, "required": ["a"], "additionalProperties": false}}}]',
    "llama": '\x02\x03[{"name": "f"}, {"name": "g", "parameters": {"type": "object", "maxProperties": 1}}]',
    "qwen_xml": '\x05\x05[{"name": "f", "parameters": {"properties": {"a": {"type": "string", "maxLength": 3}, "n": '
                '{"type": ["integer", "null"]}}, "required": ["n"]}}]',
    "pythonic": '\x07\x01[{"name": "f", "parameters": {"properties": {"a": {"const": "x"}}, "required": ["a"]}}]',
    "harmony": '\x0b\x00[{"name": "f", "strict": true, "parameters": {"properties": {"a": {"type": "null"}}}}]',
    "seed_xml": '\x0d\x01[{"name": "f", "parameters": {"properties": {"a": {"type": "array", "items": {"const": 1}}}}}]',
    "command_r": '\x0e\x01[{"name": "f", "parameters": {"additionalProperties": false}}]',
    "wrong": '\x00\x01[{"name": "a b"}, {"name": "f", "parameters": {"properties": {"a": {"pattern": "(?<=a)"}}}}]',
}

CONFIGS = {
    "serve": "serve\n--model\nm.gguf\n--threads=2\n--kv-memory\n1GiB\n--listen=127.0.0.1:0\n--log-level=warn",
    "generate": "generate\n--model=m\n--prompt\nhi\n--temperature=0.5\n--logit-bias=1=2,3=-1\n--stop=x\n--timeout=1m30s",
    "file": "serve\n---\nmodel = \"m.gguf\"\nthreads = 2\nlisten = \"127.0.0.1:1\" # here\nkv-memory = \"512MiB\"\n",
    "file_lists": "front\n---\nworker = [\"a:1\", \"b:2\"]\ndrain-timeout = '5s'\nlog-level = \"\"\"debug\"\"\"\n",
    "help": "chat\n--help",
    "bench": "bench\n-p\n512,0\n-n\n128\n-b\n1,4\n--json",
    "wrong": "serv\n--modle=x\n-t\n--\nx\n---\n[table]\nx = 1979-05-27\n",
}

# Constraints for output.
SCHEMAS = {
    'wrong_name': '{"properties": {"a\\nb": {"uniqueItems": true}}}',
    'object': '{"type": "object", "properties": {"a": {"type": "string", "maxLength": 3}, "b": {"$ref": "#/$defs/n"}}, "required": ["b"], "$defs": {"n": {"type": "number", "minimum": -1.5, "multipleOf": 0.5}}}',
    'one_of': '{"oneOf": [{"properties": {"k": {"const": "a"}}, "required": ["k"]}, {"properties": {"k": {"const": "b"}, "v": {"not": {"type": "null"}}}, "required": ["k"]}], "type": "object"}',
    'array': '{"type": "array", "prefixItems": [{"enum": [1, "x", null]}], "items": {"pattern": "^[a-z]+$", "format": "email"}, "contains": {"const": "y"}, "maxContains": 2}',
    'conditions': '{"if": {"required": ["a"]}, "then": {"minProperties": 1}, "else": {"patternProperties": {"^x": false}}, "dependentRequired": {"c": ["d"]}, "unevaluatedProperties": false}',
    'unique': '{"type": "array", "items": {"type": "boolean"}, "uniqueItems": true}',
    'recursive': '{"type": "array", "items": {"$ref": "#"}, "minItems": 0}',
}
REGEXES = {
    "groups": r"(a|b(?<n>c)){1,3}?[^\d\s]*\u00e9$|^\p{Lu}.",
    "wrong": r"(a)\1(?<=b)[z-a]{2,1}",
}
GRAMMARS = {
    "list": 'root ::= item ("," item)* # end\nitem ::= [a-c^\\]]+ | "\\x41"{2,3} | "(" root ")"\n',
    "wrong": 'root ::= root "a" | <think> . !<[1]>',
    "wrong_escape": "root ::= [\\\n]",
}

TRACEPARENT = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
# The first byte is the number of choices minus one.
EVENT_IDS = {
    "one": "\x0017", "end": "\x0060f/done", "two": "\x0112,60f", "usage": "\x003f/usage", "wrong": "\x001,-2",
}
TRACE_CONTEXTS = {
    "sound": TRACEPARENT + "\nrojo=00f067aa0ba902b7, congo=t61rcWkgMzE,fw529a3039@dt=FfffffQAA",
    "later": "cc" + TRACEPARENT[2:] + "-more\na=b",
    "long": TRACEPARENT + "\n" + ",".join(["a=" + "x" * 200] + [f"k{i}=" + "y" * 44 for i in range(11)]),
    "wrong": TRACEPARENT.upper() + "\na=b,a=c",
}

TRACE = {"version": 1, "model": "m", "layers": 2, "experts": 6, "top_k": 2, "expert_bytes": [10, 20]}
TRACES = {
    "decode": [TRACE] + [{"request": "a", "phase": "decode", "step": step, "layer": layer,
                          "ids": [[(step + layer) % 6, (step + layer + 1 + step % 4) % 6]]}
                         for step in range(6) for layer in (0, 1)],
    "forms": [{**TRACE, "expert_bytes": 7, "more": {"x": [1]}},
              {"request": ["a", 7], "phase": ["prefill", "decode"], "step": 3, "layer": 1, "ids": [[0, 1], [5, 1]],
               "weights": [[.5, 1e-9], [1, 0]]},
              {"request": 1, "phase": "prefill", "step": 4, "layer": 0, "ids": []}],
}

# (message's letter in request_fuzz.cc, its type, text)
REQUESTS = {
    "text": ("g", "tidepool.v1.GenerateRequest", 'text: "hi" sampling {temperature: 0.5 top_k: 3 seed: 7 '
             'logit_bias {key: 1 value: 2}} stopping {max_tokens: 3 stop: "x" stop_token_ids: 5} session_id: "a-b"'),
    "ids": ("g", "tidepool.v1.GenerateRequest", "token_ids {ids: 1 ids: 2} n: 1 logprobs: true top_logprobs: 2"),
    "prepare_text": ("p", "tidepool.worker.v1.PrepareRequest", 'request {text: "hello" stopping {max_tokens: 2}}'),
    "prepare_chat": ("p", "tidepool.worker.v1.PrepareRequest", 'request {chat {messages {role: "user" content: "hi"} '
                     'messages {role: "assistant" tool_calls_json: "[{\\"id\\": 1}]"} tools_json: "[{\\"type\\": \\"f\\"}]" '
                     'template_kwargs_json: "{\\"extra\\": [1.5, null]}"}}'),
    "prepare_session": ("p", "tidepool.worker.v1.PrepareRequest", 'request {chat {messages {role: "user" content: "x"}} '
                        'session_id: "s"} session {token_ids: 257 token_ids: 104 messages {role: "user" content: "h"}}'),
    "start": ("s", "tidepool.worker.v1.Start", "prepared {token_ids: 1 token_ids: 2 sampling {seed: 1} stopping "
              "{max_tokens: 4}} prompt_length: 2 output_token_ids: 3 credit: 5 top_logprobs: 1"),
    "message": ("m", "tidepool.v1.ChatMessage", 'role: "tool" content: "21" name: "f" tool_call_id: "c1"'),
}


# The sizes of the models.
HIDDEN, HEADS, HEAD_DIM, FEED, VOCAB = 32, 2, 16, 32, 261
# A gated delta net of two V heads and one K head, each with 16 numbers.
DELTA_HEADS, DELTA_SIZE, CONV = 2, 32, 4


def write_model(path, experts, matrix_type, hybrid=False):
    """Writes a llama (or, with experts, qwen3moe) of one layer with a vocabulary of bytes. A hybrid
    is a qwen35 (or qwen35moe) with one more layer, which has a gated delta net."""
    hidden, heads, head_dim, feed, vocab = HIDDEN, HEADS, HEAD_DIM, FEED, VOCAB
    architecture = ("qwen35" if hybrid else "qwen3") + "moe" if experts else "qwen35" if hybrid else "llama"
    layers = 2 if hybrid else 1
    writer = gguf.GGUFWriter(str(path), architecture)
    add_sizes(writer, layers)
    if hybrid:
        add_delta_keys(writer, architecture)
    if experts:
        writer.add_expert_count(experts)
        writer.add_expert_used_count(2)
        writer.add_expert_feed_forward_length(feed)
    add_tokenizer(writer)
    rng = np.random.default_rng(7)

    def add(name, *shape):
        data = rng.normal(0, 0.1, shape).astype(np.float32)
        if len(shape) == 1:
            writer.add_tensor(name, data)
            return
        quantized = gguf.quants.quantize(data, matrix_type)
        writer.add_tensor(name, quantized, raw_dtype=matrix_type)

    add("token_embd.weight", vocab, hidden)
    add("output_norm.weight", hidden)
    for layer in range(layers):
        block = f"blk.{layer}."
        if layer < layers - 1:
            add_delta_net(add, writer, block)
        else:
            for name, rows in (("q", heads * head_dim * (2 if hybrid else 1)), ("k", head_dim), ("v", head_dim)):
                add(f"{block}attn_{name}.weight", rows, hidden)
            add(block + "attn_output.weight", hidden, heads * head_dim)
        add(block + "attn_norm.weight", hidden)
        add(block + ("post_attention_norm.weight" if hybrid else "ffn_norm.weight"), hidden)
        for name in ("q", "k") if layer == layers - 1 and (experts or hybrid) else ():
            add(f"{block}attn_{name}_norm.weight", head_dim)
        suffix, counts = ("_exps", (experts,)) if experts else ("", ())
        if experts:
            add(block + "ffn_gate_inp.weight", experts, hidden)
        for name in ("gate", "up", "down"):
            add(f"{block}ffn_{name}{suffix}.weight", *counts, feed, hidden)
            if hybrid and experts:
                add(f"{block}ffn_{name}_shexp.weight", feed, hidden)
        if hybrid and experts:
            add(block + "ffn_gate_inp_shexp.weight", hidden)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def add_sizes(writer, layers):
    writer.add_context_length(64)
    writer.add_embedding_length(HIDDEN)
    writer.add_block_count(layers)
    writer.add_feed_forward_length(FEED)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(1)
    writer.add_key_length(HEAD_DIM)
    writer.add_value_length(HEAD_DIM)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_dimension_count(HEAD_DIM)
    writer.add_rope_freq_base(10000.0)
    writer.add_vocab_size(VOCAB)


def add_tokenizer(writer):
    visible = list(range(33, 127)) + list(range(161, 173)) + list(range(174, 256))
    letters = {byte: chr(byte) for byte in visible}
    letters |= {byte: chr(256 + i) for i, byte in enumerate(b for b in range(256) if b not in letters)}
    tokens = [letters[byte] for byte in range(256)] + ["he", "ll", "<|endoftext|>", "<|im_start|>", "<|im_end|>"]
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("gpt-2")
    writer.add_token_list(tokens)
    writer.add_token_types([1] * 258 + [3] * 3)
    writer.add_token_merges(["h e", "l l"])
    writer.add_bos_token_id(258)
    writer.add_eos_token_id(260)
    writer.add_chat_template("{% for m in messages %}{{ m.content }}{% endfor %}")


def add_delta_keys(writer, architecture):
    for key, value in (("ssm.conv_kernel", CONV), ("ssm.state_size", DELTA_SIZE // DELTA_HEADS), ("ssm.group_count", 1),
                       ("ssm.time_step_rank", DELTA_HEADS), ("ssm.inner_size", DELTA_SIZE),
                       ("full_attention_interval", 2)):
        writer.add_uint32(f"{architecture}.{key}", value)
    writer.add_array(f"{architecture}.rope.dimension_sections", [4, 2, 2, 0])
    if architecture.endswith("moe"):
        writer.add_expert_shared_feed_forward_length(FEED)


def add_delta_net(add, writer, block):
    channels = 2 * DELTA_SIZE // DELTA_HEADS + DELTA_SIZE
    for name, rows in (("attn_qkv", channels), ("attn_gate", DELTA_SIZE), ("ssm_beta", DELTA_HEADS),
                       ("ssm_alpha", DELTA_HEADS)):
        add(f"{block}{name}.weight", rows, HIDDEN)
    add(block + "ssm_out.weight", HIDDEN, DELTA_SIZE)
    add(block + "ssm_norm.weight", DELTA_SIZE // DELTA_HEADS)
    add(block + "ssm_dt.bias", DELTA_HEADS)
    writer.add_tensor(block + "ssm_a", np.full(DELTA_HEADS, -0.5, np.float32))
    writer.add_tensor(block + "ssm_conv1d.weight", np.full((channels, CONV), 0.25, np.float32))


def folder(target):
    path = CORPUS / target
    path.mkdir(parents=True, exist_ok=True)
    return path


def main():
    for target, texts in (("template_fuzz", TEMPLATES), ("config_fuzz", CONFIGS), ("http_fuzz", HTTP),
                          ("trace_context_fuzz", TRACE_CONTEXTS), ("event_id_fuzz", EVENT_IDS),
                          ("response_parser_fuzz", RESPONSES), ("call_grammar_fuzz", CALL_TOOLS),
                          ("schema_fuzz", SCHEMAS), ("regex_fuzz", REGEXES), ("gbnf_fuzz", GRAMMARS)):
        for name, text in texts.items():
            (folder(target) / name).write_text(text)
    for name, lines in TRACES.items():
        text = "\n".join(map(json.dumps, lines))
        (folder("trace_fuzz") / name).write_text(text)
        subprocess.run(["zstd", "-qf", folder("trace_fuzz") / name, "-o", folder("trace_fuzz") / f"{name}.zst"], check=True)
    for name, (letter, message, text) in REQUESTS.items():
        encoded = subprocess.run(
            ["protoc", "-Iproto", f"--encode={message}", "proto/tidepool/worker/v1/worker.proto",
             "proto/tidepool/v1/inference.proto"], input=text.encode(), stdout=subprocess.PIPE, check=True, cwd=ROOT)
        (folder("request_fuzz") / name).write_bytes(letter.encode() + encoded.stdout)
    # The format of kv_disk_fuzz.cc: the keys of three entries, then flags.
    (folder("kv_disk_fuzz") / "distinct").write_bytes(bytes(range(50)) + b"\x07\x00")
    (folder("kv_disk_fuzz") / "equal").write_bytes(bytes(52))
    kinds = gguf.GGMLQuantizationType
    write_model(folder("gguf_fuzz") / "llama_q8_0", 0, kinds.Q8_0)
    write_model(folder("gguf_fuzz") / "llama_q4_0", 0, kinds.Q4_0)
    write_model(folder("gguf_fuzz") / "qwen3moe_q4_1", 2, kinds.Q4_1)
    write_model(folder("gguf_fuzz") / "qwen35_q8_0", 0, kinds.Q8_0, hybrid=True)
    write_model(folder("gguf_fuzz") / "qwen35moe_q4_1", 2, kinds.Q4_1, hybrid=True)
    for path in sorted(CORPUS.glob("*/*")):
        print(path.relative_to(HERE), path.stat().st_size)


if __name__ == "__main__":
    main()
