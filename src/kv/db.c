#include "kv/db.h"

#include "base/file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#define APP_ID  0x53704b56 /* "SpKV" */
#define VERSION 1
#define WAY_OUT                                                                      \
    "stop the services, move the file and its -wal away, and restore the last dump " \
    "(spx admin state restore)"

/* A version of a key is one row of 'ver'; its id is revision * 256 + place in the transaction,
 * so history is the table itself. 'item' names the newest version of each present key. */
static const char schema[] =
    "PRAGMA application_id=1399868246;"
    "PRAGMA user_version=1;"
    "CREATE TABLE ver(id INTEGER PRIMARY KEY, key BLOB NOT NULL, value BLOB, create_rev "
    "INTEGER NOT NULL,"
    " lease INTEGER NOT NULL, at_ms INTEGER NOT NULL);"
    "CREATE TABLE item(key BLOB PRIMARY KEY, id INTEGER NOT NULL, create_rev INTEGER NOT NULL,"
    " lease INTEGER NOT NULL) WITHOUT ROWID;"
    "CREATE INDEX item_lease ON item(lease) WHERE lease<>0;"
    "CREATE TABLE lease(id INTEGER PRIMARY KEY, ttl_s INTEGER NOT NULL);"
    "CREATE TABLE compact(one INTEGER PRIMARY KEY CHECK(one=1), rev INTEGER NOT NULL);"
    "INSERT INTO compact VALUES(1,0);";

static const char *const sql[DB_STMT_N] = {
    [DB_BEGIN_READ] = "BEGIN",
    [DB_BEGIN_WRITE] = "BEGIN IMMEDIATE",
    [DB_COMMIT] = "COMMIT",
    [DB_ROLLBACK] = "ROLLBACK",
    [DB_SAVE] = "SAVEPOINT t",
    [DB_RELEASE] = "RELEASE t",
    [DB_ROLLBACK_TO] = "ROLLBACK TO t",
    [DB_REV] = "SELECT max(ifnull((SELECT max(id)>>8 FROM ver),0),(SELECT rev FROM compact))",
    [DB_COMPACT_REV] = "SELECT rev FROM compact",
    [DB_GET] = "SELECT i.key,v.value,i.create_rev,i.id>>8,i.lease FROM item i"
               " JOIN ver v ON v.id=i.id WHERE i.key=?1",
    [DB_LIST] = "SELECT i.key,v.value,i.create_rev,i.id>>8,i.lease FROM item i"
                " CROSS JOIN ver v ON v.id=i.id WHERE i.key>=?1 ORDER BY i.key",
    [DB_FIND] = "SELECT id,create_rev FROM item WHERE key=?1",
    [DB_PUT_VER] = "INSERT INTO ver VALUES(?1,?2,?3,?4,?5,?6)",
    [DB_PUT_ITEM] = "INSERT INTO item VALUES(?1,?2,?3,?4) ON CONFLICT(key) DO UPDATE SET"
                    " id=?2,create_rev=?3,lease=?4",
    [DB_DEL_ITEM] = "DELETE FROM item WHERE key=?1",
    [DB_DEL_VER] = "DELETE FROM ver WHERE id=?1",
    [DB_EVENTS] =
        "SELECT id,key,value,create_rev,lease FROM ver WHERE id>?1 AND id<?2 ORDER BY id",
    [DB_OLD] =
        "SELECT v.id,v.value IS NULL OR i.id IS NULL OR i.id<>v.id,"
        "ifnull(length(v.value),0)+length(v.key) FROM ver v LEFT JOIN item i ON i.key=v.key"
        " WHERE v.id>?1 AND v.id<?2 ORDER BY v.id",
    [DB_SET_COMPACT] = "UPDATE compact SET rev=?1",
    [DB_HISTORY] = "SELECT count(*),ifnull(sum(ifnull(length(value),0)+length(key)),0) FROM ver"
                   " WHERE id>?1",
    [DB_HISTORY_NTH] = "SELECT id>>8 FROM ver WHERE id>?1 ORDER BY id LIMIT 1 OFFSET ?2",
    [DB_HISTORY_OLDER] = "SELECT at_ms,id>>8 FROM ver WHERE id>?1 ORDER BY id",
    [DB_LEASES] = "SELECT id,ttl_s FROM lease",
    [DB_LEASE_COUNT] = "SELECT count(*) FROM lease",
    [DB_LEASE_FIND] = "SELECT 1 FROM lease WHERE id=?1",
    [DB_LEASE_PUT] = "INSERT INTO lease VALUES(?1,?2)",
    [DB_LEASE_DEL] = "DELETE FROM lease WHERE id=?1",
    [DB_LEASE_KEYS] = "SELECT key FROM item WHERE lease=?1 AND lease<>0 LIMIT 128",
    [DB_ANY] = "SELECT 1 FROM item LIMIT 1",
};

