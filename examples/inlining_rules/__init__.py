"""An OpenEnv environment: an agent writes rules for LLVM's inliner."""
