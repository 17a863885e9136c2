/* progress.h — how far a long task is, on a terminal, once it has taken more than a second.
 * Not here: what the task does.
 * Threads:  progress_set() may be called from any thread; the rest from one.
 * Memory:   a plain value.
 * Errors:   none. Nothing is printed when standard error is no terminal. */
#pragma once
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

struct progress {
    pthread_mutex_t lock; /* GUARDED_BY: all below */
    uint64_t started_ns, shown_ns;
    bool is_terminal, is_shown;
};

void progress_start(struct progress *p);
/* 'total' 0: not known. is_bytes: shown as MiB with a rate, else as a part of the whole. */
void progress_set(struct progress *p, const char *phase, uint64_t done, uint64_t total,
                  bool is_bytes);
void progress_end(struct progress *p); /* takes the line away */
