/* oindex.h — the ordered index, made from the log: RocksDB without a log of its own.
 * Not here: what keys and values mean (index.h), the truth (olog.h).
 * Threads:  one writer; any number of readers. A snapshot or iterator belongs to one thread.
 * Memory:   values are copied into arenas; handles are freed by their *_close().
 * Errors:   -EIO "IndexFailed" with RocksDB's text, -EUCLEAN "IndexDamaged" (rebuild it: it can be
 *           deleted), -ENOENT, -EAGAIN (nowait: not in memory).
 *
 * A batch is applied whole or not at all. After a crash the index is some earlier state of
 * itself, never a mix: one column family, flushed in order. The position in the log is a key of
 * each batch. */
#pragma once
#include "base/arena.h"
#include "base/err.h"
#include <stdbool.h>
#include <stdint.h>

struct oindex;
struct oindex_opts {
    const char *path;
    size_t cache_size, write_buffer; /* 0 = 64 MiB, 32 MiB */
};
MUST_CHECK int oindex_open(const struct oindex_opts *o, struct oindex **ret, struct err *err);
void oindex_close(struct oindex *x); /* flushes */
/* Removes an index that is closed. */
MUST_CHECK int oindex_destroy(const char *path, struct err *err);
MUST_CHECK int oindex_flush(struct oindex *x,
                            struct err *err); /* all applied batches are durable */

MUST_CHECK int oindex_get(struct oindex *x, struct str key, bool is_nowait, struct arena *a,
                          struct str *ret, struct err *err);

struct oindex_batch;
struct oindex_batch *oindex_batch_new(void) __attribute__((returns_nonnull));
void oindex_batch_free(struct oindex_batch *b);
void oindex_batch_clear(struct oindex_batch *b);
void oindex_put(struct oindex_batch *b, struct str key, struct str value);
void oindex_del(struct oindex_batch *b, struct str key);
MUST_CHECK int oindex_apply(struct oindex *x, struct oindex_batch *b, struct err *err);

/* Over keys in [first, end) at one moment; end "" = no end. Key and value are borrowed until the
 * next move. */
struct oindex_iter;
MUST_CHECK int oindex_iter_open(struct oindex *x, struct str end, struct oindex_iter **ret);
void oindex_iter_close(struct oindex_iter *it);
bool oindex_seek(struct oindex_iter *it, struct str first); /* to the first key at or after */
bool oindex_next(struct oindex_iter *it);
struct str oindex_key(const struct oindex_iter *it);
struct str oindex_value(const struct oindex_iter *it);
int oindex_iter_error(const struct oindex_iter *it,
                      struct err *err); /* when a move said false */

struct oindex_stats {
    uint64_t n_keys_about, disk_bytes, mem_bytes;
};
void oindex_stats(struct oindex *x, struct oindex_stats *ret);
