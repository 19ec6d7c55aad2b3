"""Ten private rounds of a hundred clients, ten of them hostile, in Flower's simulation: about a minute on two cores.

python scripts/make_flower_environment.py
cd examples/flower && ../../.venv-flower/bin/python run.py
"""

from __future__ import annotations

import argparse
import logging
import warnings
from pathlib import Path

from client_app import app as client_app
from flwr.simulation import run_simulation
from server_app import server_app
from task import CLIENTS


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--state-file", type=Path, help="keep the run here; a run that was stopped goes on")
    options = parser.parse_args()
    warnings.filterwarnings("ignore")
    logging.getLogger("flwr").setLevel(logging.ERROR)
    run_simulation(
        server_app=server_app(options.rounds, options.state_file),
        client_app=client_app,
        num_supernodes=CLIENTS,
        backend_config={"client_resources": {"num_cpus": 1, "num_gpus": 0.0}},
    )


if __name__ == "__main__":
    main()
