"""``mlgo-gym workload run``: a program, as a policy or LLVM has compiled it."""

from __future__ import annotations

import argparse

from mlgo_gym.cli import Output
from mlgo_gym.cli import options as shared

DESCRIPTION = (
    "Compile and link the program of a workload, run it in its sandbox and print what it prints. "
    "Without a model or policy, LLVM's own heuristics compile it."
)
EXAMPLE = "mlgo-gym workload run --workload json"


def add_options(add: shared.Options) -> None:
    add.corpus()
    add("--workload", "NAME", "the workload's name; give one corpus", required=True)
    add.model("a model that compiles the modules")
    add.policy()
    add.problem()
    add.seed()
    add.file("--program", "also write the program")
    add.compilation()


def run(options: argparse.Namespace, output: Output) -> int:
    from mlgo_gym.cli import writing
    from mlgo_gym.evaluation import Setting
    from mlgo_gym.lab.programs import run_program
    from mlgo_gym.lab.programs._program_scores import linked_programs
    from mlgo_gym.lab.programs._running import compare_output

    corpus = shared.one_corpus_of(options)
    problem = shared.problem_of(options)
    setting = Setting(problem, **shared.compilation_of(options))
    is_plain = not options.model and not options.policy
    with (
        shared.policies_of(options, problem) as policies,
        linked_programs(corpus, {} if is_plain else policies, setting, options.workload) as made,
    ):
        workload, programs = made
        name = list(programs)[-1]
        if options.program:
            with writing(options.program) as file:
                file.write(programs[name].path.read_bytes())
            options.program.chmod(0o755)
        done = run_program(workload, programs[name].path, check_output=False)
    output.verbatim(done.stdout.decode(errors="replace").rstrip("\n"))
    compare_output(workload, done)
    output.json(
        {
            "workload": workload.name,
            "compiled_by": name,
            "cpu_seconds": done.cpu_s,
            "text_bytes": programs[name].text_bytes,
            "exit_status": done.status,
            "stdout_sha256": done.stdout_sha256,
        }
    )
    return 0
