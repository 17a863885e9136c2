/* snap_s3.h — a client of the object store over its unix socket: blocking, connections are
 *           kept.
 * Not here: what objects mean. Nothing is signed: the socket's other end knows who we are.
 * Threads:  any; at most 'n_conns' requests at a time, others wait for their turn.
 * Memory:   snap_s3_new() gives. Bodies are sent from and received into the caller's memory.
 * Errors:   -EAGAIN "StoreUnavailable": away, slow, full, or broke off; a request may have
 *           been done then. -ENOENT "NoSuchKey"; -EEXIST "KeyExists" (if_none); -EFBIG
 *           "ObjectTooLarge"; -EACCES "StoreRefused"; -EIO "StoreFailed": an answer that makes
 *           no sense.
 *
 * A request on a kept connection that breaks before a byte of the answer came is sent once
 * more on a new one: the store closes those that were idle. All requests here may be done
 * twice. */
#pragma once
#include "base/arena.h"
#include "base/buf.h"
#include "base/err.h"
#include <stdbool.h>
#include <stdint.h>

#define SNAP_KEY_MAX 128u /* bytes of a key with its NUL */

struct snap_s3;
struct snap_s3_opts {
    const char *socket, *bucket;
    unsigned n_conns;
    uint64_t stall_ns;
    int (*on_request)(void *ctx, bool is_done, const char *method, const char *key);
    void *ctx;
};
struct snap_s3 *snap_s3_new(const struct snap_s3_opts *o) __attribute__((returns_nonnull));
void snap_s3_free(struct snap_s3 *c); /* NULL is fine */
/* When a request last had an unknown outcome (the store may still do it), or the client was
 * made. */
uint64_t snap_s3_trouble_ns(struct snap_s3 *c);
DEFINE_CLEANUP(struct snap_s3 *, snap_s3_free);

struct snap_s3_put {
    const char *key;
    struct str body;
    uint32_t crc; /* CRC32C of the body: the store compares */
    bool is_if_none;
};
MUST_CHECK int snap_s3_put(struct snap_s3 *c, const struct snap_s3_put *put, struct err *err);
/* At most 'cap' bytes. */
MUST_CHECK int snap_s3_get(struct snap_s3 *c, const char *key, void *p, size_t cap,
                           size_t *ret_n, struct err *err);
/* Into a buffer (cleared first), whose limit is the object's. */
MUST_CHECK int snap_s3_get_buf(struct snap_s3 *c, const char *key, struct buf *out,
                               struct err *err);

struct snap_s3_stat {
    uint64_t size;
    bool has_crc;
    uint32_t crc;
};
MUST_CHECK int snap_s3_stat(struct snap_s3 *c, const char *key, struct snap_s3_stat *ret,
                            struct err *err);
/* 0 when it is not there. */
MUST_CHECK int snap_s3_delete(struct snap_s3 *c, const char *key, struct err *err);

struct snap_s3_item {
    char key[SNAP_KEY_MAX]; /* with a delimiter: a common prefix ends in '/' */
    uint64_t size;
    uint64_t mtime_ns; /* whole seconds */
};
#define SNAP_S3_LIST_MAX   1000u
#define SNAP_S3_DELETE_MAX 1000u
/* All that are still of the second in which they were listed, or an error: then some are gone,
 * and others may go later. */
MUST_CHECK int snap_s3_delete_many(struct snap_s3 *c, const struct snap_s3_item *items,
                                   size_t n, struct err *err);
/* Keys after 'after' ("" = from the first) that begin with 'prefix', in order. 'items' takes
 * SNAP_S3_LIST_MAX. is_folders: what follows the prefix up to the next '/' only. */
MUST_CHECK int snap_s3_list(struct snap_s3 *c, const char *prefix, const char *after,
                            bool is_folders, struct snap_s3_item *items, size_t *ret_n,
                            bool *ret_more, struct err *err);
