"""Processes and links fail at random while 64 clients generate. Every response is the same as
without faults.

    chaos_test.py [GENERATIONS [HITS [SECONDS_EACH]]]

There are two fronts, three workers and a Redis. Requests have temperature 1 and seeds. The model is
random. It is a random hybrid if TIDEPOOL_TEST_HYBRID is set, and the real model if
TIDEPOOL_TEST_MODEL names it. The real model's pauses are printed but not limited, because two cores
compute a prompt of 500 tokens for longer than the limits. Workers and fronts are killed, stopped,
drained and restarted; links are cut; Redis is killed and stopped. If its front ends or its stream
stops, a client sends the request to any front, with its request_id and resume_after. At least HITS
of the faults must hit a running stream. Prints how long streams paused, by the kind of fault. The
seed of the faults is printed, and may be given as TIDEPOOL_TEST_SEED. If the test fails, its last
line says why.
"""

import collections
import os
import random
import sys
import threading
import time
import unittest

import grpc

import harness
import hybrid_model
from chaos_cluster import FRONTS, SILENCE, Cluster
from chaos_stream import PROOF, REAL, STALL, Stream, first_difference
from harness import Client, sessions_pb

GENERATIONS = int(sys.argv[1]) if len(sys.argv) > 1 else 1000
HITS = int(sys.argv[2]) if len(sys.argv) > 2 else 50
SECONDS_EACH = float(sys.argv[3]) if len(sys.argv) > 3 else 0.11
HYBRID = "TIDEPOOL_TEST_HYBRID" in os.environ


def pick_model():
    if REAL:
        return harness.smollm2()
    if HYBRID:
        return hybrid_model.write(harness.scratch_folder() / "hybrid.gguf")
    return harness.LLAMA


MODEL = pick_model()
CLIENTS = 64
SCRIPTS = 12 if REAL else 40
TURNS = 2  # of a session
SEED = int(os.environ.get("TIDEPOOL_TEST_SEED", time.time_ns() % 1_000_000))
# Generations begin at this rate, not all at once, so that faults hit running streams.
SECONDS = SECONDS_EACH * GENERATIONS
# Even on a slow machine, only a run that hangs takes longer than this.
LIMIT = (15 if harness.SANITIZED else 6) * SECONDS
TOGETHER = 16
# A request that no front could finish in this time counts as lost.
PATIENCE = 60

# A fault's weight (once each has been chosen), its duration, and the time until its effects have
# shown.
Fault = collections.namedtuple("Fault", "name weight lasts shows")
FAULTS = [
    Fault("kill_worker", 35, 0.0, 1.0),
    # The second kill comes up to two seconds after the first.
    Fault("kill_two_workers", 12, 0.0, 1.0),
    # A kill every half second.
    Fault("kill_again_and_again", 1, 0.0, 2.0),
    Fault("cut_links", 20, 0.5, 1.0),
    Fault("drain_worker", 8, 0.0, 1.0),
    Fault("stop_worker", 8, SILENCE, SILENCE),
    Fault("stop_links", 5, SILENCE, SILENCE),
    Fault("kill_front", 8, 0.0, 1.0),
    Fault("drain_front", 2, 0.0, 1.0),
    # When the stopped front continues, its streams have moved to the other front.
    Fault("stop_front", 1, STALL + 1, STALL + 1),
    Fault("kill_redis", 2, 0.5, 1.0),
    Fault("stop_redis", 1, SILENCE, SILENCE + 1),
]
# Three of these faults end a stream that makes no progress between them. So the test waits for
# progress, which takes seconds with the real model and a prompt of 500 tokens. Kills do not count,
# however close together they are.
BLAMING = {"cut_links", "stop_worker", "stop_links"}
OF_WORKERS = {"kill_worker", "kill_two_workers", "kill_again_and_again", "cut_links", "drain_worker",
              "stop_worker", "stop_links"}
# Limits in seconds for the pauses of half of the streams that a fault hit. waits_of() times the
# time to first token of a new stream in this run is added to each limit. A moved stream is computed
# again while other streams run. This takes longer on a slow or loaded machine, and must not fail
# the test. The seconds here are for timeouts, back-off and restarts, which are equal on all
# machines.
PAUSE_LIMITS = {} if REAL else {
    "kill_worker": 0.7, "kill_two_workers": 5.5, "kill_again_and_again": 9.5,
    "kill_front": 0.7, "kill_redis": 2.5, "drain_worker": 2.5,
    "drain_front": 2.5, "cut_links": 2.5, "stop_worker": 2.5, "stop_links": 2.5,
    # Includes the time that the client waits before it uses another front.
    "stop_front": STALL + 2.5, "stop_redis": STALL + 2.5}
