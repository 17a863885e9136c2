/* vu_test_world.h — a server process on a socket of the test, started, killed, started again;
 *                  for tests of the vhost-user device only.
 * Not here: anything a service links.
 * Threads:  any one at a time; the children die with the thread that started them.
 * Memory:   a struct of the test.
 * Errors:   a world that cannot be made ends the test. */
#pragma once
#include "base/test.h"
#include "blk/vu_verify.h"
#include "testkit/tmpdir.h"
#include <sys/types.h>

#define VU_WORLD_MAX_ARGS 12

struct vu_world {
    struct tmpdir dir;
    char sock[PATH_MAX], file[PATH_MAX];
    int listen_fd, out_fd; /* out_fd: standard output of the running server */
    pid_t pid;
    const char *exe;
};
void vu_world_init(struct vu_world *w, const char *exe, const char *name);
void vu_world_done(struct vu_world *w);
/* Starts the server with these options (NULL-terminated, as vu_test_server.c has them) and
 * waits until it serves. */
void vu_world_start(struct vu_world *w, const char *const *options);
/* The wait status of a server that does not come to serve. */
int vu_world_try_start(struct vu_world *w, const char *const *options);
int vu_world_reap(struct vu_world *w);                      /* waits for its end; wait status */
bool vu_world_is_dead(struct vu_world *w, int *ret_status); /* reaps it then */
void vu_world_kill(struct vu_world *w);
int vu_world_stop(struct vu_world *w); /* SIGTERM; wait status */
