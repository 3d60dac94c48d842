/* The four moves of a Communicator, a message each: post, recv, relay, exchange.

   A message travels in slots, cut as ``pieces_of`` of messaging/slot_by_slot.py cuts; messaging/slots.py moves one
   as it is moved here. What is written into a slot or taken out of it has the length that this rank expects;
   a header only confirms it. The interpreter's lock is kept for a small message that need not wait. */
#include "kernels.h"
#include "mover.h"

enum { BLOCK = 8192, MOST_PARTS = 64 };

/* -- what Python passes -- */

typedef struct {
    char *at;
    i64 bytes, per, slots; /* per: bytes of a slot, less in the last */
    i64 itemsize;
    int32_t chunk, first; /* its number, and that of its first slot */
    char letter;
    Py_buffer view;
} part;

typedef struct {
    part parts[MOST_PARTS];
    int count;
    i64 bytes, slots;
} message;

static void close_message(message *x) {
    while (x->count) PyBuffer_Release(&x->parts[--x->count].view);
}

/* Adds an array to the message. -1: it is not one whose memory can be had, without an error. */
static int add_part(const mover *m, message *x, PyObject *array, int32_t chunk, int32_t first, int writable) {
    if (x->count == MOST_PARTS) return -1;
    part *p = &x->parts[x->count];
    if (PyObject_GetBuffer(array, &p->view, (writable ? PyBUF_WRITABLE : 0) | PyBUF_FORMAT | PyBUF_CONTIG_RO)) {
        PyErr_Clear();
        return -1;
    }
    x->count++;
    p->at = p->view.buf, p->bytes = p->view.len, p->itemsize = p->view.itemsize;
    p->chunk = chunk, p->first = first;
    const char *format = p->view.format;
    p->letter = format && *format && !format[1] ? *format : '?';
    i64 elements = p->itemsize > 0 ? p->bytes / p->itemsize : 0, most = p->itemsize > 0 ? m->slot_bytes / p->itemsize : 0;
    if (!elements) {
        p->per = 1;
        p->slots = !first; /* an empty message is one slot; an empty tail is none */
    } else if (p->bytes <= m->slot_bytes) {
        p->per = p->bytes;
        p->slots = 1;
    } else {
        if (most < 1) most = 1;
        i64 slots = (elements + most - 1) / most;
        p->per = (elements + slots - 1) / slots * p->itemsize;
        p->slots = (p->bytes + p->per - 1) / p->per;
    }
    x->bytes += p->bytes;
    x->slots += p->slots;
    return 0;
}

static int small_number(PyObject *x, int32_t *value) {
    i64 wide = PyLong_AsLongLong(x);
    if (PyErr_Occurred()) {
        PyErr_Clear();
        return -1;
    }
    *value = (int32_t)wide;
    return *value == wide ? 0 : -1;
}

static int is_list(PyObject *x) { return (PyType_GetFlags(Py_TYPE(x)) & Py_TPFLAGS_LIST_SUBCLASS) != 0; }

/* One array with its chunk's number, or lists of both. */
static int read_message(const mover *m, message *x, PyObject *arrays, PyObject *chunks, int32_t first, int writable) {
    int32_t chunk;
    x->count = 0, x->bytes = x->slots = 0;
    if (!is_list(arrays)) return small_number(chunks, &chunk) || add_part(m, x, arrays, chunk, first, writable) ? -1 : 0;
    if (!is_list(chunks) || PyList_Size(chunks) != PyList_Size(arrays)) return -1;
    for (Py_ssize_t i = 0; i < PyList_Size(arrays); i++)
        if (small_number(PyList_GetItem(chunks, i), &chunk) ||
            add_part(m, x, PyList_GetItem(arrays, i), chunk, first, writable))
            return -1;
    return 0;
}

static int read_reduction(PyObject *x, int *reduction) {
    static const char *const names[] = {NULL, "SUM", "PRODUCT", "MIN", "MAX"};
    *reduction = NO_REDUCTION;
    if (x == Py_None) return 0;
    if (!(PyType_GetFlags(Py_TYPE(x)) & Py_TPFLAGS_UNICODE_SUBCLASS)) return -1;
    for (*reduction = SUM; *reduction <= MAX; ++*reduction)
        if (!PyUnicode_CompareWithASCIIString(x, names[*reduction])) return 0;
    return -1;
}

/* -- one slot -- */

typedef struct {
    char *at;
    i64 bytes, itemsize;
    int32_t step, chunk, slot;
    char letter;
} piece;

/* The ``i``-th slot of a message. */
static piece piece_of(const message *x, i64 i, int32_t step) {
    const part *p = x->parts;
    for (; i >= p->slots; p++) i -= p->slots;
    i64 begin = i * p->per, rest = p->bytes - begin;
    return (piece){p->at + begin, rest < p->per ? rest : p->per, p->itemsize, step, p->chunk, p->first + (int32_t)i, p->letter};
}

