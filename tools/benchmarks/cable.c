/* A cable with a bandwidth and a delay, in user space (tc has one where the kernel has netem):

       cable NAMESPACE INSIDE OUTSIDE MBIT DELAY_US

   It makes a network device INSIDE the namespace and one OUTSIDE it, where it was started, and carries
   frames between them. A frame that leaves the namespace waits until those before it have left, at
   MBIT, and arrives DELAY_US after its own last byte. What enters the namespace passes at once: the
   sender's cable has paced it. A line is printed once both devices are there; the program ends with
   its input. */

#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/if_tun.h>
#include <net/if.h>
#include <poll.h>
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <time.h>
#include <unistd.h>

enum { FRAME = 1600, QUEUE = 8192, TURN = 64, NAP = 100000, LONGEST = 500000000 };

static struct { int64_t due; int size; char bytes[FRAME]; } queue[QUEUE];

static int device(const char *name) {
    struct ifreq request = {.ifr_flags = IFF_TAP | IFF_NO_PI};
    int fd = open("/dev/net/tun", O_RDWR | O_NONBLOCK | O_CLOEXEC);
    strncpy(request.ifr_name, name, IFNAMSIZ - 1);
    if (fd < 0 || ioctl(fd, TUNSETIFF, &request)) {
        perror(name);
        exit(1);
    }
    return fd;
}

static int64_t now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1000000000LL + t.tv_nsec;
}

/* A device that is down takes nothing: what comes meanwhile is lost, as on a cable that is cut. */
static void carry(int fd, const void *frame, int size) {
    if (write(fd, frame, size) < 0 && errno != EIO && errno != EAGAIN) {
        perror("cable");
        exit(1);
    }
}

int main(int count, char **words) {
    if (count != 6) return 2;
    const char *namespace = words[1];
    double ns_per_byte = 8e3 / atof(words[4]);
    int64_t delay = atoll(words[5]) * 1000, free_at = 0;
    unsigned head = 0, tail = 0;

    int outside = device(words[3]), there = open(namespace, O_RDONLY | O_CLOEXEC);
    if (there < 0 || setns(there, CLONE_NEWNET)) {
        perror(namespace);
        return 1;
    }
    int inside = device(words[2]);
    struct sched_param first = {.sched_priority = 1};
    sched_setscheduler(0, SCHED_FIFO, &first); /* busy ranks are no reason for a slower cable */
    puts("ready");
    fflush(stdout);

    for (;;) {
        struct pollfd ends[] = {{inside, POLLIN, 0}, {outside, POLLIN, 0}, {0, POLLIN, 0}};
        struct timespec wait = {0, 0};
        char passing[FRAME];
        if (head - tail == QUEUE) ends[0].fd = -1; /* the device drops what it cannot keep */
        if (head != tail) {
            int64_t left = queue[tail % QUEUE].due - now();
            if (left > 0) wait.tv_nsec = left < NAP ? NAP : left < LONGEST ? left : LONGEST;
        }
        if (ppoll(ends, 3, head == tail ? NULL : &wait, NULL) < 0 && errno != EINTR) return 1;
        if (ends[2].revents || (ends[0].revents | ends[1].revents) & (POLLERR | POLLNVAL)) return 0;
        for (int i = 0; ends[0].revents && i < TURN && head - tail < QUEUE; i++) {
            int size = read(inside, queue[head % QUEUE].bytes, FRAME);
            if (size <= 0) break;
            int64_t begin = now();
            if (free_at < begin) free_at = begin;
            free_at += size * ns_per_byte;
            queue[head % QUEUE].size = size;
            queue[head++ % QUEUE].due = free_at + delay;
        }
        for (int i = 0, size; ends[1].revents && i < TURN; i++) {
            if ((size = read(outside, passing, FRAME)) <= 0) break;
            carry(inside, passing, size);
        }
        for (int64_t moment = now(); head != tail && queue[tail % QUEUE].due <= moment; tail++)
            carry(outside, queue[tail % QUEUE].bytes, queue[tail % QUEUE].size);
    }
}
