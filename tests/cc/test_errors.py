"""What is wrong on our side: one warning and plain clang's object, or with MLGO_STRICT an error."""

from __future__ import annotations

import json
import os
import resource
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from mlgo_gym import __version__
from mlgo_gym.cc._prepare import PROGRAMS
from mlgo_gym.cc._prepare import main as prepare
from mlgo_gym.model._card import CARD_FILE
from mlgo_gym.model._freeze import freeze
from mlgo_gym.problems._vocabulary import Vocabulary
from mlgo_gym.stream._channel import remove_stale_folders
from tests.cc.conftest import CHANNEL, MODELS, ROOT, SOURCE, Driver, compile_file


@dataclass(frozen=True)
class Case:
    name: str
    settings: Callable[[Path], dict[str, str]]
    message: str


def model(folder: Path, **changes: object) -> dict[str, str]:
    """A copy of the inliner's test model with another card or other files."""
    target = folder / "model"
    shutil.copytree(MODELS / "inliner", target)
    for name, value in changes.items():
        text = value if isinstance(value, str) else json.dumps(value)
        (target / name.replace("_json", ".json").replace("_tflite", ".tflite")).write_text(text)
    return {"MLGO_INLINING_MODEL": str(target)}


def another_s(folder: Path) -> dict[str, str]:
    """A frozen model that was not frozen by this user here."""
    freeze(MODELS / "never", folder / "model", name="policy")
    description = folder / "model" / "policy.json"
    description.write_text(json.dumps(json.loads(description.read_text()) | {"seal": "0" * 64}))
    return {"MLGO_INLINING_MODEL": str(folder / "model")}


def old_clang(folder: Path) -> dict[str, str]:
    """An executable that says that it is clang 14, and otherwise is clang-22."""
    program = folder / "clang-14"
    program.write_text(
        "#!/bin/sh\n"
        'case $1 in --version) echo "clang version 14.0.6" ;; *) exec clang-22 "$@" ;; esac\n'
    )
    program.chmod(0o755)
    return {"MLGO_CLANG": str(program), "MLGO_INLINING_MODEL": str(MODELS / "inliner")}


def configured(text: str) -> Callable[[Path], dict[str, str]]:
    def settings(folder: Path) -> dict[str, str]:
        (folder / "cc.conf").write_text(text)
        return {"MLGO_CONFIG": str(folder / "cc.conf")}

    return settings


