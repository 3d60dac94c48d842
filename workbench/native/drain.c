/* Reads the rings of ranks: what store/rank_reader.py does, compiled, and while the interpreter is elsewhere.

   A Reader reads one rank's trace. `gather` copies what is new in every lane's rings, and checks that it is
   whole; `take` hands over the rows that were there at the last `gather`, each with its context, all names
   as the store's numbers. Between the two the caller reads the rank's names, because whatever a row refers
   to was written before the row. `watch_rings` gathers when a ring fills, without the interpreter's lock, on
   a thread of its own: none overflows while Python computes, or while one thread of the driver keeps the
   interpreter to itself (a large library being loaded, say). What waits for Python then is staged here.

   Everything in a trace may change at any moment, or be damaged. A number read there is used as a place
   only after it was taken into the ring's bounds; a record counts only if it bears its number, and the one
   before it still bore its own after the copying (recording/ring.py says why). */
#include "abi3.h"
#include "knock.h"
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

typedef int64_t i64;
typedef struct {
    i64 start, end;
    uint32_t context;
    uint16_t kind;
    int16_t peer;
    int32_t step, chunk, slot;
    uint16_t name, phase;
    i64 nbytes;
    double value;
    i64 seq;
} read_row;
typedef struct {
    uint16_t collective, algorithm, group, lane;
    int32_t generation, microbatch;
    i64 op, iteration, stage, version, first, seq;
} read_context;
enum { RECORD = 64, WORDS = RECORD / 8, SEQ = WORDS - 1 };
_Static_assert(sizeof(read_row) == RECORD && sizeof(read_context) == RECORD, "records have 64 bytes");

enum { MAGIC_WORD = 0, LANES_WORD = 3, KNOCKS_WORD = 20, PAGE_BYTES_ = 4096, NAMES_KNOWN = 65536, MOST_LANES = 32 };
#define FARTHEST (1LL << 62) /* a number beyond it is none: nobody writes so many */
enum {
    KNOWN_CONTEXTS = 4,       /* rings of contexts that are kept: a row may go back to an older one */
    MANY_ROWS = 1 << 16,      /* of one lane: memory for more is given back once they are taken */
    MOST_ROWS = 1 << 20,      /* of one lane: from here on its ring overflows, and what is lost is counted */
    MOST_CONTEXTS = 1 << 18,  /* the same for contexts: the compute lane has one for almost every row */
    LONGEST_NAP_NS = 40000000, SHORTEST_NAP_NS = 1000000,
    LONGEST_WAIT_NS = 1000000000, SHORTEST_WAIT_NS = 4000000 /* for a knock */
};

typedef struct {
    const _Atomic i64 *words;
    i64 size, position; /* `position`: the index of the next record */
} ring_reader;

typedef struct {
    ring_reader rows, contexts;
    read_context *known; /* context i at i % known_size */
    i64 known_size, new_contexts;
    read_row *staged; /* whole rows, in order */
    i64 count, room, lost;
    i64 ready, ready_lost, ready_contexts; /* of these, what was there at the last call of `gather` */
} lane_reader;

typedef struct {
    PyObject_HEAD
    Py_buffer memory, numbers;
    pthread_mutex_t busy; /* around whatever changes what follows */
    i64 magic, data_at, rows, contexts, kinds;
    i64 lanes, full; /* `full`: the most that a `gather` found in a ring, in thousandths, since `take` */
    int short_memory;
    lane_reader lane[MOST_LANES];
} reader;

/* -- one ring -- */

static inline i64 place(i64 index, i64 size) {
    i64 rest = index % size;
    return rest < 0 ? rest + size : rest;
}
static inline i64 number_at(const ring_reader *r, i64 index) {
    return atomic_load_explicit(&r->words[place(index, r->size) * WORDS + SEQ], memory_order_acquire);
}

/* Counts the records from the position on that are there, where one is: they were written in order. The steps
   double, and so go nowhere near what is far from being written: it lies in no cache and in no page table. */
static i64 published(const ring_reader *r) {
    i64 least = 1, beyond = 2;
    while (beyond <= r->size && number_at(r, r->position + beyond - 1) == r->position + beyond)
        least = beyond, beyond *= 2;
    if (beyond > r->size) beyond = r->size + 1;
    while (beyond - least > 1) {
        i64 middle = (least + beyond) / 2;
        if (number_at(r, r->position + middle - 1) == r->position + middle)
            least = middle;
        else
            beyond = middle;
    }
    return least;
}

