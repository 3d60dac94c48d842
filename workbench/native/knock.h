/* A knock at who reads the rings of a trace, by who writes records: a good part of a ring is new. The reader sleeps
   until then. Knocks are counted in the trace's header; 0: nobody has knocked so far, or ever will. */
#pragma once
#include <errno.h>
#include <stdatomic.h>
#include <stdint.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#ifndef SYS_futex_waitv
#define SYS_futex_waitv 449 /* on every processor, from Linux 5.16 on */
#endif

typedef _Atomic uint32_t knocks;
typedef struct {
    uint64_t value, at;
    uint32_t flags, unused;
} sleep_while; /* the kernel's `struct futex_waitv`, which older headers lack */
enum { MOST_WORDS = 128, OF_32_BITS = 2, WAKE = 1 };

static inline void wake_at(const void *word) { syscall(SYS_futex, word, WAKE, INT32_MAX, NULL, NULL, 0); }

static inline void knock(knocks *count) {
    atomic_fetch_add_explicit(count, 1, memory_order_release);
    wake_at((const void *)count);
}

static inline sleep_while while_it_is(uint32_t value, const void *word) {
    return (sleep_while){.value = value, .at = (uintptr_t)word, .flags = OF_32_BITS};
}

/* Sleeps while each word has its value, until a time of CLOCK_MONOTONIC at most. Returns whether the kernel can do
   that. */
static inline int sleep_while_all(const sleep_while *words, int64_t count, int64_t until) {
    struct timespec end = {.tv_sec = until / 1000000000, .tv_nsec = until % 1000000000};
    return syscall(SYS_futex_waitv, words, (unsigned)count, 0, &end, CLOCK_MONOTONIC) >= 0 || errno == EAGAIN ||
           errno == ETIMEDOUT || errno == EINTR;
}
