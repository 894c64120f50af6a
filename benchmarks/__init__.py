"""Measurements: speed, memory and equality with clang, a file each.

``python -m benchmarks --help`` lists those that need no arguments. Ratios are taken side by side in
one run, since machines are shared and noisy.
"""
