#include "ostore/olog_int.h"

#include "base/time.h"
#include "crypto/crc.h"
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>

#define BATCH_KEPT ((size_t)4 << 20) /* a larger buffer is given back after its append */

int olog_fail_readonly(struct olog *l, int code, struct err *err, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    pthread_mutex_lock(&l->lock);
    if (!atomic_load(&l->is_readonly)) {
        (void)vsnprintf(l->why, sizeof(l->why), fmt, ap);
        l->readonly_code = code;
        atomic_store(&l->is_readonly, true);
    }
    pthread_mutex_unlock(&l->lock);
    va_end(ap);
    return fail(err, l->readonly_code,
                l->readonly_code == -EUCLEAN ? "LogDamaged" : "LogFailed", "%s", l->why);
}

static int say_readonly(struct olog *l, struct err *err)
{
    return olog_fail_readonly(l, -EIO, err, "the log is read-only");
}

size_t olog_batch_max(const struct olog *l)
{
    return l->segment_size - SEG_HEADER - END_SIZE;
}

/* --- building --- */

static size_t body_size(const struct olog_new *v)
{
    size_t n = 0;
    for (int i = 0; i < v->n_body; i++) {
        n += v->body[i].iov_len;
    }
    return n;
}

static int check(const struct olog_new *v, size_t n, uint64_t *ret_size, struct err *err)
{
    uint64_t size = 0;
    bool is_in_group = false;
    for (size_t i = 0; i < n; i++) {
        size_t body = body_size(&v[i]);
        if (v[i].head.n > OREC_HEAD_MAX || body > OREC_BODY_MAX) {
            return fail(err, -E2BIG, "RecordTooLarge", "a record of %zu and %zu bytes",
                        v[i].head.n, body);
        }
        bool is_group = v[i].flags & OLOG_GROUP, is_end = v[i].flags & OLOG_GROUP_END;
        if ((v[i].flags & ~(unsigned)(OLOG_MOVED | OLOG_GROUP | OLOG_GROUP_END)) ||
            (is_end && !is_group) || (is_in_group && !is_group)) {
            return fail(err, -EINVAL, "BadRecord", "flags of a record");
        }
        is_in_group = is_group && !is_end;
        size += FRAME_SIZE + pad8((uint32_t)v[i].head.n) + pad8((uint32_t)body);
    }
    if (is_in_group) {
        return fail(err, -EINVAL, "BadRecord", "a group without its end");
    }
    *ret_size = size;
    return 0;
}

static int need_batch(struct olog *l, size_t size)
{
    bool is_free = l->batch && atomic_load(&l->batch->refs) == 1;
    if (!is_free || l->batch->cap < size) {
        batch_unref(l->batch); /* a lane that hangs keeps its own */
        l->batch = batch_new(MAX(size, (size_t)256 << 10));
    }
    return l->batch ? 0 : -ENOMEM;
}

static uint8_t *add_padding(uint8_t *p, size_t n)
{
    size_t more = pad8((uint32_t)n) - n;
    memset(p, 0, more);
    return p + more;
}

static void build(struct olog *l, struct olog_new *v, size_t n, uint64_t first_lsn)
{
    uint8_t *p = l->batch->p;
    uint32_t off = l->off;
    for (size_t i = 0; i < n; i++) {
        struct frame f = {.kind = (uint16_t)v[i].kind,
                          .flags = v[i].flags,
                          .group = v[i].group,
                          .head_size = (uint32_t)v[i].head.n,
                          .lsn = first_lsn + i,
                          .synced_lsn = atomic_load(&l->synced_lsn),
                          .time_ns = v[i].time_ns};
        uint8_t *frame = p;
        p += FRAME_SIZE;
        if (v[i].head.n > 0) {
            memcpy(p, v[i].head.p, v[i].head.n);
            f.head_crc = (uint32_t)crc_add(CRC_32C, 0, v[i].head);
        }
        p = add_padding(p + v[i].head.n, v[i].head.n);
        const uint8_t *body = p;
        for (int k = 0; k < v[i].n_body; k++) {
            if (v[i].body[k].iov_len > 0) {
                memcpy(p, v[i].body[k].iov_base, v[i].body[k].iov_len);
            }
            p += v[i].body[k].iov_len;
        }
        f.body_size = (uint32_t)(p - body);
        f.body_crc = (uint32_t)crc_add(CRC_32C, 0, str_n((const char *)body, f.body_size));
        p = add_padding(p, f.body_size);
        frame_encode(&f, l->base_crc, off, frame);
        v[i].ret_at = (struct olog_place){l->cur->number, off};
        v[i].ret_lsn = f.lsn;
        off += frame_record_size(&f);
    }
    l->batch->n = (size_t)(p - l->batch->p);
}