# The other half may pause for this number of seconds longer; 1 stream of 100 has no limit. A few
# streams have bad luck: if two workers die shortly after they prepared the same prompt, the prompt
# is tried alone (service/front/crash_evidence.h). Trials wait for calm and for each other, and the
# next faults hit them, too. If a stream is silent for STALL, its client sends the request to the
# other front.
BAD_LUCK = 2 * STALL
# With fewer pauses, half of them may be bad luck.
MIN_PAUSES = 5


def waits_of(fault):
    # If a front dies, half of all streams reconnect at once.
    return 25 if fault == "kill_front" else 10


# Status codes after which a client retries.
PASSING = (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.ABORTED, grpc.StatusCode.DEADLINE_EXCEEDED)

Turn = collections.namedtuple("Turn", "text max_tokens seed")


def make_scripts(dice):
    """Conversations of a few turns, whose prompts have up to 500 tokens."""
    def turn():
        words = " ".join(dice.choice(["tide", "pool", "crab", "wrack", "kelp", "foam"])
                         for _ in range(dice.randint(4, 90)))
        return Turn(words[:490], dice.randint(100, 400), dice.randrange(1 << 30))
    return [[turn() for _ in range(TURNS)] for _ in range(SCRIPTS)]


def undisturbed(scripts):
    """Returns what one process without faults responds to each script: a list of (text, ids), and
    the session's log."""
    server = harness.serve("--context", "2048", model=MODEL, threads=2)
    client = Client(server)
    known = []
    for number, script in enumerate(scripts):
        client.create_session(f"s{number}")
        answers = [client.generate(session=f"s{number}", **turn._asdict(), temperature=1.0)
                   for turn in script]
        log = list(client.get_session(f"s{number}").token_ids)
        known.append(([(one.text, one.ids) for one in answers], log))
    client.close()
    server.kill()
    return known


class Caller(threading.Thread):
    """One client. It runs one session after the other, each with its own script."""

    def __init__(self, number, run):
        super().__init__(daemon=True)
        self.number, self.run_ = number, run
        self.dice = random.Random(number)
        self.client = None
        self.front = number % FRONTS

    def run(self):
        try:
            for sequence in range(1 << 30):
                self.converse(sequence)
        except StopIteration:
            pass
        except grpc.RpcError as error:
            self.run_.failed.append(f"client {self.number}: {error.code().name}: {error.details()}")
        except Exception as error:  # pylint: disable=broad-except
            self.run_.failed.append(f"client {self.number}: {type(error).__name__}: {error}")
        finally:
            if self.client:
                self.client.close()

    def connect(self, front):
        if self.client:
            self.client.close()
        self.front = front
        self.client = Client(harness.Address(self.run_.cluster.address(front)))

    def insist(self, action):
        """Repeats action(client) while it fails with temporary errors, also at the other front."""
        deadline = time.monotonic() + PATIENCE
        while True:
            if self.client is None:
                self.connect(self.front)
            try:
                return action(self.client)
            except grpc.RpcError as error:
                passing = error.code() in PASSING or isinstance(error, StoodStill)
                if not passing or time.monotonic() > deadline:
                    raise
                time.sleep(self.dice.uniform(0.02, 0.1))
                self.connect((self.front + 1) % FRONTS)

    def converse(self, sequence):
        number = self.dice.randrange(SCRIPTS)
        script, (answers, log) = self.run_.scripts[number], self.run_.known[number]
        session = f"c{self.number}-{sequence}"
        self.insist(lambda client: create(client, session))
        for index, turn in enumerate(script):
            self.run_.wait_for_turn()
            stream = Stream()
            self.run_.streams.append(stream)
            request = harness.make_request(session=session, temperature=1.0, **turn._asdict())
            request.request_id = f"{session}-{index}"
            self.insist(lambda client: follow(client, request, stream))
            answer = stream.received.answer()
            difference = first_difference((answer.text, answer.ids), answers[index])
            assert not difference, (
                f"{session}, turn {index}, script {number}, broken {len(stream.broken)} times, "
                f"{difference}")
            self.run_.finished.append(stream)
        held = self.insist(lambda client: client.sessions.GetSession(
            sessions_pb.GetSessionRequest(session_id=session), timeout=STALL))
        assert list(held.token_ids) == log, f"{session}: its log is not the undisturbed one"
        self.insist(lambda client: delete(client, session))


class StoodStill(grpc.RpcError):
    """The client has given up a silent stream."""

    def code(self):
        return grpc.StatusCode.CANCELLED


def create(client, session):
    try:
        client.sessions.CreateSession(sessions_pb.CreateSessionRequest(session_id=session),
                                      timeout=STALL)
    except grpc.RpcError as error:
        if error.code() != grpc.StatusCode.ALREADY_EXISTS:  # it was created, but the response was lost
            raise


