"""Everything that reaches into the memory of LLVM 22: names, offsets and slots of tables."""