/* --- writing --- */

static uint32_t on_all(struct olog *l, struct io_set *s, enum io_op op)
{
    for (unsigned i = 0; i < DRIVES_MAX; i++) {
        if (!(l->copies & 1u << i)) {
            continue;
        }
        struct io_job *j = io_job_new(l, i, op);
        j->file = seg_file_ref(l->files[i]);
        j->off = l->off;
        if (op == IO_WRITE || op == IO_COMMIT) {
            j->batch = l->batch;
            atomic_fetch_add(&l->batch->refs, 1);
        }
        io_post(l, s, i, j, false);
    }
    return io_wait(l, s);
}

/* Only these copies of the segment are whole: it is left at the next append, so that there are
 * enough copies again. */
static void keep_copies(struct olog *l, uint32_t good)
{
    if (good != l->copies) {
        l->copies = good;
        l->is_switch_due = true;
        pthread_mutex_lock(&l->lock);
        l->cur->drives = good;
        pthread_mutex_unlock(&l->lock);
    }
}

/* Copies on drives that failed meanwhile, or were replaced, do not count. */
static void look_at_drives(struct olog *l)
{
    uint32_t replaced = olog_replaced(l, l->commit_epochs);
    keep_copies(l, l->copies & drives_writable(l->drives) & ~replaced);
}

/* There could be more copies than there are: a drive came back. */
static bool is_poor(const struct olog *l)
{
    unsigned may = (unsigned)__builtin_popcount(drives_writable(l->drives));
    return (unsigned)__builtin_popcount(l->copies) < MIN(l->n_copies, may);
}

static bool is_any_full(const struct io_set *s)
{
    bool is_full = false;
    for (unsigned i = 0; i < DRIVES_MAX; i++) {
        is_full = is_full || (s->v[i] && (s->rc[i] == -ENOSPC || s->rc[i] == -EDQUOT));
    }
    return is_full;
}

/* No copy took the batch whole. What was written of it is wiped as far as that works, its lsns are
 * not used again, and the segment is left. */
static int give_up_batch(struct olog *l, struct io_set *s, size_t n, struct err *err)
{
    uint32_t left = 0;
    for (unsigned i = 0; i < DRIVES_MAX; i++) {
        left |= s->v[i] && (s->rc[i] == -ENOSPC || s->rc[i] == -EDQUOT) ? 1u << i : 0;
    }
    io_done(s);
    if (!left) {
        return olog_fail_readonly(l, -EIO, err, "no drive of the log can be written");
    }
    keep_copies(l, left);
    l->is_switch_due = true;
    atomic_fetch_add(&l->next_lsn, n);
    memset(l->batch->p, 0, l->batch->n);
    struct io_set wipe = {0};
    (void)on_all(l, &wipe, IO_WRITE);
    io_done(&wipe);
    return fail(err, -ENOSPC, "InsufficientStorage", "the drives of the log are full");
}

static int append(struct olog *l, struct olog_new *v, size_t n, bool is_synced, struct err *err)
{
    uint64_t size = 0;
    int rc = check(v, n, &size, err);
    if (rc < 0 || n == 0) {
        return rc;
    }
    if (size > olog_batch_max(l)) {
        return fail(err, -E2BIG, "RecordTooLarge", "%llu bytes do not fit into a segment",
                    (unsigned long long)size);
    }
    if (atomic_load(&l->is_readonly)) {
        return say_readonly(l, err);
    }
    look_at_drives(l);
    if (l->is_switch_due || is_poor(l) || l->off + size + END_SIZE > l->segment_size) {
        rc = olog_switch(l, err);
        if (rc < 0) {
            return rc;
        }
    }
    if (need_batch(l, size) < 0) {
        return fail(err, -ENOMEM, "LogFailed", "no memory for %llu bytes",
                    (unsigned long long)size);
    }
    uint64_t lsn = atomic_load(&l->next_lsn);
    build(l, v, n, lsn);
    struct io_set s = {0};
    uint32_t good = on_all(l, &s, is_synced ? IO_COMMIT : IO_WRITE);
    if (!good) {
        return give_up_batch(l, &s, n, err);
    }
    io_done(&s);
    keep_copies(l, good);
    l->off += (uint32_t)size;
    l->last_lsn = lsn + n - 1;
    l->has_unsynced = !is_synced;
    l->has_nothing_last = n == 1 && v[0].kind == OREC_NOTHING;
    atomic_store(&l->next_lsn, lsn + n);
    pthread_mutex_lock(&l->lock);
    l->cur->end = l->off;
    pthread_mutex_unlock(&l->lock);
    if (!l->is_next_asked && l->off > l->segment_size / 2) {
        l->is_next_asked = true;
        olog_maker_prepare(l, l->cur->number + 1);
    }
    if (l->batch->cap > BATCH_KEPT) {
        batch_unref(steal(&l->batch));
    }
    return 0;
}

