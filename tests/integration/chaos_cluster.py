"""Two fronts, three workers and a Redis as separate processes, and the faults that can happen to
them."""

import signal
import threading
import time

import harness
from redis_server import Redis
from tcp_links import Links

FRONTS = 2
WORKERS = 3
# Pause of a stopped worker or link: longer than the second after which a front suspects the worker.
SILENCE = 3.0


class Cluster:
    """Every front reaches every worker over its own link. One thread causes the faults."""

    def __init__(self, model, dice):
        self.model, self.dice = model, dice
        self.redis = Redis(appendfsync="always")
        self.worker_ports = [harness.free_port() for _ in range(WORKERS)]
        self.front_ports = [harness.free_port() for _ in range(FRONTS)]
        self.workers = [None] * WORKERS
        self.fronts = [None] * FRONTS
        self.clients = [None] * FRONTS
        for index in range(WORKERS):
            self.start_worker(index)
        self.links = Links([port for _ in range(FRONTS) for port in self.worker_ports])
        # Moves counted by fronts that have ended.
        self.earlier_moves = 0
        for index in range(FRONTS):
            self.start_front(index)

    def start_worker(self, index):
        self.workers[index] = harness.worker("--name", f"w{index}", "--context", "2048",
                                             model=self.model,
                                             listen=f"127.0.0.1:{self.worker_ports[index]}")

    def start_front(self, index):
        ports = self.links.ports[index * WORKERS:(index + 1) * WORKERS]
        links = [harness.Address(f"127.0.0.1:{port}") for port in ports]
        self.fronts[index] = harness.front(links, store=self.redis.url,
                                           listen=f"127.0.0.1:{self.front_ports[index]}")
        self.clients[index] = harness.Client(self.fronts[index])

    def address(self, front):
        return f"127.0.0.1:{self.front_ports[front]}"

    def worker_stats(self):
        """Returns {index: stats} of the workers that respond to both fronts."""
        found = [{int(one.worker_id[1:]): one for one in client.stats().workers
                  if one.status_code == 0} for client in self.clients]
        return {index: found[0][index] for index in found[0] if all(index in one for one in found)}

    def wait_whole(self):
        """Waits until both fronts get responses from all workers. All processes must run."""
        def whole():
            for process in self.workers + self.fronts:
                assert process.running(), (
                    f"{' '.join(process.arguments)} ended with {process.wait()}, and nobody killed it: "
                    f"{process.stderr[-1000:].splitlines()}")
            return len(self.worker_stats()) == WORKERS

        harness.wait_until(whole, lambda: f"only the workers {[*self.worker_stats()]} answer", 60)

    def moves(self):
        """Number of streams that left a worker that failed or drains."""
        return self.earlier_moves + sum(self._moves_of(front) for front in range(FRONTS))

    def _moves_of(self, front):
        stats = self.clients[front].stats().front
        return stats.failovers_total + stats.migrations_total

    def close(self):
        self.links.close()
        for process in self.workers + self.fronts + [self.redis]:
            process.kill()

    # Each of these causes one fault, and returns a function that repairs it.

    def kill_worker(self, index):
        self.workers[index].kill()
        return lambda: self.start_worker(index)

    def kill_two_workers(self, index):
        self.workers[index].kill()
        time.sleep(self.dice.uniform(0.0, 2.0))
        other = (index + self.dice.randrange(1, WORKERS)) % WORKERS
        self.workers[other].kill()
        return lambda: [self.start_worker(one) for one in (index, other)]

    def kill_again_and_again(self, _):
        starters = []
        for _ in range(10):
            running = [index for index in range(WORKERS) if self.workers[index].running()]
            if running:
                index = self.dice.choice(running)
                self.workers[index].kill()
                starters.append(threading.Thread(target=self.start_worker, args=(index,)))
                starters[-1].start()
            time.sleep(0.5)
        return lambda: [starter.join() for starter in starters]

    def drain_worker(self, index):
        self.workers[index].signal(signal.SIGTERM)

        def restart():
            code = self.workers[index].wait()
            assert code == 0, f"a drained worker ended with {code}: {self.workers[index].stderr}"
            self.start_worker(index)
        return restart

    def stop_worker(self, index):
        self.workers[index].signal(signal.SIGSTOP)
        return lambda: self.workers[index].signal(signal.SIGCONT)

    def cut_links(self, index):
        return self._harm_links(self.links.cut, index)

    def stop_links(self, index):
        return self._harm_links(self.links.stop, index)

    def _harm_links(self, harm, worker):
        links = [front * WORKERS + worker for front in range(FRONTS)]
        for link in links:
            harm(link)
        return lambda: [self.links.repair(link) for link in links]

    def kill_front(self, index):
        self.earlier_moves += self._moves_of(index)
        self.fronts[index].kill()
        return lambda: self._restart_front(index)

    def drain_front(self, index):
        self.earlier_moves += self._moves_of(index)
        self.fronts[index].signal(signal.SIGTERM)

        def restart():
            code = self.fronts[index].wait()
            assert code == 0, f"a drained front ended with {code}: {self.fronts[index].stderr}"
            self._restart_front(index)
        return restart

    def _restart_front(self, index):
        self.clients[index].close()
        self.start_front(index)

    def stop_front(self, index):
        self.fronts[index].signal(signal.SIGSTOP)
        return lambda: self.fronts[index].signal(signal.SIGCONT)

    def kill_redis(self, _):
        self.redis.kill()

        def restart():
            self.redis.repair()
            self.redis.start()
        return restart

    def stop_redis(self, _):
        self.redis.process.send_signal(signal.SIGSTOP)
        return lambda: self.redis.process.send_signal(signal.SIGCONT)
