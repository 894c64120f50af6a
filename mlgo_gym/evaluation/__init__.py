"""Evaluation: how much better or worse than LLVM's own heuristic policies are, and how sure it is.

`mlgo_gym.evaluation.evaluate` compiles packages of modules under policies, `linked_text` counts
what a linker would keep, `summary` adds up with bootstrap intervals.
"""
