"""Streams whose log-probabilities can be compared exactly."""

import harness
from harness import Client


class Bits(harness.Received):
    """A stream with its log-probabilities."""

    def stream(self, client, prompt, max_tokens, session=None):
        request = harness.make_request(ids=prompt, session=session, max_tokens=max_tokens,
                                       temperature=1.0, seed=11)
        request.stopping.ignore_eos = True
        # Makes messages long, so that a stream waits if its client does not read.
        request.logprobs, request.top_logprobs = True, 20
        return client.inference.Generate(request, timeout=120)

    def read(self, *arguments, **more):
        for message in self.stream(*arguments, **more):
            self.take(message)
        return self

    @property
    def bits(self):
        return [(one.token_id, one.logprob, [(top.token_id, top.logprob) for top in one.top])
                for message in self.messages for one in message.logprobs]

    @property
    def cached(self):
        return self.answer().usage.cached_tokens


def undisturbed(model, *arguments):
    """Returns the bits of a stream from a new server."""
    server = harness.serve(model=model)
    client = Client(server)
    try:
        return Bits().read(client, *arguments).bits
    finally:
        client.close()
        server.kill()
