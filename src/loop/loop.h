/* loop.h — one epoll loop: descriptors, timers, messages from other threads, signals, children.
 * Not here: sockets and protocols (net/), blocking work (pool.h).
 * Threads:  everything belongs to the thread that runs the loop; loop_post() and loop_stop()
 *           may be called from any.
 * Memory:   *_new() gives, *_free() takes; handles of fds and timers are owned by the caller
 *           until removed. A posted message owns what it needs: messages that are queued when
 *           the loop is freed still run.
 * Errors:   negative errno; allocation of small handles aborts. */
#pragma once
#include "base/err.h"
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

struct loop;
struct loop_fd;
struct loop_timer;
struct loop_child;

struct loop *loop_new(void);
void loop_free(struct loop *l);
DEFINE_CLEANUP(struct loop *, loop_free);
/* Runs until loop_stop(); a stop that came before makes it return at once. May be called again.
 */
void loop_run(struct loop *l);
void loop_stop(struct loop *l);
/* Monotonic time of this turn; cheap. Outside of loop_run() the time of the clock. */
uint64_t loop_now_ns(const struct loop *l);

/* Level-triggered. 'events' and 'ready' are EPOLLIN, EPOLLOUT, ... The descriptor stays the
 * caller's: call loop_fd_del() BEFORE it is closed, a duplicate somewhere (a child, a passed
 * descriptor) keeps it alive in epoll otherwise. -EPERM: a regular file. */
typedef void (*loop_fd_fn)(void *ctx, uint32_t ready);
MUST_CHECK int loop_fd_add(struct loop *l, int fd, uint32_t events, loop_fd_fn fn, void *ctx,
                           struct loop_fd **ret);
void loop_fd_mod(struct loop_fd *h, uint32_t events);
void loop_fd_del(
    struct loop_fd *h); /* no call-back after this, not even in this turn; NULL is fine */

typedef void (*loop_fn)(void *ctx);
struct loop_timer *loop_timer_new(struct loop *l, loop_fn fn, void *ctx);
void loop_timer_set(struct loop_timer *t, uint64_t deadline_mono_ns); /* re-arms; fires once */
void loop_timer_stop(struct loop_timer *t);
void loop_timer_free(struct loop_timer *t); /* NULL is fine */

/* Any thread: runs fn(ctx) on the loop's thread soon. Order of one poster is kept. */
void loop_post(struct loop *l, loop_fn fn, void *ctx);
/* Runs fn before the loop sleeps, each turn (group commit, deferred writes). One per loop. */
void loop_before_sleep(struct loop *l, loop_fn fn, void *ctx);

/* SIGPIPE is ignored from loop_block_signals() on. SIGTERM and SIGINT (blocked for all threads
 * by loop_block_signals() in main, before threads) call 'fn'. SIGHUP calls 'reload' when it is
 * not NULL and is ignored otherwise. Once per loop. */
void loop_block_signals(void);
MUST_CHECK int loop_signals(struct loop *l, loop_fn stop, loop_fn reload, void *ctx,
                            struct err *err);

/* Watches a process by pidfd and reaps it when it is our child. 'fn' is called once; the handle
 * is gone when it returns (unwatching inside 'fn' is fine). 'wait_status' as from waitpid(2),
 * -1 when it was not our child. -ESRCH: no such process (any more). */
typedef void (*loop_child_fn)(void *ctx, pid_t pid, int wait_status);
MUST_CHECK int loop_child_watch(struct loop *l, pid_t pid, loop_child_fn fn, void *ctx,
                                struct loop_child **ret, struct err *err);
void loop_child_unwatch(
    struct loop_child *c); /* NULL is fine; the process is neither ended nor reaped */