static int sync_all(struct olog *l, struct err *err)
{
    if (atomic_load(&l->is_readonly)) {
        return say_readonly(l, err);
    }
    if (l->has_unsynced) {
        struct io_set s = {0};
        look_at_drives(l);
        uint32_t good = on_all(l, &s, IO_SYNC);
        bool is_full = is_any_full(&s);
        io_done(&s);
        if (!good) {
            /* Also when it was for want of space: what a sync did not write may be gone. */
            return olog_fail_readonly(l, -EIO, err, "no drive of the log can be synced%s",
                                      is_full ? " (full)" : "");
        }
        keep_copies(l, good);
        l->has_unsynced = false;
    }
    /* Before anybody hears of it, the others know which drive is not to be trusted. */
    if (atomic_load(&l->drives->is_unsettled)) {
        (void)drives_persist(l->drives);
    }
    if (l->cur && !(l->copies & drives_writable(l->drives))) {
        return olog_fail_readonly(l, -EIO, err, "no drive of the log can be written");
    }
    atomic_store(&l->synced_lsn, l->last_lsn);
    return 0;
}

/* --- segments --- */

static void plan_next(struct olog *l)
{
    struct seg_header *h = &l->next;
    *h = (struct seg_header){.segment = l->cur->number + 1,
                             .first_lsn = atomic_load(&l->next_lsn),
                             .prev_end = l->off,
                             .prev_lsn = l->last_lsn,
                             .create_ns = time_wall_ns(),
                             .size = l->segment_size};
    memcpy(h->log_id, l->log_id, LOG_ID_SIZE);
    /* A copy may be there from here on, whatever fails: nothing more goes into the old segment. */
    l->is_next_set = l->is_switch_due = true;
}

/* Makes the copies; *files gets one reference each. Returns bits of drives that have one. */
static uint32_t begin_copies(struct olog *l, struct seg_file **files, bool *ret_is_full)
{
    uint32_t begun = 0, avoid = 0;
    struct prepared ready = {0};
    olog_maker_take(l, l->next.segment, &ready);
    for (;;) {
        unsigned missing = l->n_copies - (unsigned)__builtin_popcount(begun);
        uint32_t chosen = olog_choose(l, l->next.segment, missing, begun | avoid);
        if (!chosen) {
            break;
        }
        struct io_set s = {0};
        for (unsigned i = 0; i < DRIVES_MAX; i++) {
            if (!(chosen & 1u << i)) {
                continue;
            }
            struct io_job *j = io_job_new(l, i, IO_BEGIN);
            j->segment = l->next.segment;
            j->size = l->next.size;
            j->file = steal(&ready.files[i]);
            seg_header_encode(&l->next, j->header);
            io_post(l, &s, i, j, false);
        }
        uint32_t good = io_wait(l, &s);
        *ret_is_full = *ret_is_full || is_any_full(&s);
        for (unsigned i = 0; i < DRIVES_MAX; i++) {
            if (good & 1u << i) {
                files[i] = seg_file_ref(s.v[i]->file);
            }
        }
        io_done(&s);
        begun |= good;
        avoid |= chosen & ~good;
    }
    for (unsigned i = 0; i < DRIVES_MAX; i++) {
        if (ready.files[i]) { /* made ahead on a drive that was not taken after all */
            char tmp[SEG_NAME_SIZE];
            seg_name(l->next.segment, true, tmp);
            (void)!fault_unlink(l->fs, drives_dir(l->drives, i, DRIVE_LOG), tmp);
            seg_file_unref(ready.files[i]);
        }
    }
    return begun;
}

