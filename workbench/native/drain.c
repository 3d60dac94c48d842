/* Reads the rings of ranks: what store/rank_reader.py does, compiled, and while the interpreter is elsewhere.

   A Reader reads one rank's trace. `gather` copies what is new in every lane's rings, and checks that it is
   whole; `take` hands over the rows that were there at the last `gather`, each with its context, all names
   as the store's numbers. Between the two the caller reads the rank's names, because whatever a row refers
   to was written before the row. `watch_rings` gathers when a ring fills, without the interpreter's lock, on
   a thread of its own: none overflows while Python computes, or while one thread of the driver keeps the
   interpreter to itself (a large library being loaded, say). What waits for Python then is staged here. */
#include "rings.h"
#include <stdlib.h>
#include <string.h>

enum { TRACE_PAGE = 4096, NAMES_KNOWN = 65536 };
enum { MANY_ROWS = 1 << 16 }; /* of one lane: memory for more is given back once they are taken */

/* -- rows with their contexts -- */

static inline uint16_t stores(const reader *m, uint16_t number) { return ((const uint16_t *)m->numbers.buf)[number]; }

/* Leaves out rows without a context or of no kind, in place; returns how many are left. */
static i64 keep_good(const reader *m, const lane_reader *l, read_row *rows, i64 count) {
    i64 kept = 0;
    for (i64 k = 0; k < count; k++) {
        i64 id = rows[k].context;
        if (id > 0 && l->known[id % l->known_size].seq == id && rows[k].kind < m->kinds) rows[kept++] = rows[k];
    }
    return kept;
}

/* Returns (lane's name, rows, contexts) of the good rows from `rows` on that are of one lane; sets `*used`
   to how many these are. A row's context becomes its index in the contexts. */
static PyObject *one_lane(const reader *m, const lane_reader *l, read_row *rows, i64 count, i64 *used) {
    uint16_t name = stores(m, l->known[rows[0].context % l->known_size].lane);
    i64 many = 0, id = -1, n = 0;
    for (; n < count; n++) {
        if (rows[n].context == id) continue;
        if (stores(m, l->known[rows[n].context % l->known_size].lane) != name) break;
        id = rows[n].context, many++;
    }
    *used = n;
    PyObject *contexts = PyByteArray_FromStringAndSize(NULL, many * RECORD);
    PyObject *own = contexts ? PyByteArray_FromStringAndSize(NULL, n * RECORD) : NULL;
    if (!own) {
        Py_XDECREF(contexts);
        return NULL;
    }
    read_context *c = (read_context *)PyByteArray_AsString(contexts) - 1;
    read_row *to = (read_row *)PyByteArray_AsString(own);
    id = -1, many = -1;
    for (i64 k = 0; k < n; k++) {
        if (rows[k].context != id) {
            id = rows[k].context, many++;
            *++c = l->known[id % l->known_size];
            c->collective = stores(m, c->collective), c->algorithm = stores(m, c->algorithm);
            c->group = stores(m, c->group), c->lane = name;
        }
        to[k] = rows[k];
        to[k].context = (uint32_t)many;
        to[k].seq = (i64)((uint64_t)rows[k].seq - (uint64_t)c->first);
        to[k].name = stores(m, rows[k].name), to[k].phase = stores(m, rows[k].phase);
    }
    return Py_BuildValue("(iNN)", (int)name, own, contexts);
}

/* Adds what is ready of a lane to `parts`; returns how many rows that is, -1 for an error. */
static i64 take_lane(const reader *m, lane_reader *l, PyObject *parts) {
    i64 kept = keep_good(m, l, l->staged, l->ready), used = 0;
    for (i64 k = 0; k < kept; k += used) {
        PyObject *part = one_lane(m, l, l->staged + k, kept - k, &used);
        int failed = !part || PyList_Append(parts, part);
        Py_XDECREF(part);
        if (failed) return -1;
    }
    return kept;
}

static void forget_taken(lane_reader *l) {
    l->count -= l->ready, l->lost -= l->ready_lost, l->new_contexts -= l->ready_contexts;
    if (l->count) memmove(l->staged, l->staged + l->ready, l->count * sizeof(read_row));
    if (l->room > MANY_ROWS && l->count < MANY_ROWS / 2) {
        read_row *smaller = realloc(l->staged, MANY_ROWS * sizeof(read_row));
        if (smaller) l->staged = smaller, l->room = MANY_ROWS;
    }
    i64 usual = KNOWN_CONTEXTS * l->contexts.size;
    if (l->known_size > usual && l->new_contexts <= usual) keep_contexts(l, usual);
    l->ready = l->ready_lost = l->ready_contexts = 0;
}

/* -- what Python calls -- */

