/* shard.h — large bodies: blocks in stripes over files on k + m drives.
 * Not here: sealing (body.h), parity arithmetic (erasure/), which bodies exist (ostore.h).
 * Format:   docs/formats/object-shard.md: data/<2 hex>/<id>.<shard>: header, units, table of the
 *           CRC32C of each unit, footer. A shard can be verified without any key.
 * Threads:  a writer or reader belongs to one thread at a time; both block: use them on a pool.
 * Memory:   *_new()/*_open() give, *_free() take. Memory is bounded: about two stripes each.
 * Errors:   -EIO "BodyLost": fewer than k shards are good; -ENOSPC; -EACCES "Locked".
 *
 * Degraded: when fewer than k + m drives can be written, a new body gets the code
 * RS(max(1, min(k, h - m)), min(m, h - 1)) over the h that can: the same number of losses is
 * survived, for more space. */
#pragma once
#include "ostore/body.h"
#include "ostore/drive.h"

struct shard_code {
    unsigned k, m;
    uint32_t unit;
};

struct shard_writer;
/* Chooses drives (turning with the body's id) and makes the files. *ret_body gets code and drives. */
MUST_CHECK int shard_writer_new(struct drives *d, const struct shard_code *want,
                                struct body_codec *codec, struct orec_body *body,
                                struct shard_writer **ret, struct err *err);
/* Plain bytes in order, any sizes. Units of one stripe are written to all drives at once
 * (threads of the module); a drive that fails is faulted, the body goes on while at least k
 * shards live and is then rebuilt by heal. */
MUST_CHECK int shard_writer_add(struct shard_writer *w, const void *p, size_t n,
                                struct err *err);
/* Writes the rest, syncs files and folders. After 0 the body is durable on at least
 * k + m shards less those whose drives failed meanwhile; body->stored_size is set. */
MUST_CHECK int shard_writer_finish(struct shard_writer *w, struct orec_body *body,
                                   struct err *err);
/* Without finish: removes the files. */
void shard_writer_free(struct shard_writer *w); /* NULL is fine */

struct shard_reader;
/* 'body' is borrowed. Opens what can be opened; a body all of whose shards are there costs k
 * opens. */
MUST_CHECK int shard_reader_open(struct drives *d, const struct orec_body *body,
                                 struct body_codec *codec, struct shard_reader **ret,
                                 struct err *err);
/* Plain bytes [off, off + n) of a body of 'size' plain bytes. Verifies each block; a block that
 * is bad, a shard that is missing or slow (drives_slow_ns) is made from the others, and queued for
 * repair. is_nowait: -EAGAIN when bytes are not in memory (RWF_NOWAIT). Returns bytes read. */
MUST_CHECK ssize_t shard_read(struct shard_reader *r, uint64_t size, uint64_t off, void *p,
                              size_t n, bool is_nowait, struct err *err);
void shard_reader_free(struct shard_reader *r);

/* Removes the files of a body on all drives (missing ones are fine). Not synced: an orphan sweep
 * finds what a crash left. */
void shard_remove(struct drives *d, const struct orec_body *body);

/* Checks every unit and parity of a body without its key; rebuilds bad or missing shards on
 * their drives, or on others when a drive is gone for good (then body->drive changes and
 * *ret_is_moved is set: the caller commits OREC_FILE_MOVED). */
struct shard_verify {
    uint64_t n_units, n_bad, n_rebuilt, n_lost;
};
MUST_CHECK int shard_verify(struct drives *d, struct orec_body *body, bool is_repair,
                            struct shard_verify *io, bool *ret_is_moved, struct err *err);

/* Files in data/ of all drives whose id 'is_known' does not know and which are older than
 * 'min_age_ns' are removed; returns how many. */
MUST_CHECK int shard_sweep(struct drives *d, bool (*is_known)(void *ctx, const uint8_t id[16]),
                           void *ctx, uint64_t min_age_ns, uint64_t *ret_n, struct err *err);