def delete(client, session):
    try:
        client.sessions.DeleteSession(sessions_pb.DeleteSessionRequest(session_id=session),
                                      timeout=STALL)
    except grpc.RpcError as error:
        if error.code() != grpc.StatusCode.NOT_FOUND:
            raise


def follow(client, request, stream):
    request.resume_after = len(stream.received.ids)
    if not stream.times:
        stream.times.append(time.monotonic())
    stream.heard = time.monotonic()
    stream.given_up = False
    try:
        stream.call = client.inference.Generate(request, timeout=PATIENCE)
        for message in stream.call:
            stream.take(message)
        stream.ended = True
    except grpc.RpcError as error:
        if stream.received.messages and stream.received.messages[-1].finish_reason:
            stream.ended = True  # the response is complete; only the status was lost
            return
        stream.broken.append(time.monotonic())
        if stream.given_up:
            raise StoodStill from error
        raise
    finally:
        stream.call = None


class Run:
    """State that clients and faults share."""

    def __init__(self, scripts, known, cluster):
        self.scripts, self.known, self.cluster = scripts, known, cluster
        self.streams, self.finished, self.failed = [], [], []
        self.start = time.monotonic()
        self.enough = threading.Event()  # set when there were enough generations and faults
        self.over = threading.Event()
        self.blamed = []  # streams that the last fault may have hit
        self._turn = threading.Lock()
        self._begun = 0

    def watch(self):
        """Ends calls of silent streams."""
        while not self.over.wait(0.2):
            for stream in self.streams[-4 * CLIENTS:]:
                call = stream.call
                if call is not None and stream.stands_still():
                    stream.given_up = True
                    call.cancel()

    def wait_for_turn(self):
        if self.enough.is_set() or self.failed:
            raise StopIteration
        with self._turn:
            due = self.start + self._begun // TOGETHER * TOGETHER * SECONDS / GENERATIONS
            self._begun += 1
        time.sleep(max(0.0, due - time.monotonic()))

    def wait_for_proof(self):
        """Waits until no running stream is blamed for a fault. After that, each stream may be blamed
        for one."""
        harness.wait_until(lambda: self.failed or all(stream.proven for stream in self.blamed),
                           "streams that were hit get somewhere", PATIENCE)
        self.blamed = []
        self.blame()

    def wait_for_progress(self):
        """Waits until every stream that runs now has a new message or has ended."""
        now = time.monotonic()
        running = [stream for stream in self.streams if not stream.ended]
        harness.wait_until(lambda: self.failed or all(stream.continues_after(now) for stream in running),
                           "every stream continues", 2 * STALL + PATIENCE)

    def blame(self):
        """From now on, all running streams count as blamed for a fault."""
        for stream in list(self.streams):
            if stream.times and not stream.ended and stream not in self.blamed:
                stream.proven_at = len(stream.received.ids) + PROOF
                self.blamed.append(stream)


