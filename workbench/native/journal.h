/* The log of one lane: rows, contexts, status and meter, as recording/events.py and meter.py lay them out.

   A row is there once its number is: the number is written last, with release, so that a reader on any
   processor that sees it sees the row. A fence comes before a row is begun, so that who reads a row that
   is being overwritten sees that the one before it has changed too (recording/ring.py asks for both). */
#pragma once
#include "abi3.h"
#include "clock.h"
#include "knock.h"
#include <math.h>
#include <stdatomic.h>
#include <string.h>

enum { RECORD_BYTES = 64, STATUS_AT = 64, METER_AT = 1024, PAGE_BYTES = 4096 };
enum { METER_EVERY = 251, METER_FIRST = 32, METER_OCTAVES = 40 };
enum { ROWS_A_KNOCK = 16 * METER_EVERY, CONTEXTS_A_KNOCK = 1024 }; /* a quarter of a ring */
enum { COLLECTIVE = 5, SEND = 6, RECV = 7, WAIT = 10 }; /* kinds of rows */

typedef struct {
    i64 start, end;
    uint32_t context;
    uint16_t kind;
    int16_t peer;
    int32_t step, chunk, slot;
    uint16_t name, phase;
    i64 nbytes;
    double value;
    _Atomic i64 seq;
} row;

typedef struct {
    uint16_t collective, algorithm, group, lane;
    int32_t generation, microbatch;
    i64 op, iteration, stage, version, first;
    _Atomic i64 seq;
} context;

typedef struct {
    _Atomic i64 seq; /* odd while the rest is written */
    i64 since;
    uint16_t kind; /* + 1 */
    int16_t peer;
    uint16_t group, collective, algorithm, dtype;
    i64 op;
    int32_t step, chunk;
    uint16_t dims, values;
    i64 shape[4];
    double first[8];
} status;

_Static_assert(sizeof(row) == RECORD_BYTES && sizeof(context) == RECORD_BYTES, "records have 64 bytes");
_Static_assert(sizeof(status) == 152 && STATUS_AT + sizeof(status) <= METER_AT, "the status fits before the meter");

/* A ring in a trace, or a file's newest block. ``place``: of the next record; at the end it wraps or grows. */
typedef struct {
    char *base;
    i64 records, place, seq;
    Py_buffer memory;
    int grows;
    _Alignas(8) char spare[RECORD_BYTES]; /* where records go that nobody will read */
} ring;

typedef struct {
    PyObject_HEAD
    /* What every row needs, close together. */
    PyObject *lost; /* called for each row once another lane is here; None: rows are of no interest */
    i64 stop;       /* the place of the next row that is timed, or the end */
    uint32_t context;
    uint16_t number; /* the lane's name */
    ring rows, contexts;
    char *page;
    i64 status_seq;
    i64 *meter;      /* NULL: nothing is timed */
    context latest;  /* the newest that was written; its seq is 0 before the first */
    i64 first;       /* where the lane's own count of rows begins */
    knocks *knocks;  /* at who reads the rings; NULL: nobody sleeps */
    i64 timed;       /* rows */
    PyObject *lane;  /* a weak reference: it makes files longer, and its ``write`` is what is timed */
    Py_buffer page_memory, knocks_memory;
    _Alignas(8) char unread[METER_AT]; /* the page of who has left */
} journal;

extern PyType_Spec journal_spec;
int is_journal(PyObject *);

/* What happens seldom (journal.c): a block ends, a row is timed, who reads is woken. */
void journal_turn(journal *, ring *);
void journal_lose(journal *);
void journal_knock(journal *);
int read_shape(status *, PyObject *); /* a tuple's first four; -1: an error is set */

/* Copies words that others read at the same moment: each is whole. */
static inline void copy_words(void *to, const void *from, size_t bytes) {
    _Atomic i64 *into = to;
    for (size_t i = 0; i < bytes / sizeof(i64); i++) {
        i64 word;
        memcpy(&word, (const char *)from + i * sizeof word, sizeof word);
        atomic_store_explicit(&into[i], word, memory_order_relaxed);
    }
}

/* Fetches a line that is written soon, and that others have read or the caches have lost since it was written
   last: it comes while something else is done. An address outside of memory does no harm. */
