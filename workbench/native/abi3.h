/* The part of Python's stable ABI that the mover uses, declared here because Python.h is often missing
   where a compiler is there: a system's Python without its -dev package.

   One binary serves every Python from 3.11 on: these layouts and numbers do not change before Python 4
   (PEP 384). tests/native/test_build.py compares them with Python.h, where there is one. Objects are
   opaque but for their size; a free-threaded Python lays them out otherwise and has no stable ABI. */
#pragma once
#include <stddef.h>
#include <stdint.h>

typedef intptr_t Py_ssize_t;
typedef struct _typeobject PyTypeObject;
typedef struct _ts PyThreadState;
typedef struct {
    Py_ssize_t references;
    PyTypeObject *type;
} PyObject;
#define PyObject_HEAD PyObject base;

typedef struct {
    void *buf;
    PyObject *obj;
    Py_ssize_t len, itemsize;
    int readonly, ndim;
    char *format;
    Py_ssize_t *shape, *strides, *suboffsets;
    void *internal;
} Py_buffer;
enum { PyBUF_SIMPLE = 0, PyBUF_WRITABLE = 0x01, PyBUF_FORMAT = 0x04, PyBUF_CONTIG_RO = 0x08 };
int PyObject_GetBuffer(PyObject *, Py_buffer *, int);
void PyBuffer_Release(Py_buffer *);

/* -- modules, types, functions -- */
typedef PyObject *(*PyCFunction)(PyObject *, PyObject *);
typedef PyObject *(*allocfunc)(PyTypeObject *, Py_ssize_t);
typedef void (*freefunc)(void *);
typedef struct {
    const char *ml_name;
    PyCFunction ml_meth;
    int ml_flags;
    const char *ml_doc;
} PyMethodDef;
enum { METH_VARARGS = 0x01, METH_KEYWORDS = 0x02, METH_NOARGS = 0x04, METH_O = 0x08, METH_FASTCALL = 0x80 };
/* A function of another signature, as METH_FASTCALL has. */
#define PyCFunction_CAST(function) ((PyCFunction)(void (*)(void))(function))

typedef struct {
    const char *name;
    int type;
    Py_ssize_t offset;
    int flags;
    const char *doc;
} PyMemberDef;
enum { T_LONGLONG = 17 };

typedef struct {
    int slot;
    void *pfunc;
} PyType_Slot;
typedef struct {
    const char *name;
    int basicsize, itemsize;
    unsigned int flags;
    PyType_Slot *slots;
} PyType_Spec;
enum {
    Py_tp_alloc = 47, Py_tp_dealloc = 52, Py_tp_doc = 56, Py_tp_methods = 64, Py_tp_new = 65, Py_tp_members = 72,
    Py_tp_free = 74
};
#define Py_TPFLAGS_DEFAULT 0
#define Py_TPFLAGS_LONG_SUBCLASS (1UL << 24)
#define Py_TPFLAGS_LIST_SUBCLASS (1UL << 25)
#define Py_TPFLAGS_UNICODE_SUBCLASS (1UL << 28)
PyObject *PyType_FromSpec(PyType_Spec *);
void *PyType_GetSlot(PyTypeObject *, int);
unsigned long PyType_GetFlags(PyTypeObject *);

struct PyModuleDef;
typedef struct {
    PyObject base;
    PyObject *(*m_init)(void);
    Py_ssize_t m_index;
    PyObject *m_copy;
} PyModuleDef_Base;
typedef struct PyModuleDef {
    PyModuleDef_Base m_base;
    const char *m_name, *m_doc;
    Py_ssize_t m_size;
    PyMethodDef *m_methods;
    void *m_slots, *m_traverse, *m_clear, *m_free;
} PyModuleDef;
#define PyModuleDef_HEAD_INIT {{1, NULL}, NULL, 0, NULL}
#define PYTHON_ABI_VERSION 3
#define PyModule_Create(definition) PyModule_Create2(definition, PYTHON_ABI_VERSION)
#define PyMODINIT_FUNC __attribute__((visibility("default"))) PyObject *
PyObject *PyModule_Create2(PyModuleDef *, int);
int PyModule_AddObjectRef(PyObject *, const char *, PyObject *);
int PyModule_AddStringConstant(PyObject *, const char *, const char *);

