/* The Python type Journal: what recording/compiled_lane.py writes through, and the mover in its stead. */
#include "journal.h"

/* Asks the lane for a file's next block. Returns a new reference; NULL, without an error, if it has gone. */
static PyObject *next_block(journal *j, int contexts, i64 number) {
    PyObject *lane = PyObject_CallFunctionObjArgs(j->lane, NULL), *answer = NULL;
    if (lane && lane != Py_None) answer = PyObject_CallMethod(lane, "next_block", "iL", contexts, (long long)number);
    Py_XDECREF(lane);
    if (PyErr_Occurred()) PyErr_WriteUnraisable(j->lane);
    return answer;
}

/* Begins the next block: the same memory again, or a file's new one. */
void journal_turn(journal *j, ring *r) {
    r->place = 0;
    if (!r->grows) return;
    PyGILState_STATE lock = PyGILState_Ensure();
    i64 began = now();
    PyObject *memory = next_block(j, r == &j->contexts, r->seq / r->records);
    Py_buffer fresh;
    PyBuffer_Release(&r->memory);
    if (memory && !PyObject_GetBuffer(memory, &fresh, PyBUF_WRITABLE)) {
        r->memory = fresh;
        r->base = fresh.buf;
        if (r->records * RECORD_BYTES > fresh.len) r->records = fresh.len / RECORD_BYTES;
    } else {
        if (PyErr_Occurred()) PyErr_WriteUnraisable(j->lane);
        r->memory.obj = NULL;
        r->base = r->spare;
        r->records = 1;
        r->grows = 0;
    }
    if (r == &j->rows && j->meter) j->meter[0] += now() - began;
    Py_XDECREF(memory);
    PyGILState_Release(lock);
}

/* Counts a row for which there is no lane, unless rows are of no interest. */
void journal_lose(journal *j) {
    if (j->lost == Py_None) return;
    PyGILState_STATE lock = PyGILState_Ensure();
    PyObject *done = PyObject_CallFunctionObjArgs(j->lost, NULL);
    if (!done) PyErr_WriteUnraisable(j->lost);
    Py_XDECREF(done);
    PyGILState_Release(lock);
}

/* Wakes who reads the rings: a cost of recording beside rows. Who is woken may take this very core. */
void journal_knock(journal *j) {
    i64 began = busy_ns();
    knock(j->knocks);
    if (j->meter) j->meter[0] += busy_ns() - began;
}

/* -- rows that Python writes -- */

static PyObject *minus_one; /* most fields of most rows: known by its address, where the interpreter has one */

/* Sets an error for what does not fit, unless there is one. */
static __attribute__((cold, noinline)) void refuse(i64 value, i64 lowest, i64 highest) {
    if (PyErr_Occurred() || (value >= lowest && value <= highest)) return;
    PyErr_Format(PyExc_OverflowError, "%lld does not fit into its field of a record", (long long)value);
}

/* ``*doubtful``: there may be an error. Else the interpreter need not be asked for one. */
static inline i64 whole(PyObject *x, i64 lowest, i64 highest, int *doubtful) {
    if (x == minus_one && lowest < 0) return -1;
    i64 value = PyLong_AsLongLong(x);
    if (value == -1 || value < lowest || value > highest) *doubtful = 1, refuse(value, lowest, highest);
    return value;
}
#define SIGNED(x, bits) whole(x, -(1LL << (bits - 1)), (1LL << (bits - 1)) - 1, &doubtful)
#define UNSIGNED16(x) (uint16_t) whole(x, 0, UINT16_MAX, &doubtful)
#define ANY(x) whole(x, INT64_MIN, INT64_MAX, &doubtful)

static const char *const FIELDS[] = {"kind", "start", "end",  "peer",  "step", "chunk",
                                     "slot", "nbytes", "name", "phase", "value"};
enum { FIELD_COUNT = sizeof FIELDS / sizeof *FIELDS };

/* Returns whether there may be an error. */
static inline __attribute__((always_inline)) int set_field(row *r, int field, PyObject *x) {
    int doubtful = 0;
    switch (field) {
    case 0: r->kind = UNSIGNED16(x); break;
    case 1: r->start = ANY(x); break;
    case 2: r->end = ANY(x); break;
    case 3: r->peer = (int16_t)SIGNED(x, 16); break;
    case 4: r->step = (int32_t)SIGNED(x, 32); break;
    case 5: r->chunk = (int32_t)SIGNED(x, 32); break;
    case 6: r->slot = (int32_t)SIGNED(x, 32); break;
    case 7: r->nbytes = ANY(x); break;
    case 8: r->name = UNSIGNED16(x); break;
    case 9: r->phase = UNSIGNED16(x); break;
    default: r->value = PyFloat_AsDouble(x), doubtful = r->value == -1;
    }
    return doubtful;
}

