/* recode.h — bodies that were written with a weaker code while drives were away get the full one.
 * Not here: when (heal.h), which code that is (shard.h, "Degraded").
 * Threads:  one at a time calls recode_body(); it blocks.
 * Memory:   none that lasts.
 * Errors:   -ENOENT: the body was deleted or its record has moved; -EAGAIN "NotNow": drives are
 *           away again, the disk is nearly full, or the store is locked; others: as reading and
 *           writing fails.
 *
 * A new body with an id and a key of its own is written beside the old one; then the record is
 * copied with the new body in it, durably; only then the old files are removed, when nobody reads
 * them any more. A crash leaves files that no record names: the sweep takes them. */
#pragma once
#include "ostore/scrub.h"

/* Does this body survive fewer losses, or is it in fewer shards, than a new one would be? */
bool recode_is_weak(const struct ostore *s, const struct orec_body *body);
/* 'pace' as in struct shard_verify. */
MUST_CHECK int recode_body(struct ostore *s, const struct file_place *f,
                           bool (*pace)(void *ctx, uint64_t n_bytes), void *ctx,
                           struct err *err);
