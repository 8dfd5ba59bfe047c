"""The tiny serving model for contexts past the 4,096 tokens that its file tells."""

import gguf_bytes
import harness


def write(path, context):
    """A copy of harness.LLAMA that takes `context` tokens; what it writes stays varied and endless."""
    checkpoint = gguf_bytes.read(harness.LLAMA.read_bytes())
    checkpoint.set("llama.context_length", gguf_bytes.U32, context)
    path.write_bytes(checkpoint.build())
    return path