static void take_next(struct olog *l, uint32_t begun, struct seg_file **files)
{
    struct oseg *seg = calloc(1, sizeof(*seg));
    if (!seg) {
        abort();
    }
    seg->number = l->next.segment;
    seg->first_lsn = l->next.first_lsn;
    seg->end = SEG_HEADER;
    seg->drives = begun;
    uint64_t closed = 0;
    (void)olog_replaced(l, l->commit_epochs);
    olog_refresh(l); /* before there is a copy on the new drive */
    pthread_mutex_lock(&l->lock);
    if (l->cur) {
        closed = l->cur->number;
        l->cur->is_closed = true;
        l->cur->end = l->next.prev_end;
        l->cur->last_lsn = MAX(l->next.prev_lsn, l->cur->first_lsn - 1);
    }
    vec_push(&l->segs, seg);
    l->cur = seg;
    pthread_mutex_unlock(&l->lock);
    for (unsigned i = 0; i < DRIVES_MAX; i++) {
        seg_file_unref(l->files[i]);
        l->files[i] = files[i];
    }
    l->copies = begun;
    l->base_crc = seg_base_crc(l->log_id, seg->number);
    l->off = SEG_HEADER;
    l->is_switch_due = l->is_next_set = false;
    l->has_nothing_last = true; /* the header says it */
    l->is_next_asked = false;
    if (closed) {
        olog_maker_finish(l, closed);
    }
}

int olog_switch(struct olog *l, struct err *err)
{
    if (!l->is_next_set) {
        /* What the header says of the segment before has to be durable when it is. */
        int rc = sync_all(l, err);
        if (rc < 0) {
            return rc;
        }
        plan_next(l);
    }
    struct seg_file *files[DRIVES_MAX] = {0};
    bool is_full = false;
    uint32_t begun = begin_copies(l, files, &is_full);
    unsigned may = (unsigned)__builtin_popcount(drives_writable(l->drives));
    if (!begun || (is_full && (unsigned)__builtin_popcount(begun) < MIN(l->n_copies, may))) {
        for (unsigned i = 0; i < DRIVES_MAX; i++) {
            seg_file_unref(files[i]);
        }
        return is_full ? fail(err, -ENOSPC, "InsufficientStorage",
                              "a drive has no room for another log segment")
                       : olog_fail_readonly(l, -EIO, err, "no drive is left for the log");
    }
    take_next(l, begun, files);
    return 0;
}

/* --- the door --- */

int olog_append(struct olog *l, struct olog_new *v, size_t n, struct err *err)
{
    pthread_mutex_lock(&l->commit_lock);
    int rc = append(l, v, n, false, err);
    pthread_mutex_unlock(&l->commit_lock);
    return rc;
}

int olog_sync(struct olog *l, struct err *err)
{
    pthread_mutex_lock(&l->commit_lock);
    int rc = sync_all(l, err);
    pthread_mutex_unlock(&l->commit_lock);
    return rc;
}

static int commit(struct olog *l, struct olog_new *v, size_t n, struct err *err)
{
    int rc = append(l, v, n, true, err);
    return rc < 0 ? rc
                  : sync_all(l, err); /* nothing is left to be synced but states of drives */
}

int olog_commit(struct olog *l, struct olog_new *v, size_t n, struct err *err)
{
    pthread_mutex_lock(&l->commit_lock);
    int rc = commit(l, v, n, err);
    pthread_mutex_unlock(&l->commit_lock);
    return rc;
}

int olog_idle(struct olog *l, struct err *err)
{
    struct olog_new nothing = {.kind = OREC_NOTHING, .time_ns = time_wall_ns()};
    pthread_mutex_lock(&l->commit_lock);
    bool is_due = !l->has_nothing_last && !l->has_unsynced && !atomic_load(&l->is_readonly);
    int rc = is_due ? commit(l, &nothing, 1, err) : 0;
    pthread_mutex_unlock(&l->commit_lock);
    return rc;
}

int olog_leave_poor(struct olog *l, struct err *err)
{
    pthread_mutex_lock(&l->commit_lock);
    look_at_drives(l);
    bool is_due = l->cur && !atomic_load(&l->is_readonly) && (l->is_switch_due || is_poor(l));
    int rc = is_due ? olog_switch(l, err) : 0;
    pthread_mutex_unlock(&l->commit_lock);
    return rc;
}
