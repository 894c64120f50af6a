"""The embedded compiler: LLVM inside llvmlite, in worker processes.

Empty on purpose: a worker imports this package and must stay small.
"""
