"""Keeping answers: what is found again, the budget, the end of a promise (ANSWERS 7.7)."""

from __future__ import annotations

import os
import sqlite3
import stat
import threading
from dataclasses import replace
from pathlib import Path

import pytest
from unit.answers.toy import receipt_of
from unit.serving_kept.samples import BUDGET, DAY, NOW, given, keeper, toy

from tallystick.answers.cancellation import CANCELLATION_TYPE, Cancellation
from tallystick.answers.layout import Settings
from tallystick.answers.receipt import CANCELLED
from tallystick.api.answering import GivenAnswer
from tallystick.commit.signing import PrivateKey, sign_envelope
from tallystick.errors import (
    CorruptFileError,
    StorageError,
    UnsupportedVersionError,
    UsageError,
)
from tallystick.serving.kept import space
from tallystick.serving.kept.answers import KeptAnswers
from tallystick.serving.kept.reader import SESSION_MS, KeptReader, sessions_of
from tallystick.serving.kept.space import BudgetFullError, kept_bytes_of
from tallystick.serving.kept.tables import DATABASE, PAGE

CLIENT = PrivateKey(bytes([3]) * 32)


def test_a_kept_answer_is_found_again_by_its_owner_only(tmp_path: Path) -> None:
    answer = given()
    with keeper(tmp_path / "kept") as kept:
        id_ = kept.keep(answer, "anna")
        assert kept.find(id_, "ben") is None and kept.find("answer-0", "anna") is None
    with KeptReader(tmp_path / "kept") as reader:  # after the end of the process
        files = reader.find(id_, "anna")
        assert files is not None and files.receipt == answer.receipt
        signed, job, program = files.bound()
        assert job.digest == answer.job.digest == signed.receipt.job
        assert program.digest() == answer.program.digest()
        assert files.spoken.tokens == answer.tokens and files.spoken.text == ""  # no tokenizer
        assert reader.damaged() == [] and reader.counted() == 1


def test_the_files_are_the_owners_alone(tmp_path: Path) -> None:
    with keeper(tmp_path / "kept") as kept:
        kept.keep(given(), "anna")
        modes = {p.name: stat.S_IMODE(p.stat().st_mode) for p in (tmp_path / "kept").iterdir()}
    assert stat.S_IMODE((tmp_path / "kept").stat().st_mode) == 0o700
    assert {mode for name, mode in modes.items() if name != "lock"} == {0o600}, modes
    assert f"{DATABASE}-wal" in modes


def test_one_process_keeps(tmp_path: Path) -> None:
    with keeper(tmp_path / "kept"), pytest.raises(StorageError, match="Another model server"):
        KeptAnswers(tmp_path / "kept", BUDGET)
    keeper(tmp_path / "kept").close()


def test_a_model_must_be_named_first(tmp_path: Path) -> None:
    with (
        KeptAnswers(tmp_path / "kept", BUDGET) as kept,
        pytest.raises(UsageError, match="was not registered"),
    ):
        kept.keep(given(), "anna")


