/* oindex_db.h — the index as RocksDB has it, for oindex.c and oindex_bulk.c.
 * Not here: what others see (oindex.h, oindex_int.h).
 * Threads:  as in oindex.h.
 * Memory:   belongs to struct oindex.
 * Errors:   texts of RocksDB are taken and freed. */
#pragma once
#include "ostore/oindex.h"
#include <limits.h>
#include <rocksdb/c.h>

struct oindex {
    rocksdb_t *db;
    rocksdb_options_t *opts;
    rocksdb_cache_t *cache;
    rocksdb_readoptions_t *read, *read_nowait;
    rocksdb_writeoptions_t *write;
    char write_buffer[24];
    char path[PATH_MAX];
};
int oindex_failed(char *text, struct err *err, const char *what);
