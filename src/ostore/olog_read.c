#include "ostore/olog_int.h"

#include "base/time.h"
#include <errno.h>

bool olog_is_readonly(const struct olog *l)
{
    return atomic_load(&l->is_readonly);
}

const char *olog_why(const struct olog *l)
{
    return atomic_load(&l->is_readonly) ? l->why : "";
}

uint64_t olog_next_lsn(const struct olog *l)
{
    return atomic_load(&l->next_lsn);
}

uint64_t olog_synced_lsn(const struct olog *l)
{
    return atomic_load(&l->synced_lsn);
}

static struct oseg *find_gone(struct olog *l, uint64_t segment)
{
    for (size_t i = 0; i < l->gone.n; i++) {
        if (l->gone.v[i]->number == segment) {
            return l->gone.v[i];
        }
    }
    return NULL;
}

/* The copy to ask as number 'copy': well drives first, turning with the segment. */
static int pick(const struct olog *l, uint64_t segment, uint32_t drives, unsigned copy)
{
    unsigned n = drives_n(l->drives);
    uint32_t may = drives & drives_readable(l->drives);
    for (int turn = 0; turn < 2; turn++) {
        for (unsigned k = 0; k < n; k++) {
            unsigned i = (unsigned)((segment + k) % n);
            bool is_ok = drives_state(l->drives, i) == DRIVE_OK;
            if ((may & 1u << i) && is_ok == (turn == 0) && copy-- == 0) {
                return (int)i;
            }
        }
    }
    return -ENOENT;
}

static int file_for_read(struct olog *l, uint64_t segment, unsigned copy, unsigned *ret_drive,
                         struct seg_file **ret)
{
    pthread_mutex_lock(&l->lock);
    struct oseg *s = olog_find(l, segment);
    struct oseg *gone = s ? NULL : find_gone(l, segment);
    uint32_t drives = s ? s->drives : gone ? gone->drives : 0;
    int drive = pick(l, segment, drives, copy);
    struct seg_file *kept =
        gone && drive >= 0 && gone->kept[drive] ? seg_file_ref(gone->kept[drive]) : NULL;
    pthread_mutex_unlock(&l->lock);
    if (drive < 0) {
        return drive;
    }
    *ret_drive = (unsigned)drive;
    if (gone) {
        *ret = kept;
        return kept ? 0 : -ENOENT;
    }
    return olog_file(l, segment, (unsigned)drive, ret);
}

int olog_read_body(struct olog *l, struct olog_place at, uint32_t head_size, uint32_t off,
                   void *p, size_t n, unsigned copy, bool is_nowait)
{
    if (head_size > OREC_HEAD_MAX || off > OREC_BODY_MAX || n > OREC_BODY_MAX - off) {
        return -EINVAL;
    }
    struct seg_file *f = NULL;
    unsigned drive = 0;
    int rc = file_for_read(l, at.segment, copy, &drive, &f);
    if (rc < 0) {
        return rc;
    }
    uint64_t pos = (uint64_t)at.off + FRAME_SIZE + pad8(head_size) + off;
    ssize_t got;
    if (is_nowait) {
        got = fault_pread_nowait(l->fs, f->fd, p, n, pos);
        got = got >= 0 && (size_t)got < n ? -EAGAIN : got;
    } else {
        uint64_t from = time_mono_ns();
        got = fault_pread(l->fs, f->fd, p, n, pos);
        drives_note_read(l->drives, drive, time_mono_ns() - from);
    }
    seg_file_unref(f);
    return got < 0 ? (int)got : (size_t)got < n ? -ENODATA : 0;
}

int olog_read(struct olog *l, struct arena *a, struct olog_place at, struct olog_rec *ret,
              struct err *err)
{
    struct oscan s;
    pthread_mutex_lock(&l->lock);
    const struct oseg *seg = olog_find(l, at.segment);
    uint32_t drives = seg ? seg->drives : 0;
    pthread_mutex_unlock(&l->lock);
    int rc = scan_open(l, at.segment, drives & drives_readable(l->drives), &s);
    if (rc < 0) {
        return fail(err, rc, "LogFailed", "segment %llu cannot be opened",
                    (unsigned long long)at.segment);
    }
    struct olog_rec r = {0};
    struct frame f;
    rc = scan_record(&s, at.off, 0, &r, &f);
    if (rc < 0) {
        scan_done(&s);
        return fail(err, rc == -EBADMSG ? -EUCLEAN : rc, "LogDamaged",
                    "segment %llu at %u: no copy has the record",
                    (unsigned long long)at.segment, at.off);
    }
    if (s.bad) {
        rc = olog_repair(l, &s, &r, err);
    }
    if (rc == 0) {
        r.head = arena_str_dup(a, r.head);
        r.body = arena_str_dup(a, r.body);
        rc = r.head.p && r.body.p
                 ? 0
                 : fail(err, -ENOMEM, "RecordTooLarge", "a record does not fit into memory");
    }
    if (rc == 0) {
        *ret = r;
    }
    scan_done(&s);
    return rc;
}

int olog_segments(struct olog *l, struct olog_segment **ret, size_t *ret_n)
{
    olog_refresh(l);
    pthread_mutex_lock(&l->lock);
    size_t n = l->segs.n;
    struct olog_segment *v = calloc(n ? n : 1, sizeof(*v));
    for (size_t i = 0; i < n && v; i++) {
        const struct oseg *s = l->segs.v[i];
        v[i] = (struct olog_segment){.segment = s->number,
                                     .first_lsn = s->first_lsn,
                                     .last_lsn = s->is_closed ? s->last_lsn : 0,
                                     .size = s->end,
                                     .drives = s->drives};
    }
    pthread_mutex_unlock(&l->lock);
    if (!v) {
        return -ENOMEM;
    }
    *ret = v;
    *ret_n = n;
    return 0;
}

