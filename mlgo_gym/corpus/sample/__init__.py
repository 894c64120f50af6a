"""The corpus that ships with the package: C and C++ written for it, and how it is rebuilt.

``src`` holds the sources, ``corpus`` what clang made of them, in mlgo-utils' layout.
"""
