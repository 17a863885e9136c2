/* console_log.h — what a guest wrote to its serial port: a file written, an older one kept.
 * Not here: the port itself (mon_console.c), the API form (compute_rpc.c).
 * Threads:  a writer belongs to the monitor; console_log_tail() may run anywhere meanwhile.
 * Memory:   the writer borrows its descriptors; console_log_tail() fills a buf of the caller.
 * Errors:   negative errno. A full disk loses text; the guest never waits for its log. */
#pragma once
#include "base/buf.h"
#include "base/err.h"
#include <stdbool.h>
#include <stdint.h>

#define CONSOLE_FILE_MAX (1u << 20)
#define CONSOLE_TAIL_MAX (64u << 10)

struct console_log {
    int fd, old_fd; /* opened read-write by the service: the monitor can open nothing */
    uint64_t size, max_size;
};

/* Goes on at the end of what is there. */
MUST_CHECK int console_log_init(struct console_log *c, int fd, int old_fd, uint64_t max_size);
MUST_CHECK int console_log_write(struct console_log *c, struct str bytes);

/* Opens (makes) both files in 'dir'. */
MUST_CHECK int console_log_open(const char *dir, int *ret_fd, int *ret_old_fd, struct err *err);
/* Appends the newest 'max' bytes to 'out'. 0 bytes and time 0 when there is no log yet. */
MUST_CHECK int console_log_tail(const char *dir, size_t max, struct buf *out,
                                uint64_t *ret_changed_ns, struct err *err);
