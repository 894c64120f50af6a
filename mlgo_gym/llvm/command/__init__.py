"""How a module is compiled: clang's command lines, and the options of LLVM's own."""
