/* daemon.h — a real service as child of a test: started, waited for, killed without warning,
 * started again; its log is kept.
 * Not here: what the service does. Pass the path of its executable from meson: test(..., args:
 *           [spx_state_exe]).
 * Threads:  use it from the thread that runs the test's main(): the child dies with the thread
 *           that started it (no orphans after a crash).
 * Memory:   daemon_start() gives; options are copied.
 * Errors:   "DaemonDied", "DaemonNotReady": the message ends with the last lines of its log. */
#pragma once
#include "base/err.h"
#include "base/str.h"
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

struct daemon;

struct daemon_opts {
    const char *const *argv;   /* NULL-terminated; argv[0] is the path */
    const char *const *env;    /* "NAME=value" on top of the environment of the test;
                                  NULL-terminated, may be NULL */
    const char *log_path;      /* standard output and error are appended here; required */
    const char *health_socket; /* ready = "health" is answered there with another status than
                                  "starting"; NULL = ready at once */
    uint64_t start_timeout_ns; /* 0 = 20 s */
};

MUST_CHECK int daemon_start(const struct daemon_opts *o, struct daemon **ret, struct err *err);
pid_t daemon_pid(const struct daemon *d); /* 0 = not running */
bool daemon_is_alive(struct daemon *d);
/* SIGKILL by pid, and waits for the end. Fine when it is dead already. */
void daemon_kill(struct daemon *d);
/* SIGTERM; its exit status, 128 + signal when a signal ended it, -ETIMEDOUT when it had to be
 * killed, -ESRCH when it was not running. */
MUST_CHECK int daemon_stop(struct daemon *d, uint64_t timeout_ns);
/* SIGSTOP, SIGCONT, SIGHUP, ... */
void daemon_signal(struct daemon *d, int sig);
/* Starts it again with the same options (killing it first when it runs) and waits until it is
 * ready. */
MUST_CHECK int daemon_restart(struct daemon *d, struct err *err);
/* Waits until "health" is answered. */
MUST_CHECK int daemon_wait_ready(struct daemon *d, struct err *err);
/* The last 'max' bytes of the log; free(). */
char *daemon_log(const struct daemon *d, size_t max);
/* True when the log contains the text (of all starts). */
bool daemon_log_has(const struct daemon *d, const char *text);
/* Kills it when it runs. A daemon that had died by itself is reported on standard error with
 * the end of its log. NULL is fine. */
void daemon_free(struct daemon *d);