/* Sets all fields of a row, one after the other: no jump that caches may have lost. */
static inline int set_all_fields(row *r, PyObject *const *x) {
    return set_field(r, 0, x[0]) | set_field(r, 1, x[1]) | set_field(r, 2, x[2]) | set_field(r, 3, x[3]) |
           set_field(r, 4, x[4]) | set_field(r, 5, x[5]) | set_field(r, 6, x[6]) | set_field(r, 7, x[7]) |
           set_field(r, 8, x[8]) | set_field(r, 9, x[9]) | set_field(r, 10, x[10]);
}

/* A call's keywords are interned as these names are, so that most are known by their address. */
static int field_of(PyObject *key) {
    static PyObject *names[FIELD_COUNT];
    for (int field = 0; field < FIELD_COUNT; field++)
        if (names[field] == key) return field;
    for (int field = 0; field < FIELD_COUNT; field++)
        if (!PyUnicode_CompareWithASCIIString(key, FIELDS[field])) {
            if (!names[field]) names[field] = PyUnicode_InternFromString(FIELDS[field]);
            return field;
        }
    return -1;
}

/* Reads what Python passes to ``write``: fields in their order, then some by name. -1: an error is set. */
static inline int read_row(row *r, PyObject *const *args, Py_ssize_t count, PyObject *keys) {
    if (count == FIELD_COUNT && !keys) return set_all_fields(r, args) && PyErr_Occurred() ? -1 : 0;
    Py_ssize_t named = keys ? PyTuple_Size(keys) : 0;
    *r = (row){.peer = -1, .step = -1, .chunk = -1, .slot = -1, .nbytes = -1, .value = NAN};
    if (count > FIELD_COUNT || count + named < 3)
        return PyErr_Format(PyExc_TypeError, "write takes kind, start and end, and up to eight fields more"), -1;
    for (int field = 0; field < count; field++) set_field(r, field, args[field]);
    for (Py_ssize_t i = 0; i < named; i++) {
        int field = field_of(PyTuple_GetItem(keys, i));
        if (field < count)
            return PyErr_Format(PyExc_TypeError, "write got a field twice, or one that a row has not"), -1;
        set_field(r, field, args[count + i]);
    }
    return PyErr_Occurred() ? -1 : 0;
}

/* Returns a new reference to the lane's ``write`` where that is not this journal's, but something around it. */
static PyObject *wrapped_write(journal *j) {
    PyObject *lane = PyObject_CallFunctionObjArgs(j->lane, NULL), *write = NULL;
    if (lane && lane != Py_None) write = PyObject_GetAttrString(lane, "write");
    Py_XDECREF(lane);
    if (write && Py_TYPE(write) == &PyCFunction_Type && PyCFunction_GetSelf(write) == (PyObject *)j) {
        Py_DECREF(write);
        return NULL;
    }
    return write;
}

/* Reads a row and writes it: one piece of code for those that are timed and all others, as code that seldom runs
   is slow. -1: an error is set. */
static __attribute__((noinline)) int write_given(journal *j, PyObject *const *args, Py_ssize_t count, PyObject *keys) {
    row r;
    if (read_row(&r, args, count, keys)) return -1;
    if (j->lost) journal_lose(j);
    else fill_row(j, &r);
    return 0;
}

/* Times a row: from where the interpreter has called until it is written, or all of what is around ``write``. */
static PyObject *write_timed(journal *j, PyObject *const *args, Py_ssize_t count, PyObject *keys) {
    row r;
    PyObject *wrapped = wrapped_write(j), *again = NULL, *done = NULL;
    if (!wrapped && !PyErr_Occurred()) {
        i64 began = now();
        if (write_given(j, args, count, keys)) return NULL;
        time_row(j, now() - began);
        Py_RETURN_NONE;
    }
    if (wrapped && !read_row(&r, args, count, keys))
        again = Py_BuildValue("(iLLiiiiLiid)", r.kind, (long long)r.start, (long long)r.end, r.peer, r.step, r.chunk, r.slot,
                              (long long)r.nbytes, r.name, r.phase, r.value);
    if (again) {
        i64 began = now();
        done = PyObject_Call(wrapped, again, NULL);
        if (done) time_row(j, now() - began);
    }
    Py_XDECREF(again);
    Py_XDECREF(wrapped);
    return done;
}

