"""What LLVM prints, taken apart: assembly, machine code, profiles and fingerprints."""
