"""Runs of a suite, submissions, and what verification finds."""

from __future__ import annotations

import hashlib
import json
import zipfile
import zlib
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from mlgo_gym import InliningForSize
from mlgo_gym.errors import BenchmarkError
from mlgo_gym.lab.bench import Submission, Suite, run, sample_suite, verify
from mlgo_gym.lab.bench._suite_runs import CARD_FILE, Card, _inflated
from mlgo_gym.lab.bench._table import page, table
from mlgo_gym.rollout import BASELINE, Trace

MODULES = ["digest.c", "codec_text.c"]
DIGEST = "traces/plain/0/sample/digest.c.trace"


@pytest.fixture(scope="module")
def suite() -> Iterator[Suite]:
    with sample_suite(MODULES) as made:
        yield made


@pytest.fixture(scope="module")
def submission(suite: Suite) -> Submission:
    policies = {str(seed): InliningForSize.policy("random", seed) for seed in range(2)}
    return run(suite, policies).named("chance", "nobody", "", "")


@pytest.fixture
def saved(submission: Submission, tmp_path: Path) -> Path:
    path = tmp_path / "chance.zip"
    submission.save(path)
    return path


def test_a_run_has_every_module_of_every_track_and_seed(
    suite: Suite, submission: Submission
) -> None:
    assert len(submission.files) == len(MODULES) * len(suite.tracks) * 2
    values = submission.card.values["plain"]["sample"]
    assert set(values) == {BASELINE, "0", "1"}
    assert values["0"]["icf"] <= values["0"]["gc"]
    assert values["0"] != values[BASELINE]


def test_equal_runs_make_equal_files_and_hold(
    suite: Suite, submission: Submission, saved: Path, tmp_path: Path
) -> None:
    policies = {str(seed): InliningForSize.policy("random", seed) for seed in range(2)}
    again = run(suite, policies, jobs=2).named("chance", "nobody", "", "")
    again.save(tmp_path / "again.zip")
    assert saved.read_bytes() == (tmp_path / "again.zip").read_bytes()
    verify(Submission.load(saved), suite, jobs=2)
    assert submission.card.sha256 == again.card.sha256


@pytest.mark.parametrize("step", [16, pytest.param(1, marks=pytest.mark.e2e)])
def test_every_flipped_decision_is_found(step: int, suite: Suite, submission: Submission) -> None:
    trace = Trace.from_bytes(submission.files[DIGEST])
    size = trace.advice_spec.size_bytes
    some = range(0, trace.decisions, step)
    for index in some:
        flipped = np.array(trace.actions())
        flipped[index] = 1 - flipped[index]
        with pytest.raises(BenchmarkError, match=r"digest\.c|sample"):
            verify(_forged(submission, replace(trace, advice=flipped.tobytes())), suite)
    assert trace.decisions == len(trace.advice) // size
    assert len(some) > 3


def test_another_object_is_found(suite: Suite, submission: Submission) -> None:
    trace = Trace.from_bytes(submission.files[DIGEST])
    with pytest.raises(BenchmarkError, match=r"digest\.c\.trace: expected an object of SHA-256"):
        verify(_forged(submission, replace(trace, object_sha256="0" * 64)), suite)


def test_numbers_that_the_traces_do_not_come_to_are_found(
    suite: Suite, submission: Submission
) -> None:
    values = json.loads(json.dumps(submission.card.values))
    values["plain"]["sample"]["0"]["icf"] -= 1
    card = replace(submission.card, values=values)
    with pytest.raises(BenchmarkError, match="plain/sample: expected the numbers that its traces"):
        verify(replace(submission, card=card), suite)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"suite": "size-v9"}, "suite: expected size-sample, found size-v9"),
        ({"suite_sha256": "0" * 64}, "suite_sha256: expected"),
        ({"llvm_version": "21.0.0"}, r"llvm_version: expected 22.*, found 21\.0\.0"),
        ({"seeds": ("0", "1", "2")}, "every module, found 4 that are missing"),
        ({"seeds": ("0",)}, "found 4 that are missing or added, first traces/local/1/"),
    ],
)
def test_what_is_not_of_the_suite(
    change: dict[str, str], message: str, suite: Suite, submission: Submission
) -> None:
    card = replace(submission.card, **change)  # type: ignore[arg-type]
    with pytest.raises(BenchmarkError, match=message):
        verify(replace(submission, card=card), suite)


def test_numbers_of_more_than_the_suite_are_found(suite: Suite, submission: Submission) -> None:
    values = json.loads(json.dumps(submission.card.values))
    values["plain"]["more"] = values["plain"]["sample"]
    card = replace(submission.card, values=values)
    with pytest.raises(BenchmarkError, match="values: expected numbers .* found .*plain: 2"):
        verify(replace(submission, card=card), suite)


def test_a_trace_of_another_module_is_found(suite: Suite, submission: Submission) -> None:
    other = submission.files["traces/plain/0/sample/codec_text.c.trace"]
    with pytest.raises(BenchmarkError, match="expected the suite's module, found another one"):
        verify(_forged(submission, Trace.from_bytes(other)), suite)


def test_a_trace_of_other_settings_is_found(suite: Suite, submission: Submission) -> None:
    trace = Trace.from_bytes(submission.files[DIGEST])
    settings = {**trace.settings, "size_increase_threshold": 4.0}
    with pytest.raises(BenchmarkError, match="problem: expected"):
        verify(_forged(submission, replace(trace, settings=settings)), suite)


