/* shard.h — large bodies: blocks in stripes over files on k + m drives.
 * Not here: sealing (body.h), parity arithmetic (erasure/), which bodies exist (ostore.h),
 *           putting a lost drive back (heal.h).
 * Format:   docs/formats/object-shard.md: data/<2 hex>/<id>.<shard>: header, units, table of
 *           the CRC32C of each unit, footer. A shard can be verified without any key.
 * Threads:  a struct shards may be used from any thread; a writer or reader belongs to one at a
 *           time. Both block (but is_nowait): use them on a pool. Each drive has threads of
 *           its own for writing and for reading, so that a slow one does not stall the others.
 * Memory:   what a _new() or _open() gives, its _free() or _close() takes. About three stripes
 *           each.
 * Errors:   -EIO "BodyLost": fewer than k shards are good; -ENOSPC "DriveFull"; -EIO
 *           "NoDrives".
 *
 * Degraded: when fewer than k + m drives can be written, a new body gets the code
 * RS(max(1, min(k, h - m)), min(m, h - 1)) over the h that can: the same number of losses is
 * survived, for more space. */
#pragma once
#include "ostore/body.h"
#include "ostore/drive.h"
#include <sys/types.h>

#define SHARD_SIZE_MAX (UINT64_C(64) << 30) /* of one body as stored */

struct shard_code {
    unsigned k, m;
    uint32_t unit; /* 64, 128 or 256 KiB */
};

/* What all bodies of a store share: threads of the drives, buffers. Before drives_close(). */
struct shards;
struct shards_opts {
    struct drives *drives;
    uint64_t stall_ns; /* as in drives_opts; 0 = 30 s */
    uint64_t slow_ns;  /* others are asked after so long; 0 = drives_slow_ns() */
    /* A reader or writer met shards (bits) that are bad or missing on drives that are there,
     * and went on without them. Any thread, short; the body is borrowed. May be NULL. */
    void (*on_bad)(void *ctx, const struct orec_body *body, uint32_t shards);
    void *ctx;
};
MUST_CHECK int shards_open(const struct shards_opts *o, struct shards **ret, struct err *err);
/* All readers and writers are freed before. A thread that a drive does not give back is left to
 * its fate after a second. */
void shards_close(struct shards *s); /* NULL is fine */
struct drives *shards_drives(struct shards *s);
struct shards_stats {
    uint64_t n_hedged;    /* reads that were asked of others because a drive was slow */
    uint64_t n_recovered; /* stripes made from other shards */
    uint64_t n_lost;      /* reads that failed with "BodyLost" */
    uint64_t n_failed;    /* shards given up while they were written */
};
void shards_stats(struct shards *s, struct shards_stats *ret);

struct shard_writer;
/* Chooses drives (turning with the body's id) and makes the files. *body gets code and drives.
 * The codec is borrowed until shard_writer_free(). */
MUST_CHECK int shard_writer_new(struct shards *s, const struct shard_code *want,
                                struct body_codec *codec, struct orec_body *body,
                                struct shard_writer **ret, struct err *err);
/* Plain bytes in order, any sizes. Units of one stripe are written to all drives at once; a
 * drive that fails or stalls is faulted, and the body goes on while at least k shards live. */
MUST_CHECK int shard_writer_add(struct shard_writer *w, const void *p, size_t n,
                                struct err *err);
/* Writes the rest, syncs files and folders. After 0 the body is durable on at least
 * k + m shards less those whose drives failed meanwhile; body->stored_size is set. */
MUST_CHECK int shard_writer_finish(struct shard_writer *w, struct orec_body *body,
                                   struct err *err);
/* Without a finish that returned 0: removes the files. Until this call shard_sweep() leaves the
 * body alone: call it after the record that names the body was committed, or was given up (then
 * shard_remove()). */
void shard_writer_free(struct shard_writer *w); /* NULL is fine */
DEFINE_CLEANUP(struct shard_writer *, shard_writer_free);

struct shard_reader;
/* 'body' and 'codec' are borrowed. Opens the k files of data, others when needed. */
MUST_CHECK int shard_reader_open(struct shards *s, const struct orec_body *body,
                                 struct body_codec *codec, struct shard_reader **ret,
                                 struct err *err);
/* Plain bytes [off, off + n) of a body of 'size' plain bytes. Verifies each block; a block that
 * is bad, a shard that is missing or slow (drives_slow_ns) is made from the others, and
 * reported for repair. Returns bytes read: all of the range, or up to the end; with is_nowait
 * what is in memory, -EAGAIN when that is nothing. */
MUST_CHECK ssize_t shard_read(struct shard_reader *r, uint64_t size, uint64_t off, void *p,
                              size_t n, bool is_nowait, struct err *err);
void shard_reader_free(struct shard_reader *r); /* NULL is fine */
DEFINE_CLEANUP(struct shard_reader *, shard_reader_free);

/* Removes the files of a body on all drives (missing ones are fine). Not synced: an orphan
 * sweep finds what a crash left. Open readers go on. */
void shard_remove(struct shards *s, const struct orec_body *body);

/* Checks every unit and parity of a body without its key. SHARD_REPAIR rebuilds bad or missing
 * shards on their drives; with SHARD_MOVE those of drives that cannot be written are made on
 * others (then body->drive changes and *ret_is_moved is set: the caller commits
 * OREC_FILE_MOVED, and holds what else it has to of the body meanwhile). SHARD_ONLY(shard):
 * looks at no other shard than it must to rebuild this one, which is fast when it is well: for
 * healing. */
enum { SHARD_REPAIR = 1, SHARD_MOVE = 2, SHARD_ONLY_BIT = 256 };
#define SHARD_ONLY(shard) (SHARD_ONLY_BIT * ((shard) + 1))
struct shard_verify {   /* counts are added to */
    uint64_t n_units;   /* looked at */
    uint64_t n_bytes;   /* read */
    uint64_t n_bad;     /* shards that are not as they should be */
    uint64_t n_rebuilt; /* shards */
    uint64_t n_lost;    /* stripes that can be made no more */
    /* May be NULL. Called about every megabyte with the bytes since the last call: waits as
     * long as it wants; false ends the work with -ECANCELED. */
    bool (*pace)(void *ctx, uint64_t n_bytes);
    void *ctx;
};
/* -EIO "BodyLost" when stripes are lost; 0 also when shards of faulted drives stay away. */
MUST_CHECK int shard_verify(struct shards *s, struct orec_body *body, unsigned flags,
                            struct shard_verify *io, bool *ret_is_moved, struct err *err);

/* Files in data/ of all drives that 'is_known' does not know there, which no writer has and
 * which are older than 'min_age_ns' (by the time of change) are removed; *ret_n: how many.
 * Never knows of a body before its record is committed: see shard_writer_free(). */
MUST_CHECK int shard_sweep(struct shards *s,
                           bool (*is_known)(void *ctx, const uint8_t id[OREC_ID_SIZE],
                                            unsigned shard, unsigned drive),
                           void *ctx, uint64_t min_age_ns, uint64_t *ret_n, struct err *err);
