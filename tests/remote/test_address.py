"""Places by URI: what is one, what is none, and what is not said of it."""

from __future__ import annotations

from pathlib import Path

import pytest

from mlgo_gym.base._remote import place_of
from mlgo_gym.cli._main import main
from mlgo_gym.errors import OptionsError

KNOWN = "file:///PATH or s3://, gs://, az://, hf://, memory://"


@pytest.mark.parametrize(
    ("given", "place"),
    [
        ("corpora/a", Path("corpora/a")),
        (Path("corpora/a"), Path("corpora/a")),
        ("a:b/c", Path("a:b/c")),
        ("file:///srv/my%20corpora", Path("/srv/my corpora")),
        ("file://localhost/srv", Path("/srv")),
        ("s3://lab", "s3://lab"),
        ("s3://lab/a/b c/", "s3://lab/a/b c"),
        ("memory://a", "memory://a"),
    ],
)
def test_places(given: str | Path, place: Path | str) -> None:
    assert place_of(given) == place


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("ssh://host/a", f"expected {KNOWN}, found ssh://"),
        ("simplecache::s3://lab/a", f"expected {KNOWN}, found simplecache::s3://"),
        ("file://host/a", f"expected {KNOWN}, found file://host"),
        ("file://", f"expected {KNOWN}, found file://"),
        ("s3://", "expected names between slashes, found '' in ''"),
        ("s3://../a", "expected names between slashes, found '..' in '../a'"),
        ("s3://lab/../a", "expected names between slashes, found '..' in 'lab/../a'"),
        ("s3://lab//a", "expected names between slashes, found '' in 'lab//a'"),
        ("s3://lab/a\n", "expected names between slashes, found 'a\\n' in 'lab/a\\n'"),
        (
            "s3://key:hidden-word@lab/a",
            "expected s3://BUCKET/KEY, found a user before the bucket; credentials are taken from "
            "where the protocol's own tools have them",
        ),
    ],
)
def test_what_is_no_place(given: str, message: str) -> None:
    with pytest.raises(OptionsError) as error:
        place_of(given)
    assert str(error.value) == f"address: {message}"


def test_a_command_that_needs_a_path(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as left:
        main(["freeze", "--model", "inlining-for-size", "--output", "s3://lab/frozen"])
    assert left.value.code == 2
    expected = "argument --output: expected a path on this machine, found 's3://lab/frozen'"
    assert expected in capsys.readouterr().err


def test_a_command_with_another_protocol(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as left:
        main(["rollout", "--corpus", "ssh://lab/corpora"])
    assert left.value.code == 2
    expected = "argument --corpus: address: expected file:///PATH or s3://, gs://, "
    assert expected in capsys.readouterr().err
