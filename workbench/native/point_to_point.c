/* Point-to-point messages: of one message, the slots that can move now.

   What is not exactly as expected (a link that is emulated, a rank that is held, a message that nobody has posted
   a receive for, one that is read in place) stays as it is: messaging/sending.py and receiving.py move it. Nothing
   in here sleeps; who is told to stays awake for a slot. Whoever calls holds the lock of the progress engine. */
#include "mover.h"

enum { LARGE = 131072 };
static const i64 DTYPE = 31LL << 48; /* of a signature */

typedef struct {
    Py_buffer view;
    box *box;
    char *at;
    i64 peer, number, slot, signature, tag, since, context, awake;
    i64 bytes, per, slots; /* per: bytes of a slot, less in the last */
    uint16_t name;
    int quiet, moved; /* quiet: the caller rings */
} letter;

static i64 piece_bytes(const letter *l) {
    i64 rest = l->bytes - l->slot * l->per;
    return rest < l->per ? rest : l->per;
}

/* x, peer, number, slot, signature, tag, name, since (0: nobody has waited), where, context (-1: none yet), quiet,
   awake: for how many nanoseconds a slot is waited for.
   1: it can be moved here; 0: not here; -1: an error is set. Unless 1 there is nothing to be closed. */
static int open_letter(mover *m, letter *l, box *boxes, PyObject *const *args, Py_ssize_t count, int writable) {
    if (count != 12) return PyErr_Format(PyExc_TypeError, "a message has twelve facts"), -1;
    i64 name = PyLong_AsLongLong(args[6]);
    l->peer = PyLong_AsLongLong(args[1]), l->number = PyLong_AsLongLong(args[2]), l->slot = PyLong_AsLongLong(args[3]);
    l->signature = PyLong_AsLongLong(args[4]), l->tag = PyLong_AsLongLong(args[5]), l->since = PyLong_AsLongLong(args[7]);
    l->context = PyLong_AsLongLong(args[9]), l->quiet = PyObject_IsTrue(args[10]), l->moved = 0;
    l->awake = PyLong_AsLongLong(args[11]);
    if (PyErr_Occurred() || read_where(m, args[8])) return -1;
    if (l->peer < 0 || l->peer >= m->size || l->peer == m->rank || name < 0 || name > UINT16_MAX || m->inside)
        return PyErr_Format(PyExc_ValueError, "no message with rank %lld can be moved now", (long long)l->peer), -1;
    l->box = &boxes[l->peer], l->name = (uint16_t)name;
    if (!l->box->base || steered(m)) return 0;
    if (PyObject_GetBuffer(args[0], &l->view, (writable ? PyBUF_WRITABLE : 0) | PyBUF_FORMAT | PyBUF_CONTIG_RO)) {
        PyErr_Clear();
        return 0;
    }
    i64 item = l->view.itemsize, room = l->box->stride - HEADER_BYTES;
    l->at = l->view.buf, l->bytes = l->view.len, l->per = item > 0 && item <= room ? room / item * item : 0;
    l->slots = !l->per ? 0 : l->bytes ? (l->bytes - 1) / l->per + 1 : 1; /* an empty message is one slot */
    if (l->slot < 0 || l->slot >= l->slots) {
        PyBuffer_Release(&l->view);
        return 0;
    }
    m->inside = 1;
    expect_row(m->lane);
    if (l->bytes - l->slot * l->per >= LARGE) let_go(m);
    return 1;
}

static PyObject *close_letter(mover *m, letter *l) {
    take_back(m);
    m->inside = 0;
    m->message_context = l->context;
    PyBuffer_Release(&l->view);
    return PyLong_FromLong(l->moved);
}

/* Before a slot's row: the message's context before the first, and how long the slot was waited for. */
static void begin_rows(mover *m, letter *l, i64 until, uint16_t waits_for) {
    if (!l->moved && l->context >= 0) {
        m->lane->context = (uint32_t)l->context;
    } else if (!l->moved) {
        context c = m->place;
        c.collective = (uint16_t)m->p2p, c.group = (uint16_t)m->group, c.generation = (int32_t)m->generation, c.op = l->number;
        l->context = write_context(m->lane, &c);
    }
    if (l->since)
        write_row(m->lane, &(row){l->since, until, 0, WAIT, (int16_t)m->world[l->peer], 0, 0, (int32_t)l->slot, waits_for, 0,
                                  -1, NAN, 0});
    l->since = 0;
}

