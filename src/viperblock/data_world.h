/* data_world.h — a manager for tests of the data process: starts the real program, speaks ctl with
 *                it, answers its questions from a store of patterns, keeps what it uploads.
 * Not here: anything a service links.
 * Threads:  the test's.
 * Memory:   struct dw of the test; dw_done() ends the process and removes the files.
 * Errors:   whatever is not expected ends the test. */
#pragma once
#include "base/test.h"
#include "blk/ctl.h"
#include "blk/vu_client.h"
#include "testkit/tmpdir.h"
#include <limits.h>
#include <sys/types.h>

#define DW_MAX_SLOTS CTL_N_SLOTS
#define DW_BLOCKS    64u /* of a disk, at most, that uploads are kept of */

enum dw_store { DW_ANSWER, DW_HOLD, DW_ZEROS, DW_EIO, DW_EAGAIN };

struct dw_upload { /* what the store has of one disk of one snapshot */
    uint8_t *blocks[DW_BLOCKS];
    unsigned n;
};

struct dw_disk {
    uint64_t size;
    bool has_map;
    uint32_t flags; /* CTL_OPEN_KEY */
    int listen_vu, listen_nbd;
    char data[PATH_MAX], map[PATH_MAX], run[PATH_MAX], aside[PATH_MAX];
    char vu[PATH_MAX], nbd[PATH_MAX];
    struct ctl_state state; /* the last that came */
    unsigned n_states;
    struct dw_upload up;
    char done[BLK_SNAP_ID]; /* SNAP_DONE */
    unsigned n_done;
};

struct dw {
    struct tmpdir dir;
    char ctl[PATH_MAX];
    int listen_fd, fd;
    pid_t pid;
    uint8_t *mem;
    uint32_t seq, n_disks; /* n_disks: as WELCOME said */
    struct dw_disk disks[CTL_MAX_DISKS];
    enum dw_store store;
    bool holds_uploads;
    struct ctl_head held[64];
    unsigned n_held, n_fetches, n_background;
    unsigned fetched[DW_BLOCKS];
};

void dw_init(struct dw *w); /* folder, socket, process, connection */
void dw_done(struct dw *w);
void dw_spawn(struct dw *w);
void dw_kill(struct dw *w); /* -9, and waits */
int dw_wait(struct dw *w);  /* its exit status */
void dw_connect(struct dw *w);
bool dw_is_alive(struct dw *w);

union ctl_msg dw_msg(enum ctl_op op, unsigned disk);
/* Sends, and serves what comes until the RESULT is there: its rc. */
int dw_ask(struct dw *w, union ctl_msg *m, const int *fds, size_t n_fds,
           struct ctl_result *ret);
int dw_simple(struct dw *w, enum ctl_op op, unsigned disk, uint64_t arg);
int dw_snap(struct dw *w, enum ctl_op op, unsigned disk, const char *snap);
/* Serves what comes for that long, or until 'fd' (-1 = none) can be read, or *until is true. */
bool dw_serve(struct dw *w, uint64_t ns, int fd, bool (*until)(struct dw *w));
void dw_release(struct dw *w, int rc); /* answers what was held */

/* Makes the files of a disk; source: pages come from the store. */
void dw_make(struct dw *w, unsigned no, uint64_t size, bool has_map, uint64_t source_size,
             uint32_t flags);
void dw_open_msg(struct dw *w, unsigned no, union ctl_msg *m, int fds[CTL_MAX_FDS],
                 size_t *ret_n);
int dw_open(struct dw *w, unsigned no, struct ctl_result *ret);
int dw_serve_nbd(struct dw *w, unsigned no);
int dw_serve_vu(struct dw *w, unsigned no);
/* What the source has at 'off'. */
void dw_pattern(uint64_t off, uint8_t *p, size_t n);

/* ---- NBD: whole requests, while the manager goes on serving ---- */
int dw_nbd(struct dw *w, unsigned no); /* a connection, after GO */
uint32_t dw_nbd_io(struct dw *w, int fd, unsigned type, uint64_t off, uint32_t len, void *p);
void dw_nbd_start(int fd, unsigned type, uint64_t off, uint32_t len, const void *p);
uint32_t dw_nbd_end(struct dw *w, int fd, unsigned type, uint32_t len, void *p);

extern const char *dw_exe; /* set by main() */

/* Groups of tests, in files of their own. */
int data_snap_tests(void);
int data_life_tests(void);
