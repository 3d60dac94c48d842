/* Point-to-point messages: of one message, the slots that can move now.

   What is not exactly as expected (a link that is emulated, a rank that is held, a message that nobody has posted
   a receive for, one that is read in place) stays as it is: messaging/sending.py and receiving.py move it. Nothing
   in here sleeps; who is told to stays awake for a slot. Whoever calls holds the lock of the progress engine. */
#include "mover.h"

static const i64 DTYPE = 31LL << 48; /* of a signature */

typedef struct {
    Py_buffer view;
    box *box;
    char *at;
    i64 peer, number, slot, signature, tag, since, context, awake;
    i64 bytes, per, slots; /* per: bytes of a slot, less in the last */
    uint16_t name;
    int quiet, moved; /* quiet: the caller rings */
} transfer;

static i64 piece_bytes(const transfer *t) {
    i64 rest = t->bytes - t->slot * t->per;
    return rest < t->per ? rest : t->per;
}

/* x, peer, number, slot, signature, tag, name, since (0: nobody has waited), where, context (-1: none yet), quiet,
   awake: for how many nanoseconds a slot is waited for.
   1: it can be moved here; 0: not here; -1: an error is set. Unless 1 there is nothing to be closed. */
static int open_transfer(mover *m, transfer *t, box *boxes, PyObject *const *args, Py_ssize_t count, int writable) {
    if (count != 12) return PyErr_Format(PyExc_TypeError, "a message takes twelve arguments"), -1;
    i64 name = PyLong_AsLongLong(args[6]);
    t->peer = PyLong_AsLongLong(args[1]), t->number = PyLong_AsLongLong(args[2]), t->slot = PyLong_AsLongLong(args[3]);
    t->signature = PyLong_AsLongLong(args[4]), t->tag = PyLong_AsLongLong(args[5]), t->since = PyLong_AsLongLong(args[7]);
    t->context = PyLong_AsLongLong(args[9]), t->quiet = PyObject_IsTrue(args[10]), t->moved = 0;
    t->awake = PyLong_AsLongLong(args[11]);
    if (PyErr_Occurred() || read_where(m, args[8])) return -1;
    if (t->peer < 0 || t->peer >= m->size || t->peer == m->rank || name < 0 || name > UINT16_MAX || m->inside)
        return PyErr_Format(PyExc_ValueError, "no message with rank %lld can be moved now", (long long)t->peer), -1;
    t->box = &boxes[t->peer], t->name = (uint16_t)name;
    if (!t->box->base || steered(m)) return 0;
    if (PyObject_GetBuffer(args[0], &t->view, (writable ? PyBUF_WRITABLE : 0) | PyBUF_FORMAT | PyBUF_CONTIG_RO)) {
        PyErr_Clear();
        return 0;
    }
    i64 item = t->view.itemsize, room = t->box->stride - HEADER_BYTES;
    t->at = t->view.buf, t->bytes = t->view.len, t->per = item > 0 && item <= room ? room / item * item : 0;
    t->slots = !t->per ? 0 : t->bytes ? (t->bytes - 1) / t->per + 1 : 1; /* an empty message is one slot */
    if (t->slot < 0 || t->slot >= t->slots) {
        PyBuffer_Release(&t->view);
        return 0;
    }
    m->inside = 1;
    expect_row(m->lane);
    if (t->bytes - t->slot * t->per >= LARGE) let_go(m);
    return 1;
}

static PyObject *close_transfer(mover *m, transfer *t) {
    take_back(m);
    m->inside = 0;
    m->message_context = t->context;
    PyBuffer_Release(&t->view);
    return PyLong_FromLong(t->moved);
}

/* Before a slot's row: the message's context before the first, and how long the slot was waited for. */
static void begin_rows(mover *m, transfer *t, i64 until, uint16_t waits_for) {
    if (!t->moved && t->context >= 0) {
        m->lane->context = (uint32_t)t->context;
    } else if (!t->moved) {
        context c = m->place;
        c.collective = (uint16_t)m->p2p, c.group = (uint16_t)m->group, c.generation = (int32_t)m->generation, c.op = t->number;
        t->context = write_context(m->lane, &c);
    }
    if (t->since)
        write_row(m->lane, &(row){t->since, until, 0, WAIT, (int16_t)m->world[t->peer], 0, 0, (int32_t)t->slot, waits_for, 0,
                                  -1, NAN, 0});
    t->since = 0;
}

