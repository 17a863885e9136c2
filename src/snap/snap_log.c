#include "snap/snap_log.h"

#include "base/bytes.h"
#include "base/rand.h"
#include "crypto/crc.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>

#define HEAD   32u
#define RECORD 64u
#define CHUNK  1024u /* records read at once */

static const uint8_t magic[8] = {'S', 'P', 'X', 'U', 1, 0, 0, 0};

/* Bytes, numbers little-endian.
 * Head:   0 "SPXU", 4 u8 version, 5 zeros, 8 u64 salt, 16 u32 size of the base manifest, 20
 *         u32 CRC32C of the head with this field 0, 24 zeros. The manifest follows, zeros to a
 *         multiple of 64, records.
 * Record: 0 u32 CRC32C of salt, index (u64 each) and the rest of the record, 4 u32 type, 8 u64
 *         block, 16 u64 records that were durable, 24 name, 56 zeros. */

struct record {
    uint32_t type;
    uint64_t block, n_synced;
    uint8_t name[SNAP_NAME];
};

static uint32_t record_crc(uint64_t salt, uint64_t index, const uint8_t *p)
{
    uint8_t seed[16];
    put_u64(seed, salt);
    put_u64(seed + 8, index);
    uint64_t crc = crc_add(CRC_32C, 0, str_n((const char *)seed, sizeof(seed)));
    return (uint32_t)crc_add(CRC_32C, crc, str_n((const char *)p + 4, RECORD - 4));
}

static void record_encode(uint64_t salt, uint64_t index, const struct record *r, uint8_t *p)
{
    memset(p, 0, RECORD);
    put_u32(p + 4, r->type);
    put_u64(p + 8, r->block);
    put_u64(p + 16, r->n_synced);
    memcpy(p + 24, r->name, SNAP_NAME);
    put_u32(p, record_crc(salt, index, p));
}

static bool record_decode(uint64_t salt, uint64_t index, const uint8_t *p, struct record *r)
{
    *r = (struct record){
        .type = get_u32(p + 4), .block = get_u64(p + 8), .n_synced = get_u64(p + 16)};
    memcpy(r->name, p + 24, SNAP_NAME);
    return get_u32(p) == record_crc(salt, index, p) && r->n_synced <= index &&
           (r->type == SNAP_LOG_BLOCK || r->type == SNAP_LOG_PAGE);
}

static uint32_t head_crc(const uint8_t *p)
{
    uint8_t copy[HEAD];
    memcpy(copy, p, sizeof(copy));
    put_u32(copy + 20, 0);
    return (uint32_t)crc_add(CRC_32C, 0, str_n((const char *)copy, sizeof(copy)));
}

static uint64_t records_begin(size_t manifest)
{
    return (HEAD + manifest + RECORD - 1) / RECORD * RECORD;
}

/* ---- making and opening ---- */

static void log_init(struct snap_log *l, struct fault_fs *fs)
{
    *l = (struct snap_log){.fs = fs, .fd = -1};
    pthread_mutex_init(&l->mu, NULL);
    pthread_cond_init(&l->synced, NULL);
}

void snap_log_done(struct snap_log *l)
{
    if (l->fd >= 0) {
        close(l->fd);
    }
    l->fd = -1;
    pthread_cond_destroy(&l->synced);
    pthread_mutex_destroy(&l->mu);
}

static int io_error(struct err *err, int code, const char *what)
{
    errno = -code;
    if (code == -ENOSPC || code == -EDQUOT) {
        return fail(err, -EAGAIN, "NoSpace", "no space for the log of an upload");
    }
    return fail(err, -EIO, "UploadFaulted", "the log of an upload: %s: %m", what);
}

static int write_new(struct snap_log *l, int dir, const char *name, const char *new_name,
                     const struct buf *b, struct err *err)
{
    int r = fault_open(l->fs, dir, new_name, O_RDWR | O_CREAT | O_TRUNC, 0600);
    if (r < 0) {
        return io_error(err, r, "open");
    }
    l->fd = r;
    if ((r = fault_pwrite(l->fs, l->fd, b->p, b->n, 0)) < 0) {
        return io_error(err, r, "write");
    }
    if ((r = fault_fdatasync(l->fs, l->fd)) < 0) {
        return io_error(err, r, "sync");
    }
    if ((r = fault_rename(l->fs, dir, new_name, name)) < 0) {
        return io_error(err, r, "rename");
    }
    r = fault_sync_dir(l->fs, dir);
    return r < 0 ? io_error(err, r, "sync of the folder") : 0;
}

