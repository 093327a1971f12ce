"""`tallystick diff` as a command: its exit codes, its texts and its JSON."""

from __future__ import annotations

import shutil
from pathlib import Path

from commands import Run, as_json

from tallystick.job.job import Job
from tallystick.run.show.summary import RunSummary
from tallystick.run.store.journal import END, MAGIC


def test_two_equal_runs(ts: Run, logreg_run: RunSummary) -> None:
    run = str(logreg_run.directory)
    code, out, _ = ts("diff", run, run)
    assert code == 0 and out.startswith("EQUAL       two runs\njob digests ")
    assert "\nsteps       " in out
    found = as_json(ts("diff", run, run, "--json"))
    assert found["equal"] and found["cause"] is None and found["first"] is None


def test_two_jobs_in_words(ts: Run, logreg_job: Job, mlp_job: Job) -> None:
    code, out, _ = ts("diff", str(logreg_job.directory), str(mlp_job.directory))
    assert code == 1
    assert out.startswith(
        "DIFFERENT   two jobs\ncause       a different seed. The seed is 0 in A and"
    )
    assert "The job digests cover:\n" in out
    assert "Not committed (their authors' word, which no digest covers):\n" in out


def test_two_runs_of_two_rates(ts: Run, tmp_path: Path) -> None:
    runs = []
    for rate in ("0.1", "0.2"):
        job, run = str(tmp_path / f"job{rate}"), str(tmp_path / f"run{rate}")
        new = ("job", "new", "logreg", "--out", job, "--steps", "4", "--set", f"lr={rate}")
        assert ts(*new)[0] == 0
        assert ts("train", job, "--out", run, "--quiet")[0] == 0
        runs.append(run)
    code, out, _ = ts("diff", *runs)
    assert code == 1
    for line in (
        "cause       a different learning rate. The scalar lr is 0.1 in A and 0.2 in B.",
        "step        0",
        "operator    tallystick.sgd_step, number 9",
        "before it   input 2 already differed: scalar.lr",
        "element     [], the only element",
        "distance    4,503,599,627,370,496 units in the last place\n",
    ):
        assert f"\n{line}" in out, out
    found = as_json(ts("diff", *runs, "--json"), 1)
    assert (found["kind"], found["cause"], found["first"]["step"]) == ("runs", "rate", 0)
    assert found["first"]["element"]["values"] == [0.1, 0.2]


def test_what_cannot_be_compared(ts: Run, logreg_job: Job, tmp_path: Path) -> None:
    code, _, err = ts("diff", str(logreg_job.directory), str(tmp_path))
    assert code == 3 and "is not a job, a run or a trace" in err
    job = str(logreg_job.directory)
    code, _, err = ts("diff", job, job, "--as-attack", "B")
    assert code == 3 and "two runs" in err


def test_options_that_a_comparison_would_ignore(
    ts: Run, logreg_job: Job, logreg_run: RunSummary
) -> None:
    job, run = str(logreg_job.directory), str(logreg_run.directory)
    for option, value in (("--threads", "2"), ("--device", "cpu")):
        code, _, err = ts("diff", job, job, option, value)
        assert code == 3 and f"{option} cannot be given for jobs" in err
        assert ts("diff", run, run, option, value)[0] == 0
    code, _, err = ts("diff", run, run, "--as-attack", "B", "--device", "cuda")
    assert code == 3 and "--device cannot be given beside --as-attack" in err


def test_damage_is_no_difference(ts: Run, logreg_job: Job, tmp_path: Path) -> None:
    """Exit code 1 says that two things differ. A file with a changed bit says nothing of a job."""
    job, copy = logreg_job.directory, tmp_path / "job"
    shutil.copytree(job, copy)
    for file in copy.rglob("program*.txt"):
        data = bytearray(file.read_bytes())
        data[len(data) // 2] ^= 1
        file.write_bytes(bytes(data))
    code, _, err = ts("diff", str(job), str(copy))
    assert code == 2 and "digest" in err, err
    assert as_json(ts("diff", str(job), str(copy), "--json"), 2)["kind"] == "DigestMismatchError"


def cut_before_the_end(journal: Path) -> None:
    """Cut the record of a run's end off, and what follows it."""
    data, at = journal.read_bytes(), len(MAGIC) + 32
    while data[at] != END:
        at += 5 + int.from_bytes(data[at + 1 : at + 5], "little") + 16
    journal.write_bytes(data[:at])


def test_an_unfinished_run_is_equal_with_a_notice(
    ts: Run, logreg_run: RunSummary, tmp_path: Path
) -> None:
    """The record of a run that was stopped before its end lacks a record, and accuses nobody."""
    run, copy = logreg_run.directory, tmp_path / "run"
    shutil.copytree(run, copy)
    cut_before_the_end(copy / "journal")
    for pair, name in (((run, copy), "B"), ((copy, run), "A")):
        code, out, _ = ts("diff", *map(str, pair))
        assert code == 0 and f"note        {name} has not ended: its record stops after" in out