int db_error(struct db *db, int rc, struct err *err)
{
    const char *msg = db->h ? sqlite3_errmsg(db->h) : sqlite3_errstr(rc);
    switch (rc & 0xff) {
    case SQLITE_FULL:
        return fail(err, -ENOSPC, "StoreFull", "%s: no space to write: %s", db->path, msg);
    case SQLITE_CORRUPT:
    case SQLITE_NOTADB:
        fail(err, -EIO, "CorruptStore", "%s: damaged: %s", db->path, msg);
        err_hint(err, WAY_OUT);
        return -EIO;
    case SQLITE_NOMEM: return fail(err, -ENOMEM, "OutOfMemory", "%s: %s", db->path, msg);
    case SQLITE_BUSY:
        return fail(err, -EBUSY, "StoreInUse", "%s: another process uses it", db->path);
    case SQLITE_CANTOPEN:
        return fail(err, -EIO, "StoreFailed", "%s: cannot be opened: %s", db->path, msg);
    default:
        return fail(err, -EIO, "StoreFailed", "%s: %s (%d)", db->path, msg,
                    db->h ? sqlite3_extended_errcode(db->h) : rc);
    }
}

static int exec(struct db *db, const char *text, struct err *err)
{
    int rc = sqlite3_exec(db->h, text, NULL, NULL, NULL);
    return rc == SQLITE_OK ? 0 : db_error(db, rc, err);
}

static int open_handle(const char *path, int flags, struct db *ret, struct err *err)
{
    *ret = (struct db){.path = path};
    int rc = sqlite3_open_v2(
        path, &ret->h,
        flags | SQLITE_OPEN_NOMUTEX | SQLITE_OPEN_PRIVATECACHE | SQLITE_OPEN_EXRESCODE, NULL);
    if (rc != SQLITE_OK) {
        int r = db_error(ret, rc, err);
        db_close(ret);
        return r;
    }
    sqlite3_busy_timeout(ret->h, 5000);
    return 0;
}

static int remove_old(const char *path, struct err *err)
{
    static const char *const suffix[] = {"", "-journal", "-wal", "-shm"};
    for (size_t i = 0; i < ARRAY_LEN(suffix); i++) {
        char p[4200];
        snprintf(p, sizeof(p), "%s%s", path, suffix[i]);
        if (unlink(p) < 0 && errno != ENOENT) {
            return fail(err, -errno, "StoreFailed", "%s: %m", p);
        }
    }
    return 0;
}

