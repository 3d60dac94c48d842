/* Waiting for a semaphore: awake at first, as sleeping and being woken outlasts most waits.

   A rank that has a core of its own looks again and again, with pauses, and yields its core now and then: the peer
   may be on this very core. Where it is, wait after wait, this thread goes to another core: the kernel is slow to part
   two threads that take turns. A rank that shares a core only yields. Who has waited so long that it sleeps looks
   around every few milliseconds, in Python. */
#pragma once
#include "journal.h"
#include <sched.h>
#include <semaphore.h>

enum { LOOKS_BETWEEN_YIELDS = 32 };
/* Nanoseconds of a yield: a shorter one ran nobody else, a longer one somebody who is no rank that waits. */
enum { TURN_FROM = 1500, TURN_TO = 200000, TURNS = 4 };
enum { SHORTEST_STAY = 1000000, LONGEST_STAY = 1000000000 }; /* nanoseconds on a core before the next move */

/* How often in a row a yield has brought what was waited for; how often this thread has moved for that, when last,
   and how long it stays at least. */
typedef struct {
    i64 count, moves, moved_at, stay;
} turns;

static inline void pause_core(void) {
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

static inline void change_core(void) {
    cpu_set_t all, others;
    int here = sched_getcpu();
    if (here < 0 || here >= CPU_SETSIZE || sched_getaffinity(0, sizeof all, &all)) return;
    others = all;
    CPU_CLR(here, &others);
    if (CPU_COUNT(&others) && !sched_setaffinity(0, sizeof others, &others)) sched_setaffinity(0, sizeof all, &all);
}

/* The peer had this thread's core for its turn. A machine whose cores are all taken is asked less and less often. */
static inline void count_turn(turns *t, i64 start, i64 end) {
    i64 ns = end - start, here = end - t->moved_at;
    if (ns < TURN_FROM || ns > TURN_TO || ++t->count < TURNS || here < t->stay) return;
    if (here > 16 * t->stay) t->stay = SHORTEST_STAY;
    else if (t->stay < LONGEST_STAY) t->stay *= 2;
    t->count = 0, t->moves++, t->moved_at = end;
    change_core();
}

/* Returns whether the semaphore was there while this thread stayed awake. */
static inline int acquire_awake(sem_t *semaphore, i64 awake_until, i64 yields, turns *t) {
    if (awake_until) do {
            for (int look = 0; look < LOOKS_BETWEEN_YIELDS; look++) {
                if (!sem_trywait(semaphore)) {
                    t->count = 0;
                    return 1;
                }
                pause_core();
            }
            i64 start = now();
            sched_yield();
            if (!sem_trywait(semaphore)) {
                count_turn(t, start, now());
                return 1;
            }
        } while (now() < awake_until);
    while (yields-- > 0) {
        sched_yield();
        if (!sem_trywait(semaphore)) return 1;
    }
    return 0;
}

/* Returns whether the semaphore was there within so many nanoseconds; no interrupt makes it wait longer. */
static inline int acquire_asleep(sem_t *semaphore, i64 ns) {
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_nsec += ns % 1000000000;
    until.tv_sec += ns / 1000000000 + until.tv_nsec / 1000000000;
    until.tv_nsec %= 1000000000;
    return !sem_timedwait(semaphore, &until);
}
