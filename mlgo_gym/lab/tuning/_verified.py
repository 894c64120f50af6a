"""Whether what a build links is smaller by what was tuned; LLVM's own answers where it is not."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import PurePath
from typing import Any, Final

from mlgo_gym.cc import ALL, Build, compile_objects
from mlgo_gym.corpus import ModuleKey
from mlgo_gym.rollout import LinkedSizes, linked_sizes

_LIBRARIES: Final = frozenset({".so", ".a", ".lib", ".dylib"})


@dataclass(frozen=True, slots=True)
class VerifiedTarget:
    """The code of a target, linked from clang's own objects and from the tuned ones.

    Attributes:
        plain: from clang's own objects; ``None`` where that cannot be told.
        built: as it is built in the end.
        why: why the target keeps LLVM's own answers; empty where it does not.
    """

    plain: LinkedSizes | None
    built: LinkedSizes | None
    why: str = ""

    def to_json(self) -> dict[str, Any]:
        """Return the sizes in bytes, and the reason."""
        return asdict(self)


def verify(
    build: Build,
    targets: Mapping[str, Sequence[ModuleKey]],
    settings: Sequence[str],
    *,
    jobs: int,
    timeout_s: float,
) -> dict[str, VerifiedTarget]:
    """Compile and link all targets plainly and as they were tuned.

    A target keeps LLVM's own answers where it grows: linked plainly, after ``--gc-sections``, or
    after ``--icf=safe`` besides. So does one that cannot be compared.

    Args:
        build: the modules and their commands.
        targets: the modules of what is linked, by its name.
        settings: options of ``mlgo-cc``.
        jobs: how many compilers run at once.
        timeout_s: how long one may take, in seconds.
    """
    plain, plain_failures = compile_objects(build, (), jobs=jobs, timeout_s=timeout_s)
    tuned, tuned_failures = compile_objects(build, settings, jobs=jobs, timeout_s=timeout_s)
    failures = plain_failures | tuned_failures
    modules = {target: [key.name for key in keys] for target, keys in targets.items()}
    before, reasons = _linked(modules, plain, failures)
    while True:
        # Objects of a target that keeps LLVM's own are so in other targets, too.
        kept = {name for target in reasons for name in modules[target]}
        mixed = {name: (plain if name in kept else tuned)[name] for name in tuned if name in plain}
        after, new = _linked(modules, mixed, failures)
        new |= {
            target: why
            for target, sizes in after.items()
            if target in before and (why := _growth(before[target], sizes))
        }
        if new.keys() <= reasons.keys():
            break
        reasons = new | reasons
    return {
        target: VerifiedTarget(before.get(target), after.get(target), reasons.get(target, ""))
        for target in sorted(modules)
    }


def _linked(
    targets: Mapping[str, Iterable[str]],
    objects: Mapping[str, bytes],
    failures: Mapping[str, str],
) -> tuple[dict[str, LinkedSizes], dict[str, str]]:
    """The sizes of targets, and why those of others are not known."""
    sizes: dict[str, LinkedSizes] = {}
    unknown: dict[str, str] = {}
    for target, names in targets.items():
        missing = [name for name in names if name not in objects]
        if missing:
            reason = failures.get(missing[0], "it has no command")
            unknown[target] = f"cannot be compared: {missing[0]}: {reason}"
            continue
        try:
            files = [objects[name] for name in names]
            sizes[target] = linked_sizes(files, exports=exports_of(target))
        except ValueError as error:
            unknown[target] = f"cannot be compared: {error}"
    return sizes, unknown


def exports_of(target: str) -> tuple[str, ...]:
    """The patterns of what a linked file exports: ``main`` alone if it is a program.

    All modules of a build that does not say what it links may be a library.
    """
    is_library = not _LIBRARIES.isdisjoint(PurePath(target).suffixes)
    return ("*",) if is_library or target == ALL else ("main",)


def _growth(before: LinkedSizes, after: LinkedSizes) -> str:
    """Name what grows; empty if nothing does."""
    names = {"text": "linked", "gc": "after --gc-sections", "icf": "after --icf=safe"}
    grown = [
        f"{getattr(before, key):,} to {getattr(after, key):,} bytes {words}"
        for key, words in names.items()
        if getattr(after, key) > getattr(before, key)
    ]
    return f"grows: {', '.join(grown)}" if grown else ""
