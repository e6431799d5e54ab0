"""The judge's own process: load the model once, answer case after case, one line each. Its memory is freed with it.

    python -m agent_ab.judge.child JOB.json SCORES.jsonl

A line is flushed before the next case begins, so that a case which ends the process costs no other.
"""

import json
import sys
from pathlib import Path

from agent_ab.judge.case import CASES, LOADING, SCORE
from agent_ab.judge.exam import examine


def main(job: Path, scores: Path) -> int:
    """Judge every case of `job`, appending to `scores`; return 1, the reason last on standard error, when that fails."""
    from agent_ab.judge.binding import Binding, LoadError

    data = json.loads(job.read_text(encoding="utf-8"))
    loading, cases = LOADING.validate_python(data["loading"]), CASES.validate_python(data["cases"])
    try:
        binding = Binding(loading)
        places = loading.places
        with scores.open("ab") as sink:
            for case in cases:
                score = examine(case, binding, loading.many, places)
                places -= score.positions
                sink.write(SCORE.dump_json(score) + b"\n")
                sink.flush()
    except LoadError as error:
        sys.stderr.write(f"{error}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), Path(sys.argv[2])))