static void write_wait(mover *m) {
    const wait_row *w = &m->wait;
    expect_row(m->lane); /* a long wait has lost it again */
    write_row(m->lane, &(row){m->waiting, now(), 0, WAIT, (int16_t)m->world[w->peer], w->step, w->chunk, w->slot, w->name,
                              w->phase, -1, NAN, 0});
    m->waiting = 0;
}

static void say_waiting(mover *m) {
    const wait_row *w = &m->wait;
    write_status(m->lane, &(status){.kind = WAIT + 1, .peer = (int16_t)m->world[w->peer], .group = (uint16_t)m->group,
                                    .op = m->op, .step = w->step, .chunk = w->chunk});
}

/* Takes what a peer gives: DONE, or LOOK after a while without. */
static int acquire(mover *m, sem_t *semaphore, wait_row wait) {
    if (!m->waiting) {
        if (!sem_trywait(semaphore)) return DONE;
        expect_row(m->lane);
        m->waiting = now();
        m->wait = wait;
        let_go(m);
        if (acquire_awake(semaphore, m->awake_ns ? m->waiting + m->awake_ns : 0, m->yields, &m->turns)) {
            write_wait(m);
            return DONE;
        }
        say_waiting(m);
    }
    let_go(m);
    if (!acquire_asleep(semaphore, m->slice_ns)) return LOOK;
    write_wait(m);
    return DONE;
}

/* Returns what has been taken, so that Python takes it again. */
static int hand_over(mover *m, box *in, box *out) {
    if (m->arrived) sem_post(in->ready);
    if (m->claimed) sem_post(out->free);
    m->arrived = m->claimed = 0;
    return PYTHON;
}

/* Waits until a slot from ``frm`` is there and is what is expected (-1: none is), and until one towards ``to`` is
   free. Its header is put into ``h``. */
static int make_ready(mover *m, int frm, int to, const piece *p, uint16_t phase, uint16_t next_phase, header *h) {
    box *in = frm >= 0 ? &m->in[frm] : NULL, *out = to >= 0 ? &m->out[to] : NULL;
    int code;
    if ((in && !in->base) || (out && !out->base) || steered(m)) return hand_over(m, in, out);
    if (in && (p->bytes > in->stride - HEADER_BYTES)) return hand_over(m, in, out);
    if (out && (p->bytes > out->stride - HEADER_BYTES)) return hand_over(m, in, out);
    if (in && !m->arrived) {
        if ((code = acquire(m, in->ready, (wait_row){frm, p->step, p->chunk, p->slot, 0, phase}))) return code;
        m->arrived = 1;
    }
    if (in) {
        memcpy(h, header_of(in), sizeof *h);
        if (h->op != m->op || h->signature != m->signature || h->nbytes != p->bytes || h->generation != m->generation ||
            h->arrives || h->checksum || (int32_t)h->step != h->step || (int32_t)h->chunk != h->chunk ||
            (int32_t)h->slot != h->slot)
            return hand_over(m, in, out);
    }
    if (out && !m->claimed) {
        wait_row wait = {to, p->step + (in != NULL), p->chunk, -1, (uint16_t)m->full, in ? next_phase : phase};
        if ((code = acquire(m, out->free, wait))) return code;
        m->claimed = 1;
    }
    return steered(m) ? hand_over(m, in, out) : DONE;
}

static void send_slot(mover *m, int to, const piece *p, int32_t step) {
    box *b = &m->out[to];
    header h = {m->generation, m->op, step, p->chunk, p->slot, p->bytes, m->signature, 0, p->bytes, 0, 0, 0};
    memcpy(header_of(b), &h, sizeof h);
    next_turn(b);
    b->counts[MOVED] += p->bytes;
    m->bytes_sent += p->bytes;
    m->claimed = 0;
    sem_post(b->ready);
}

static void free_slot(mover *m, int frm, const header *h) {
    box *b = &m->in[frm];
    next_turn(b);
    m->arrived = 0;
    sem_post(b->free);
    m->heard = h->step, m->heard_chunk = h->chunk;
    if (m->heard > m->most_heard) m->most_heard = m->heard;
}

static void write_send(mover *m, i64 start, i64 end, int to, const piece *p, int32_t step, uint16_t phase) {
    write_row(m->lane, &(row){start, end, 0, SEND, (int16_t)m->world[to], step, p->chunk, p->slot, 0, phase, p->bytes, NAN, 0});
}

