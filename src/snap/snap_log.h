/* snap_log.h — the log of one upload: what it began from, then a record for every block that
 *           was stored.
 * Not here: requests, what an upload is (snap_upload.c).
 * Threads:  append and walk from any thread; open and close by one.
 * Memory:   snap_log_done() closes. Nothing is kept in memory but counts.
 * Errors:   -EBADMSG "UploadDamaged": a record that was durable once is not what was written
 *           (an end that was torn is cut off instead); -EAGAIN "NoSpace"; -EIO "UploadFaulted"
 *           after a sync failed: for good.
 *
 * Every record says how many before it were durable when it was written. So a record that
 * cannot be read is a torn end only when no later one vouches for it. docs/formats/snapshot.md
 */
#pragma once
#include "base/fault.h"
#include "snap/snap_manifest.h"
#include <pthread.h>

enum snap_log_type { SNAP_LOG_BLOCK = 1, SNAP_LOG_PAGE = 2 };

struct snap_log {
    struct fault_fs *fs;
    int fd; /* -1: none */
    uint64_t salt, begin;
    pthread_mutex_t mu;
    pthread_cond_t synced;
    uint64_t n, n_synced; /* records */
    bool is_syncing, is_faulted;
};

/* 'name' in 'dir', durable with its name when this returns. */
MUST_CHECK int snap_log_create(struct snap_log *l, struct fault_fs *fs, int dir,
                               const char *name, const struct snap_manifest *base,
                               struct err *err);
MUST_CHECK int snap_log_open(struct snap_log *l, struct fault_fs *fs, int dir, const char *name,
                             struct snap_manifest *ret_base, struct err *err);
void snap_log_done(struct snap_log *l);

/* 'is_sync': returns when it is durable, together with others that wait. */
MUST_CHECK int snap_log_append(struct snap_log *l, enum snap_log_type type, uint64_t block,
                               const uint8_t name[SNAP_NAME], bool is_sync, struct err *err);
typedef int (*snap_log_fn)(void *ctx, enum snap_log_type type, uint64_t block,
                           const uint8_t name[SNAP_NAME]);
/* All records that are there now, in order; ends with what 'fn' answers when negative. */
MUST_CHECK int snap_log_walk(struct snap_log *l, snap_log_fn fn, void *ctx, struct err *err);
