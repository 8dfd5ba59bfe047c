"""A model whose output the test chooses: after a newline it generates a fixed list of tokens.

It is a Llama with one layer, whose attention and FFN have zero weights. So its hidden state is the
last token's row of a unit matrix, and the output matrix says which token follows which.
"""

import gguf
import numpy as np

HIDDEN = 512
SPECIALS = ["<|im_start|>", "<|im_end|>"]


def byte_alphabet():
    """GPT-2's printable character for each byte."""
    printable = list(range(33, 127)) + list(range(161, 173)) + list(range(174, 256))
    table, extra = {}, 256
    for byte in range(256):
        if byte in printable:
            table[byte] = chr(byte)
        else:
            table[byte] = chr(extra)
            extra += 1
    return table


def write(path, pieces, chat_template):
    """`pieces` are distinct texts of more than one byte."""
    alphabet = byte_alphabet()
    spelled = ["".join(alphabet[byte] for byte in piece.encode()) for piece in pieces]
    tokens = [alphabet[byte] for byte in range(256)] + SPECIALS + spelled
    assert len(set(tokens)) == len(tokens) <= HIDDEN
    types = [gguf.TokenType.NORMAL] * 256 + [gguf.TokenType.CONTROL] * len(SPECIALS)
    types += [gguf.TokenType.NORMAL] * len(spelled)
    end = tokens.index("<|im_end|>")
    chain = [10, *range(256 + len(SPECIALS), len(tokens)), end]
    output = np.zeros((len(tokens), HIDDEN), dtype=np.float32)
    output[end] = 0.5  # a token outside of the chain is followed by the end token
    for before, after in zip(chain, chain[1:]):
        output[after, before] = 5
        output[end, before] = 5 if after == end else 0

    writer = gguf.GGUFWriter(path, "llama")
    writer.add_name("chain")
    writer.add_context_length(4096)
    writer.add_embedding_length(HIDDEN)
    writer.add_block_count(1)
    writer.add_feed_forward_length(64)
    writer.add_head_count(8)
    writer.add_head_count_kv(8)
    writer.add_rope_dimension_count(64)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_vocab_size(len(tokens))
    writer.add_file_type(int(gguf.LlamaFileType.ALL_F32))
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("gpt-2")
    writer.add_token_list(tokens)
    writer.add_token_types(types)
    writer.add_token_merges(["a b"])
    writer.add_bos_token_id(end)
    writer.add_eos_token_id(end)
    writer.add_add_bos_token(False)
    writer.add_chat_template(chat_template)

    writer.add_tensor("token_embd.weight", np.eye(len(tokens), HIDDEN, dtype=np.float32))
    writer.add_tensor("output.weight", output)
    ones = np.ones(HIDDEN, dtype=np.float32)
    for name in ("output_norm", "blk.0.attn_norm", "blk.0.ffn_norm"):
        writer.add_tensor(name + ".weight", ones)
    shapes = {"attn_q": (HIDDEN, HIDDEN), "attn_k": (HIDDEN, HIDDEN), "attn_v": (HIDDEN, HIDDEN),
              "attn_output": (HIDDEN, HIDDEN), "ffn_gate": (64, HIDDEN), "ffn_up": (64, HIDDEN),
              "ffn_down": (HIDDEN, 64)}
    for name, shape in shapes.items():
        writer.add_tensor(f"blk.0.{name}.weight", np.zeros(shape, dtype=np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path