/* Takes what the peer gives: a slot that is there, or comes while this thread may stay awake for it. */
static int reach_slot(mover *m, letter *l, sem_t *there) {
    if (!sem_trywait(there)) return 1;
    if (l->awake <= 0) return 0;
    i64 start = now();
    let_go(m);
    if (!acquire_awake(there, start + l->awake, 0, &m->turns)) return 0;
    if (steered(m)) return sem_post(there), 0;
    if (!l->since) l->since = start;
    expect_row(m->lane);
    return 1;
}

static void write_slot(mover *m, const letter *l, uint16_t kind, i64 start, i64 bytes) {
    m->moved_ns = now();
    write_row(m->lane, &(row){start, m->moved_ns, 0, kind, (int16_t)m->world[l->peer], 0, 0, (int32_t)l->slot, l->name, 0,
                              bytes, NAN, 0});
}

/* Wakes a peer that has announced that it sleeps until this happens. */
static void ring_bell(const letter *l) {
    const box *b = l->box;
    if (l->quiet || !b->bell.obj) return;
    atomic_thread_fence(memory_order_seq_cst); /* its word is read after what it looks for is there */
    if (atomic_load_explicit((_Atomic i64 *)b->bell.buf + b->bell_word, memory_order_seq_cst))
        sem_post((sem_t *)((char *)b->bell.buf + BELL_AT));
}

/* Puts a slot that is free. */
static int put_slot(mover *m, letter *l) {
    box *b = l->box;
    i64 start = now(), bytes = piece_bytes(l);
    begin_rows(m, l, start, (uint16_t)m->full);
    header h = {m->generation, l->number, 0, 0, l->slot, bytes, l->signature, 0, l->bytes, l->tag, 0, 0};
    memcpy(payload_of(b), l->at + l->slot * l->per, (size_t)bytes);
    memcpy(header_of(b), &h, sizeof h);
    next_turn(b);
    b->counts[MOVED] += bytes;
    m->bytes_sent += bytes;
    sem_post(b->ready);
    ring_bell(l);
    write_slot(m, l, SEND, start, bytes);
    return 1;
}

/* Takes a slot that is there; 0: it is not what is expected. */
static int take_slot(mover *m, letter *l) {
    box *b = l->box;
    i64 start = now(), bytes = piece_bytes(l);
    header h;
    memcpy(&h, header_of(b), sizeof h);
    if (h.step || h.arrives || h.checksum || h.slot != l->slot || h.nbytes != bytes || h.total != l->bytes || h.tag != l->tag ||
        (l->slot && h.op != l->number) || ((h.signature ^ l->signature) & DTYPE)) {
        sem_post(b->ready);
        return 0;
    }
    m->op = l->number = h.op;
    begin_rows(m, l, start, l->name);
    memcpy(l->at + l->slot * l->per, payload_of(b), (size_t)bytes);
    next_turn(b);
    sem_post(b->free);
    ring_bell(l);
    write_slot(m, l, RECV, start, bytes);
    return 1;
}

static inline PyObject *move_slots(mover *m, PyObject *const *args, Py_ssize_t count, int arrives) {
    letter l;
    int here = open_letter(m, &l, arrives ? m->in : m->out, args, count, arrives);
    if (here <= 0) return here ? NULL : PyLong_FromLong(0);
    for (sem_t *there = arrives ? l.box->ready : l.box->free;
         l.slot < l.slots && !steered(m) && reach_slot(m, &l, there) && (arrives ? take_slot(m, &l) : put_slot(m, &l)); l.slot++)
        l.moved++;
    return close_letter(m, &l);
}

/* Returns how many slots were sent. */
PyObject *mover_send_slots(mover *m, PyObject *const *args, Py_ssize_t count) { return move_slots(m, args, count, 0); }

/* Returns how many slots were received; ``op`` is then the message's number. */
PyObject *mover_take_slots(mover *m, PyObject *const *args, Py_ssize_t count) { return move_slots(m, args, count, 1); }
