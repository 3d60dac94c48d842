/* The Python type Mover: a rank's end of a group (messaging/slots.py). */
#include "mover.h"
#include <stdlib.h>

int name_number(mover *m, PyObject *text, uint16_t *number) {
    PyObject *known = PyLong_Check(text) ? text : PyDict_GetItemWithError(m->names, text), *fresh = NULL;
    if (!known) {
        if (PyErr_Occurred()) return -1;
        known = fresh = PyObject_CallFunctionObjArgs(m->name, text, NULL);
        if (!fresh) return -1;
    }
    i64 value = PyLong_AsLongLong(known);
    Py_XDECREF(fresh);
    if (value < 0 || value > UINT16_MAX) {
        if (!PyErr_Occurred()) PyErr_SetString(PyExc_OverflowError, "a name's number has 16 bits");
        return -1;
    }
    *number = (uint16_t)value;
    return 0;
}

void close_box(box *b) {
    if (b->memory.obj) PyBuffer_Release(&b->memory);
    if (b->own.obj) PyBuffer_Release(&b->own);
    if (b->bell.obj) PyBuffer_Release(&b->bell);
    memset(b, 0, sizeof *b);
}

int open_box(box *b, PyObject *memory, PyObject *own, i64 slots, i64 stride) {
    close_box(b);
    if (PyObject_GetBuffer(memory, &b->memory, PyBUF_WRITABLE)) return -1;
    if (PyObject_GetBuffer(own, &b->own, PyBUF_WRITABLE)) return -1;
    i64 room = b->memory.len - HEAD_BYTES;
    if (slots < 1 || stride <= HEADER_BYTES || stride % 64 || room < 0 || slots > room / stride ||
        b->own.len < COUNTS * (i64)sizeof(i64)) {
        PyErr_SetString(PyExc_ValueError, "slots do not fit into the memory of their mailbox");
        return -1;
    }
    b->slots = slots, b->stride = stride, b->counts = b->own.buf;
    b->base = b->memory.buf;
    b->ready = (sem_t *)b->base, b->free = (sem_t *)(b->base + FREE_AT);
    return 0;
}

/* Whom to wake, and by which word it is seen that it sleeps. */
static int set_bell(box *b, PyObject *memory, i64 word) {
    if (PyObject_GetBuffer(memory, &b->bell, PyBUF_WRITABLE)) return -1;
    if (word >= 0 && word < BELL_AT / (i64)sizeof(i64) && b->bell.len >= PAGE_BYTES) {
        b->bell_word = word;
        return 0;
    }
    PyErr_SetString(PyExc_ValueError, "a bell's word lies outside of its page");
    return -1;
}

/* out?, peer, memory, counts, slots, stride: a mailbox that Python has opened; and where it has one, its bell and
   the bell's word */
static PyObject *mover_wire(mover *m, PyObject *args) {
    int out;
    long long peer, slots, stride, word = -1;
    PyObject *memory, *own, *bell = NULL;
    if (!PyArg_ParseTuple(args, "iLOOLL|OL", &out, &peer, &memory, &own, &slots, &stride, &bell, &word)) return NULL;
    if (peer < 0 || peer >= m->size || peer == m->rank || m->inside)
        return PyErr_Format(PyExc_ValueError, "no mailbox with rank %lld can be opened now", peer);
    box *b = out ? &m->out[peer] : &m->in[peer];
    if (open_box(b, memory, own, slots, stride) || (bell && set_bell(b, bell, word))) {
        close_box(b);
        return NULL;
    }
    Py_RETURN_NONE;
}

static int set_world(mover *m, PyObject *world) {
    m->size = PyList_Size(world);
    if (m->size < 1) return -1;
    m->world = calloc((size_t)m->size, sizeof *m->world);
    m->out = calloc((size_t)m->size, sizeof *m->out);
    m->in = calloc((size_t)m->size, sizeof *m->in);
    if (!m->world || !m->out || !m->in) return -1;
    for (i64 i = 0; i < m->size; i++) m->world[i] = (int32_t)PyLong_AsLong(PyList_GetItem(world, i));
    return PyErr_Occurred() ? -1 : 0;
}

static int words_in(const Py_buffer *memory, i64 word, i64 count) {
    i64 there = memory->len / (i64)sizeof(i64);
    return word >= 0 && count >= 0 && word <= there && count <= there - word;
}

/* journal, names, name, rank, world, generation, slot_bytes, control, its words of abort and loss (-1: none), board,
   its words of alarm and history, collectives in that */
