/* What a collective begins and ends with: its context, its place on the rank's board, status, and its outer row. */
#include "mover.h"

enum { PAST_CACHES_FROM = 1 << 20 }; /* elements */

static int number_of(PyObject *where, const char *name, i64 *value) {
    PyObject *x = PyObject_GetAttrString(where, name);
    if (x) *value = PyLong_AsLongLong(x);
    Py_XDECREF(x);
    return PyErr_Occurred() ? -1 : 0;
}

/* The place in training, which is the same object until an iteration ends. */
int read_where(mover *m, PyObject *where) {
    i64 microbatch = -1;
    if (where == m->where) return 0;
    if (number_of(where, "iteration", &m->place.iteration) || number_of(where, "microbatch", &microbatch) ||
        number_of(where, "stage", &m->place.stage) || number_of(where, "version", &m->place.version))
        return -1;
    m->place.microbatch = (int32_t)microbatch;
    Py_XDECREF(m->where);
    Py_INCREF(m->where = where);
    return 0;
}

/* Tells peers which collective this rank is in; no peer can take one's fingerprint for another's. */
static void tell_peers(mover *m) {
    _Atomic i64 *board = m->board.buf, *entry = board + m->history_word + (uint64_t)m->op % (uint64_t)m->history * 2;
    atomic_store_explicit(&entry[0], -1, memory_order_relaxed);
    atomic_thread_fence(memory_order_release);
    atomic_store_explicit(&entry[1], m->signature, memory_order_relaxed);
    atomic_store_explicit(&entry[0], m->op, memory_order_release);
    atomic_store_explicit(&board[0], m->op, memory_order_release);
}

static int something_is_wrong(const mover *m) {
    _Atomic i64 *board = m->board.buf, *control = m->control.buf;
    return atomic_load_explicit(&board[m->alarm_word], memory_order_acquire) ||
           (m->abort_word >= 0 && atomic_load_explicit(&control[m->abort_word], memory_order_acquire)) ||
           (m->lost_word >= 0 && atomic_load_explicit(&control[m->lost_word], memory_order_acquire) > m->generation);
}

/* Whether what arrives goes past the caches: a large tensor of more than two ranks is not read again soon. Of two
   ranks the caches still hold it, and of a small tensor, too. */
static int goes_past_caches(const mover *m, PyObject *shape) {
    i64 elements = 1, count = PyTuple_Size(shape);
    for (i64 i = 0; i < count && elements && elements < PAST_CACHES_FROM; i++)
        elements *= PyLong_AsLongLong(PyTuple_GetItem(shape, i));
    return m->size > 2 && elements >= PAST_CACHES_FROM;
}

/* collective, algorithm, op, signature, where, shape, dtype -> whether Python must look whether the group has failed */
PyObject *mover_begin(mover *m, PyObject *const *args, Py_ssize_t count) {
    status s = {.kind = COLLECTIVE + 1, .peer = -1, .step = -1, .chunk = -1};
    if (count != 7) return PyErr_Format(PyExc_TypeError, "begin takes seven arguments");
    expect_frame(m->lane);
    i64 op = PyLong_AsLongLong(args[2]), signature = PyLong_AsLongLong(args[3]);
    if (PyErr_Occurred() || name_number(m, args[0], &s.collective) || name_number(m, args[1], &s.algorithm) ||
        read_where(m, args[4]) || read_shape(&s, args[5]) || name_number(m, args[6], &s.dtype))
        return NULL;
    m->op = s.op = op;
    m->past_caches = goes_past_caches(m, args[5]);
    m->signature = signature;
    m->most_heard = -1;
    m->going = 0;
    s.group = (uint16_t)m->group;
    tell_peers(m);
    context c = m->place;
    c.collective = s.collective, c.algorithm = s.algorithm, c.group = s.group;
    c.generation = (int32_t)m->generation, c.op = op;
    write_context(m->lane, &c);
    write_status(m->lane, &s);
    return PyBool_FromLong(something_is_wrong(m));
}

/* start, nbytes, label, itemsize, peer, way */
PyObject *mover_end(mover *m, PyObject *const *args, Py_ssize_t count) {
    row r = {.kind = COLLECTIVE, .step = -1, .chunk = -1, .slot = -1};
    if (count != 6) return PyErr_Format(PyExc_TypeError, "end takes six arguments");
    expect_row(m->lane);
    r.start = PyLong_AsLongLong(args[0]);
    r.nbytes = PyLong_AsLongLong(args[1]);
    r.value = PyFloat_AsDouble(args[3]);
    r.peer = (int16_t)PyLong_AsLong(args[4]);
    if (PyErr_Occurred() || name_number(m, args[2], &r.name) || name_number(m, args[5], &r.phase)) return NULL;
    r.end = now();
    write_row(m->lane, &r);
    write_idle(m->lane);
    Py_RETURN_NONE;
}
