"""Progress as jobs print it."""

import pytest

from lemur_ray.cluster.demo.stages import Progress, number_of, of_line, plain, result_of


@pytest.mark.parametrize(
    ("line", "progress"),
    [
        (
            "(RayTrainWorker pid=4) step   40/3600   1%  loss 2.3412  [games 2.310  code 3.1]  3,912 tokens/s  "
            "0.26 s/step  15:31 left  checkpoint 0",
            Progress(40, 3600, "3,912 tokens/s", "15:31 left", "loss 2.3412"),
        ),
        ("step 40/400  10%  loss - (all skipped)", Progress(40, 400)),
        ("step 1/9  2%  loss 9.1  2 d 3 h left", Progress(1, 9, "", "2 d 3 h left", "loss 9.1")),
        (
            "alfworld/text 37/120 done, 21 solved, 32 in flight, 1.90/s, 0:44 left, 312k tokens in, 9k out",
            Progress(37, 120, "1.90/s", "0:44 left", "21 solved"),
        ),
        ("[corpus] tokenise: 3 of 12 parts, 7 s", Progress(3, 12)),
        ("Job submission server address: http://127.0.0.1:8265", None),
        ("3 without a score: 1/2 apples", None),
    ],
)
def test_a_line_of_a_job_is_read(line: str, progress: Progress | None) -> None:
    assert of_line(line) == progress


def test_the_number_of_a_result_is_what_the_stage_was_for() -> None:
    assert number_of(result_of('{"n": 120, "scored": 118, "solved": 110, "missing": 2}') or {}) == (
        "110 of 120 solved, 2 missing"
    )
    assert number_of({"loss": 0.51234}) == "loss 0.512"
    assert number_of({"loss": None}) == number_of({}) == ""
    assert result_of("{not json") is result_of("[1]") is None


def test_what_terminals_read_in_a_line_is_left_out() -> None:
    assert plain("\x1b[36m(Worker)\x1b[0m step\r\n") == "(Worker) step"
