"""The server: FedAvg, private for each client, in one import."""

from __future__ import annotations

from pathlib import Path

from flwr.app import Array, ArrayRecord, Context, MetricRecord
from flwr.serverapp import Grid, ServerApp
from task import CLIENTS, accuracy, initial_model

from hubermean.flower import PrivateFedAvg


def evaluate(server_round: int, arrays: ArrayRecord) -> MetricRecord:
    """Evaluate on data of the server's own: metrics of clients would not be private."""
    found = accuracy({name: array.numpy() for name, array in arrays.items()})
    print(f"round {server_round}: accuracy {found:.1%}", flush=True)
    return MetricRecord({"accuracy": found})


def server_app(num_rounds: int, state_file: Path | None = None) -> ServerApp:
    app = ServerApp()

    @app.main()
    def main(grid: Grid, context: Context) -> None:
        strategy = PrivateFedAvg(
            epsilon=8, delta=1e-4, num_rounds=num_rounds, population=CLIENTS, state_file=state_file
        )
        initial = ArrayRecord({name: Array(array) for name, array in initial_model().items()})
        strategy.start(grid=grid, initial_arrays=initial, evaluate_fn=evaluate)
        print(strategy.privacy_spent())
        hostile = strategy.average.influence_bound(hostile=0.1)
        print(f"10% hostile clients can move the next average by at most {hostile:.3g}.")

    return app
