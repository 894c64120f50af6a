"""Parsers of the text that LLVM prints: assembly, machine code, profiles, fingerprints."""
