"""What the clients of chaos_test.py know about their streams."""

import bisect
import os
import time

from harness import Received

REAL = "TIDEPOOL_TEST_MODEL" in os.environ
# If a stream is silent for this time, its client sends the request to another front.
STALL = 30.0 if REAL else 5.0
# This number of new tokens counts as progress. It is twice the number that the front requires,
# because some tokens from before a fault reach the client after it.
PROOF = 16


class Stream:
    """One response as its client sees it, across all faults."""

    def __init__(self):
        self.received = Received()
        self.times = []  # when its first call began, and when its messages arrived
        self.broken = []  # when the client had to send the request again
        self.ended = False
        self.heard = 0.0  # when its call began, or when its last message arrived
        self.call = None
        self.given_up = False  # the client has ended the call, because no message arrived
        self.proven_at = PROOF  # tokens

    @property
    def proven(self):
        return self.ended or len(self.received.ids) >= self.proven_at

    def take(self, message):
        self.received.take(message)
        self.heard = time.monotonic()
        self.times.append(self.heard)

    def stands_still(self):
        return not self.ended and time.monotonic() - self.heard > STALL

    def continues_after(self, moment):
        # The first time is that of the request.
        return self.ended or (len(self.times) > 1 and self.times[-1] > moment)

    def runs_at(self, moment):
        return bool(self.times) and self.times[0] <= moment and (
            not self.ended or moment < self.times[-1])

    def pause_at(self, moment):
        """Returns the length of the pause at `moment`, and when it began. A pause is between two
        messages, or between the request and the first message."""
        after = bisect.bisect_right(self.times, moment)
        if after == 0 or after == len(self.times):
            return 0.0, moment
        return self.times[after] - self.times[after - 1], self.times[after - 1]


def first_difference(answer, undisturbed):
    """Returns where two pairs (text, ids) differ, or None."""
    if answer == undisturbed:
        return None
    parts = []
    for name, one, other in zip(("text", "ids"), answer, undisturbed):
        at = next((i for i, (a, b) in enumerate(zip(one, other)) if a != b), min(len(one), len(other)))
        parts.append(f"{name} differs at {at}: {one[at:at + 16]!r} of {len(one)}, undisturbed "
                     f"{other[at:at + 16]!r} of {len(other)}")
    return "; ".join(parts)
