/* supervise.h — the services of a node as children: started in order, each when the one before
 *               answers; started again when they die; stopped in the other order.
 * Not here: guests (they belong to no service), systemd (an installed system uses that).
 * Threads:  one loop; health is asked on two threads of a pool.
 * Memory:   supervise_run() keeps nothing after it returns.
 * Errors:   "StartFailed" names the service and shows the end of its log. */
#pragma once
#include "base/arena.h"
#include "base/err.h"
#include "model/config.h"

struct supervise_service {
    const char *name;          /* "state" */
    const char *exe;           /* path */
    const char *socket;        /* its path: "health" is asked there */
    int uid_offset;            /* enum config_uid, 0 = it needs root */
    uint64_t start_timeout_ns; /* until it answers; 0 = that of all */
};

struct supervise_opts {
    const struct config *cfg;
    const struct supervise_service *services; /* in order of starting */
    size_t n_services;
    const char *log_dir;
    const char *log_level;     /* NULL = info */
    uint64_t start_timeout_ns; /* until a service answers; 0 = 60 s */
    unsigned n_first_deaths;   /* of one that never answered, until all is given up; 0 = 6 */
    /* One line of progress; 'is_last': everything answers. */
    void (*say)(void *ctx, const char *line, bool is_last);
    void *ctx;
};

/* Runs until SIGTERM or SIGINT, then stops everything. Signals must be blocked before
 * (loop_block_signals()). Fails only when the first start does not succeed. */
MUST_CHECK int supervise_run(const struct supervise_opts *o, struct err *err);