/* A copy of a closed segment's facts. */
static int closed(struct olog *l, uint64_t segment, struct oseg *ret, struct err *err)
{
    olog_refresh(l);
    pthread_mutex_lock(&l->lock);
    const struct oseg *s = olog_find(l, segment);
    struct oseg now = s ? *s : (struct oseg){0};
    pthread_mutex_unlock(&l->lock);
    if (!s) {
        return fail(err, -ENOENT, "NoSuchSegment", "there is no segment %llu",
                    (unsigned long long)segment);
    }
    if (!now.is_closed) {
        return fail(err, -EBUSY, "SegmentInUse", "segment %llu is being written",
                    (unsigned long long)segment);
    }
    *ret = now;
    return 0;
}

int olog_walk(struct olog *l, uint64_t segment, olog_fn fn, void *ctx, struct err *err)
{
    struct oseg seg;
    struct oscan s;
    int rc = closed(l, segment, &seg, err);
    if (rc < 0) {
        return rc;
    }
    rc = scan_open(l, segment, seg.drives & drives_readable(l->drives), &s);
    if (rc < 0) {
        return fail(err, rc, "LogFailed", "segment %llu cannot be opened",
                    (unsigned long long)segment);
    }
    struct scan_range r = {.first_lsn = seg.first_lsn,
                           .last_lsn = seg.last_lsn,
                           .end = seg.end,
                           .is_closed = true};
    rc = scan_walk(&s, &r, 0, fn, NULL, ctx, err);
    scan_done(&s);
    if (rc == 0 && r.n_lost > 0) {
        return fail(err, -EUCLEAN, "LogDamaged", "lsn %llu of segment %llu is lost",
                    (unsigned long long)r.lost_lsn, (unsigned long long)segment);
    }
    return rc;
}

/* --- pins and removal --- */

int olog_pin(struct olog *l, uint64_t segment)
{
    pthread_mutex_lock(&l->lock);
    struct oseg *s = olog_find(l, segment);
    if (s) {
        s->pins++;
    }
    pthread_mutex_unlock(&l->lock);
    return s ? 0 : -ENOENT;
}

void olog_unpin(struct olog *l, uint64_t segment)
{
    struct oseg *freed = NULL;
    pthread_mutex_lock(&l->lock);
    struct oseg *s = olog_find(l, segment);
    if (s) {
        s->pins--;
    }
    for (size_t i = 0; i < l->gone.n && !s; i++) {
        if (l->gone.v[i]->number == segment && --l->gone.v[i]->pins == 0) {
            freed = l->gone.v[i];
            vec_remove(&l->gone, i);
            break;
        }
    }
    pthread_mutex_unlock(&l->lock);
    for (unsigned i = 0; i < DRIVES_MAX && freed; i++) {
        seg_file_unref(freed->kept[i]);
    }
    free(freed);
}

/* The segment before says where it ends only in the header of this one, unless it has its own end
 * block: it gets it before this one goes. */
static int finish_before(struct olog *l, uint64_t segment, struct err *err)
{
    pthread_mutex_lock(&l->lock);
    const struct oseg *prev = olog_find(l, segment - 1);
    bool is_due = prev && !prev->is_finished;
    pthread_mutex_unlock(&l->lock);
    return is_due ? olog_finish(l, segment - 1, err) : 0;
}

int olog_remove(struct olog *l, uint64_t segment, struct err *err)
{
    struct oseg seg;
    int rc = closed(l, segment, &seg, err);
    rc = rc == 0 ? finish_before(l, segment, err) : rc;
    if (rc < 0) {
        return rc;
    }
    struct seg_file *kept[DRIVES_MAX] = {0};
    for (unsigned i = 0; i < DRIVES_MAX; i++) { /* while they have names */
        if ((seg.drives & drives_readable(l->drives) & 1u << i) &&
            olog_file(l, segment, i, &kept[i]) < 0) {
            kept[i] = NULL;
        }
    }
    struct oseg *freed = NULL;
    pthread_mutex_lock(&l->lock);
    for (size_t i = 0; i < l->segs.n; i++) {
        struct oseg *s = l->segs.v[i];
        if (s->number != segment) {
            continue;
        }
        vec_remove(&l->segs, i);
        if (s->pins > 0) {
            memcpy(s->kept, kept, sizeof(kept));
            memset(kept, 0, sizeof(kept));
            vec_push(&l->gone, s);
        } else {
            freed = s;
        }
        break;
    }
    pthread_mutex_unlock(&l->lock);
    free(freed);
    olog_cache_drop(l, segment, UINT32_MAX);
    for (unsigned i = 0; i < DRIVES_MAX; i++) {
        seg_file_unref(kept[i]);
    }
    char name[SEG_NAME_SIZE];
    seg_name(segment, false, name);
    /* First where a copy is that does not count, for a write to it failed: a start that found it
     * alone would take it for all that is left of the segment. */
    for (int turn = 0; turn < 2; turn++) {
        for (unsigned i = 0; i < DRIVES_MAX; i++) {
            bool is_counted = seg.drives & 1u << i;
            if (!(drives_writable(l->drives) & 1u << i) || is_counted != (turn == 1)) {
                continue;
            }
            int dir = drives_dir(l->drives, i, DRIVE_LOG);
            int r = fault_unlink(l->fs, dir, name);
            if (r == 0 || (r == -ENOENT && is_counted)) {
                r = drive_sync_rc(fault_sync_dir(l->fs, dir));
            }
            if (r < 0 && r != -ENOENT) {
                drives_fault(l->drives, i, r, "removing a log segment");
            }
        }
    }
    return 0;
}