static PyObject *mover_new(PyTypeObject *type, PyObject *args, PyObject *more) {
    PyObject *lane, *names, *name, *world, *control, *board;
    long long rank, generation, slot_bytes, abort_word, lost_word, alarm_word, history_word, history;
    if (!PyArg_ParseTuple(args, "OOOLOLLOLLOLLL", &lane, &names, &name, &rank, &world, &generation, &slot_bytes, &control,
                          &abort_word, &lost_word, &board, &alarm_word, &history_word, &history))
        return NULL;
    if (!is_journal(lane)) return PyErr_Format(PyExc_TypeError, "a Mover writes through a Journal");
    mover *m = (mover *)((allocfunc)PyType_GetSlot(type, Py_tp_alloc))(type, 0);
    if (!m) return NULL;
    Py_INCREF(m->lane = (journal *)lane);
    Py_INCREF(m->names = names);
    Py_INCREF(m->name = name);
    m->rank = rank, m->generation = generation, m->slot_bytes = slot_bytes;
    m->abort_word = abort_word, m->lost_word = lost_word, m->alarm_word = alarm_word;
    m->history_word = history_word, m->history = history;
    m->op = m->heard = m->heard_chunk = m->most_heard = -1;
    m->slice_ns = 50000000;
    if (set_world(m, world) || PyObject_GetBuffer(control, &m->control, PyBUF_WRITABLE) ||
        PyObject_GetBuffer(board, &m->board, PyBUF_WRITABLE))
        goto failed;
    if (slot_bytes < 1 || history < 1 || !words_in(&m->control, 0, 1) || !words_in(&m->control, abort_word + 1, 0) ||
        !words_in(&m->control, lost_word + 1, 0) || !words_in(&m->board, alarm_word, 1) ||
        !words_in(&m->board, history_word, 2 * history)) {
        PyErr_SetString(PyExc_ValueError, "a word lies outside of its page");
        goto failed;
    }
    return (PyObject *)m;
failed:
    if (!PyErr_Occurred()) PyErr_SetString(PyExc_ValueError, "a Mover takes a list of at least one rank");
    Py_DECREF(m);
    return NULL;
}

static void mover_free(mover *m) {
    PyTypeObject *type = Py_TYPE(m);
    for (i64 i = 0; i < m->size; i++) {
        if (m->out) close_box(&m->out[i]);
        if (m->in) close_box(&m->in[i]);
    }
    free(m->out), free(m->in), free(m->world);
    if (m->control.obj) PyBuffer_Release(&m->control);
    if (m->board.obj) PyBuffer_Release(&m->board);
    Py_XDECREF(m->lane);
    Py_XDECREF(m->names);
    Py_XDECREF(m->name);
    Py_XDECREF(m->where);
    ((freefunc)PyType_GetSlot(type, Py_tp_free))(m);
    Py_DECREF(type);
}

static PyObject *mover_peer(mover *m, PyObject *none) { return PyLong_FromLong(m->wait.peer); }
static PyObject *mover_step(mover *m, PyObject *none) { return PyLong_FromLong(m->wait.step); }

#define FAST(name) {#name, PyCFunction_CAST(mover_##name), METH_FASTCALL, NULL}
#define PLAIN(name) {#name, PyCFunction_CAST(mover_##name), METH_NOARGS, NULL}
static PyMethodDef methods[] = {
    FAST(post), FAST(recv), FAST(relay), FAST(exchange), FAST(begin), FAST(end),
    FAST(send_slots), FAST(take_slots),
    PLAIN(give_up), PLAIN(peer), PLAIN(step),
    {"wire", PyCFunction_CAST(mover_wire), METH_VARARGS, NULL},
    {NULL, NULL, 0, NULL},
};
#define WORD(name) {#name, T_LONGLONG, offsetof(mover, name), 0, NULL}
static PyMemberDef members[] = {
    WORD(at), WORD(waiting), WORD(op), WORD(signature), WORD(bytes_sent), WORD(heard), WORD(heard_chunk), WORD(most_heard),
    WORD(awake_ns), WORD(yields), WORD(slice_ns), WORD(group), WORD(full), WORD(fused), WORD(past_caches), WORD(ahead),
    WORD(p2p), WORD(moved_ns), WORD(message_context), {"core_changes", T_LONGLONG, offsetof(mover, turns.moves), 0, NULL},
    {NULL, 0, 0, 0, NULL},
};
static PyType_Slot slots[] = {{Py_tp_new, mover_new},       {Py_tp_dealloc, mover_free}, {Py_tp_methods, methods},
                              {Py_tp_members, members}, {0, NULL}};
PyType_Spec mover_spec = {"workbench.native._mover.Mover", sizeof(mover), 0, Py_TPFLAGS_DEFAULT, slots};