def test_those_who_wait_together_share_a_flush(tmp_path: Path) -> None:
    answers = [given(seed) for seed in range(64)]
    with keeper(tmp_path / "kept") as kept:
        kept.keep(answers[0], "anna")
        before, ids, wait = kept.commits, list[str](), threading.Barrier(63)

        def one(number: int) -> None:
            wait.wait()
            ids.append(kept.keep(answers[number], "anna"))

        threads = [threading.Thread(target=one, args=(n,)) for n in range(1, 64)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(set(ids)) == 63 and kept.commits - before < 40
        assert all(kept.find(id_, "anna") for id_ in ids)


# -- what the client has signed (6.6) --------------------------------------------------------------
def cancelled(seed: int = 11, signed_by: PrivateKey = CLIENT) -> GivenAnswer:
    """An answer whose client has ended it."""
    answer = given(seed)
    asked = replace(answer.job.request, client=CLIENT.public, settings=Settings(max_tokens=4))
    job = replace(answer.job, request=asked)
    said = Cancellation(asked.digest, 0, 3).payload()
    word = sign_envelope(signed_by, CANCELLATION_TYPE, said).to_bytes()
    receipt = receipt_of(job, CANCELLED, time=NOW - 60 * DAY, until=NOW + 30 * DAY)
    return replace(answer, job=job, receipt=receipt, finish=CANCELLED, cancellation=word)


def test_the_clients_word_is_kept_beside_the_receipt(tmp_path: Path) -> None:
    answer = cancelled()
    with keeper(tmp_path / "kept") as kept:
        with kept.reserve(kept_bytes_of(answer.job.request, 3, 4)) as room:
            id_ = kept.keep(answer, "anna", room)
        plain = kept.keep(given(), "anna")
    with KeptReader(tmp_path / "kept") as reader:
        found, other = reader.find(id_, "anna"), reader.find(plain, "anna")
        assert found is not None and found.cancellation == answer.cancellation
        assert other is not None and other.cancellation is None
        assert reader.damaged() == []
    with keeper(tmp_path / "kept") as kept:
        before = kept._reader.pages()
        for seed in range(40):
            kept.keep(cancelled(seed), "o" * 60)
        used = (kept._reader.pages() - before) * PAGE
        assert used <= 40 * kept_bytes_of(answer.job.request, 3, 4)
        wrong = kept.keep(cancelled(signed_by=PrivateKey(bytes([4]) * 32)), "anna")
        assert [sentence.partition(":")[0] for sentence in kept.damaged()] == [wrong]
        assert kept.expire(NOW + 31 * DAY) == 43
        assert kept._reader._all("SELECT * FROM cancellations") == []


# -- the budget ------------------------------------------------------------------------------------
def test_a_budget_that_is_too_small(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="too small"):
        KeptAnswers(tmp_path / "kept", space.LEAST_BUDGET - 1)


def test_a_full_budget_refuses_and_drops_nothing(tmp_path: Path) -> None:
    long = "a" * 1_000_000
    ids, top = [], 0
    with keeper(tmp_path / "kept") as kept:
        answers = (given(seed, text=long) for seed in range(1000))
        for answer in answers:
            try:
                with kept.reserve(kept_bytes_of(answer.job.request, 3, 3)) as room:
                    ids.append(kept.keep(answer, "anna", room))
            except BudgetFullError as error:
                assert "fill their budget" in error.message
                break
            top = max(top, sum(p.stat().st_size for p in (tmp_path / "kept").iterdir()))
        assert 20 < len(ids) < 60 and top <= BUDGET
        assert kept.full() is None  # one of a usual size has room
        with pytest.raises(BudgetFullError):  # nor without a reservation
            kept.keep(answer, "anna")
        assert all(kept.find(id_, "anna") is not None for id_ in ids)
        assert kept.damaged() == []
        for size in (1 << 20, 1 << 17, 1 << 15, 1 << 13):
            while True:
                try:
                    kept.reserve(size)  # and never given back
                except BudgetFullError:
                    break
        assert kept.full() is not None and kept.damaged() == []
        # What has passed its date makes room.
        assert kept.expire(NOW + 31 * DAY) == len(ids) and kept.full() is None
        assert kept.find(ids[0], "anna") is None
        size = (tmp_path / "kept" / DATABASE).stat().st_size
        for seed in range(20):
            kept.keep(given(seed, text=long), "anna")
        assert (tmp_path / "kept" / DATABASE).stat().st_size <= max(size, BUDGET)


def test_reservations_count_and_are_given_back(tmp_path: Path) -> None:
    with keeper(tmp_path / "kept") as kept:
        size = (BUDGET - space.HEADROOM) // 2
        first = kept.reserve(size)
        with pytest.raises(BudgetFullError):
            kept.reserve(size)
        first.release()
        first.release()  # once is enough
        with kept.reserve(size), pytest.raises(BudgetFullError):
            kept.reserve(size)
        kept.reserve(size).release()
        with (
            kept.reserve(PAGE) as little,
            pytest.raises(UsageError, match="reserved for it"),
        ):
            kept.keep(given(), "anna", little)
        assert kept._space.reserved == 0


def test_what_is_reserved_is_enough(tmp_path: Path) -> None:
    """The pages that answers of many sizes take are no more than was reserved for each."""
    with keeper(tmp_path / "kept") as kept:
        kept.keep(given(), "anna")
        for number, length in enumerate((0, 1000, 3000, 4000, 4092, 9000, 50_000, 1_000_000)):
            answer = given(100 + number, text="é\n" * (length // 2) + "a")
            before = kept._reader.pages()
            kept.keep(answer, "o" * 60)
            used = (kept._reader.pages() - before) * PAGE
            assert used <= kept_bytes_of(answer.job.request, 3, 3), length


def test_a_disk_without_room_is_said_before_the_work(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with keeper(tmp_path / "kept") as kept:
        monkeypatch.setattr(space, "free_bytes", lambda _: space.HEADROOM)
        with pytest.raises(StorageError, match="no room for more"):
            kept.reserve(PAGE)
        assert kept.full() is not None


# -- the end of a promise --------------------------------------------------------------------------
def test_what_has_passed_its_date_is_deleted(tmp_path: Path) -> None:
    secret = "nobody-reads-this-again"
    with keeper(tmp_path / "kept") as kept:
        short = kept.keep(given(1, until=NOW + DAY, text=secret), "anna")
        long = kept.keep(given(2, until=NOW + 2 * DAY), "anna")
        assert kept.expire(NOW + DAY) == 0  # until the date itself
        assert kept.expire(NOW + DAY + 60_001) == 1
        assert kept.find(short, "anna") is None and kept.find(long, "anna") is not None
        (model,) = kept.models()
        assert (model.answers, model.until) == (1, NOW + 2 * DAY)
        assert kept.expire(NOW + 3 * DAY) == 1 and kept.models()[0].answers == 0
    data = b"".join(p.read_bytes() for p in (tmp_path / "kept").iterdir())
    assert secret.encode() not in data  # overwritten, and not only let go
    with keeper(tmp_path / "kept") as kept:  # programs and models that none needs are gone
        kept.expire(NOW)
        assert len(kept.models()) == 1 and kept._reader._all("SELECT * FROM programs") == []


def test_a_session_that_goes_on_holds_its_answer(tmp_path: Path) -> None:
    with keeper(tmp_path / "kept") as kept:
        answer = given(until=NOW - DAY)
        id_ = kept.keep(answer, "anna")
        place = sessions_of(tmp_path / "kept", answer.job.digest)
        place.mkdir(parents=True)
        (place / "s.seal").write_bytes(b"")
        assert kept.expire(NOW) == 0 and kept.find(id_, "anna") is not None
        os.utime(place / "s.seal", (0, (NOW - SESSION_MS - 1000) / 1000))
        assert kept.expire(NOW) == 1 and not place.exists()


# -- damage ----------------------------------------------------------------------------------------
def test_damage_is_named(tmp_path: Path) -> None:
    with keeper(tmp_path / "kept") as kept:
        ids = [kept.keep(given(seed), "anna") for seed in range(3)]
        assert kept.damaged() == []
    base = sqlite3.connect(tmp_path / "kept" / DATABASE)
    other = given(9).receipt
    base.execute("UPDATE answers SET receipt = ? WHERE id = ?", (other, ids[1]))
    base.commit()
    base.close()
    with KeptReader(tmp_path / "kept") as reader:
        (said,) = reader.damaged()
        assert said.startswith(ids[1]) and "request" in said


def test_a_file_that_is_none(tmp_path: Path) -> None:
    with keeper(tmp_path / "kept") as kept:
        kept.keep(given(), "anna")
    path = tmp_path / "kept" / DATABASE
    data = bytearray(path.read_bytes())
    data[:16] = bytes(16)
    path.write_bytes(data)
    for open_ in (KeptReader, lambda place: KeptAnswers(place, BUDGET)):
        with pytest.raises((CorruptFileError, StorageError)):
            open_(tmp_path / "kept")
    with pytest.raises(UsageError, match="contains no kept answers"):
        KeptReader(tmp_path)


def test_tables_of_another_version(tmp_path: Path) -> None:
    keeper(tmp_path / "kept").close()
    base = sqlite3.connect(tmp_path / "kept" / DATABASE)
    base.execute("PRAGMA user_version = 3")
    base.close()
    with pytest.raises(UnsupportedVersionError, match="version 3"):
        KeptReader(tmp_path / "kept")
    with pytest.raises(UnsupportedVersionError, match="version 3"):
        KeptAnswers(tmp_path / "kept", BUDGET)


def test_tables_of_the_first_version(tmp_path: Path) -> None:
    """They had no column for adapters and no cancellations. A server brings them to this version,
    and loses nothing."""
    with keeper(tmp_path / "kept") as kept:
        id_ = kept.keep(given(), "anna")
    base = sqlite3.connect(tmp_path / "kept" / DATABASE)
    base.execute("ALTER TABLE models DROP COLUMN adapter")
    base.execute("DROP TABLE cancellations")
    base.execute("PRAGMA user_version = 1")
    base.close()
    with pytest.raises(UnsupportedVersionError, match="version 1"):
        KeptReader(tmp_path / "kept")
    with keeper(tmp_path / "kept") as kept:
        found = kept.find(id_, "anna")
        assert found is not None and found.cancellation is None
        assert [model.adapter for model in kept.models()] == [None]
        found = kept.find(kept.keep(cancelled(), "anna"), "anna")
        assert found is not None and found.cancellation is not None


def test_two_receipts_of_one_job_are_both_kept(tmp_path: Path) -> None:
    """One request asked twice: one job, and two promises."""
    first, again = given(until=NOW), given(until=NOW + DAY)
    with keeper(tmp_path / "kept") as kept:
        ids = {kept.keep(one, "anna") for one in (first, again)}
        assert len(ids) == 2 and len(kept._reader.of_job(first.job.digest)) == 2
        assert kept.expire(NOW + 60_001) == 1 and len(kept._reader.of_job(first.job.digest)) == 1


def test_an_answer_of_another_model(tmp_path: Path) -> None:
    other = replace(toy().statement, stop=(1,))
    with KeptAnswers(tmp_path / "kept", BUDGET) as kept:
        kept.uses(other, tmp_path)
        with pytest.raises(UsageError, match="was not registered"):
            kept.keep(given(key=PrivateKey.generate()), "anna")
