/* Times in nanoseconds. */
#pragma once
#include <stdint.h>
#include <time.h>

typedef int64_t i64;

static inline i64 clock_ns(clockid_t clock) {
    struct timespec t;
    clock_gettime(clock, &t);
    return t.tv_sec * 1000000000LL + t.tv_nsec;
}
static inline i64 now(void) { return clock_ns(CLOCK_MONOTONIC); }
static inline i64 busy_ns(void) { return clock_ns(CLOCK_THREAD_CPUTIME_ID); } /* this thread's processor time */