/* Returns the index after the newest record where another one is at the place of the position. A number
   counts if it is in its place and follows the one before: stray bytes do neither. */
static i64 lapped(const ring_reader *r) {
    i64 begin = r->position, here = number_at(r, begin), newest = begin;
    if (here == begin + 1 - r->size || (here == 0 && number_at(r, begin - 1) == begin)) return begin;
    i64 before = number_at(r, -1);
    for (i64 k = 0; k < r->size; k++) {
        i64 seq = number_at(r, k);
        if (seq > begin + 1 && seq < FARTHEST && (seq - 1) % r->size == k && before == seq - 1 && seq > newest)
            newest = seq;
        before = seq;
    }
    return newest;
}

/* Copies record `index` of the ring; returns whether it is whole. */
static int copy_record(const ring_reader *r, i64 index, void *to) {
    const _Atomic i64 *from = r->words + place(index, r->size) * WORDS;
    i64 copy[WORDS];
    for (int k = 0; k < WORDS; k++) copy[k] = atomic_load_explicit(&from[k], memory_order_relaxed);
    atomic_thread_fence(memory_order_acquire);
    i64 behind = number_at(r, index - 1);
    memcpy(to, copy, RECORD);
    return copy[SEQ] == index + 1 && behind == index;
}

/* Returns the index after the newest record; `*first`: of the oldest that may still be there. */
static i64 extent(const ring_reader *r, i64 *first) {
    i64 begin = r->position;
    i64 stop = number_at(r, begin) == begin + 1 ? begin + published(r) : lapped(r);
    *first = stop - r->size > begin ? stop - r->size : begin;
    return stop;
}

/* -- one lane -- */

static int make_room(lane_reader *l, i64 rows) {
    if (l->count + rows <= l->room) return 1;
    i64 room = l->room ? l->room : 1024;
    while (room < l->count + rows) room *= 2;
    read_row *larger = realloc(l->staged, room * sizeof(read_row));
    if (!larger) return 0;
    l->staged = larger, l->room = room;
    return 1;
}

