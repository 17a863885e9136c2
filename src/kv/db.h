/* db.h — one connection to the store's sqlite file: opening, prepared statements, errors.
 * Not here: what the tables mean (kv_sqlite*.c; docs/formats/kv.md).
 * Threads:  a connection belongs to one thread at a time.
 * Memory:   db_open() fills, db_close() empties; columns are borrowed until the next step.
 * Errors:   -ENOSPC "StoreFull", -EIO "StoreFailed" or "CorruptStore", -EPROTO "NewerStore",
 *           -ENOMEM, -EBUSY "StoreInUse". */
#pragma once
#include "base/err.h"
#include "base/str.h"

#include <sqlite3.h>
#include <stdbool.h>
#include <stdint.h>

enum db_stmt {
    DB_BEGIN_READ,
    DB_BEGIN_WRITE,
    DB_COMMIT,
    DB_ROLLBACK,
    DB_SAVE,
    DB_RELEASE,
    DB_ROLLBACK_TO,
    DB_REV,
    DB_COMPACT_REV,
    DB_GET,
    DB_LIST,
    DB_FIND,
    DB_PUT_VER,
    DB_PUT_ITEM,
    DB_DEL_ITEM,
    DB_DEL_VER,
    DB_EVENTS,
    DB_OLD,
    DB_SET_COMPACT,
    DB_HISTORY,
    DB_HISTORY_NTH,
    DB_HISTORY_OLDER,
    DB_LEASES,
    DB_LEASE_COUNT,
    DB_LEASE_FIND,
    DB_LEASE_PUT,
    DB_LEASE_DEL,
    DB_LEASE_KEYS,
    DB_ANY,
    DB_STMT_N
};

struct db {
    sqlite3 *h; /* NULL = closed */
    sqlite3_stmt *st[DB_STMT_N];
    const char *path; /* borrowed: for messages */
};

/* Creates a store at 'path' in one step, so that a file at 'path' is always a whole one. */
MUST_CHECK int db_create(const char *path, struct err *err);
/* Opens and checks format and version. */
MUST_CHECK int db_open(const char *path, struct db *ret, struct err *err);
/* PRAGMA quick_check. */
MUST_CHECK int db_check(struct db *db, struct err *err);
void db_close(struct db *db);

/* Writes the bytes of the write-ahead log again and syncs them: a page that the kernel dropped
 * after a failed sync would otherwise be missing under later commits. No log: fine. */
MUST_CHECK int db_refresh_wal(const char *path, struct err *err);

/* The statement, reset and without bindings; NULL and *err when it cannot be prepared. */
sqlite3_stmt *db_stmt(struct db *db, enum db_stmt which, struct err *err);
/* 1 = a row, 0 = done, negative = error. */
MUST_CHECK int db_step(struct db *db, sqlite3_stmt *st, struct err *err);
/* Runs a statement without parameters and rows. */
MUST_CHECK int db_run(struct db *db, enum db_stmt which, struct err *err);
/* Ends a read transaction or gives up a write transaction; never fails. */
void db_end(struct db *db);
int db_error(struct db *db, int rc, struct err *err);

int db_bind_str(sqlite3_stmt *st, int idx, struct str s); /* borrowed until reset */
int db_bind_u64(sqlite3_stmt *st, int idx, uint64_t v);
struct str db_col_str(sqlite3_stmt *st, int idx);
uint64_t db_col_u64(sqlite3_stmt *st, int idx);