int db_create(const char *path, struct err *err)
{
    char tmp[4160];
    if (snprintf(tmp, sizeof(tmp), "%s.new", path) >= (int)sizeof(tmp)) {
        return fail(err, -ENAMETOOLONG, "StoreFailed", "%s: the name is too long", path);
    }
    int r = remove_old(tmp, err);
    if (r < 0) {
        return r;
    }
    AUTO_FD fd = open(tmp, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (fd < 0) {
        return fail(err, -errno, "StoreFailed", "%s: cannot be made: %m", tmp);
    }
    struct db db;
    r = open_handle(tmp, SQLITE_OPEN_READWRITE, &db, err);
    if (r == 0) {
        r = exec(&db, "PRAGMA synchronous=FULL;BEGIN", err);
    }
    if (r == 0) {
        r = exec(&db, schema, err);
    }
    if (r == 0) {
        r = exec(&db, "COMMIT", err);
    }
    db_close(&db);
    if (r < 0) {
        return r;
    }
    if (fsync(fd) < 0 || rename(tmp, path) < 0) {
        return fail(err, -errno, "StoreFailed", "%s: cannot be made: %m", path);
    }
    r = file_sync_parent(path, err);
    return r < 0 ? err_context(err, r, "%s", path) : 0;
}

static int pragma_int(struct db *db, const char *text, int64_t *ret, struct err *err)
{
    sqlite3_stmt *st = NULL;
    int rc = sqlite3_prepare_v2(db->h, text, -1, &st, NULL);
    if (rc == SQLITE_OK) {
        rc = sqlite3_step(st);
    }
    if (rc != SQLITE_ROW) {
        int r = db_error(db, rc, err);
        sqlite3_finalize(st);
        return r;
    }
    *ret = sqlite3_column_int64(st, 0);
    sqlite3_finalize(st);
    return 0;
}

static int check_format(struct db *db, struct err *err)
{
    int64_t app = 0, version = 0;
    int r = pragma_int(db, "PRAGMA application_id", &app, err);
    if (r == 0) {
        r = pragma_int(db, "PRAGMA user_version", &version, err);
    }
    if (r < 0) {
        return r;
    }
    if (app != APP_ID) {
        fail(err, -EIO, "CorruptStore", "%s: not a store of Spinifex, or emptied", db->path);
        err_hint(err, WAY_OUT);
        return -EIO;
    }
    if (version > VERSION || version < 1) {
        fail(err, -EPROTO, "NewerStore",
             "%s: written by a newer version of Spinifex (format %lld, this one knows %d)",
             db->path, (long long)version, VERSION);
        err_hint(err, "start the newer version again; or there: spx admin state dump, move the "
                      "file away, and here: spx admin state restore");
        return -EPROTO;
    }
    return 0;
}

int db_open(const char *path, struct db *ret, struct err *err)
{
    int r = open_handle(path, SQLITE_OPEN_READWRITE, ret, err);
    if (r < 0) {
        return r;
    }
    r = check_format(ret, err);
    if (r == 0) {
        /* No mmap: an I/O error would be a signal. Checkpoints are run by the writer, where
         * nobody waits. */
        r = exec(ret,
                 "PRAGMA journal_mode=WAL;PRAGMA synchronous=FULL;PRAGMA wal_autocheckpoint=0;"
                 "PRAGMA cache_size=-1024;PRAGMA mmap_size=0;PRAGMA trusted_schema=OFF;"
                 "PRAGMA cell_size_check=ON;PRAGMA temp_store=MEMORY;"
                 "PRAGMA journal_size_limit=8388608;PRAGMA max_page_count=1048576",
                 err);
    }
    if (r < 0) {
        db_close(ret);
    }
    return r;
}

int db_check(struct db *db, struct err *err)
{
    sqlite3_stmt *st = NULL;
    int rc = sqlite3_prepare_v2(db->h, "PRAGMA quick_check(1)", -1, &st, NULL);
    if (rc == SQLITE_OK) {
        rc = sqlite3_step(st);
    }
    int r = 0;
    if (rc != SQLITE_ROW) {
        r = db_error(db, rc, err);
    } else if (!str_eqc(db_col_str(st, 0), "ok")) {
        r = fail(err, -EIO, "CorruptStore", "%s: damaged: %.*s", db->path,
                 STR_ARG(str_cut(db_col_str(st, 0), '\n')));
        err_hint(err, WAY_OUT);
    }
    sqlite3_finalize(st);
    return r;
}

void db_close(struct db *db)
{
    for (int i = 0; i < DB_STMT_N; i++) {
        sqlite3_finalize(db->st[i]);
        db->st[i] = NULL;
    }
    sqlite3_close(db->h);
    db->h = NULL;
}

int db_refresh_wal(const char *path, struct err *err)
{
    char wal[4200];
    snprintf(wal, sizeof(wal), "%s-wal", path);
    AUTO_FD fd = open(wal, O_RDWR | O_CLOEXEC);
    if (fd < 0) {
        return errno == ENOENT ? 0 : fail(err, -errno, "StoreFailed", "%s: %m", wal);
    }
    AUTO_FREE char *chunk = malloc(1u << 20);
    if (!chunk) {
        return fail(err, -ENOMEM, "OutOfMemory", "%s: no memory to read it", wal);
    }
    off_t off = 0;
    for (;;) {
        ssize_t n = pread(fd, chunk, 1u << 20, off);
        if (n == 0) {
            break;
        }
        if (n < 0 || pwrite(fd, chunk, (size_t)n, off) != n) {
            return fail(err, n < 0 ? -errno : -EIO, "StoreFailed", "%s: %m", wal);
        }
        off += n;
    }
    return fsync(fd) < 0 ? fail(err, -errno, "StoreFailed", "%s: %m", wal) : 0;
}

sqlite3_stmt *db_stmt(struct db *db, enum db_stmt which, struct err *err)
{
    if (!db->st[which]) {
        int rc = sqlite3_prepare_v3(db->h, sql[which], -1, SQLITE_PREPARE_PERSISTENT,
                                    &db->st[which], NULL);
        if (rc != SQLITE_OK) {
            db_error(db, rc, err);
            return NULL;
        }
    }
    sqlite3_reset(db->st[which]);
    sqlite3_clear_bindings(db->st[which]);
    return db->st[which];
}

int db_step(struct db *db, sqlite3_stmt *st, struct err *err)
{
    int rc = sqlite3_step(st);
    if (rc == SQLITE_ROW) {
        return 1;
    }
    if (rc != SQLITE_DONE) {
        int r = db_error(db, rc, err);
        sqlite3_reset(st);
        return r;
    }
    sqlite3_reset(st); /* an open cursor would keep the read transaction */
    return 0;
}

int db_run(struct db *db, enum db_stmt which, struct err *err)
{
    sqlite3_stmt *st = db_stmt(db, which, err);
    if (!st) {
        return -EIO;
    }
    int r = db_step(db, st, err);
    return r < 0 ? r : 0;
}

void db_end(struct db *db)
{
    for (int i = 0; i < DB_STMT_N; i++) {
        if (db->st[i]) {
            sqlite3_reset(db->st[i]);
        }
    }
    if (db->h && !sqlite3_get_autocommit(db->h)) {
        int r = db_run(db, DB_ROLLBACK, NULL);
        (void)r; /* the transaction ends with the connection at the latest */
    }
}

int db_bind_str(sqlite3_stmt *st, int idx, struct str s)
{
    return sqlite3_bind_blob64(st, idx, s.n ? s.p : "", s.n, SQLITE_STATIC);
}

int db_bind_u64(sqlite3_stmt *st, int idx, uint64_t v)
{
    return sqlite3_bind_int64(st, idx, (sqlite3_int64)v);
}

struct str db_col_str(sqlite3_stmt *st, int idx)
{
    const char *p = sqlite3_column_blob(st, idx);
    return str_n(p ? p : "", p ? (size_t)sqlite3_column_bytes(st, idx) : 0);
}

uint64_t db_col_u64(sqlite3_stmt *st, int idx)
{
    return (uint64_t)sqlite3_column_int64(st, idx);
}
