/* service.h — what the main() of every service needs: arguments, signals, the loop, telling
 * systemd, the admin methods.
 * Not here: reading the configuration (model/config.h), the service's own methods.
 * Threads:  everything on the main thread, but service_admin_handle() and service_set_status()
 *           (any thread).
 * Memory:   a struct service lives in main(); strings of argv are borrowed.
 * Errors:   service_start() prints what is wrong with the arguments itself; the others answer
 *           negative errno and *err. */
#pragma once
#include "base/buf.h"
#include "base/err.h"
#include "base/log.h"
#include "loop/loop.h"
#include "net/rpc.h"
#include <pthread.h>

/* An argument of one service only: "--name VALUE". */
struct service_arg {
    const char *name;   /* "--socket-fd" */
    const char *help;   /* "N  descriptor of the listening socket" */
    const char **value; /* set when the argument is given */
};

struct service {
    const char *name;        /* "spx-state": for logs and messages */
    const char *config_path; /* --config, or NULL: config_load() knows where to look */
    struct loop *loop;
    void (*on_reload)(void *ctx); /* SIGHUP; set before service_run(), may be NULL */
    void *reload_ctx;

    /* Counters of the service as text (codec/metric.h), names of its own; on the loop's thread,
     * must not block; before service_run(), may be NULL. */
    void (*on_metrics)(void *ctx, struct buf *out);
    void *metrics_ctx;
    uint64_t start_ns; /* wall clock */

    struct loop_timer *watchdog; /* when systemd asks for a sign of life (WatchdogSec=) */
    uint64_t watchdog_ns;
    pthread_mutex_t mu;
    char status[32], detail[200]; /* GUARDED_BY(mu): what "health" answers */
};

/* Reads --config PATH, --log-level LEVEL, --help, --version and the service's own 'args'; sets
 * up logging, blocks signals, ignores SIGPIPE and makes the loop. 0 = go on; otherwise
 * *ret_exit is what main() returns. Call it before any thread is started. */
MUST_CHECK int service_start(struct service *s, const char *name, int argc, char **argv,
                             const struct service_arg *args, size_t n_args, int *ret_exit);
/* Says READY to systemd (or nothing when there is none), runs the loop until SIGTERM or SIGINT,
 * says STOPPING. Returns 0: the exit status. A second signal during what follows ends the
 * process at once. */
MUST_CHECK int service_run(struct service *s);
/* Ends service_run(); any thread. */
void service_stop(struct service *s);
void service_done(
    struct service *s); /* frees the loop: everything that lives on it must be gone */

/* Logs what went wrong and returns the exit status of main() (1). */
int service_failed(const struct service *s, const struct err *err);

/* Gives up root for ever: groups, gid, uid, in that order; checks that it cannot come back. uid
 * 0 = nothing to do. With 'keep_caps' (bits 1 << CAP_...) these capabilities are kept as
 * permitted and effective. Call it before any thread is started. */
MUST_CHECK int service_drop_user(uid_t uid, gid_t gid, const gid_t *groups, size_t n_groups,
                                 uint64_t keep_caps, struct err *err);

/* What "health" answers: "ok" (at start: "starting" until service_run()), "degraded", "locked";
 * 'detail' one sentence or NULL. */
void service_set_status(struct service *s, const char *status, const char *detail);

/* Answers the methods every service has and returns true; false = not one of them, 'req' is
 * still the caller's. health     {} -> {"service","version","pid","status","detail"}; metrics {} ->
 * {"start_ns","cpu_ns","resident","fds","text"}; log.level
 * {"level": "error" | "warn" | "info" | "debug"} -> {"level"}; root and our own user only */
MUST_CHECK bool service_admin_handle(struct service *s, struct str method, struct str payload,
                                     struct rpc_req *req);

/* Sends one datagram to NOTIFY_SOCKET ("STATUS=..."); does nothing without it, never blocks. */
void service_notify(const char *state);
