/* One rank's end of a group, as the mover knows it. Python owns the memory and opens the mailboxes. */
#pragma once
#include "journal.h"
#include "waiting.h"

/* What a call returns: all slots are moved; blocked for a while, so that Python looks around and calls again; slot
   ``at`` is for Python, which then calls again; or Python moves the whole message. */
enum { DONE, LOOK, PYTHON, FOREIGN };
enum { HEAD_BYTES = 4096, HEADER_BYTES = 128, FREE_AT = 64, BELL_AT = 64 };
enum { LARGE = 131072 }; /* bytes: a message from which on the interpreter's lock is released */
enum { TURN, MOVED, COUNTS }; /* a mailbox's private counts: its next slot, and the bytes sent through it */

typedef struct {
    i64 generation, op, step, chunk, slot, nbytes, signature, arrives, total, tag, checksum, slowness;
} header;

/* One end of a mailbox. Its peer may write all of ``base``: what is read there is copied first, then checked. */
typedef struct {
    char *base;
    i64 slots, stride, *counts;
    sem_t *ready, *free;
    Py_buffer memory, own;
    Py_buffer bell; /* of the peer, where it may sleep until something is in here, or taken out of it */
    i64 bell_word;
} box;

static inline header *header_of(const box *b) {
    return (header *)(b->base + HEAD_BYTES + (i64)((uint64_t)b->counts[TURN] % (uint64_t)b->slots) * b->stride);
}
static inline char *payload_of(const box *b) { return (char *)header_of(b) + HEADER_BYTES; }
static inline void next_turn(box *b) { b->counts[TURN] = (i64)((uint64_t)(b->counts[TURN] + 1) % (uint64_t)b->slots); }

typedef struct {
    int peer;
    int32_t step, chunk, slot;
    uint16_t name, phase;
} wait_row;

typedef struct {
    PyObject_HEAD
    journal *lane;
    PyObject *names, *name, *where;
    i64 rank, size, generation, slot_bytes, op, signature;
    i64 bytes_sent, heard, heard_chunk, most_heard;
    i64 awake_ns, yields, slice_ns, past_caches, ahead;
    i64 group, full, fused, p2p; /* names */
    i64 moved_ns, message_context; /* of a point-to-point message: when its newest slot moved; of its rows */
    int32_t *world;
    box *out, *in;
    Py_buffer control, board;
    i64 abort_word, lost_word, alarm_word, history_word, history;
    context place; /* of ``where`` */
    /* How far a message is that has to go on. */
    i64 at, waiting;
    wait_row wait;
    turns turns;
    int going, arrived, claimed, inside;
    PyThreadState *released;
} mover;

extern PyType_Spec mover_spec;
int name_number(mover *, PyObject *, uint16_t *); /* of a text, or a number itself; -1: an error is set */
int open_box(box *, PyObject *memory, PyObject *own, i64 slots, i64 stride);
void close_box(box *);

/* Whether the user holds, slows or cuts something: then Python moves. */
static inline int steered(const mover *m) { return atomic_load_explicit((_Atomic i64 *)m->control.buf, memory_order_relaxed) != 0; }

/* Computing goes on meanwhile, where Python has other threads. */
static inline void let_go(mover *m) {
    if (!m->released) m->released = PyEval_SaveThread();
}
static inline void take_back(mover *m) {
    if (m->released) PyEval_RestoreThread(m->released);
    m->released = NULL;
}

/* frame.c: what a collective begins and ends with */
int read_where(mover *, PyObject *); /* -1: an error is set */
PyObject *mover_begin(mover *, PyObject *const *, Py_ssize_t);
PyObject *mover_end(mover *, PyObject *const *, Py_ssize_t);
/* messages.c */
PyObject *mover_post(mover *, PyObject *const *, Py_ssize_t);
PyObject *mover_recv(mover *, PyObject *const *, Py_ssize_t);
PyObject *mover_relay(mover *, PyObject *const *, Py_ssize_t);
PyObject *mover_exchange(mover *, PyObject *const *, Py_ssize_t);
PyObject *mover_give_up(mover *, PyObject *);
/* point_to_point.c */
PyObject *mover_send_slots(mover *, PyObject *const *, Py_ssize_t);
PyObject *mover_take_slots(mover *, PyObject *const *, Py_ssize_t);
