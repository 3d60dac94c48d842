/* What is read of one rank's trace, and staged: rings.c fills it, drain.c hands it over, watch.c keeps rings from
   overflowing meanwhile. */
#pragma once
#include "abi3.h"
#include "clock.h"
#include <pthread.h>
#include <stdatomic.h>

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
enum { RECORD = 64 };
_Static_assert(sizeof(read_row) == RECORD && sizeof(read_context) == RECORD, "records have 64 bytes");

#define FARTHEST (1LL << 62) /* a number beyond it is none: nobody writes so many */
enum { MOST_LANES = 32 };
enum {
    KNOWN_CONTEXTS = 4,  /* rings of contexts that are kept: a row may go back to an older one */
    MOST_ROWS = 1 << 20, /* of one lane: from here on its ring overflows, and what is lost is counted */
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

/* rings.c */
i64 lanes_there(const reader *);
int is_due(const reader *);
i64 gather(reader *);
int keep_contexts(lane_reader *, i64 size);
void free_table(lane_reader *);
/* drain.c */
int is_reader(PyObject *);
