"""The figure of docs/policy.md: hazards of three made-up experts, and what holding a slot for them gains.

    python3 tests/bench/policy_plot.py --out docs/policy.svg

Needs matplotlib (tools/requirements-peers.txt). The curves are those of moe/policy/hold_horizon.h: for each number of
forwards, P(a use within them) less the price times the expected forwards until that use or the end.
"""

import argparse
import pathlib

FORWARDS = 24
PRICE = 0.05
EXPERTS = {
    "used just now": ("#c0392b", [0.02 + 0.4 * 0.6**forward for forward in range(FORWARDS)]),
    "in a rhythm of 12": ("#2471a3", [0.8 if forward == 8 else 0.01 for forward in range(FORWARDS)]),
    "rarely used": ("#1e8449", [0.03] * FORWARDS),
}


def gains(hazards):
    """Returns the gains of holding a slot for 1, 2, ... forwards. The next forward is free."""
    unused, waited, result = 1.0, 0.0, []
    for forward, hazard in enumerate(hazards):
        waited += unused if forward > 0 else 0
        unused *= 1 - hazard
        result.append(1 - unused - PRICE * waited)
    return result


def draw(path):
    import matplotlib  # here, because a test without matplotlib compares the curves with the figure
    matplotlib.use("svg")
    matplotlib.rcParams["svg.hashsalt"] = "tidepool"  # the same picture has the same bytes
    import matplotlib.pyplot as plt

    figure, (left, right) = plt.subplots(1, 2, figsize=(9, 3.2), layout="constrained")
    forwards = range(1, FORWARDS + 1)
    for name, (color, hazards) in EXPERTS.items():
        left.plot(forwards, hazards, color=color, label=name, linewidth=1.6)
        gained = gains(hazards)
        best = max(range(FORWARDS), key=gained.__getitem__)
        right.plot(forwards, gained, color=color, linewidth=1.6)
        right.plot([best + 1], [gained[best]], "o", color=color)
    left.axhline(PRICE, color="#888888", linestyle="--", linewidth=1, label="price of a slot")
    left.set_title("hazard", fontsize=10)
    right.set_title("gain of holding, in hits (dot: held until here)", fontsize=10)
    for axes in (left, right):
        axes.set_xlabel("forwards ahead")
        axes.grid(True, color="#dddddd", linewidth=0.6)
        axes.set_axisbelow(True)
    left.legend(fontsize=8)
    figure.savefig(path, metadata={"Date": None, "Creator": None})


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", required=True, type=pathlib.Path)
    draw(parser.parse_args().out)


if __name__ == "__main__":
    main()