int snap_log_create(struct snap_log *l, struct fault_fs *fs, int dir, const char *name,
                    const struct snap_manifest *base, struct err *err)
{
    static const char zeros[RECORD];
    uint8_t head[HEAD] = {0};
    char new_name[64];
    AUTO_BUF b;
    log_init(l, fs);
    buf_init(&b, SNAP_MANIFEST_MAX + HEAD + RECORD);
    buf_add(&b, str_n((const char *)head, HEAD));
    snap_manifest_encode(base, &b);
    if (!buf_ok(&b)) {
        return fail(err, -ENOMEM, "NoMemory", "no memory for an upload");
    }
    memcpy(head, magic, sizeof(magic));
    l->salt = rand_u64();
    l->begin = records_begin(b.n - HEAD);
    put_u64(head + 8, l->salt);
    put_u32(head + 16, (uint32_t)(b.n - HEAD));
    put_u32(head + 20, head_crc(head));
    memcpy(b.p, head, HEAD);
    buf_add(&b, str_n(zeros, (size_t)(l->begin - b.n)));
    snprintf(new_name, sizeof(new_name), "%s.new", name);
    return buf_ok(&b) ? write_new(l, dir, name, new_name, &b, err)
                      : fail(err, -ENOMEM, "NoMemory", "no memory for an upload");
}

static int damaged(struct err *err, const char *what)
{
    return fail(err, -EBADMSG, "UploadDamaged", "the log of an upload: %s", what);
}

static int open_base(struct snap_log *l, struct snap_manifest *ret, struct err *err)
{
    uint8_t head[HEAD];
    ssize_t n = fault_pread(l->fs, l->fd, head, HEAD, 0);
    if (n < 0) {
        return io_error(err, (int)n, "read");
    }
    size_t size = get_u32(head + 16);
    if (n != HEAD || memcmp(head, magic, sizeof(magic)) != 0 ||
        get_u32(head + 20) != head_crc(head) || size > SNAP_MANIFEST_MAX) {
        return damaged(err, "no head");
    }
    AUTO_FREE char *p = malloc(size + 1);
    if (!p) {
        return fail(err, -ENOMEM, "NoMemory", "no memory for an upload");
    }
    n = fault_pread(l->fs, l->fd, p, size, HEAD);
    if (n < 0) {
        return io_error(err, (int)n, "read");
    }
    int r = snap_manifest_decode(str_n(p, (size_t)n), ret);
    if (r < 0) {
        return r == -ENOMEM ? fail(err, r, "NoMemory", "no memory for an upload")
                            : damaged(err, "no beginning");
    }
    l->salt = get_u64(head + 8);
    l->begin = records_begin(size);
    return 0;
}

/* Calls fn for records [from, to); stops at the first that is none and says which. */
static int scan(struct snap_log *l, uint64_t from, uint64_t to,
                int (*fn)(void *, uint64_t, const struct record *), void *ctx,
                uint64_t *ret_end, struct err *err)
{
    AUTO_FREE uint8_t *p = malloc((size_t)CHUNK * RECORD);
    if (!p) {
        return fail(err, -ENOMEM, "NoMemory", "no memory for an upload");
    }
    while (from < to) {
        size_t want = (size_t)MIN(to - from, (uint64_t)CHUNK);
        ssize_t n = fault_pread(l->fs, l->fd, p, want * RECORD, l->begin + from * RECORD);
        if (n < 0) {
            return io_error(err, (int)n, "read");
        }
        for (size_t i = 0; i < (size_t)n / RECORD; i++, from++) {
            struct record r;
            if (!record_decode(l->salt, from, p + i * RECORD, &r)) {
                *ret_end = from;
                return 0;
            }
            int f = fn(ctx, from, &r);
            if (f < 0) {
                return f;
            }
        }
        if ((size_t)n < want * RECORD) {
            break;
        }
    }
    *ret_end = from;
    return 0;
}

static int on_open(void *ctx, uint64_t index, const struct record *r)
{
    uint64_t *n_synced = ctx;
    (void)index;
    *n_synced = MAX(*n_synced, r->n_synced);
    return 0;
}

