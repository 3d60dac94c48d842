/* Waiting for a semaphore: awake at first, as sleeping and being woken outlasts most waits.

   A rank that has a core of its own looks again and again, with pauses, and yields its core now and then: the peer
   may be on this very core. One that shares a core only yields. Who has waited so long that it sleeps looks
   around every few milliseconds, in Python. */
#pragma once
#include "journal.h"
#include <sched.h>
#include <semaphore.h>

enum { LOOKS_BETWEEN_YIELDS = 32 };

static inline void pause_core(void) {
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

/* Returns whether the semaphore was there while this thread stayed awake. */
static inline int acquire_awake(sem_t *semaphore, i64 awake_until, i64 yields) {
    if (awake_until) do {
            for (int look = 0; look < LOOKS_BETWEEN_YIELDS; look++) {
                if (!sem_trywait(semaphore)) return 1;
                pause_core();
            }
            sched_yield();
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
