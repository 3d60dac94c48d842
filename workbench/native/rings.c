/* Copies what is new in the rings of a trace's lanes, and checks that it is whole.

   Everything in a trace may change at any moment, or be damaged. A number read there is used as a place
   only after it was taken into the ring's bounds; a record counts only if it bears its number, and the one
   before it still bore its own after the copying (recording/ring.py says why). */
#include "rings.h"
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum { WORDS = RECORD / 8, SEQ = WORDS - 1, MAGIC_WORD = 0, LANES_WORD = 3 };
/* Of one lane, as MOST_ROWS: the compute lane has a context for almost every row. */
enum { MOST_CONTEXTS = 1 << 18 };

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
void free_table(lane_reader *l) {
    if (l->known) munmap(l->known, l->known_size * RECORD);
}

/* Keeps `size` contexts from now on, the newest of those that there are. Returns whether it does. */
int keep_contexts(lane_reader *l, i64 size) {
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

/* Returns `count` in thousandths of `size`, 1000 at most: what is in shared memory may say any number. */
static i64 thousandths(i64 count, i64 size) { return count < size ? count * 1000 / size : 1000; }

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
    i64 rows = thousandths(found, l->rows.size), contexts = thousandths(made, l->contexts.size);
    return rows > contexts ? rows : contexts;
}

/* Returns whether an eighth of a ring's records, or more, waits to be read. */
static int is_filling(const ring_reader *r) { return number_at(r, r->position + r->size / 8) > r->position; }

/* Returns how many lanes there are; 0: no recorder yet. */
i64 lanes_there(const reader *m) {
    const _Atomic i64 *words = m->memory.buf;
    if (atomic_load_explicit(&words[MAGIC_WORD], memory_order_acquire) != m->magic) return 0;
    i64 there = atomic_load_explicit(&words[LANES_WORD], memory_order_acquire);
    return there > MOST_LANES ? MOST_LANES : there;
}

/* Returns whether a lane has much to read, or is new, at the cost of a glance. */
int is_due(const reader *m) {
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
i64 gather(reader *m) {
    i64 fullest = 0;
    open_lanes(m);
    for (i64 k = 0; k < m->lanes; k++) {
        i64 full = gather_lane(&m->lane[k]);
        if (full > fullest) fullest = full;
    }
    if (fullest > m->full) m->full = fullest;
    return fullest;
}
