/* The extension workbench.native._mover: what its files offer to Python.

   Each file declares its functions and types here; Python sees a function under its name in
   `functions`, a type under the last part of its spec's name. */
#include "mover.h"
#include <stdatomic.h>

PyObject *watch_rings(PyObject *, PyObject *); /* watch.c */
PyObject *wake_watch(PyObject *, PyObject *);  /* watch.c */
extern PyType_Spec reader_spec;                /* drain.c */

/* Python writes and reads words in shared memory too: shared_memory/ordering.py. */
static PyObject *fence(PyObject *self, PyObject *none) {
    atomic_thread_fence(memory_order_seq_cst);
    Py_RETURN_NONE;
}

static PyMethodDef functions[] = {
    {"fence", fence, METH_NOARGS, "Order all memory accesses before it and after it, for every processor."},
    {"watch_rings", watch_rings, METH_VARARGS, "Gather from Readers for some seconds, or until a word is set."},
    {"wake_watch", wake_watch, METH_O, "Have who watches see at once that its word is set."},
    {NULL, NULL, 0, NULL},
};

static PyType_Spec *const types[] = {
    &journal_spec,
    &mover_spec,
    &reader_spec,
    NULL,
};

static PyModuleDef definition = {
    .m_base = PyModuleDef_HEAD_INIT,
    .m_name = "workbench.native._mover",
    .m_doc = "Moves messages and reads records, compiled.",
    .m_size = -1,
    .m_methods = functions,
};

/* Adds what a spec makes under the name that follows the last dot of its own. */
static int add_type(PyObject *module, PyType_Spec *spec) {
    const char *name = spec->name;
    for (const char *at = spec->name; *at; at++)
        if (*at == '.') name = at + 1;
    PyObject *type = PyType_FromSpec(spec);
    if (!type) return -1;
    int failed = PyModule_AddObjectRef(module, name, type);
    Py_DECREF(type);
    return failed;
}

PyMODINIT_FUNC PyInit__mover(void) {
    PyObject *module = PyModule_Create(&definition);
    if (!module) return NULL;
    int failed = PyModule_AddStringConstant(module, "SOURCES", SOURCES); /* their digest: build.py */
    for (PyType_Spec *const *spec = types; *spec && !failed; spec++) failed = add_type(module, *spec);
    if (failed) {
        Py_DECREF(module);
        return NULL;
    }
    return module;
}
