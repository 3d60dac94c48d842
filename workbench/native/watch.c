/* Keeps rings from overflowing while the interpreter is elsewhere, on a thread of its own. */
#include "knock.h"
#include "rings.h"
#include <stdlib.h>

enum {
    KNOCKS_WORD = 20,
    LONGEST_NAP_NS = 40000000, SHORTEST_NAP_NS = 1000000,
    LONGEST_WAIT_NS = 1000000000, SHORTEST_WAIT_NS = 4000000 /* for a knock */
};

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
    while (!atomic_load_explicit(words, memory_order_acquire) && (time = now()) < until) {
        i64 words_noted = can_sleep ? note_knocks(readers, count, words, noted) : 0;
        i64 fullest = gather_due(readers, count);
        nap = fullest ? nap * 125 / fullest : 2 * nap;
        if (nap > LONGEST_NAP_NS) nap = LONGEST_NAP_NS;
        if (nap < SHORTEST_NAP_NS) nap = SHORTEST_NAP_NS;
        i64 end = time + (words_noted ? LONGEST_WAIT_NS : nap);
        if (end > until) end = until;
        if (!words_noted) early = end - time;
        else can_sleep = sleep_while_all(noted, words_noted, end), early = time + SHORTEST_WAIT_NS - now();
        if (early > 0 && !atomic_load_explicit(words, memory_order_acquire)) nanosleep(&(struct timespec){.tv_nsec = early}, NULL);
        atomic_store_explicit(words + 1, busy_ns(), memory_order_relaxed);
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
        if (!is_reader((PyObject *)readers[k])) goto refused;
    }
    PyThreadState *thread = PyEval_SaveThread();
    watch(readers, count, now() + (i64)(seconds * 1e9), words.buf);
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