static PyObject *journal_write(journal *j, PyObject *const *args, Py_ssize_t count, PyObject *keys) {
    expect_row(j);
    if (!j->lost && j->rows.place >= j->stop) {
        if (j->rows.place == j->rows.records) journal_turn(j, &j->rows);
        if (is_timed(j)) return write_timed(j, args, count, keys);
    }
    if (write_given(j, args, count, keys)) return NULL;
    Py_RETURN_NONE;
}

/* collective, algorithm, group, generation, microbatch, op, iteration, stage, version */
static PyObject *journal_context(journal *j, PyObject *const *args, Py_ssize_t count) {
    int doubtful = 0;
    if (count != 9) return PyErr_Format(PyExc_TypeError, "context takes nine numbers");
    expect_frame(j);
    context c = {.collective = UNSIGNED16(args[0]), .algorithm = UNSIGNED16(args[1]), .group = UNSIGNED16(args[2]),
                 .generation = (int32_t)SIGNED(args[3], 32), .microbatch = (int32_t)SIGNED(args[4], 32),
                 .op = ANY(args[5]), .iteration = ANY(args[6]), .stage = ANY(args[7]), .version = ANY(args[8])};
    if (doubtful && PyErr_Occurred()) return NULL;
    return PyLong_FromLongLong(write_context(j, &c));
}

static PyObject *journal_again(journal *j, PyObject *number) {
    int doubtful = 0;
    i64 value = whole(number, 0, UINT32_MAX, &doubtful);
    if (doubtful && PyErr_Occurred()) return NULL;
    j->context = (uint32_t)value;
    Py_RETURN_NONE;
}

/* kind, peer, group, collective, algorithm, dtype, op, step, chunk, shape, values */
static PyObject *journal_status(journal *j, PyObject *const *args, Py_ssize_t count) {
    int doubtful = 0;
    if (count != 11) return PyErr_Format(PyExc_TypeError, "status takes nine numbers and two tuples");
    status s = {.kind = (uint16_t)(UNSIGNED16(args[0]) + 1), .peer = (int16_t)SIGNED(args[1], 16),
                .group = UNSIGNED16(args[2]), .collective = UNSIGNED16(args[3]), .algorithm = UNSIGNED16(args[4]),
                .dtype = UNSIGNED16(args[5]), .op = ANY(args[6]), .step = (int32_t)SIGNED(args[7], 32),
                .chunk = (int32_t)SIGNED(args[8], 32)};
    if (read_shape(&s, args[9])) return NULL;
    Py_ssize_t values = PyTuple_Size(args[10]);
    s.values = (uint16_t)(values < 8 ? values : 8);
    for (int i = 0; i < 8; i++) s.first[i] = i < s.values ? PyFloat_AsDouble(PyTuple_GetItem(args[10], i)) : NAN;
    if (PyErr_Occurred()) return NULL;
    write_status(j, &s);
    Py_RETURN_NONE;
}

int read_shape(status *s, PyObject *shape) {
    Py_ssize_t dims = PyTuple_Size(shape);
    if (dims < 0) return -1;
    s->dims = (uint16_t)(dims < 4 ? dims : 4);
    for (int i = 0; i < s->dims; i++) s->shape[i] = PyLong_AsLongLong(PyTuple_GetItem(shape, i));
    return PyErr_Occurred() ? -1 : 0;
}

static PyObject *journal_idle(journal *j, PyObject *none) {
    write_idle(j);
    Py_RETURN_NONE;
}

/* Writes here no more: each row is ``lost()`` from now on. Returns the numbers of rows and contexts. */
static PyObject *journal_leave(journal *j, PyObject *lost) {
    Py_INCREF(lost);
    Py_XDECREF(j->lost);
    j->lost = lost;
    j->page = j->unread;
    j->contexts.base = j->contexts.spare;
    i64 contexts = j->contexts.seq;
    j->contexts.records = 1;
    j->contexts.place = j->contexts.grows = 0;
    return Py_BuildValue("(LL)", (long long)j->rows.seq, (long long)contexts);
}

/* -- the type -- */

static int open_ring(ring *r, PyObject *memory, i64 at, i64 records, i64 seq, int grows) {
    if (PyObject_GetBuffer(memory, &r->memory, PyBUF_WRITABLE)) return -1;
    if (at < 0 || at % 8 || records < 1 || seq < 0 || at + records * RECORD_BYTES > r->memory.len) {
        PyErr_SetString(PyExc_ValueError, "records do not fit into the memory of their lane");
        return -1;
    }
    r->base = (char *)r->memory.buf + at;
    r->records = records;
    r->seq = seq;
    r->place = seq ? (seq - 1) % records + 1 : 0; /* of a full block: the next record begins another */
    r->grows = grows;
    return 0;
}

