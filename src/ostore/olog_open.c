#include "ostore/olog_int.h"

#include "base/rand.h"
#include "base/time.h"
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>

/* A segment as the folders show it. */
struct seen {
    uint64_t number;
    uint32_t drives;
    bool has_header;
    struct seg_header h;
};
struct opening {
    struct olog *l;
    uint64_t from_lsn;
    olog_fn fn;
    void *ctx;
    VEC(struct seen) v;
    uint64_t last_lsn, end; /* of the newest segment */
    bool is_ok_needed;      /* few enough drives are away: what no well one has is stale */
};

static uint32_t ok_drives(const struct olog *l)
{
    uint32_t bits = 0;
    for (unsigned i = 0; i < drives_n(l->drives); i++) {
        bits |= drives_state(l->drives, i) == DRIVE_OK ? 1u << i : 0;
    }
    return bits;
}

/* The log goes read-only, but when an operator has accepted it. */
static void damaged(struct opening *o, int code, uint64_t segment, const char *fmt, ...)
    PRINTF_LIKE(4, 5);
static void damaged(struct opening *o, int code, uint64_t segment, const char *fmt, ...)
{
    struct olog *l = o->l;
    struct olog_damage d = {.segment = segment};
    va_list ap;
    va_start(ap, fmt);
    (void)vsnprintf(d.what, sizeof(d.what), fmt, ap);
    va_end(ap);
    if (l->damage.n < OLOG_DAMAGE_MAX) {
        vec_push(&l->damage, d);
    }
    if (!l->is_accepting) {
        (void)olog_fail_readonly(l, code, NULL, "%s", d.what);
    }
}

const struct olog_damage *olog_damage(const struct olog *l, size_t *ret_n)
{
    *ret_n = l->damage.n;
    return l->damage.v;
}

/* --- finding --- */

static void add_seen(struct opening *o, uint64_t number, unsigned drive)
{
    for (size_t i = o->v.n; i-- > 0;) {
        if (o->v.v[i].number == number) {
            o->v.v[i].drives |= 1u << drive;
            return;
        }
    }
    vec_push(&o->v, (struct seen){.number = number, .drives = 1u << drive});
}

