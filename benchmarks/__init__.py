"""Measurements: speed, memory and equality with clang. ``python -m benchmarks --help`` lists them.

Ratios are taken side by side in one run, since machines are shared and noisy.
"""
