// The solver's module holds the Python interface too, which is linked but not run: what it needs of
// Python is here, and ends the program.
#include <stdlib.h>

// clang-format off
#define ABSENT(name) void name(void) { abort(); }

ABSENT(PyArg_ParseTupleAndKeywords) ABSENT(PyErr_Format) ABSENT(PyErr_NoMemory)
ABSENT(PyErr_Occurred) ABSENT(PyErr_SetString) ABSENT(PyEval_RestoreThread)
ABSENT(PyEval_SaveThread) ABSENT(PyExc_SystemError) ABSENT(PyExc_TypeError)
ABSENT(PyExc_ValueError) ABSENT(PyIter_Next) ABSENT(PyList_New) ABSENT(PyList_SetItem)
ABSENT(PyLong_AsLong) ABSENT(PyLong_FromLong) ABSENT(PyMem_Calloc) ABSENT(PyMem_Free)
ABSENT(PyModule_AddObject) ABSENT(PyModule_Create2) ABSENT(PyObject_GC_Del)
ABSENT(PyObject_GC_Track) ABSENT(PyObject_GC_UnTrack) ABSENT(PyObject_GenericGetAttr)
ABSENT(PyObject_GetIter) ABSENT(PyObject_SelfIter) ABSENT(PyType_IsSubtype) ABSENT(PyType_Ready)
ABSENT(PyUnicode_FromString) ABSENT(_PyObject_GC_New) ABSENT(_Py_Dealloc)