static PyObject *reader_gather(PyObject *self, PyObject *none) {
    reader *m = (reader *)self;
    PyThreadState *thread = PyEval_SaveThread(); /* who has `busy` may wait for a core */
    pthread_mutex_lock(&m->busy);
    gather(m);
    for (i64 k = 0; k < m->lanes; k++) {
        lane_reader *l = &m->lane[k];
        l->ready = l->count, l->ready_lost = l->lost, l->ready_contexts = l->new_contexts;
    }
    int failed = m->short_memory;
    pthread_mutex_unlock(&m->busy);
    PyEval_RestoreThread(thread);
    if (failed) return PyErr_Format(PyExc_ValueError, "a trace of %zd bytes has no room for the lanes that it names", m->memory.len);
    Py_RETURN_NONE;
}

static PyObject *reader_take(PyObject *self, PyObject *none) {
    reader *m = (reader *)self;
    PyObject *parts = PyList_New(0);
    if (!parts) return NULL;
    i64 stored = 0, dropped = 0, full, taken = 0;
    while (pthread_mutex_trylock(&m->busy)) { /* never has `busy` while it waits for the interpreter */
        PyThreadState *thread = PyEval_SaveThread();
        nanosleep(&(struct timespec){.tv_nsec = 50000}, NULL);
        PyEval_RestoreThread(thread);
    }
    for (i64 k = 0; k < m->lanes && taken >= 0; k++) {
        lane_reader *l = &m->lane[k];
        i64 ready = l->ready;
        taken = take_lane(m, l, parts);
        stored += taken, dropped += l->ready_lost + ready - taken;
        forget_taken(l);
    }
    full = m->full, m->full = 0;
    pthread_mutex_unlock(&m->busy);
    if (taken < 0) {
        Py_DECREF(parts);
        return NULL;
    }
    return Py_BuildValue("(LLdN)", (long long)stored, (long long)dropped, full / 1000.0, parts);
}

static PyMethodDef reader_methods[] = {
    {"gather", reader_gather, METH_NOARGS, "Copy what is new; `take` hands it over."},
    {"take", reader_take, METH_NOARGS,
     "Return the rows that were there at the last `gather`: how many, how many were lost, how full a ring was\n"
     "at most, and a list of (lane's name, rows, contexts)."},
    {NULL, NULL, 0, NULL},
};

static void reader_dealloc(PyObject *self) {
    reader *m = (reader *)self;
    PyTypeObject *type = Py_TYPE(self);
    for (i64 k = 0; k < MOST_LANES; k++) free_table(&m->lane[k]), free(m->lane[k].staged);
    if (m->memory.obj) PyBuffer_Release(&m->memory);
    if (m->numbers.obj) PyBuffer_Release(&m->numbers);
    pthread_mutex_destroy(&m->busy);
    ((freefunc)PyType_GetSlot(type, Py_tp_free))(self);
    Py_DECREF(type);
}

static PyObject *reader_new(PyTypeObject *type, PyObject *args, PyObject *keywords) {
    PyObject *memory, *numbers;
    long long magic, data_at, rows, contexts, kinds;
    if (!PyArg_ParseTuple(args, "OOLLLLL", &memory, &numbers, &magic, &data_at, &rows, &contexts, &kinds)) return NULL;
    if (data_at < TRACE_PAGE || data_at % 8 || data_at > FARTHEST || rows < 1 || contexts < 1 || rows > MOST_ROWS / 2 || contexts > MOST_ROWS)
        return PyErr_Format(PyExc_ValueError, "no layout of a trace: rings of %lld and %lld records from byte %lld on", rows, contexts, data_at);
    reader *m = (reader *)((allocfunc)PyType_GetSlot(type, Py_tp_alloc))(type, 0);
    if (!m) return NULL;
    pthread_mutex_init(&m->busy, NULL);
    m->magic = magic, m->data_at = data_at, m->rows = rows, m->contexts = contexts, m->kinds = kinds;
    if (PyObject_GetBuffer(memory, &m->memory, PyBUF_SIMPLE) || PyObject_GetBuffer(numbers, &m->numbers, PyBUF_SIMPLE)) goto failed;
    if (m->memory.len < TRACE_PAGE || (uintptr_t)m->memory.buf % 8 || m->numbers.len != NAMES_KNOWN * 2) {
        PyErr_SetString(PyExc_ValueError, "a trace has a page at least, and a table of names 65,536 numbers of 16 bits");
        goto failed;
    }
    return (PyObject *)m;
failed:
    Py_DECREF(m);
    return NULL;
}

static PyType_Slot reader_slots[] = {
    {Py_tp_new, reader_new},
    {Py_tp_dealloc, reader_dealloc},
    {Py_tp_methods, reader_methods},
    {Py_tp_doc, "Reads a rank's trace: Reader(memory, numbers, magic, data_at, rows, contexts, kinds)."},
    {0, NULL},
};
PyType_Spec reader_spec = {"workbench.native._mover.Reader", sizeof(reader), 0, Py_TPFLAGS_DEFAULT, reader_slots};

int is_reader(PyObject *x) { return PyType_GetSlot(Py_TYPE(x), Py_tp_dealloc) == (void *)reader_dealloc; }
