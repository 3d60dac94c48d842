/* What is done to the bytes of a slot: copy, add, multiply, least, greatest; each once over memory.

   The results are numpy's bit for bit, as ranks with and without the mover meet in one sum: whole numbers
   wrap round, and the least or greatest of a pair with a NaN in it is that NaN. */
#pragma once
#include <stdint.h>
#include <string.h>
#if defined(__x86_64__)
#include <emmintrin.h>
#endif

enum { NO_REDUCTION, SUM, PRODUCT, MIN, MAX };

/* One copy of each loop per instruction set, chosen when the library is loaded. Sanitizers do not bear that. */
#if defined(__x86_64__) && defined(__linux__) && !defined(PLAIN_LOOPS)
#define WIDE __attribute__((target_clones("default", "avx2", "avx512f")))
#else
#define WIDE
#endif

/* ``into`` may be ``first`` or ``second``, but does not lie across them. */
#if defined(__clang__)
#define IN_ANY_ORDER _Pragma("clang loop vectorize(assume_safety)")
#else
#define IN_ANY_ORDER _Pragma("GCC ivdep")
#endif

typedef void combiner(void *into, const void *first, const void *second, int64_t bytes);

#define COMBINE(name, type, expression)                                                     \
    WIDE static void name(void *into, const void *first, const void *second, int64_t bytes) { \
        type *d = into;                                                                      \
        const type *x = first, *y = second;                                                  \
        int64_t n = bytes / (int64_t)sizeof(type);                                           \
        IN_ANY_ORDER for (int64_t i = 0; i < n; i++) {                               \
            type a = x[i], b = y[i];                                                         \
            d[i] = (type)(expression);                                                       \
        }                                                                                    \
    }
#define REALS(name, type)                                \
    COMBINE(name##_sum, type, a + b)                     \
    COMBINE(name##_product, type, a *b)                  \
    COMBINE(name##_min, type, a < b || a != a ? a : b)   \
    COMBINE(name##_max, type, a > b || a != a ? a : b)
#define WHOLES(name, type, wide)                         \
    COMBINE(name##_sum, type, (wide)a + (wide)b)         \
    COMBINE(name##_product, type, (wide)a *(wide)b)      \
    COMBINE(name##_min, type, a < b ? a : b)             \
    COMBINE(name##_max, type, a > b ? a : b)
REALS(f32, float)
REALS(f64, double)
WHOLES(u8, uint8_t, uint32_t)
WHOLES(i8, int8_t, uint32_t)
WHOLES(i16, int16_t, uint32_t)
WHOLES(i32, int32_t, uint32_t)
WHOLES(i64, int64_t, uint64_t)

#define ALL_OF(name) {NULL, name##_sum, name##_product, name##_min, name##_max}
/* By numpy's letter of a dtype (a long has 8 bytes here, as everywhere that has memfd). */
static combiner *combiner_of(char letter, int64_t itemsize, int reduction) {
    static combiner *const table[][5] = {ALL_OF(f32), ALL_OF(f64), ALL_OF(u8), ALL_OF(i8), ALL_OF(i16), ALL_OF(i32), ALL_OF(i64)};
    static const struct {
        char letter;
        int64_t itemsize;
    } kinds[] = {{'f', 4}, {'d', 8}, {'B', 1}, {'b', 1}, {'h', 2}, {'i', 4}, {'l', 8}, {'q', 8}};
    for (int i = 0; i < 8; i++)
        if (kinds[i].letter == letter && kinds[i].itemsize == itemsize) return table[i < 7 ? i : 6][reduction];
    return NULL;
}

/* Copies past the caches, for memory that nobody reads soon. */
static inline void copy_past_caches(void *into, const void *from, int64_t bytes) {
#if defined(__x86_64__)
    char *d = into;
    const char *s = from;
    int64_t head = -(intptr_t)d & 63;
    if (head > bytes) head = bytes;
    memcpy(d, s, (size_t)head);
    d += head, s += head, bytes -= head;
    for (; bytes >= 64; d += 64, s += 64, bytes -= 64) {
        __m128i a = _mm_loadu_si128((const __m128i *)s), b = _mm_loadu_si128((const __m128i *)(s + 16));
        __m128i c = _mm_loadu_si128((const __m128i *)(s + 32)), e = _mm_loadu_si128((const __m128i *)(s + 48));
        _mm_stream_si128((__m128i *)d, a);
        _mm_stream_si128((__m128i *)(d + 16), b);
        _mm_stream_si128((__m128i *)(d + 32), c);
        _mm_stream_si128((__m128i *)(d + 48), e);
    }
    memcpy(d, s, (size_t)bytes);
    _mm_sfence();
#else
    memcpy(into, from, (size_t)bytes);
#endif
}