static void write_recv(mover *m, i64 start, i64 end, int frm, const header *h, int fused, uint16_t phase) {
    write_row(m->lane, &(row){start, end, 0, RECV, (int16_t)m->world[frm], (int32_t)h->step, (int32_t)h->chunk,
                              (int32_t)h->slot, fused ? (uint16_t)m->fused : 0, phase, h->nbytes, NAN, 0});
}

/* Into the caller's tensor. */
static void store(const mover *m, void *into, const void *from, i64 bytes) {
    if (m->past_caches && bytes >= BLOCK) copy_past_caches(into, from, bytes);
    else memcpy(into, from, (size_t)bytes);
}

static combiner *combiner_for(const piece *p, int reduction) {
    int aligned = p->itemsize > 0 && !((uintptr_t)p->at % (uintptr_t)p->itemsize);
    return aligned ? combiner_of(p->letter, p->itemsize, reduction) : NULL;
}

static int put(mover *m, piece p, int to, uint16_t phase) {
    int code = make_ready(m, -1, to, &p, phase, 0, NULL);
    if (code) return code;
    expect_row(m->lane);
    i64 start = now();
    memcpy(payload_of(&m->out[to]), p.at, (size_t)p.bytes);
    send_slot(m, to, &p, p.step);
    write_send(m, start, now(), to, &p, p.step, phase);
    return DONE;
}

static int take(mover *m, piece p, int frm, int reduction, uint16_t phase, int before) {
    combiner *combine = reduction ? combiner_for(&p, reduction) : NULL;
    header h;
    int code = reduction && !combine ? hand_over(m, &m->in[frm], NULL) : make_ready(m, frm, -1, &p, phase, 0, &h);
    if (code) return code;
    expect_row(m->lane);
    i64 start = now();
    const char *arrived = payload_of(&m->in[frm]);
    if (!reduction) store(m, p.at, arrived, p.bytes);
    else if (before) combine(p.at, arrived, p.at, p.bytes);
    else combine(p.at, p.at, arrived, p.bytes);
    free_slot(m, frm, &h);
    write_recv(m, start, now(), frm, &h, reduction, phase);
    return DONE;
}

static int pass_on(mover *m, piece p, int frm, int to, int reduction, int keep, uint16_t phase, uint16_t next_phase) {
    combiner *combine = reduction ? combiner_for(&p, reduction) : NULL;
    header h;
    int code = reduction && !combine ? hand_over(m, &m->in[frm], &m->out[to])
                                     : make_ready(m, frm, to, &p, phase, next_phase, &h);
    if (code) return code;
    expect_row(m->lane);
    i64 start = now();
    const char *arrived = payload_of(&m->in[frm]);
    char *leaving = payload_of(&m->out[to]);
    for (i64 at = 0, rest; (rest = p.bytes - at) > 0; at += BLOCK) { /* while a block is in the nearest cache */
        i64 bytes = rest < BLOCK ? rest : BLOCK;
        if (reduction) combine(leaving + at, arrived + at, p.at + at, bytes);
        else memcpy(leaving + at, arrived + at, (size_t)bytes);
        if (!reduction) store(m, p.at + at, leaving + at, bytes);
        else if (keep) memcpy(p.at + at, leaving + at, (size_t)bytes);
    }
    send_slot(m, to, &p, p.step + 1);
    free_slot(m, frm, &h);
    i64 end = now();
    write_recv(m, start, end, frm, &h, reduction, phase);
    write_send(m, start, end, to, &p, p.step + 1, next_phase);
    return DONE;
}

/* -- messages -- */

static int is_peer(const mover *m, int32_t rank) { return rank >= 0 && rank < m->size && rank != m->rank; }

static int begin_message(mover *m, i64 bytes) {
    if (m->inside) {
        PyErr_SetString(PyExc_RuntimeError, "two threads use one communicator at the same time");
        return -1;
    }
    m->inside = 1;
    if (!m->going) m->at = m->waiting = m->arrived = m->claimed = 0;
    if (bytes >= LARGE) let_go(m);
    return 0;
}

static PyObject *end_message(mover *m, int code) {
    take_back(m);
    m->inside = 0;
    m->going = code == LOOK || code == PYTHON;
    return PyLong_FromLong(code);
}

static PyObject *foreign(message *x) {
    if (x) close_message(x);
    return PyErr_Occurred() ? NULL : PyLong_FromLong(FOREIGN);
}

/* x, to, step, chunk, slot, phase */
PyObject *mover_post(mover *m, PyObject *const *args, Py_ssize_t count) {
    message x;
    int32_t to, step, slot;
    uint16_t phase;
    x.count = 0;
    if (count != 6) return PyErr_Format(PyExc_TypeError, "post takes six arguments");
    if (small_number(args[1], &to) || small_number(args[2], &step) || small_number(args[4], &slot) || !is_peer(m, to) ||
        name_number(m, args[5], &phase) || read_message(m, &x, args[0], args[3], slot, 0))
        return foreign(&x);
    int code = begin_message(m, x.bytes);
    for (; !code && m->at < x.slots; m->at += !code) code = put(m, piece_of(&x, m->at, step), to, phase);
    PyObject *answer = code < 0 ? NULL : end_message(m, code);
    close_message(&x);
    return answer;
}

