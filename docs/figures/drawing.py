# SPDX-License-Identifier: MIT
"""What bench/plot.py and examples/evaluate/plot.py draw with: matplotlib, in one style. Equal numbers give equal files."""

import pathlib
import sys

try:
    import matplotlib
except ImportError:
    sys.exit(f"{pathlib.Path(sys.argv[0]).name}: matplotlib is missing; install it (python3-matplotlib, or pip install "
             "matplotlib)")

matplotlib.use("svg")
import matplotlib.pyplot as plt  # noqa: E402  (the backend comes first)

plt.rcParams.update({
    "font.size": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.alpha": 0.3,
    "legend.frameon": False,
    "svg.hashsalt": "sureleap",  # ids that are the same every time
    "svg.fonttype": "none",
})


def save(figure, path, **how):
    """Writes the figure, closes it, says where it is."""
    figure.savefig(path, metadata={"Date": None}, **how)
    plt.close(figure)
    print(path)