/* A table of contexts: pages of zeros that cost nothing before they are used. `calloc` clears what it has had. */
static read_context *new_table(i64 size) {
    void *table = mmap(NULL, size * RECORD, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    return table == MAP_FAILED ? NULL : table;
}
static void free_table(lane_reader *l) {
    if (l->known) munmap(l->known, l->known_size * RECORD);
}

/* Keeps `size` contexts from now on, the newest of those that there are. Returns whether it does. */
static int keep_contexts(lane_reader *l, i64 size) {
    read_context *fresh = new_table(size);
    if (!fresh) return 0;
    for (i64 k = 0; k < l->known_size; k++)
        if (l->known[k].seq > 0 && l->known[k].seq > l->contexts.position - size) fresh[l->known[k].seq % size] = l->known[k];
    free_table(l);
    l->known = fresh, l->known_size = size;
    return 1;
}

/* Returns whether a whole ring of contexts can be staged beside those that wait. */
static int make_room_for_contexts(lane_reader *l) {
    i64 size = l->known_size, most = l->new_contexts + l->contexts.size;
    if (most <= size) return 1;
    if (most > MOST_CONTEXTS) return 0;
    while (size < most) size *= 2;
    return keep_contexts(l, size);
}

/* Stages the lane's new rows, then its new contexts. Returns how full its ring was, in thousandths. */
static i64 gather_lane(lane_reader *l) {
    i64 first, stop = extent(&l->rows, &first), found = stop - l->rows.position;
    if (l->count + l->rows.size > MOST_ROWS || !make_room_for_contexts(l)) return 1000;
    if (found && !make_room(l, stop - first)) return 1000; /* no memory: it overflows, and is counted */
    i64 kept = 0;
    for (i64 i = first; i < stop; i++) kept += copy_record(&l->rows, i, &l->staged[l->count + kept]);
    l->count += kept, l->lost += found - kept, l->rows.position = stop;

    stop = extent(&l->contexts, &first);
    for (i64 i = first; i < stop; i++) {
        read_context copy;
        if (copy_record(&l->contexts, i, &copy)) l->known[copy.seq % l->known_size] = copy;
    }
    i64 made = stop - l->contexts.position;
    l->new_contexts += made, l->contexts.position = stop;
    i64 rows = found * 1000 / l->rows.size, contexts = made * 1000 / l->contexts.size;
    return rows > contexts ? rows : contexts;
}

/* Returns whether an eighth of a ring's records, or more, waits to be read. */
static int is_filling(const ring_reader *r) { return number_at(r, r->position + r->size / 8) > r->position; }

/* Returns how many lanes there are; 0: no recorder yet. */
static i64 lanes_there(const reader *m) {
    const _Atomic i64 *words = m->memory.buf;
    if (atomic_load_explicit(&words[MAGIC_WORD], memory_order_acquire) != m->magic) return 0;
    i64 there = atomic_load_explicit(&words[LANES_WORD], memory_order_acquire);
    return there > MOST_LANES ? MOST_LANES : there;
}

/* Returns whether a lane has much to read, or is new, at the cost of a glance. */
static int is_due(const reader *m) {
    if (lanes_there(m) > m->lanes) return 1;
    for (i64 k = 0; k < m->lanes; k++)
        if (is_filling(&m->lane[k].rows) || is_filling(&m->lane[k].contexts)) return 1;
    return 0;
}

static void open_lanes(reader *m) {
    const _Atomic i64 *words = m->memory.buf;
    i64 there = lanes_there(m);
    for (; m->lanes < there; m->lanes++) {
        i64 at = m->data_at + m->lanes * (m->rows + m->contexts) * RECORD;
        lane_reader *l = &m->lane[m->lanes];
        if (at + (m->rows + m->contexts) * RECORD > m->memory.len) {
            m->short_memory = 1;
            return;
        }
        l->known_size = KNOWN_CONTEXTS * m->contexts;
        l->known = new_table(l->known_size);
        if (!l->known) return;
        l->rows = (ring_reader){words + at / 8, m->rows, 0};
        l->contexts = (ring_reader){words + at / 8 + m->rows * WORDS, m->contexts, 0};
    }
}

/* Gathers from all lanes. Returns how full the fullest ring was, in thousandths. */
static i64 gather(reader *m) {
    i64 fullest = 0;
    open_lanes(m);
    for (i64 k = 0; k < m->lanes; k++) {
        i64 full = gather_lane(&m->lane[k]);
        if (full > fullest) fullest = full;
    }
    if (fullest > m->full) m->full = fullest;
    return fullest;
}

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
    if (data_at < PAGE_BYTES_ || data_at % 8 || data_at > FARTHEST || rows < 1 || contexts < 1 || rows > MOST_ROWS / 2 || contexts > MOST_ROWS)
        return PyErr_Format(PyExc_ValueError, "no layout of a trace: rings of %lld and %lld records from byte %lld on", rows, contexts, data_at);
    reader *m = (reader *)((allocfunc)PyType_GetSlot(type, Py_tp_alloc))(type, 0);
    if (!m) return NULL;
    pthread_mutex_init(&m->busy, NULL);
    m->magic = magic, m->data_at = data_at, m->rows = rows, m->contexts = contexts, m->kinds = kinds;
    if (PyObject_GetBuffer(memory, &m->memory, PyBUF_SIMPLE) || PyObject_GetBuffer(numbers, &m->numbers, PyBUF_SIMPLE)) goto failed;
    if (m->memory.len < PAGE_BYTES_ || (uintptr_t)m->memory.buf % 8 || m->numbers.len != NAMES_KNOWN * 2) {
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

static i64 clock_ns(clockid_t clock) {
    struct timespec t;
    clock_gettime(clock, &t);
    return t.tv_sec * 1000000000LL + t.tv_nsec;
}

/* Notes how many knocks there were, and the word that ends the watch. Returns how many words these are; 0: a rank
   writes and will not knock. */
static i64 note_knocks(reader **readers, i64 count, const _Atomic i64 *words, sleep_while *noted) {
    if (count >= MOST_WORDS) return 0;
    for (i64 k = 0; k < count; k++) {
        const knocks *there = (const knocks *)((const i64 *)readers[k]->memory.buf + KNOCKS_WORD);
        uint32_t value = atomic_load_explicit(there, memory_order_acquire);
        if (!value && lanes_there(readers[k])) return 0;
        noted[k] = while_it_is(value, (const void *)there);
    }
    noted[count] = while_it_is(0, (const void *)words);
    return count + 1;
}

/* Gathers what fills. Returns how full the fullest ring of those was, in thousandths. */
static i64 gather_due(reader **readers, i64 count) {
    i64 fullest = 0;
    for (i64 k = 0; k < count; k++) {
        pthread_mutex_lock(&readers[k]->busy);
        i64 full = is_due(readers[k]) ? gather(readers[k]) : 0;
        pthread_mutex_unlock(&readers[k]->busy);
        if (full > fullest) fullest = full;
    }
    return fullest;
}

/* Gathers what fills, without the interpreter's lock, until it is time or the first word is set; the second one
   is the thread's processor time. What is less than an eighth of a ring waits for Python, which gathers it too.
   Sleeps until a writer knocks: waking up takes longer than all else. Where one never does, naps as long as no
   ring gets much more than an eighth full meanwhile. */
static void watch(reader **readers, i64 count, i64 until, _Atomic i64 *words) {
    sleep_while noted[MOST_WORDS];
    i64 nap = LONGEST_NAP_NS, time, early;
    int can_sleep = 1;
    while (!atomic_load_explicit(words, memory_order_acquire) && (time = clock_ns(CLOCK_MONOTONIC)) < until) {
        i64 words_noted = can_sleep ? note_knocks(readers, count, words, noted) : 0;
        i64 fullest = gather_due(readers, count);
        nap = fullest ? nap * 125 / fullest : 2 * nap;
        if (nap > LONGEST_NAP_NS) nap = LONGEST_NAP_NS;
        if (nap < SHORTEST_NAP_NS) nap = SHORTEST_NAP_NS;
        i64 end = time + (words_noted ? LONGEST_WAIT_NS : nap);
        if (end > until) end = until;
        if (!words_noted) early = end - time;
        else can_sleep = sleep_while_all(noted, words_noted, end), early = time + SHORTEST_WAIT_NS - clock_ns(CLOCK_MONOTONIC);
        if (early > 0 && !atomic_load_explicit(words, memory_order_acquire)) nanosleep(&(struct timespec){.tv_nsec = early}, NULL);
        atomic_store_explicit(words + 1, clock_ns(CLOCK_THREAD_CPUTIME_ID), memory_order_relaxed);
    }
}

/* watch_rings(readers, seconds, words): readers a tuple, the words two of 8 bytes that can be written. */
PyObject *watch_rings(PyObject *module, PyObject *args) {
    PyObject *given;
    double seconds;
    Py_buffer words;
    if (!PyArg_ParseTuple(args, "Odw*", &given, &seconds, &words)) return NULL;
    Py_ssize_t count = PyTuple_Size(given);
    reader **readers = count < 0 ? NULL : calloc(count + 1, sizeof(reader *));
    if (!readers || words.len != 16 || (uintptr_t)words.buf % 8 || !(seconds >= 0 && seconds < 3600)) goto refused;
    for (Py_ssize_t k = 0; k < count; k++) {
        readers[k] = (reader *)PyTuple_GetItem(given, k);
        if (PyType_GetSlot(Py_TYPE(readers[k]), Py_tp_dealloc) != (void *)reader_dealloc) goto refused;
    }
    PyThreadState *thread = PyEval_SaveThread();
    watch(readers, count, clock_ns(CLOCK_MONOTONIC) + (i64)(seconds * 1e9), words.buf);
    PyEval_RestoreThread(thread);
    free(readers);
    PyBuffer_Release(&words);
    Py_RETURN_NONE;
refused:
    free(readers);
    PyBuffer_Release(&words);
    if (!PyErr_Occurred()) PyErr_SetString(PyExc_TypeError, "watch_rings takes a tuple of Readers, seconds, two words of 8 bytes");
    return NULL;
}

/* wake_watch(words): they were written to, and who watches is to see it at once. */
PyObject *wake_watch(PyObject *module, PyObject *words) {
    Py_buffer memory;
    if (PyObject_GetBuffer(words, &memory, PyBUF_SIMPLE)) return NULL;
    wake_at(memory.buf);
    PyBuffer_Release(&memory);
    Py_RETURN_NONE;
}