/* -- references -- */
extern PyObject _Py_NoneStruct;
#define Py_None (&_Py_NoneStruct)
void Py_IncRef(PyObject *); /* NULL is allowed in both */
void Py_DecRef(PyObject *);
#define Py_INCREF(object) Py_IncRef((PyObject *)(object))
#define Py_DECREF(object) Py_DecRef((PyObject *)(object))
#define Py_XDECREF(object) Py_DecRef((PyObject *)(object))
#define Py_RETURN_NONE return Py_IncRef(Py_None), Py_None
#define Py_TYPE(object) (((PyObject *)(object))->type)

/* -- values -- */
PyObject *PyLong_FromLong(long);
PyObject *PyLong_FromLongLong(long long);
long PyLong_AsLong(PyObject *);
long long PyLong_AsLongLong(PyObject *);
#define PyLong_Check(object) (PyType_GetFlags(Py_TYPE(object)) & Py_TPFLAGS_LONG_SUBCLASS)
PyObject *PyBool_FromLong(long);
double PyFloat_AsDouble(PyObject *);
int PyUnicode_CompareWithASCIIString(PyObject *, const char *);
int PyObject_IsTrue(PyObject *);
PyObject *PyDict_GetItemWithError(PyObject *, PyObject *); /* borrowed */
PyObject *PyList_GetItem(PyObject *, Py_ssize_t);          /* borrowed */
Py_ssize_t PyList_Size(PyObject *);
PyObject *PyList_New(Py_ssize_t);
int PyList_Append(PyObject *, PyObject *);
PyObject *PyByteArray_FromStringAndSize(const char *, Py_ssize_t);
char *PyByteArray_AsString(PyObject *);
PyObject *PyTuple_GetItem(PyObject *, Py_ssize_t); /* borrowed */
Py_ssize_t PyTuple_Size(PyObject *);
PyObject *PyObject_CallFunctionObjArgs(PyObject *, ...);
PyObject *PyObject_Call(PyObject *, PyObject *, PyObject *);
extern PyTypeObject PyCFunction_Type;
PyObject *PyCFunction_GetSelf(PyObject *); /* borrowed */
PyObject *PyObject_GetAttrString(PyObject *, const char *);
PyObject *PyUnicode_InternFromString(const char *);

/* With PY_SSIZE_T_CLEAN, as Python 3.10 and later want it. */
#define PyArg_ParseTuple _PyArg_ParseTuple_SizeT
#define Py_BuildValue _Py_BuildValue_SizeT
#define PyObject_CallMethod _PyObject_CallMethod_SizeT
int PyArg_ParseTuple(PyObject *, const char *, ...);
PyObject *PyObject_CallMethod(PyObject *, const char *, const char *, ...);
PyObject *Py_BuildValue(const char *, ...);

/* -- errors, and the interpreter's lock -- */
extern PyObject *PyExc_TypeError, *PyExc_ValueError, *PyExc_RuntimeError, *PyExc_OverflowError;
PyObject *PyErr_Occurred(void);
PyObject *PyErr_Format(PyObject *, const char *, ...);
void PyErr_SetString(PyObject *, const char *);
void PyErr_Clear(void);
typedef enum { PyGILState_LOCKED, PyGILState_UNLOCKED } PyGILState_STATE;
PyGILState_STATE PyGILState_Ensure(void);
void PyGILState_Release(PyGILState_STATE);
void PyErr_WriteUnraisable(PyObject *);
PyThreadState *PyEval_SaveThread(void);
void PyEval_RestoreThread(PyThreadState *);