class ChaosTest(unittest.TestCase):
    maxDiff = None

    def test_every_answer_is_the_undisturbed_one(self):
        print(f"TIDEPOOL_TEST_SEED={SEED}", flush=True)
        dice = random.Random(SEED)
        scripts = make_scripts(random.Random(1))
        known = undisturbed(scripts)
        self.cluster = Cluster(MODEL, dice)
        self.addCleanup(self.cluster.close)
        self.cluster.wait_whole()
        run = Run(scripts, known, self.cluster)
        callers = [Caller(number, run) for number in range(CLIENTS)]
        for caller in callers:
            caller.start()
        threading.Thread(target=run.watch, daemon=True).start()
        self.firsts = dice.sample(FAULTS, len(FAULTS))
        self.done = []  # (fault, time, streams that it hit)
        try:
            self.strike_until_enough(dice, run)
        finally:
            run.enough.set()
            end = time.monotonic() + PATIENCE + 10
            for caller in callers:
                caller.join(max(0.0, end - time.monotonic()))
            run.over.set()
            faults = [f"{name} at {moment - run.start:.1f}" for name, moment, _ in self.done[-20:]]
            print("the last faults:", ", ".join(faults), flush=True)
            if run.failed:  # this failure is the reason why the faults did not end
                self.fail("; ".join(run.failed[:4]))
        self.assertFalse([one.number for one in callers if one.is_alive()], "these clients hang")
        self.assertGreaterEqual(len(run.finished), GENERATIONS)
        too_long = self.report(run)
        if too_long and not harness.SANITIZED:
            self.fail("streams paused for too long: " + "; ".join(too_long))

    def strike_until_enough(self, dice, run):
        hits = 0
        while (len(run.finished) < GENERATIONS or hits < HITS) and not run.failed:
            passed = time.monotonic() - run.start
            self.assertLess(passed, LIMIT, f"{hits} of {HITS} hits, {len(run.finished)} of "
                                           f"{GENERATIONS} generations")
            self.done.append(self.strike(dice, run))
            hits += self.done[-1][2] > 0

    def strike(self, dice, run):
        """Waits until earlier faults have no effect any more, and causes one fault. Returns when
        its effects are visible."""
        self.cluster.wait_whole()
        fault = (self.firsts.pop() if self.firsts else
                 dice.choices(FAULTS, [one.weight for one in FAULTS])[0])
        if fault.name in BLAMING:
            run.wait_for_proof()
        before = self.cluster.moves()
        load = harness.wait_until(self.busy, "streams run")
        target = max(load, key=load.get) if fault.name in OF_WORKERS else dice.randrange(FRONTS)
        moment = time.monotonic()
        repair = getattr(self.cluster, fault.name)(target)
        time.sleep(fault.lasts)
        repair()
        repaired = time.monotonic()
        time.sleep(max(0.0, moment + fault.shows - repaired))
        if fault.name in BLAMING:
            run.blame()  # some streams began during the fault
        if fault.name not in OF_WORKERS:
            # If a stream is still silent, the next fault must not be blamed for it. The second wait
            # is for streams that began during the first one.
            for _ in range(2):
                run.wait_for_progress()
        if fault.name in OF_WORKERS:
            met = self.cluster.moves() - before
        else:
            met = sum(stream.runs_at(moment) and
                      (any(at >= moment for at in stream.broken) or
                       (fault.lasts >= SILENCE and stream.pause_at(moment)[0] > fault.lasts / 2))
                      for stream in run.streams[-4 * CLIENTS:])
        return fault.name, moment, met

    def busy(self):
        """Returns {worker: number of its sequences} if a worker runs more than one, else None."""
        load = {index: one.sequences_running for index, one in self.cluster.worker_stats().items()}
        return load if max(load.values(), default=0) > 1 else None

    @staticmethod
    def first_wait(run):
        """Median time to the first message in seconds, over the streams that no fault
        interrupted."""
        waits = sorted(stream.times[1] - stream.times[0] for stream in run.finished
                       if not stream.broken)
        return waits[len(waits) // 2]

    def pauses_of(self, run, fault):
        """The pauses of the streams that this kind of fault hit, ascending. A pause that began
        before the previous fault belongs to that fault."""
        pauses = []
        previous = run.start
        for name, moment, met in self.done:
            if name == fault.name:
                around = sorted((stream.pause_at(moment) for stream in run.finished), reverse=True)[:met]
                pauses += [pause for pause, begin in around if begin > previous]
            previous = moment
        return sorted(pauses)

    def report(self, run):
        """Prints the pauses. Returns the kinds of faults whose streams paused for too long."""
        seconds = time.monotonic() - run.start
        print(f"{len(run.finished)} generations, {sum(len(s.received.ids) for s in run.finished)} "
              f"tokens in {seconds:.0f} s; {sum(bool(s.broken) for s in run.finished)} of them came "
              f"back to a front")
        first_wait = self.first_wait(run)
        print(f"a first token takes {first_wait:.2f} s")
        print(f"{'fault':20}{'times':>6}{'met':>6}{'streams':>9}{'pause median':>14}{'p99':>8}{'most':>8}")
        too_long = []
        for fault in FAULTS:
            strikes = [one for one in self.done if one[0] == fault.name]
            pauses = self.pauses_of(run, fault)
            line = f"{fault.name:20}{len(strikes):6}{sum(one[2] > 0 for one in strikes):6}{len(pauses):9}"
            if pauses:
                median = pauses[(len(pauses) - 1) // 2]
                p99 = pauses[min(len(pauses) - 1, int(0.99 * len(pauses)))]
                line += f"{median:12.2f} s{p99:6.2f} s{pauses[-1]:6.2f} s"
                limit = PAUSE_LIMITS.get(fault.name, PATIENCE) + waits_of(fault.name) * first_wait
                if len(pauses) >= MIN_PAUSES and median > limit:
                    too_long.append(f"{fault.name}: half for {median:.2f} s, limit {limit:.2f} s")
                if p99 > limit + BAD_LUCK:
                    too_long.append(f"{fault.name}: p99 {p99:.2f} s, limit {limit + BAD_LUCK:.2f} s")
            print(line, flush=True)
        return too_long


def main():
    # A CI log may show only the end of the output. So the reason of a failure is the last line, and no
    # warnings follow it.
    program = unittest.main(argv=sys.argv[:1], verbosity=2, exit=False, warnings="ignore")
    for _, trace in program.result.failures + program.result.errors:
        reason = trace.strip().splitlines()
        first = next((i for i, line in enumerate(reason) if line.startswith("AssertionError")), -1)
        print(f"chaos_test failed with TIDEPOOL_TEST_SEED={SEED}: {reason[first][:2000]}",
              file=sys.stderr, flush=True)
    return 0 if program.result.wasSuccessful() else 1


if __name__ == "__main__":
    sys.exit(main())