/* Where the records end, and whether what follows is a torn end. */
static int open_records(struct snap_log *l, struct err *err)
{
    struct stat st;
    uint64_t n_synced = 0, at = 0, end = 0;
    if (fstat(l->fd, &st) < 0) {
        return io_error(err, -errno, "stat");
    }
    uint64_t size = (uint64_t)st.st_size;
    uint64_t n = size > l->begin ? (size - l->begin + RECORD - 1) / RECORD : 0;
    if (size < l->begin) {
        return damaged(err, "cut off in its beginning");
    }
    int r = scan(l, 0, n, on_open, &n_synced, &end, err);
    for (at = end + 1; r == 0 && at < n; at++) {
        r = scan(l, at, n, on_open, &n_synced, &at, err);
    }
    if (r < 0) {
        return r;
    }
    if (n_synced > end) {
        return damaged(err, "a record in the middle");
    }
    l->n = l->n_synced = end;
    if (size > l->begin + end * RECORD) {
        r = fault_truncate(l->fs, l->fd, l->begin + end * RECORD);
        if (r < 0) {
            return io_error(err, r, "truncate");
        }
    }
    /* What was there may never have been synced: from here on it counts. */
    r = fault_fdatasync(l->fs, l->fd);
    return r < 0 ? io_error(err, r, "sync") : 0;
}

int snap_log_open(struct snap_log *l, struct fault_fs *fs, int dir, const char *name,
                  struct snap_manifest *ret_base, struct err *err)
{
    log_init(l, fs);
    int r = fault_open(fs, dir, name, O_RDWR, 0);
    if (r < 0) {
        return io_error(err, r, "open");
    }
    l->fd = r;
    AUTO_SNAP_MANIFEST base = {.pages = NULL};
    if ((r = open_base(l, &base, err)) < 0 || (r = open_records(l, err)) < 0) {
        return r;
    }
    *ret_base = base;
    base.pages = NULL;
    return 0;
}

/* ---- records ---- */

/* Under the lock: until record 'index' is durable. One syncs for all that wait. */
static int wait_synced(struct snap_log *l, uint64_t index, struct err *err)
{
    while (l->n_synced <= index && !l->is_faulted) {
        if (l->is_syncing) {
            pthread_cond_wait(&l->synced, &l->mu);
            continue;
        }
        uint64_t upto = l->n;
        l->is_syncing = true;
        pthread_mutex_unlock(&l->mu);
        int r = fault_fdatasync(l->fs, l->fd);
        pthread_mutex_lock(&l->mu);
        l->is_syncing = false;
        if (r < 0) {
            l->is_faulted = true;
        } else {
            l->n_synced = upto;
        }
        pthread_cond_broadcast(&l->synced);
    }
    return l->is_faulted ? fail(err, -EIO, "UploadFaulted", "a sync of the log failed") : 0;
}

int snap_log_append(struct snap_log *l, enum snap_log_type type, uint64_t block,
                    const uint8_t name[SNAP_NAME], bool is_sync, struct err *err)
{
    uint8_t p[RECORD];
    pthread_mutex_lock(&l->mu);
    uint64_t index = l->n;
    struct record rec = {.type = type, .block = block, .n_synced = l->n_synced};
    memcpy(rec.name, name, SNAP_NAME);
    record_encode(l->salt, index, &rec, p);
    int r = l->is_faulted ? fail(err, -EIO, "UploadFaulted", "a sync of the log failed") : 0;
    if (r == 0 && (r = fault_pwrite(l->fs, l->fd, p, RECORD, l->begin + index * RECORD)) < 0) {
        /* The next one is written over what came of this. */
        r = io_error(err, r, "write");
    } else if (r == 0) {
        l->n++;
        r = is_sync ? wait_synced(l, index, err) : 0;
    }
    pthread_mutex_unlock(&l->mu);
    return r;
}

struct walk {
    snap_log_fn fn;
    void *ctx;
};

static int on_walk(void *ctx, uint64_t index, const struct record *r)
{
    const struct walk *w = ctx;
    (void)index;
    return w->fn(w->ctx, (enum snap_log_type)r->type, r->block, r->name);
}

int snap_log_walk(struct snap_log *l, snap_log_fn fn, void *ctx, struct err *err)
{
    struct walk w = {fn, ctx};
    uint64_t end = 0;
    pthread_mutex_lock(&l->mu);
    uint64_t n = l->n;
    pthread_mutex_unlock(&l->mu);
    int r = scan(l, 0, n, on_walk, &w, &end, err);
    return r < 0 || end == n ? r : damaged(err, "a record has changed");
}
