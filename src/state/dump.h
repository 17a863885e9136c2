/* dump.h — the whole store as lines of JSON, and back. Format: docs/formats/kv-dump.md.
 * Not here: who may (admin.c).
 * Threads:  any that may block.
 * Memory:   a page at a time.
 * Errors:   "BadDump" with the line; a restore that fails changes nothing. -ETIMEDOUT: the reader
 *           of a dump stopped reading. */
#pragma once
#include "base/err.h"
#include "kv/kv_admin.h"

/* Writes a consistent picture to 'fd' (a file, pipe or socket). */
MUST_CHECK int dump_write(struct kv *kv, int fd, uint64_t *ret_n, uint64_t *ret_rev,
                          struct err *err);
/* Replaces the content of the store by the dump in the file 'fd'. Keys under a lease are left out:
 * who holds them writes them again. -EEXIST "StoreNotEmpty" unless forced. */
MUST_CHECK int dump_restore(struct kv *kv, int fd, bool is_forced, uint64_t *ret_n,
                            struct err *err);