CASES = [
    Case(
        "the folder is not there",
        lambda folder: {"MLGO_INLINING_MODEL": f"{folder}/none"},
        "model '{folder}/none': cannot be read: No such file or directory",
    ),
    Case(
        "no model is called so",
        lambda _: {"MLGO_INLINING_MODEL": "inlining-for-speed"},
        "model 'inlining-for-speed': expected a folder, or one of inlining-for-size, "
        "inlining-for-size-derived, inlining-for-size-project, regalloc-eviction; found neither",
    ),
    Case(
        "made for the other problem, says the card",
        lambda _: {"MLGO_REGALLOC_MODEL": str(MODELS / "inliner")},
        f"model '{MODELS}/inliner': expected a model for RegallocEviction, "
        "found one for InliningForSize",
    ),
    Case(
        "made for the other problem, without a card",
        lambda folder: {
            "MLGO_REGALLOC_MODEL": shutil.copytree(
                MODELS / "inliner", folder / "m", ignore=shutil.ignore_patterns("card.json")
            ).__str__()
        },
        "model '{folder}/m': expected the decision 'index_to_evict' as the first output, "
        "found 'inlining_decision'",
    ),
    Case(
        "features that this clang lacks",
        lambda _: {"MLGO_INLINING_MODEL": str(MODELS / "unknown_feature")},
        "the inlining model needs inputs that this clang does not offer: 'moon_phase'",
    ),
    Case(
        "no graph",
        lambda folder: model(folder, model_tflite="TFL3 is what it should be"),
        "model '{folder}/model/model.tflite': not a TFLite file: expected the identifier b'TFL3', "
        "found b' is '",
    ),
    Case(
        "outputs that are not JSON",
        lambda folder: model(folder, output_spec_json="{"),
        "model '{folder}/model': output_spec.json: expected JSON: Expecting property name "
        "enclosed in double quotes: line 1 column 2 (char 1)",
    ),
    Case(
        "machine code of somebody else's",
        another_s,
        "model '{folder}/model': expected machine code that this user has frozen on this machine, "
        "found another's, which would run as this user; if you trust it, pass --trust-code (in "
        "Python trusted=True, for mlgo-cc MLGO_TRUST_CODE=1)",
    ),
    Case(
        "clang too old",
        old_clang,
        "clang: expected version 19 or newer, found 14 in '{folder}/clang-14'",
    ),
    Case(
        "no temporary folder",
        lambda _: {"MLGO_INLINING_MODEL": str(MODELS / "inliner"), "TMPDIR": "/proc"} | CHANNEL,
        "cannot make a folder in '/proc': No such file or directory; TMPDIR names another",
    ),
    Case(
        "timeout",
        lambda _: {"MLGO_TIMEOUT": "soon"},
        "timeout: expected seconds above 0, found 'soon'",
    ),
    Case(
        "threshold",
        lambda _: {"MLGO_SIZE_INCREASE_THRESHOLD": "-1"},
        "size-increase-threshold: expected a number above 0, found '-1'",
    ),
    Case(
        "an unknown key",
        configured("# models\ninlining-model = x\nmodel = y\n"),
        "{folder}/cc.conf: expected KEY = VALUE with a key that mlgo-cc knows, found 'model = y'",
    ),
    Case(
        "a key twice",
        configured("strict = 0\nstrict = 0\n"),
        "{folder}/cc.conf: expected 'strict' once, found it again: 'strict = 0'",
    ),
    Case(
        "a configuration that is a folder",
        lambda folder: {"MLGO_CONFIG": str(folder)},
        "cannot read {folder}: Is a directory",
    ),
    Case(
        "a configuration that does not end",
        lambda _: {"MLGO_CONFIG": "/dev/zero"},
        "cannot read /dev/zero: expected a file, found a pipe or a device",
    ),
    Case(
        "a word for yes or no",
        lambda _: {"MLGO_IN_PROCESS": "no"},
        "in-process: expected 0 or 1, found 'no'",
    ),
    Case(
        "no model to compare",
        lambda _: {"MLGO_KEEP_SMALLER": ","},
        "keep-smaller: expected a model to compare with clang's own, found none",
    ),
    Case(
        "too many models to compare",
        lambda _: {"MLGO_KEEP_SMALLER": "inlining-for-size," * 64 + "none"},
        "keep-smaller: expected at most 64 models, found 65",
    ),
    Case(
        "a named configuration that is not there",
        lambda folder: {"MLGO_CONFIG": f"{folder}/none.conf"},
        "cannot read {folder}/none.conf: No such file or directory",
    ),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_plain_clang_and_one_warning(
    driver: Driver, work: Path, tmp_path: Path, case: Case
) -> None:
    assert driver.plain("-O2", "-c", "f.c", cwd=work).returncode == 0
    expected = (work / "f.o").read_bytes()
    (work / "f.o").unlink()
    settings = case.settings(tmp_path)
    message = case.message.replace("{folder}", str(tmp_path))
    for _ in range(2):  # the second time from the cache
        done = driver.run("-O2", "-c", "f.c", cwd=work, settings=settings)
        warning = f"mlgo-cc: warning: {message}; compiled by plain clang\n"
        assert (done.returncode, done.stderr.decode()) == (0, warning)
        assert (work / "f.o").read_bytes() == expected
    (work / "f.o").unlink()
    done = driver.run("-O2", "-c", "f.c", cwd=work, settings=settings | {"MLGO_STRICT": "1"})
    assert (done.returncode, done.stderr.decode()) == (1, f"mlgo-cc: error: {message}\n")
    assert not (work / "f.o").exists()


def test_a_configuration_file_by_default(driver: Driver, work: Path, tmp_path: Path) -> None:
    """Where it is missing nothing is set; where it is there and cannot be opened, nobody knows."""
    environment = {**driver.environment, "XDG_CONFIG_HOME": str(tmp_path), "MLGO_STRICT": "1"}
    del environment["MLGO_CONFIG"]
    bare = replace(driver, environment=environment)
    assert bare.run("-O2", "-c", "f.c", cwd=work).returncode == 0
    (tmp_path / "mlgo-gym").mkdir()
    assert bare.run("-O2", "-c", "f.c", cwd=work).returncode == 0
    path = tmp_path / "mlgo-gym" / "cc.conf"
    path.symlink_to("cc.conf")
    done = bare.run("-O2", "-c", "f.c", cwd=work)
    words = f"cannot read {path}: Too many levels of symbolic links"
    assert (done.returncode, done.stderr.decode()) == (1, f"mlgo-cc: error: {words}\n")


def test_a_folder_with_the_name_of_a_shipped_model(driver: Driver, work: Path) -> None:
    """It is taken, as in Python, but not silently."""
    name = "inlining-for-size"
    shutil.copytree(MODELS / "never", work / name)
    words = (
        f"model '{name}': expected one of that name, found a shipped model and '{name}' here, "
        f"which './{name}' names"
    )
    for setting in ("MLGO_INLINING_MODEL", "MLGO_KEEP_SMALLER"):
        settings = {setting: name}
        done = driver.run("-O2", "-c", "f.c", cwd=work, settings=settings)
        warning = f"mlgo-cc: warning: {words}; that is taken\n"
        assert (done.returncode, done.stderr.decode()) == (0, warning)
        strict = settings | {"MLGO_STRICT": "1"}
        done = driver.run("-O2", "-c", "f.c", cwd=work, settings=strict)
        assert (done.returncode, done.stderr.decode()) == (1, f"mlgo-cc: error: {words}\n")
        done = driver.run("-E", "f.c", cwd=work, settings=strict)
        assert (done.returncode, done.stderr) == (0, b"")
        strict[setting] = f"./{name}"
        done = driver.run("-O2", "-c", "f.c", cwd=work, settings=strict)
        assert (done.returncode, done.stderr) == (0, b"")


def test_an_unknown_option(driver: Driver, work: Path) -> None:
    done = driver.run("-O2", "-c", "f.c", "--mlgo-model=x", cwd=work)
    words = (
        "unknown option '--mlgo-model=x'; --mlgo-help lists those that exist; "
        "compiled by plain clang"
    )
    assert (done.returncode, done.stderr.decode()) == (0, f"mlgo-cc: warning: {words}\n")


def test_no_clang(driver: Driver, work: Path) -> None:
    done = driver.run("-O2", "-c", "f.c", cwd=work, settings={"MLGO_CLANG": "/none/clang"})
    words = "clang: expected a program, found none at '/none/clang'"
    assert (done.returncode, done.stderr.decode()) == (1, f"mlgo-cc: error: {words}\n")


def test_no_clang_on_path(driver: Driver, work: Path, tmp_path: Path) -> None:
    bare = {"MLGO_CLANG": "", "PATH": str(tmp_path)}
    program = driver.run("--version", cwd=work)  # makes the driver
    assert program.returncode == 0
    native = driver.program()
    done = subprocess.run(
        [native, "-c", "f.c"], cwd=work, env={**driver.environment, **bare},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    words = (
        "clang: expected clang or clang-19 or newer on PATH, found none; MLGO_CLANG names another"
    )
    assert (done.returncode, done.stderr) == (1, f"mlgo-cc: error: {words}\n")


def test_clang_is_asked_for_its_version_once(driver: Driver, work: Path, tmp_path: Path) -> None:
    """Until its file changes."""
    program = shutil.copy(os.path.realpath(driver.clang), tmp_path / "clang")
    kept = driver.program().parents[1] / "kept"
    settings = {"MLGO_CLANG": str(program), "MLGO_INLINING_MODEL": str(MODELS / "inliner")}
    driver.run("--version", cwd=work)
    known = set(kept.glob("clang-*"))
    for asked in (1, 2):
        os.utime(program, (asked, asked))
        for _ in range(2):
            driver.run("-O2", "-c", "f.c", cwd=work, settings=settings)
        assert len(set(kept.glob("clang-*")) - known) == asked


def test_a_script_in_clangs_place_is_asked_each_time(
    driver: Driver, work: Path, tmp_path: Path
) -> None:
    """What it starts, and with which options, its file does not tell."""
    program, options, version = (tmp_path / each for each in ("clang", "options", "version"))
    program.write_text(
        f'#!/bin/sh\ncase $1 in --version) echo "clang version $(cat {version})" ;;\n'
        f'*) exec clang-22 $(cat {options}) "$@" ;; esac\n'
    )
    program.chmod(0o755)
    version.write_text("22.1.8")
    settings = {"MLGO_CLANG": str(program), "MLGO_INLINING_MODEL": str(MODELS / "inliner")}
    prints = []
    for text in ("", "-fstack-protector-all", ""):
        options.write_text(text)
        for folder in (work, tmp_path):
            done = driver.run("--mlgo-fingerprint", cwd=folder, settings=settings)
            assert done.returncode == 0
            prints.append(done.stdout)
    assert prints[0] == prints[1] == prints[4] != prints[2] == prints[3]
    version.write_text("18.0.0")
    done = driver.run("-O2", "-c", "f.c", cwd=work, settings=settings)
    words = f"clang: expected version 19 or newer, found 18 in '{program}'; compiled by plain clang"
    assert (done.returncode, done.stderr.decode()) == (0, f"mlgo-cc: warning: {words}\n")


@pytest.mark.e2e
def test_a_command_line_at_the_limit(driver: Driver, work: Path) -> None:
    """One that clang takes and that has no room for the advisor's options."""
    driver.run("--version", cwd=work)
    native = driver.program()
    environment = {**driver.environment, "MLGO_INLINING_MODEL": str(MODELS / "inliner")}
    limit = min(resource.getrlimit(resource.RLIMIT_STACK)[0], 8 << 20) // 4
    room = limit - sum(len(f"{name}={text}") + 9 for name, text in environment.items())
    many = ["-DX=" + "1" * 60_000] * (room // 60_100)
    for size in range(room - 60_100 * len(many) + 32_768, 0, -64):
        command = [str(native), "-O2", "-c", "f.c", *many, "-DY=" + "1" * size]
        try:
            done = subprocess.run(
                command, cwd=work, env=environment, capture_output=True, text=True, check=False
            )
        except OSError:
            continue
        break
    words = f"cannot start {driver.clang}: Argument list too long; compiled by plain clang\n"
    assert (done.returncode, done.stderr) == (0, f"mlgo-cc: warning: {words}")
    assert (work / "f.o").is_file()


def test_without_a_cache(driver: Driver, work: Path) -> None:
    """The driver cannot be made: the script itself falls back."""
    settings = {"MLGO_CACHE": "/proc/none"}
    done = driver.run("-O2", "-c", "f.c", cwd=work, settings=settings)
    words = (
        f"mlgo-cc: warning: cannot write to '/proc/none/cc-{__version__}{ROOT}/scripts': "
        "[Errno 2] No such file or directory: '/proc/none'; compiled by plain clang\n"
    )
    assert (done.returncode, done.stderr.decode()) == (0, words)
    done = driver.run("-O2", "-c", "f.c", cwd=work, settings=settings | {"MLGO_STRICT": "1"})
    assert done.returncode == 1


def test_without_a_cache_the_configuration_counts(driver: Driver, work: Path) -> None:
    """Whether it is strict, and which clang compiles; the environment has the last word."""
    file, clang = work / "cc.conf", work / "own-clang"
    clang.write_text(f'#!/bin/sh\necho own >&2\nexec {driver.clang} "$@"\n')
    clang.chmod(0o755)
    settings = {"MLGO_CACHE": "/proc/none", "MLGO_CONFIG": str(file), "MLGO_CLANG": ""}
    file.write_text(f"# strict = 0\n\n strict=1\nclang = {clang}\n")
    assert driver.run("-O2", "-c", "f.c", cwd=work, settings=settings).returncode == 1
    assert not (work / "f.o").exists()
    done = driver.run("-O2", "-c", "f.c", cwd=work, settings=settings | {"MLGO_STRICT": "0"})
    assert (done.returncode, done.stderr.splitlines()[-1]) == (0, b"own")
    home = {"XDG_CONFIG_HOME": str(work)}
    (work / "mlgo-gym").mkdir()
    file.rename(work / "mlgo-gym" / "cc.conf")
    kept = {name: text for name, text in driver.environment.items() if name != "MLGO_CONFIG"}
    of_home = replace(driver, environment=kept)
    settings = {"MLGO_CACHE": "/proc/none", "MLGO_CLANG": "", **home}
    assert of_home.run("-O2", "-c", "f.c", cwd=work, settings=settings).returncode == 1


def test_a_fingerprint_that_cannot_be_written(driver: Driver, work: Path) -> None:
    """A compiler cache would take nothing for that of all."""
    with Path("/dev/full").open("wb") as full:
        done = subprocess.run(
            driver.command("--mlgo-fingerprint"),
            cwd=work, env=driver.environment, stdout=full, stderr=subprocess.PIPE, check=False,
        )  # fmt: skip
    assert done.returncode == 1


def test_without_a_cache_clang_is_found_too(driver: Driver, work: Path, tmp_path: Path) -> None:
    """Under a version's name, behind a link to the script, in C++; our options are not clang's."""
    programs = tmp_path / "bin"
    programs.mkdir()
    (programs / "clang").symlink_to(driver.command()[0])
    for name in ("readlink", "tail", "ld"):
        (programs / name).symlink_to(str(shutil.which(name)))
    (programs / "clang-22").symlink_to(driver.clang)
    settings = {"MLGO_CACHE": "/proc/none", "MLGO_CLANG": "", "PATH": str(programs)}
    (work / "f.cpp").write_text("#include <new>\nint main() { return *new int(0); }\n")
    option = "--mlgo-inlining-model=none"
    done = driver.run(option, "f.cpp", "-o", "f", cwd=work, cxx=True, settings=settings)
    assert done.returncode == 0
    assert done.stderr.decode().endswith("; compiled by plain clang\n")
    assert subprocess.run([work / "f"], check=False).returncode == 0
    done = driver.run("f.cpp", "--mlgo-strict=1", "-o", "g", cwd=work, settings=settings)
    assert done.returncode == 1
    assert done.stderr.decode().startswith("mlgo-cc: error: ")


def test_a_clang_that_is_the_script_is_none(driver: Driver, work: Path, tmp_path: Path) -> None:
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "clang").symlink_to(driver.command()[0])
    path = f"{tmp_path / 'bin'}{os.pathsep}{driver.environment['PATH']}"
    done = driver.run("--version", cwd=work, settings={"MLGO_CLANG": "", "PATH": path})
    assert done.returncode == 0
    assert b"clang version" in done.stdout


@pytest.mark.e2e
def test_a_frozen_model_that_is_replaced_in_place(
    driver: Driver, work: Path, tmp_path: Path
) -> None:
    for name in ("default", "never"):
        freeze(MODELS / name, tmp_path / name, name="policy")
    settings = {"MLGO_INLINING_MODEL": str(tmp_path / "default"), "MLGO_STRICT": "1"}
    objects = []
    for _ in range(2):
        assert driver.run("-O2", "-c", "f.c", cwd=work, settings=settings).returncode == 0
        objects.append((work / "f.o").read_bytes())
        for path in (tmp_path / "never").iterdir():
            (tmp_path / "default" / path.name).write_bytes(path.read_bytes())
    assert objects[0] != objects[1]


def test_a_model_that_could_not_be_read_is_tried_again(
    driver: Driver, work: Path, tmp_path: Path
) -> None:
    (tmp_path / "model").mkdir()
    settings = {"MLGO_INLINING_MODEL": str(tmp_path / "model")}
    done = driver.run("-O2", "-c", "f.c", cwd=work, settings=settings)
    words = f"model '{tmp_path}/model/model.tflite': cannot be read: No such file or directory"
    warning = f"mlgo-cc: warning: {words}; compiled by plain clang\n"
    assert (done.returncode, done.stderr.decode()) == (0, warning)
    refusals = Path(driver.environment["MLGO_CACHE"]).rglob("*.error")
    assert str(tmp_path) not in "".join(each.read_text() for each in refusals)


def installation(driver: Driver, folder: Path) -> Path:
    """A folder with the script and an interpreter."""
    folder.mkdir()
    shutil.copy(str(driver.command()[0]), folder)
    (folder / "python3").write_text(f'#!/bin/sh\nexec {sys.executable} "$@"\n')
    (folder / "python3").chmod(0o755)
    return folder


@pytest.mark.e2e
def test_an_interpreter_that_is_gone(driver: Driver, work: Path, tmp_path: Path) -> None:
    """A virtual environment was made again, with another Python; its driver is still there."""
    scripts = installation(driver, tmp_path / "scripts")
    environment = {**driver.environment, "MLGO_CACHE": str(tmp_path / "cache")}
    old = tmp_path / "python3"
    old.symlink_to(sys.executable)
    folder = f"{tmp_path}/cache/cc-{__version__}{scripts}"
    subprocess.run(
        [old, "-m", "mlgo_gym.cc._prepare", "driver", folder],
        env=environment | {"PYTHONPATH": os.pathsep.join(sys.path)}, check=True,
    )  # fmt: skip
    old.unlink()
    done = subprocess.run(
        [scripts / "mlgo-cc", "-O2", "-c", "f.c"], cwd=work, check=False, capture_output=True,
        env=environment | {"MLGO_INLINING_MODEL": str(MODELS / "never"), "MLGO_STRICT": "1"},
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, b"")


@pytest.mark.e2e
def test_each_installation_has_a_driver_of_its_own(
    driver: Driver, work: Path, tmp_path: Path
) -> None:
    """Its models and its interpreter are in it. However the script is called, it is the same."""
    cache = tmp_path / "cache"
    environment = {**driver.environment, "MLGO_CACHE": str(cache)}
    scripts = [installation(driver, tmp_path / name) for name in ("one", "other")]
    (work / "cc").symlink_to(scripts[1] / "mlgo-cc")
    ways: list[list[str | Path]] = [
        [scripts[0] / "mlgo-cc"],
        [scripts[1] / "mlgo-cc"],
        [tmp_path / "one" / ".." / "other" / "mlgo-cc"],
        ["../other/mlgo-cc"],
        [work / "cc"],
        ["./cc"],
        ["sh", "../other/mlgo-cc"],
    ]
    for way in ways:
        done = subprocess.run(
            [*way, "--version"], cwd=work, env=environment, check=False, capture_output=True
        )
        assert (done.returncode, done.stderr) == (0, b"")
    made = [cache / f"cc-{__version__}{each}" / "bin" / "mlgo-cc" for each in scripts]
    assert sorted(cache.rglob("mlgo-cc")) == made


def test_a_link_in_a_shared_temporary_folder_is_not_followed(
    driver: Driver, work: Path, own_temporary_folder: Path
) -> None:
    """What a dead compilation left behind is removed; where others put a link, nothing is."""
    other = work / "other"
    other.mkdir()
    os.mkfifo(other / "pipe")
    space = Path("/proc/self/ns/pid").stat().st_ino
    dead = subprocess.Popen(["/bin/true"])
    dead.wait()
    link = own_temporary_folder / f"mlgo-gym-channel-{os.getuid()}-{space}-{dead.pid}-abcdef"
    link.symlink_to(other)
    settings = {"MLGO_INLINING_MODEL": str(MODELS / "never"), "MLGO_STRICT": "1"}
    assert driver.run("-O2", "-c", "f.c", cwd=work, settings=settings).returncode == 0
    remove_stale_folders()
    assert (other / "pipe").is_fifo()
    link.unlink()


@pytest.mark.e2e
def test_closed_standard_streams(driver: Driver, work: Path, tmp_path: Path) -> None:
    """Nothing of the driver's takes their place, whatever it still has to make."""
    settings = {
        "MLGO_CACHE": str(tmp_path / "cache"),
        "MLGO_INLINING_MODEL": str(MODELS / "never"),
        "MLGO_STRICT": "1",
    }
    commands = (driver.command("--mlgo-fingerprint"), driver.command("-O2", "-c", "f.c"))
    for command in commands:
        done = subprocess.run(
            ["/bin/sh", "-c", 'exec "$@" <&- >&- 2>&-', "sh", *command],
            cwd=work, env={**driver.environment, **settings}, check=False,
        )  # fmt: skip
        assert done.returncode == 0
    made = (work / "f.o").read_bytes()
    assert driver.run("-O2", "-c", "f.c", cwd=work, settings=settings).returncode == 0
    assert (work / "f.o").read_bytes() == made


@pytest.mark.e2e
@pytest.mark.parametrize("name", ["clang-22", "clang++-22"])
def test_a_build_that_begins_with_cxx(
    driver: Driver, work: Path, tmp_path: Path, name: str
) -> None:
    """The driver and the policy are C, whoever is first to need them."""
    settings = {
        "MLGO_CACHE": str(tmp_path / "cache"),
        "MLGO_CLANG": name,
        "MLGO_INLINING_MODEL": str(MODELS / "inliner"),
        "MLGO_STRICT": "1",
    }
    done = driver.run("-O2", "-x", "c++", "-c", "f.c", cwd=work, cxx=True, settings=settings)
    assert (done.returncode, done.stderr) == (0, b"")


def test_a_failing_link_is_reported_once(driver: Driver, work: Path) -> None:
    (work / "f.c").write_text("int h(int); int main(void) { return h(1); }\n")
    settings = {"MLGO_INLINING_MODEL": str(MODELS / "inliner")}
    done = driver.run("-O2", "f.c", cwd=work, settings=settings)
    assert done.returncode == driver.plain("-O2", "f.c", cwd=work).returncode == 1
    assert done.stderr.count(b"undefined reference") == 1
    assert b"mlgo-cc" not in done.stderr


def test_the_fingerprint_names_clang_and_the_models(driver: Driver, tmp_path: Path) -> None:
    settings = {"MLGO_INLINING_MODEL": str(MODELS / "inliner")}
    prints = [
        driver.run("--mlgo-fingerprint", cwd=tmp_path, settings=each).stdout
        for each in (settings, settings, {"MLGO_INLINING_MODEL": str(MODELS / "never")}, {})
    ]
    assert prints[0] == prints[1]
    assert len(set(prints)) == 3
    assert all(each.startswith(b"mlgo-cc ") and b"\nclang 22 " in each for each in prints)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (
            {"MLGO_INLINING_MODEL": "/none"},
            "model '/none': cannot be read: No such file or directory",
        ),
        ({"MLGO_TIMEOUT": "soon"}, "timeout: expected seconds above 0, found 'soon'"),
    ],
    ids=lambda each: next(iter(each)) if isinstance(each, dict) else "",
)
def test_what_has_no_fingerprint(
    driver: Driver, tmp_path: Path, settings: dict[str, str], message: str
) -> None:
    """A compiler cache then keeps nothing."""
    done = driver.run("--mlgo-fingerprint", cwd=tmp_path, settings=settings)
    assert (done.returncode, done.stderr.decode()) == (1, f"mlgo-cc: error: {message}\n")


