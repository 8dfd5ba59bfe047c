"""The tiny serving model for contexts longer than the 4,096 tokens in its file."""

import gguf_bytes
import harness


def write(path, context):
    """A copy of harness.LLAMA for `context` tokens; its output stays varied and endless."""
    checkpoint = gguf_bytes.read(harness.LLAMA.read_bytes())
    checkpoint.set("llama.context_length", gguf_bytes.U32, context)
    path.write_bytes(checkpoint.build())
    return path