/* into, frm, reduce, step, chunk, slot, phase */
PyObject *mover_recv(mover *m, PyObject *const *args, Py_ssize_t count) {
    message x;
    int32_t frm, step, slot;
    int reduction;
    uint16_t phase;
    x.count = 0;
    if (count != 7) return PyErr_Format(PyExc_TypeError, "recv takes seven arguments");
    if (small_number(args[1], &frm) || read_reduction(args[2], &reduction) || small_number(args[3], &step) ||
        small_number(args[5], &slot) || !is_peer(m, frm) || name_number(m, args[6], &phase) ||
        read_message(m, &x, args[0], args[4], slot, 1))
        return foreign(&x);
    int code = begin_message(m, x.bytes);
    for (; !code && m->at < x.slots; m->at += !code)
        code = take(m, piece_of(&x, m->at, step), frm, reduction, phase, 0);
    PyObject *answer = code < 0 ? NULL : end_message(m, code);
    close_message(&x);
    return answer;
}

/* mine, frm, to, reduce, keep, step, chunk, slot, phase, next_phase */
PyObject *mover_relay(mover *m, PyObject *const *args, Py_ssize_t count) {
    message x;
    int32_t frm, to, step, slot;
    int reduction;
    uint16_t phase, next_phase;
    x.count = 0;
    if (count != 10) return PyErr_Format(PyExc_TypeError, "relay takes ten arguments");
    int keep = PyObject_IsTrue(args[4]);
    if (keep < 0 || small_number(args[1], &frm) || small_number(args[2], &to) || read_reduction(args[3], &reduction) ||
        small_number(args[5], &step) || small_number(args[7], &slot) || !is_peer(m, frm) || !is_peer(m, to) ||
        name_number(m, args[8], &phase) || name_number(m, args[9], &next_phase) ||
        read_message(m, &x, args[0], args[6], slot, !reduction || keep))
        return foreign(&x);
    int code = begin_message(m, x.bytes);
    for (; !code && m->at < x.slots; m->at += !code)
        code = pass_on(m, piece_of(&x, m->at, step), frm, to, reduction, keep, phase, next_phase);
    PyObject *answer = code < 0 ? NULL : end_message(m, code);
    close_message(&x);
    return answer;
}

/* x, to, into, frm, reduce, step, chunk, into_chunk, slot, phase, before. ``at`` counts turns: the even ones put a
   slot, the odd ones take one, ``ahead`` slots later. */
PyObject *mover_exchange(mover *m, PyObject *const *args, Py_ssize_t count) {
    message x, into;
    int32_t to, frm, step, slot;
    int reduction, code = -1;
    uint16_t phase;
    x.count = 0;
    if (count != 11) return PyErr_Format(PyExc_TypeError, "exchange takes eleven arguments");
    int before = PyObject_IsTrue(args[10]);
    if (before < 0 || small_number(args[1], &to) || small_number(args[3], &frm) || read_reduction(args[4], &reduction) ||
        small_number(args[5], &step) || small_number(args[8], &slot) || !is_peer(m, frm) || !is_peer(m, to) ||
        name_number(m, args[9], &phase) || read_message(m, &x, args[0], args[6], slot, 0))
        return foreign(&x);
    if (read_message(m, &into, args[2], args[7], slot, 1)) {
        close_message(&into);
        return foreign(&x);
    }
    i64 last = 2 * (x.slots > into.slots + m->ahead ? x.slots : into.slots + m->ahead);
    for (code = begin_message(m, x.bytes + into.bytes); !code && m->at < last; m->at += !code) {
        i64 i = m->at / 2, j = i - m->ahead;
        if (m->at % 2 == 0 && i < x.slots) code = put(m, piece_of(&x, i, step), to, phase);
        if (m->at % 2 == 1 && j >= 0 && j < into.slots)
            code = take(m, piece_of(&into, j, step), frm, reduction, phase, before);
    }
    PyObject *answer = code < 0 ? NULL : end_message(m, code);
    close_message(&x);
    close_message(&into);
    return answer;
}

/* Forgets a message that does not go on. A wait that nobody ended was one too: it has its row. */
PyObject *mover_give_up(mover *m, PyObject *none) {
    if (m->going && m->waiting) write_wait(m);
    m->going = 0;
    m->waiting = 0;
    Py_RETURN_NONE;
}