static inline void fetch_line(const char *line) {
#if defined(__x86_64__)
    __asm__ volatile("prefetchw %0" : : "m"(*line));
#else
    __builtin_prefetch(line, 1);
#endif
}

/* Says that a row is written soon. */
static inline void expect_row(const journal *j) { fetch_line(j->rows.base + RECORD_BYTES * j->rows.place); }

/* Says that a context, a status and a row are written soon. */
static inline void expect_frame(const journal *j) {
    expect_row(j);
    fetch_line(j->contexts.base + RECORD_BYTES * j->contexts.place);
    fetch_line(j->page + STATUS_AT);
}

static inline char *claim(journal *j, ring *r) {
    if (r->place == r->records) journal_turn(j, r);
    return r->base + RECORD_BYTES * r->place++;
}

static inline void time_row(journal *j, i64 ns) {
    int octave = ns > 0 ? 64 - __builtin_clzll((unsigned long long)ns) : 0;
    if (octave > METER_OCTAVES - 1) octave = METER_OCTAVES - 1;
    j->meter[1 + 2 * octave + 1] += ns;
    j->meter[1 + 2 * octave]++;
}

/* Returns whether this row is to be timed, and sets when the next one will be. */
static inline int is_timed(journal *j) {
    i64 place = j->rows.place == j->rows.records ? 0 : j->rows.place;
    j->stop = j->meter ? place + METER_EVERY : j->rows.records;
    if (j->stop > j->rows.records) j->stop = j->rows.records;
    if (j->knocks && ++j->timed % (ROWS_A_KNOCK / METER_EVERY) == 0) journal_knock(j);
    return j->meter != NULL;
}

static inline void fill_row(journal *j, const row *given) {
    row *r = (row *)claim(j, &j->rows);
    atomic_thread_fence(memory_order_release);
    row filled = *given;
    filled.context = j->context;
    copy_words(r, &filled, offsetof(row, seq));
    atomic_store_explicit(&r->seq, ++j->rows.seq, memory_order_release);
    expect_row(j); /* the next one */
}

/* Writes a row whose context is the lane's. Needs no lock of the interpreter. */
static inline void write_row(journal *j, const row *given) {
    if (j->lost) {
        journal_lose(j);
    } else if (j->rows.place < j->stop) {
        fill_row(j, given);
    } else {
        if (j->rows.place == j->rows.records) { /* not part of what a row costs */
            journal_turn(j, &j->rows);
        }
        if (is_timed(j)) {
            i64 began = now();
            fill_row(j, given);
            time_row(j, now() - began);
        } else {
            fill_row(j, given);
        }
    }
}

/* Writes a context, which the rows that follow have in common, unless the newest one says the same: a ring
   of contexts is shorter than one of rows. Returns its number. */
static inline uint32_t write_context(journal *j, const context *given) {
    context filled = *given;
    filled.lane = j->number;
    filled.first = j->first;
    if (j->latest.seq && !memcmp(&filled, &j->latest, offsetof(context, seq))) return j->context = (uint32_t)j->latest.seq;
    context *c = (context *)claim(j, &j->contexts);
    atomic_thread_fence(memory_order_release);
    copy_words(c, &filled, offsetof(context, seq));
    atomic_store_explicit(&c->seq, ++j->contexts.seq, memory_order_release);
    filled.seq = j->contexts.seq;
    j->latest = filled;
    if (j->knocks && filled.seq % CONTEXTS_A_KNOCK == 0) journal_knock(j);
    return j->context = (uint32_t)j->contexts.seq;
}

/* Says what the lane does right now. ``given->seq`` and ``given->since`` are set here. */
static inline void write_status(journal *j, const status *given) {
    status *s = (status *)(j->page + STATUS_AT);
    atomic_store_explicit(&s->seq, j->status_seq + 1, memory_order_relaxed);
    atomic_thread_fence(memory_order_release);
    status filled = *given;
    filled.since = now();
    size_t all = given->dims || given->values ? sizeof filled : offsetof(status, shape);
    copy_words(&s->since, &filled.since, all - offsetof(status, since));
    j->status_seq += 2;
    atomic_store_explicit(&s->seq, j->status_seq, memory_order_release);
}

static inline void write_idle(journal *j) {
    write_status(j, &(status){.peer = -1, .op = -1, .step = -1, .chunk = -1});
}