/* lane (a weak reference), its name's number, its first row, page, metered?, knocks or None, then memory,
   offset, records, number of the last and whether it grows, of the rows and of the contexts */
static PyObject *journal_new(PyTypeObject *type, PyObject *args, PyObject *more) {
    PyObject *lane, *page, *knocks_word, *rows, *contexts;
    int number, metered, rows_grow, contexts_grow;
    long long first, rows_at, row_count, row_seq, contexts_at, context_count, context_seq;
    if (!PyArg_ParseTuple(args, "OiLOiOOLLLiOLLLi", &lane, &number, &first, &page, &metered, &knocks_word, &rows, &rows_at, &row_count,
                          &row_seq, &rows_grow, &contexts, &contexts_at, &context_count, &context_seq, &contexts_grow))
        return NULL;
    if (!minus_one && !(minus_one = PyLong_FromLong(-1))) return NULL;
    journal *j = (journal *)((allocfunc)PyType_GetSlot(type, Py_tp_alloc))(type, 0);
    if (!j) return NULL;
    Py_INCREF(j->lane = lane);
    j->number = (uint16_t)number;
    j->first = first;
    if (PyObject_GetBuffer(page, &j->page_memory, PyBUF_WRITABLE) ||
        (knocks_word != Py_None && PyObject_GetBuffer(knocks_word, &j->knocks_memory, PyBUF_WRITABLE)) ||
        open_ring(&j->rows, rows, rows_at, row_count, row_seq, rows_grow) ||
        open_ring(&j->contexts, contexts, contexts_at, context_count, context_seq, contexts_grow)) {
        Py_DECREF(j);
        return NULL;
    }
    if (j->knocks_memory.obj && (j->knocks_memory.len < 4 || (uintptr_t)j->knocks_memory.buf % 4)) {
        Py_DECREF(j);
        return PyErr_Format(PyExc_ValueError, "knocks are counted in a word of 32 bits");
    }
    if (j->page_memory.len < PAGE_BYTES) {
        Py_DECREF(j);
        return PyErr_Format(PyExc_ValueError, "a lane's page has %d bytes", PAGE_BYTES);
    }
    j->page = j->page_memory.buf;
    j->meter = metered ? (i64 *)(j->page + METER_AT) : NULL;
    if (j->knocks_memory.obj) {
        j->knocks = j->knocks_memory.buf;
        atomic_fetch_add_explicit(j->knocks, 1, memory_order_release); /* here is who will knock */
    }
    j->stop = metered ? j->rows.place + METER_FIRST : j->rows.records;
    if (j->stop > j->rows.records) j->stop = j->rows.records;
    return (PyObject *)j;
}

static void release(Py_buffer *memory) {
    if (memory->obj) PyBuffer_Release(memory);
}

static void journal_free(journal *j) {
    PyTypeObject *type = Py_TYPE(j);
    release(&j->rows.memory);
    release(&j->contexts.memory);
    release(&j->page_memory);
    release(&j->knocks_memory);
    Py_XDECREF(j->lane);
    Py_XDECREF(j->lost);
    ((freefunc)PyType_GetSlot(type, Py_tp_free))(j);
    Py_DECREF(type);
}

static PyMethodDef methods[] = {
    {"write", PyCFunction_CAST(journal_write), METH_FASTCALL | METH_KEYWORDS, NULL},
    {"context", PyCFunction_CAST(journal_context), METH_FASTCALL, NULL},
    {"again", PyCFunction_CAST(journal_again), METH_O, NULL},
    {"status", PyCFunction_CAST(journal_status), METH_FASTCALL, NULL},
    {"idle", PyCFunction_CAST(journal_idle), METH_NOARGS, NULL},
    {"leave", PyCFunction_CAST(journal_leave), METH_O, NULL},
    {NULL, NULL, 0, NULL},
};
static PyType_Slot slots[] = {
    {Py_tp_new, journal_new}, {Py_tp_dealloc, journal_free}, {Py_tp_methods, methods}, {0, NULL}};
PyType_Spec journal_spec = {"workbench.native._mover.Journal", sizeof(journal), 0, Py_TPFLAGS_DEFAULT, slots};

int is_journal(PyObject *x) { return PyType_GetSlot(Py_TYPE(x), Py_tp_dealloc) == (void *)journal_free; }