def test_an_altered_file(saved: Path, tmp_path: Path) -> None:
    with zipfile.ZipFile(saved) as archive:
        files = {name: archive.read(name) for name in archive.namelist()}
    for change, message in (
        ({DIGEST: files[DIGEST] + b"x"}, "the traces were altered"),
        ({"traces/more": b""}, "traces/more: expected SHA-256 no such file"),
        ({CARD_FILE: b"{"}, "card.json: "),
        ({CARD_FILE: b'{"version": 7}'}, "version: expected 1, found 7"),
        ({"../outside": b""}, r"found '\.\./outside'"),
    ):
        path = tmp_path / "altered.zip"
        with zipfile.ZipFile(path, "w") as archive:
            for name, data in {**files, **change}.items():
                archive.writestr(name, data)
        with pytest.raises(BenchmarkError, match=message):
            Submission.load(path)


@pytest.mark.parametrize("length", [0, 10, 2000])
def test_a_cut_file(length: int, saved: Path) -> None:
    saved.write_bytes(saved.read_bytes()[:length])
    with pytest.raises(BenchmarkError, match="expected a submission, found"):
        Submission.load(saved)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"seeds": []}, "seeds: expected"),
        ({"seeds": ["LLVM"]}, "seeds: expected"),
        ({"seeds": ["0", "0"]}, "seeds: expected"),
        ({"url": "javascript:alert(1)"}, "url: expected one of https or http"),
        ({"url": "https://a) | b"}, "url: expected one of https or http"),
        ({"name": 1}, "name: expected a text, found 1"),
        ({"name": "../outside"}, "card.json: name: expected up to 64 letters"),
        ({"name": "/outside"}, "card.json: name: expected up to 64 letters"),
        ({"name": "a | b"}, "card.json: name: expected up to 64 letters"),
        ({"name": "LLVM"}, "card.json: name: expected up to 64 letters"),
        ({"name": "\ud800"}, "name: expected at most 2,048 printable characters"),
        ({"authors": "\x1b[31m"}, "authors: expected at most 2,048 printable characters"),
        ({"about": "x" * 2049}, "about: expected at most 2,048 printable characters"),
        ({"seeds": ["best"]}, "seeds: expected"),
        ({"seeds": [["0"]]}, r"seeds\[0\]: expected a text"),
        ({"values": {"plain": {"sample": {"0": {"icf": "small"}}}}}, r"\.icf: expected a number"),
        ({"sha256": {"/etc/passwd": "0"}}, "sha256: expected hashes"),
    ],
)
def test_cards_that_are_none(
    change: dict[str, object], message: str, submission: Submission
) -> None:
    value = {**json.loads(json.dumps(submission.card.to_json())), **change}
    with pytest.raises(BenchmarkError, match=message):
        Card.from_json(value, "card.json")


@pytest.mark.parametrize("name", ["", "LLVM", "a b", "../a", "a" * 65])
def test_names_that_a_table_cannot_use(name: str, submission: Submission) -> None:
    with pytest.raises(BenchmarkError, match="name: expected up to 64 letters"):
        submission.named(name, "nobody", "", "")


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (zlib.compress(b"\0\1") + b"more", "a.decisions: expected a stream of zlib, found more"),
        (zlib.compress(b"\0\1")[:-1], "a.decisions: expected a stream of zlib, found a part"),
        (b"", "a.decisions: expected a stream of zlib, found a part"),
        (b"none", "a.decisions: Error -3"),
    ],
)
def test_decisions_that_are_no_stream(data: bytes, message: str) -> None:
    assert _inflated(zlib.compress(b"\0\1"), "a.decisions") == b"\0\1"
    with pytest.raises(BenchmarkError, match=message):
        _inflated(data, "a.decisions")


def test_a_submission_whose_sizes_mean_nothing(saved: Path) -> None:
    with zipfile.ZipFile(saved, "a", zipfile.ZIP_BZIP2) as archive:
        archive.writestr("more", bytes(1 << 20))
    expected = "expected a submission, found: expected files that are stored or deflated, found"
    with pytest.raises(BenchmarkError, match=expected):
        Submission.load(saved)


def test_a_card_that_is_large(saved: Path) -> None:
    with zipfile.ZipFile(saved, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(CARD_FILE, b"[" + b"[]," * (1 << 23))
    with pytest.raises(BenchmarkError, match="card.json: expected at most 16,777,216 bytes"):
        Submission.load(saved)


@pytest.mark.parametrize("key", ["authors", "about"])
def test_texts_that_a_table_cannot_show(key: str, submission: Submission) -> None:
    texts = {"authors": "nobody", "about": "", key: "two\nlines"}
    with pytest.raises(BenchmarkError, match=f"{key}: expected at most 2,048 printable"):
        submission.named("a", url="", **texts)


def test_texts_of_others_are_no_markup(suite: Suite, submission: Submission) -> None:
    other = replace(suite, about="<img src=x> [a](b) | *c*")
    made = submission.named("a_b", "us", "", "https://example.org").card
    shown = page(table(other, [made]))
    assert "\\<img src=x\\> \\[a\\](b) \\| \\*c\\*" in shown
    assert "| [a\\_b](https://example.org) | 2 |" in shown


def test_a_module_that_does_not_compile_is_named(suite: Suite) -> None:
    def wrong(observation: object) -> int:
        del observation
        return 7

    with pytest.raises(Exception, match="expected"):
        run(suite, {"0": wrong})


def _forged(submission: Submission, trace: Trace) -> Submission:
    """The submission with another trace of a module, and a card that agrees with it."""
    files = {**submission.files, DIGEST: trace.to_bytes()}
    hashes = {name: hashlib.sha256(data).hexdigest() for name, data in files.items()}
    return replace(submission, files=files, card=replace(submission.card, sha256=hashes))
