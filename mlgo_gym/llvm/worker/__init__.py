"""The worker process: LLVM, one request after the other, and who answers its questions there."""