static int list_drive(struct opening *o, unsigned drive)
{
    struct olog *l = o->l;
    int log = drives_dir(l->drives, drive, DRIVE_LOG);
    int fd = log < 0 ? -1 : openat(log, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *d = fd < 0 ? NULL : fdopendir(fd);
    if (!d) {
        int code = errno ? -errno : -EIO;
        if (fd >= 0) {
            close(fd);
        }
        return code;
    }
    int rc = 0;
    errno = 0;
    for (struct dirent *e = readdir(d); e && rc == 0; e = readdir(d)) {
        uint64_t number = 0;
        bool is_tmp = false;
        if (seg_name_parse(e->d_name, &number, &is_tmp) < 0) {
            continue;
        }
        if (is_tmp) { /* it was being made */
            rc = fault_unlink(l->fs, log, e->d_name);
        } else {
            add_seen(o, number, drive);
        }
        errno = 0;
    }
    rc = rc == 0 && errno ? -errno : rc;
    closedir(d);
    return rc;
}

static int by_number(const void *a, const void *b)
{
    const struct seen *x = a, *y = b;
    return x->number < y->number ? -1 : x->number > y->number;
}

static void list(struct opening *o)
{
    for (unsigned i = 0; i < drives_n(o->l->drives); i++) {
        if (drives_readable(o->l->drives) & 1u << i) {
            int rc = list_drive(o, i);
            if (rc < 0) {
                drives_fault(o->l->drives, i, rc, "listing the log");
            }
        }
    }
    if (o->v.n > 0) {
        qsort(o->v.v, o->v.n, sizeof(*o->v.v), by_number);
    }
}

/* A drive that was away may have what was removed meanwhile, or a segment that went on without
 * it under the same number. */
static void drop_stale(struct opening *o, struct seen *s, uint32_t drives)
{
    struct olog *l = o->l;
    char name[SEG_NAME_SIZE];
    seg_name(s->number, false, name);
    for (unsigned i = 0; i < DRIVES_MAX; i++) {
        if (drives & 1u << i) {
            int rc = fault_unlink(l->fs, drives_dir(l->drives, i, DRIVE_LOG), name);
            if (rc < 0 && rc != -ENOENT) {
                drives_fault(l->drives, i, rc, "removing a stale log segment");
            }
        }
    }
    olog_cache_drop(l, s->number, drives);
    s->drives &= ~drives;
}

static int read_header(struct olog *l, uint64_t segment, unsigned drive, uint8_t p[SEG_HEADER],
                       struct seg_header *ret)
{
    struct seg_file *f = NULL;
    int rc = olog_file(l, segment, drive, &f);
    if (rc < 0) {
        return rc;
    }
    ssize_t n = fault_pread(l->fs, f->fd, p, SEG_HEADER, 0);
    seg_file_unref(f);
    rc = n < 0 ? (int)n : n < (ssize_t)SEG_HEADER ? -EBADMSG : seg_header_decode(p, ret);
    return rc == 0 && ret->segment != segment ? -EBADMSG : rc;
}

/* The header of one segment; copies that are not of this segment's making are dropped, bad headers
 * of the newest segment repaired. */
static int settle_header(struct opening *o, struct seen *s, bool is_newest, struct err *err)
{
    struct olog *l = o->l;
    uint8_t good[SEG_HEADER], p[SEG_HEADER];
    uint32_t ok = ok_drives(l), bad = 0, stale = 0;
    for (int turn = 0; turn < 2; turn++) { /* well drives first */
        for (unsigned i = 0; i < DRIVES_MAX; i++) {
            uint32_t bit = 1u << i;
            struct seg_header h;
            if (!(s->drives & bit) || !!(ok & bit) != (turn == 0) ||
                (s->has_header && turn == 0 && !is_newest)) {
                continue;
            }
            int rc = read_header(l, s->number, i, p, &h);
            if (rc == -ENOTSUP) {
                return fail(err, rc, "UnknownRecord", "segment %llu is of a newer program",
                            (unsigned long long)s->number);
            }
            if (rc < 0) {
                bad |= bit;
            } else if (!s->has_header) {
                s->h = h;
                s->has_header = true;
                memcpy(good, p, sizeof(good));
            } else if (memcmp(good, p, sizeof(good)) != 0) {
                stale |= bit;
            }
        }
    }
    if (stale & ok) {
        damaged(o, -EUCLEAN, s->number, "copies of segment %llu are not the same",
                (unsigned long long)s->number);
        if (!l->is_accepting) {
            return 0;
        }
    }
    if (stale) {
        drop_stale(o, s, stale);
    }
    for (unsigned i = 0; i < DRIVES_MAX && s->has_header; i++) {
        struct seg_file *f = NULL;
        if ((bad & 1u << i) && olog_file(l, s->number, i, &f) == 0) {
            int rc = fault_pwrite(l->fs, f->fd, good, SEG_HEADER, 0);
            rc = rc == 0 ? drive_sync_rc(fault_fdatasync(l->fs, f->fd)) : rc;
            seg_file_unref(f);
            if (rc < 0) {
                drives_fault(l->drives, i, rc, "repairing a log segment");
            }
        }
    }
    return 0;
}

/* Nothing of it can be read; the bytes are kept for whoever wants to try. */
static void set_aside(struct opening *o, const struct seen *s)
{
    struct olog *l = o->l;
    char name[SEG_NAME_SIZE], aside[SEG_NAME_SIZE + 8];
    seg_name(s->number, false, name);
    (void)snprintf(aside, sizeof(aside), "lost-%s", name);
    for (unsigned i = 0; i < DRIVES_MAX; i++) {
        if (s->drives & 1u << i) {
            int dir = drives_dir(l->drives, i, DRIVE_LOG);
            int rc = fault_rename(l->fs, dir, name, aside);
            rc = rc < 0 ? rc : fault_sync_dir(l->fs, dir);
            if (rc < 0) {
                drives_fault(l->drives, i, rc, "setting a lost log segment aside");
            }
        }
    }
    olog_cache_drop(l, s->number, s->drives);
}

static int settle_headers(struct opening *o, struct err *err)
{
    struct olog *l = o->l;
    for (size_t i = 0; i < o->v.n;) {
        struct seen *s = &o->v.v[i];
        if (o->is_ok_needed && !(s->drives & ok_drives(l))) {
            drop_stale(o, s, s->drives);
        }
        if (!s->drives) {
            vec_remove(&o->v, i);
            continue;
        }
        i++;
    }
    for (size_t i = o->v.n; i-- > 0;) {
        struct seen *s = &o->v.v[i];
        int rc = settle_header(o, s, i + 1 == o->v.n, err);
        if (rc < 0) {
            return rc;
        }
        if (!s->has_header) { /* its name says that it had one, durably */
            damaged(o, -EUCLEAN, s->number, "segment %llu has no header",
                    (unsigned long long)s->number);
            if (l->is_accepting) {
                set_aside(o, s);
            }
            vec_remove(&o->v, i);
            continue;
        }
        if (i + 1 == o->v.n) {
            memcpy(l->log_id, s->h.log_id, LOG_ID_SIZE);
        } else if (memcmp(l->log_id, s->h.log_id, LOG_ID_SIZE) != 0) {
            return fail(err, -EUCLEAN, "LogDamaged", "segment %llu is of another log",
                        (unsigned long long)s->number);
        }
    }
    return 0;
}

/* --- walking --- */

/* The block at the end of a closed segment, from any copy. */
static int read_end(struct olog *l, const struct seen *s, struct seg_end *ret)
{
    for (unsigned i = 0; i < DRIVES_MAX; i++) {
        struct seg_file *f = NULL;
        uint8_t p[END_SIZE];
        if (!(s->drives & 1u << i) || olog_file(l, s->number, i, &f) < 0) {
            continue;
        }
        off_t size = lseek(f->fd, 0, SEEK_END);
        bool is_there = size >= (off_t)(SEG_HEADER + END_SIZE) &&
                        fault_pread(l->fs, f->fd, p, END_SIZE, (uint64_t)size - END_SIZE) ==
                            (ssize_t)END_SIZE &&
                        seg_end_decode(p, seg_base_crc(l->log_id, s->number),
                                       (uint64_t)size - END_SIZE, ret) == 0;
        seg_file_unref(f);
        if (is_there) {
            return 0;
        }
    }
    return -ENOENT;
}

static int repair(void *ctx, struct oscan *s, const struct olog_rec *r, struct err *err)
{
    struct opening *o = ctx;
    return olog_repair(o->l, s, r, err);
}

static int pass_on(void *ctx, const struct olog_rec *r, struct err *err)
{
    struct opening *o = ctx;
    return o->fn ? o->fn(o->ctx, r, err) : 0;
}

/* What was repaired, and of the newest segment everything, is made durable: it may be only in the
 * memory of the system. */
static void sync_copies(struct olog *l, const struct oscan *s, uint32_t copies)
{
    for (unsigned i = 0; i < s->n; i++) {
        unsigned drive = s->c[i].drive;
        if (!(copies & 1u << i) || !(drives_writable(l->drives) & 1u << drive)) {
            continue;
        }
        int rc = l->is_sync_off ? 0 : drive_sync_rc(fault_fdatasync(l->fs, s->c[i].file->fd));
        if (rc < 0) {
            drives_fault(l->drives, drive, rc, "syncing the log at the start");
        }
    }
}

static int walk(struct opening *o, const struct seen *s, struct scan_range *r, struct err *err)
{
    struct olog *l = o->l;
    struct oscan scan;
    int rc = scan_open(l, s->number, s->drives, &scan);
    if (rc < 0) {
        return fail(err, rc, "LogFailed", "segment %llu cannot be opened",
                    (unsigned long long)s->number);
    }
    uint32_t ok = ok_drives(l);
    for (unsigned i = 0; i < scan.n; i++) {
        if (ok & 1u << scan.c[i].drive) {
            scan.first = i;
            break;
        }
    }
    scan.is_all = !r->is_closed;
    scan.limit = s->h.size;
    rc = scan_walk(&scan, r, o->from_lsn, pass_on, repair, o, err);
    if (rc == 0) {
        sync_copies(l, &scan, r->is_closed ? r->repaired : UINT32_MAX);
    }
    scan_done(&scan);
    if (rc == 0 && r->n_lost > 0) {
        damaged(o, -EUCLEAN, s->number, "lsn %llu and %llu more of segment %llu are lost",
                (unsigned long long)r->lost_lsn, (unsigned long long)(r->n_lost - 1),
                (unsigned long long)s->number);
    }
    return rc;
}

/* Every copy is as long as an ended one: its maker knew that it was whole. */
static bool are_ended(const struct olog *l, const struct seen *s, uint64_t end)
{
    char name[SEG_NAME_SIZE];
    seg_name(s->number, false, name);
    for (unsigned i = 0; i < DRIVES_MAX; i++) {
        struct stat st;
        if ((s->drives & 1u << i) &&
            (fstatat(drives_dir(l->drives, i, DRIVE_LOG), name, &st, AT_SYMLINK_NOFOLLOW) < 0 ||
             (uint64_t)st.st_size != end + END_SIZE)) {
            return false;
        }
    }
    return true;
}

static void add_segment(struct olog *l, const struct seen *s, const struct scan_range *r,
                        bool is_newest)
{
    bool is_finished = are_ended(l, s, r->end);
    struct oseg *seg = calloc(1, sizeof(*seg));
    if (!seg) {
        abort();
    }
    *seg = (struct oseg){.number = s->number,
                         .first_lsn = s->h.first_lsn,
                         .last_lsn = r->last_lsn,
                         .end = r->end,
                         .drives = s->drives,
                         .is_closed = true,
                         .is_finished = is_finished,
                         .is_suspect = !is_finished && !is_newest};
    pthread_mutex_lock(&l->lock);
    vec_push(&l->segs, seg);
    pthread_mutex_unlock(&l->lock);
}

static int walk_all(struct opening *o, struct err *err)
{
    struct olog *l = o->l;
    for (size_t i = 0; i < o->v.n; i++) {
        const struct seen *s = &o->v.v[i], *next = i + 1 < o->v.n ? s + 1 : NULL;
        struct scan_range r = {.first_lsn = s->h.first_lsn};
        struct seg_end end = {0};
        bool has_end = (!next || next->number != s->number + 1) && read_end(l, s, &end) == 0;
        if (next && next->number == s->number + 1) {
            r.is_closed = true;
            r.end = next->h.prev_end;
            r.last_lsn = MAX(next->h.prev_lsn, s->h.first_lsn - 1);
        } else if (has_end) {
            r.is_closed = true;
            r.end = end.end;
            r.last_lsn = end.last_lsn;
            if (!next) {
                damaged(o, -EUCLEAN, 0, "segment %llu is closed and none follows",
                        (unsigned long long)s->number);
            }
        } else if (next) {
            damaged(o, -EUCLEAN, s->number, "segment %llu has no end",
                    (unsigned long long)s->number);
        }
        if (!r.is_closed || r.last_lsn >= o->from_lsn) {
            int rc = walk(o, s, &r, err);
            if (rc < 0) {
                return rc;
            }
        }
        add_segment(l, s, &r, !next);
        o->end = r.end;
        o->last_lsn =
            MAX(r.last_lsn >= s->h.first_lsn ? r.last_lsn : s->h.prev_lsn, o->last_lsn);
    }
    return 0;
}

/* --- going on --- */

static int go_on(struct opening *o, struct err *err)
{
    struct olog *l = o->l;
    const struct seen *newest = o->v.n > 0 ? &o->v.v[o->v.n - 1] : NULL;
    uint64_t next = o->last_lsn + 1;
    l->last_lsn = o->last_lsn;
    atomic_store(&l->synced_lsn, o->last_lsn);
    if (newest) { /* lsns that may have been written behind the end are not used again */
        next += (MAX(newest->h.size, o->end) - o->end) / FRAME_SIZE;
        next = MAX(next, newest->h.first_lsn);
    } else {
        rand_bytes(l->log_id, LOG_ID_SIZE);
    }
    atomic_store(&l->next_lsn, next);
    if (o->from_lsn > next) {
        damaged(o, -EUCLEAN, 0, "the log ends before lsn %llu",
                (unsigned long long)o->from_lsn);
    }
    if (atomic_load(&l->is_readonly)) {
        return 0;
    }
    l->next = (struct seg_header){.segment = newest ? newest->number + 1 : 1,
                                  .first_lsn = next,
                                  .prev_end = newest ? o->end : 0,
                                  .prev_lsn = o->last_lsn,
                                  .create_ns = time_wall_ns(),
                                  .size = l->segment_size};
    memcpy(l->next.log_id, l->log_id, LOG_ID_SIZE);
    l->is_next_set = l->is_switch_due = l->has_nothing_last = true;
    int rc = olog_switch(l, err);
    if (rc == -ENOSPC) { /* what is there can be read; the next append tries again */
        if (err) {
            err_clear(err);
        }
        return 0;
    }
    for (size_t i = 0; i < l->segs.n && rc == 0; i++) {
        if (l->segs.v[i]->is_closed && !l->segs.v[i]->is_finished) {
            olog_maker_finish(l, l->segs.v[i]->number);
        }
    }
    return rc;
}

static int open_log(struct opening *o, struct err *err)
{
    struct olog *l = o->l;
    unsigned n_ok = (unsigned)__builtin_popcount(ok_drives(l)), n = drives_n(l->drives);
    o->is_ok_needed = n - n_ok < l->n_copies;
    if (!o->is_ok_needed) {
        damaged(o, -EIO, 0,
                "%u of %u drives are missing, failed or healing: more than the log survives",
                n - n_ok, n);
        if (l->is_accepting && n_ok == 0) {
            return fail(err, -EIO, "LogFailed", "no drive is well");
        }
    }
    list(o);
    if (!drives_readable(l->drives)) {
        return fail(err, -EIO, "LogFailed", "no drive of the log can be read");
    }
    int rc = settle_headers(o, err);
    rc = rc == 0 ? walk_all(o, err) : rc;
    rc = rc == 0 ? go_on(o, err) : rc;
    return rc == 0 && olog_maker_start(l) < 0
               ? fail(err, -EAGAIN, "LogFailed", "no thread for the log")
               : rc;
}

int olog_open(const struct olog_opts *o, uint64_t from_lsn, olog_fn fn, void *ctx,
              struct olog **ret, struct err *err)
{
    uint32_t size = o->segment_size ? o->segment_size : SEG_DEFAULT;
    if (o->n_copies < 1 || o->n_copies > drives_n(o->drives) || size < SEG_MIN ||
        size > SEG_MAX || size % 4096 != 0) {
        return fail(err, -EINVAL, "BadConfiguration",
                    "%u copies of segments of %u bytes on %u drives", o->n_copies, size,
                    drives_n(o->drives));
    }
    struct olog *l = calloc(1, sizeof(*l));
    if (!l) {
        abort();
    }
    l->drives = o->drives;
    l->fs = drives_fs(o->drives);
    l->n_copies = o->n_copies;
    l->segment_size = size;
    l->is_sync_off = o->is_sync_off;
    l->is_accepting = o->is_accepting;
    pthread_mutex_init(&l->lock, NULL);
    pthread_mutex_init(&l->commit_lock, NULL);
    pthread_mutex_init(&l->maker_lock, NULL);
    pthread_mutex_init(&l->finish_lock, NULL);
    pthread_cond_init(&l->maker_cond, NULL);
    (void)olog_replaced(l, l->epochs);
    (void)olog_replaced(l, l->commit_epochs);
    struct opening op = {.l = l, .from_lsn = from_lsn, .fn = fn, .ctx = ctx};
    int rc = open_log(&op, err);
    vec_free(&op.v);
    if (rc < 0) {
        l->has_nothing_last = true;
        olog_close(l);
        return rc;
    }
    *ret = l;
    return 0;
}

void olog_close(struct olog *l)
{
    if (!l) {
        return;
    }
    (void)!olog_idle(l, NULL);
    olog_maker_stop(l);
    for (unsigned i = 0; i < DRIVES_MAX; i++) {
        seg_file_unref(l->files[i]);
    }
    for (size_t i = 0; i < CACHE_SLOTS; i++) {
        seg_file_unref(l->cache[i].f);
    }
    for (size_t i = 0; i < l->segs.n; i++) {
        free(l->segs.v[i]);
    }
    for (size_t i = 0; i < l->gone.n; i++) {
        for (unsigned k = 0; k < DRIVES_MAX; k++) {
            seg_file_unref(l->gone.v[i]->kept[k]);
        }
        free(l->gone.v[i]);
    }
    vec_free(&l->segs);
    vec_free(&l->gone);
    vec_free(&l->damage);
    batch_unref(l->batch);
    pthread_mutex_destroy(&l->lock);
    pthread_mutex_destroy(&l->commit_lock);
    pthread_mutex_destroy(&l->maker_lock);
    pthread_mutex_destroy(&l->finish_lock);
    pthread_cond_destroy(&l->maker_cond);
    free(l);
}