def test_the_scripts_and_the_package_agree_on_the_cache() -> None:
    scripts = Path(__file__).parents[2] / "scripts"
    text = (scripts / "mlgo-cc").read_text()
    assert f"/cc-{__version__}${{_self%/*}}\n" in text
    for name in PROGRAMS:
        assert os.access(scripts / name, os.X_OK)
        assert (scripts / name).read_text() == text


@pytest.mark.parametrize(
    ("arguments", "status", "message"),
    [
        ([], 2, "prepare: expected 'driver' or 'policy' and its arguments\n"),
        (
            ["driver", "/proc/none"],
            1,
            "cannot write to '/proc/none': [Errno 2] No such file or directory: '/proc/none'\n",
        ),
    ],
)
def test_prepare(
    arguments: list[str], status: int, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert prepare(arguments) == status
    assert capsys.readouterr().err == message


def test_a_folder_called_as_an_option_of_vocabularies(driver: Driver, tmp_path: Path) -> None:
    folder = tmp_path / "ir2vec-vocab-1"
    folder.mkdir()
    (folder / "f.c").write_text(SOURCE)
    settings = {"MLGO_STRICT": "1", "MLGO_INLINING_MODEL": str(MODELS / "short")}
    done = driver.run("-Oz", "-c", f"{folder}/f.c", cwd=tmp_path, settings=settings)
    assert (done.returncode, done.stderr) == (0, b"")


def test_a_vocabulary_that_is_not_the_one_of_the_card(driver: Driver, tmp_path: Path) -> None:
    model = shutil.copytree(MODELS / "short", tmp_path / "own")
    (model / "ir2vec.json").write_bytes(Vocabulary.of("ones").data.replace(b"1.0", b"9.0"))
    named = {"ir2vec": "ir2vec.json", "ir2vec_sha256": Vocabulary.of("ones").sha256}
    about = json.loads((model / CARD_FILE).read_text()) | {"settings": named}
    (model / CARD_FILE).write_text(json.dumps(about))
    (tmp_path / "f.c").write_text(SOURCE)
    settings = {"MLGO_STRICT": "1", "MLGO_INLINING_MODEL": str(model)}
    done = driver.run("-Oz", "-c", "f.c", cwd=tmp_path, settings=settings)
    assert done.returncode == 1
    problem = f"ir2vec: expected that of SHA-256 {named['ir2vec_sha256']}, which it was trained "
    assert f"mlgo-cc: error: model {str(model)!r}: {problem}" in done.stderr.decode()


def test_a_relative_folder_of_configurations_is_none(
    driver: Driver, work: Path, plain: bytes, never: bytes
) -> None:
    """The settings of a folder that is compiled in do not count."""
    place = work / "xdg" / "mlgo-gym"
    place.mkdir(parents=True)
    (place / "cc.conf").write_text(f"inlining-model = {MODELS / 'never'}\n")
    environment = {**driver.environment, "HOME": str(work)}
    del environment["MLGO_CONFIG"]
    for folder, expected in (("xdg", plain), (str(work / "xdg"), never)):
        own = replace(driver, environment={**environment, "XDG_CONFIG_HOME": folder})
        assert compile_file(own, work, {}) == (expected, b"")
