"""``mlgo-gym corpus``: build corpora from recipes, look into corpora, verify them."""

DESCRIPTION = "Corpora are folders of bitcode in the layout of LLVM's mlgo-utils."
EXAMPLE = "mlgo-gym corpus build lupa --output corpora/lupa"
COMMANDS = {
    "_build": "compile packages from PyPI into corpora",
    "_recipes": "list the packages that 'corpus build' knows",
    "_split": "split corpora into train and test",
    "_split_functions": "make one module of each function, after optimisation",
    "_stats": "print languages, sizes, decisions and profiles of a corpus",
    "_verify": "check that every module of a corpus compiles back",
}
