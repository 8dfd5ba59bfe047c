"""A program with LiteLLM: litellm_client.py BASE_URL MODEL MESSAGE prints the results as JSON.

It has its own Python environment, because LiteLLM needs an older openai than the other tests.
"""

import asyncio
import json
import os
import sys

os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"  # asks no other host

import litellm  # noqa: E402


def main():
    base, model, message = sys.argv[1:]
    litellm.telemetry = False
    ask = {"api_base": base, "api_key": "unused", "temperature": 0, "max_tokens": 12,
           "num_retries": 0}
    chat = {**ask, "model": f"openai/{model}"}
    messages = [{"role": "user", "content": message}]
    said = {}
    whole = litellm.completion(messages=messages, metadata={"job": "7"}, user="u", **chat)
    said["whole"] = whole.choices[0].message.content
    said["first_turn_tokens"] = whole.usage.prompt_tokens
    # The client's own message object is sent back unchanged.
    turns = messages + [whole.choices[0].message, {"role": "user", "content": "And again."}]
    said["second_turn_tokens"] = litellm.completion(messages=turns, **chat).usage.prompt_tokens
    chunks = litellm.completion(messages=messages, stream=True,
                                stream_options={"include_usage": True}, **chat)
    said["stream"] = "".join(chunk.choices[0].delta.content or "" for chunk in chunks)
    later = asyncio.run(litellm.acompletion(messages=messages, **chat))
    said["async"] = later.choices[0].message.content
    completion = litellm.text_completion(model=f"text-completion-openai/{model}",
                                         prompt="The sky is", **ask)
    said["completion"] = completion.choices[0].text
    try:
        litellm.completion(messages=[{"role": "user", "content": "x " * 2000}], **chat)
    except litellm.ContextWindowExceededError as error:
        said["overflow"] = type(error).__name__
    try:
        litellm.completion(messages=messages, **{**chat, "model": "openai/none"})
    except litellm.NotFoundError as error:
        said["unknown"], said["unknown_message"] = type(error).__name__, str(error)
    print(json.dumps(said))


if __name__ == "__main__":
    main()