/* Takes what the peer gives: a slot that is there, or comes while this thread may stay awake for it. */
static int reach_slot(mover *m, transfer *t, sem_t *there) {
    if (!sem_trywait(there)) return 1;
    if (t->awake <= 0) return 0;
    i64 start = now();
    let_go(m);
    if (!acquire_awake(there, start + t->awake, 0, &m->turns)) return 0;
    if (steered(m)) return sem_post(there), 0;
    if (!t->since) t->since = start;
    expect_row(m->lane);
    return 1;
}

static void write_slot(mover *m, const transfer *t, uint16_t kind, i64 start, i64 bytes) {
    m->moved_ns = now();
    write_row(m->lane, &(row){start, m->moved_ns, 0, kind, (int16_t)m->world[t->peer], 0, 0, (int32_t)t->slot, t->name, 0,
                              bytes, NAN, 0});
}

/* Wakes a peer that has announced that it sleeps until this happens. */
static void ring_bell(const transfer *t) {
    const box *b = t->box;
    if (t->quiet || !b->bell.obj) return;
    atomic_thread_fence(memory_order_seq_cst); /* its word is read after what it looks for is there */
    if (atomic_load_explicit((_Atomic i64 *)b->bell.buf + b->bell_word, memory_order_seq_cst))
        sem_post((sem_t *)((char *)b->bell.buf + BELL_AT));
}

/* Puts a slot that is free. */
static int put_slot(mover *m, transfer *t) {
    box *b = t->box;
    i64 start = now(), bytes = piece_bytes(t);
    begin_rows(m, t, start, (uint16_t)m->full);
    header h = {m->generation, t->number, 0, 0, t->slot, bytes, t->signature, 0, t->bytes, t->tag, 0, 0};
    memcpy(payload_of(b), t->at + t->slot * t->per, (size_t)bytes);
    memcpy(header_of(b), &h, sizeof h);
    next_turn(b);
    b->counts[MOVED] += bytes;
    sem_post(b->ready);
    ring_bell(t);
    write_slot(m, t, SEND, start, bytes);
    return 1;
}

/* Takes a slot that is there; 0: it is not what is expected. */
static int take_slot(mover *m, transfer *t) {
    box *b = t->box;
    i64 start = now(), bytes = piece_bytes(t);
    header h;
    memcpy(&h, header_of(b), sizeof h);
    if (h.step || h.arrives || h.checksum || h.slot != t->slot || h.nbytes != bytes || h.total != t->bytes || h.tag != t->tag ||
        (t->slot && h.op != t->number) || ((h.signature ^ t->signature) & DTYPE)) {
        sem_post(b->ready);
        return 0;
    }
    m->op = t->number = h.op;
    begin_rows(m, t, start, t->name);
    memcpy(t->at + t->slot * t->per, payload_of(b), (size_t)bytes);
    next_turn(b);
    sem_post(b->free);
    ring_bell(t);
    write_slot(m, t, RECV, start, bytes);
    return 1;
}

static inline PyObject *move_slots(mover *m, PyObject *const *args, Py_ssize_t count, int arrives) {
    transfer t;
    int here = open_transfer(m, &t, arrives ? m->in : m->out, args, count, arrives);
    if (here <= 0) return here ? NULL : PyLong_FromLong(0);
    for (sem_t *there = arrives ? t.box->ready : t.box->free;
         t.slot < t.slots && !steered(m) && reach_slot(m, &t, there) && (arrives ? take_slot(m, &t) : put_slot(m, &t)); t.slot++)
        t.moved++;
    return close_transfer(m, &t);
}

/* Returns how many slots were sent. */
PyObject *mover_send_slots(mover *m, PyObject *const *args, Py_ssize_t count) { return move_slots(m, args, count, 0); }

/* Returns how many slots were received; ``op`` is then the message's number. */
PyObject *mover_take_slots(mover *m, PyObject *const *args, Py_ssize_t count) { return move_slots(m, args, count, 1); }
