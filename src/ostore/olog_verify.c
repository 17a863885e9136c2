#include "ostore/olog_int.h"

#include "crypto/crc.h"
#include <errno.h>
#include <fcntl.h>

/* The bytes of a record as they lie in a good copy, to all copies that are bad. Not synced. */
int olog_repair(struct olog *l, struct oscan *s, const struct olog_rec *r, struct err *err)
{
    const uint8_t *p = NULL;
    struct scan_copy *good = NULL;
    for (unsigned i = 0; i < s->n && !good; i++) {
        struct scan_copy *c = &s->c[i];
        bool is_it =
            (const char *)c->buf <= r->head.p && r->head.p <= (const char *)c->buf + c->have;
        good = is_it ? c : NULL;
    }
    int rc = good ? scan_bytes(good, r->at.off, r->size, &p) : -EINVAL;
    if (rc < 0) {
        return fail(err, rc, "LogFailed", "a record cannot be read again");
    }
    for (unsigned i = 0; i < s->n; i++) {
        struct scan_copy *c = &s->c[i];
        if (!(s->bad & 1u << i) || !(drives_writable(l->drives) & 1u << c->drive)) {
            continue;
        }
        int w = fault_pwrite(l->fs, c->file->fd, p, r->size, r->at.off);
        if (w < 0) {
            drives_fault(l->drives, c->drive, w, "repairing a log segment");
        }
    }
    return 0;
}

struct verify {
    struct olog *l;
    struct olog_verify *io;
    struct seg_file *to; /* of the copy that is being made */
};

static int repair(void *ctx, struct oscan *s, const struct olog_rec *r, struct err *err)
{
    struct verify *v = ctx;
    return olog_repair(v->l, s, r, err);
}

static struct scan_range range_of(const struct oseg *seg)
{
    return (struct scan_range){.first_lsn = seg->first_lsn,
                               .last_lsn = seg->last_lsn,
                               .end = seg->end,
                               .is_closed = true};
}

static void sync_drive(struct olog *l, unsigned drive, int fd)
{
    int rc = drive_sync_rc(fault_fdatasync(l->fs, fd));
    if (rc < 0) {
        drives_fault(l->drives, drive, rc, "repairing a log segment");
    }
}

/* Header and end block of each copy; they are made anew from what is known when they are bad. */
static int verify_ends(struct olog *l, struct oscan *s, const struct oseg *seg,
                       struct olog_verify *io)
{
    uint8_t good[SEG_HEADER], p[SEG_HEADER], end[END_SIZE], end_now[END_SIZE];
    bool has_good = false;
    const struct seg_end e = {seg->first_lsn, seg->last_lsn, seg->end};
    struct seg_header h;
    for (unsigned i = 0; i < s->n && !has_good; i++) {
        has_good =
            fault_pread(l->fs, s->c[i].file->fd, good, SEG_HEADER, 0) == (ssize_t)SEG_HEADER &&
            seg_header_decode(good, &h) == 0 && h.segment == seg->number;
    }
    if (!has_good) {
        return -EUCLEAN;
    }
    seg_end_encode(&e, s->base_crc, end);
    for (unsigned i = 0; i < s->n; i++) {
        int fd = s->c[i].file->fd;
        bool is_head = fault_pread(l->fs, fd, p, SEG_HEADER, 0) == (ssize_t)SEG_HEADER &&
                       memcmp(p, good, SEG_HEADER) == 0;
        bool is_end =
            lseek(fd, 0, SEEK_END) == (off_t)(seg->end + END_SIZE) &&
            fault_pread(l->fs, fd, end_now, END_SIZE, seg->end) == (ssize_t)END_SIZE &&
            memcmp(end_now, end, END_SIZE) == 0;
        if ((is_head && is_end) || !(drives_writable(l->drives) & 1u << s->c[i].drive)) {
            continue;
        }
        io->n_repaired++;
        int rc = is_head ? 0 : fault_pwrite(l->fs, fd, good, SEG_HEADER, 0);
        rc = rc == 0 && !is_end ? fault_pwrite(l->fs, fd, end, END_SIZE, seg->end) : rc;
        rc = rc == 0 && !is_end ? fault_truncate(l->fs, fd, seg->end + END_SIZE) : rc;
        if (rc < 0) {
            drives_fault(l->drives, s->c[i].drive, rc, "repairing a log segment");
        } else {
            sync_drive(l, s->c[i].drive, fd);
        }
    }
    return 0;
}

static int verify_records(struct olog *l, const struct oseg *seg, bool is_open_end,
                          struct olog_verify *io, struct err *err)
{
    struct oscan s;
    int rc = scan_open(l, seg->number, seg->drives & drives_writable(l->drives), &s);
    if (rc < 0) {
        return fail(err, rc, "LogFailed", "segment %llu cannot be opened",
                    (unsigned long long)seg->number);
    }
    s.is_all = true;
    struct verify v = {.l = l, .io = io};
    struct scan_range r = range_of(seg);
    rc = scan_walk(&s, &r, 0, NULL, repair, &v, err);
    io->n_records += r.n_records;
    io->n_lost += r.n_lost;
    io->n_repaired += r.n_repaired;
    for (unsigned i = 0; i < s.n && rc == 0; i++) {
        if (r.repaired & 1u << i) {
            sync_drive(l, s.c[i].drive, s.c[i].file->fd);
        }
    }
    if (rc == 0 && !is_open_end && verify_ends(l, &s, seg, io) < 0) {
        rc = fail(err, -EUCLEAN, "LogDamaged", "segment %llu has no header",
                  (unsigned long long)seg->number);
    }
    scan_done(&s);
    return rc;
}

int olog_settle(struct olog *l, const struct oseg *seg, struct err *err)
{
    struct olog_verify io = {0};
    int rc = verify_records(l, seg, false, &io, err);
    return rc < 0 || io.n_lost == 0
               ? rc
               : fail(err, -EUCLEAN, "LogDamaged", "segment %llu is damaged",
                      (unsigned long long)seg->number);
}

/* --- another copy --- */

/* Whatever is good of the segment, record by record, to a file of its own, then under its name. */
static int write_copy(struct olog *l, struct oscan *s, const struct oseg *seg, unsigned drive)
{
    char name[SEG_NAME_SIZE], tmp[SEG_NAME_SIZE];
    seg_name(seg->number, false, name);
    seg_name(seg->number, true, tmp);
    int dir = drives_dir(l->drives, drive, DRIVE_LOG);
    AUTO_FD fd =
        dir < 0 ? -ENODEV : fault_open(l->fs, dir, tmp, O_RDWR | O_CREAT | O_TRUNC, 0600);
    int rc = fd < 0 ? fd : 0;
    const uint64_t size = seg->end + END_SIZE;
    for (uint64_t off = 0; off < size && rc == 0;) {
        const uint8_t *p = NULL;
        size_t n = (size_t)MIN(size - off, (uint64_t)1 << 20);
        rc = scan_bytes(&s->c[s->first], off, n, &p);
        rc = rc == 0 ? fault_pwrite(l->fs, fd, p, n, off) : rc;
        off += n;
    }
    rc = rc == 0 ? drive_sync_rc(fault_fdatasync(l->fs, fd)) : rc;
    rc = rc == 0 ? fault_rename(l->fs, dir, tmp, name) : rc;
    rc = rc == 0 ? drive_sync_rc(fault_sync_dir(l->fs, dir)) : rc;
    if (rc < 0 && fd >= 0) {
        (void)!fault_unlink(l->fs, dir, tmp);
    }
    return rc;
}

/* Copies are made of one that was verified just now. */
static int make_copies(struct olog *l, const struct oseg *seg, struct olog_verify *io,
                       struct err *err)
{
    uint32_t have = seg->drives & drives_writable(l->drives), avoid = have;
    struct oscan s;
    if ((unsigned)__builtin_popcount(have) >= l->n_copies) {
        return 0;
    }
    int rc = scan_open(l, seg->number, have, &s);
    if (rc < 0) {
        return fail(err, rc, "LogFailed", "segment %llu cannot be opened",
                    (unsigned long long)seg->number);
    }
    while ((unsigned)__builtin_popcount(have) < l->n_copies) {
        /* A drive that is healing comes first: that is what it is waiting for. */
        uint32_t healing = 0;
        for (unsigned i = 0; i < drives_n(l->drives); i++) {
            healing |= drives_state(l->drives, i) == DRIVE_HEALING ? 1u << i : 0;
        }
        uint32_t chosen = olog_choose(l, seg->number, 1, avoid | ~healing);
        chosen = chosen ? chosen : olog_choose(l, seg->number, 1, avoid);
        if (!chosen) {
            break;
        }
        unsigned drive = (unsigned)__builtin_ctz(chosen);
        avoid |= chosen;
        rc = write_copy(l, &s, seg, drive);
        if (rc < 0) {
            drives_fault(l->drives, drive, rc, "copying a log segment");
            continue;
        }
        have |= chosen;
        io->n_copied++;
    }
    scan_done(&s);
    olog_cache_drop(l, seg->number, ~seg->drives);
    pthread_mutex_lock(&l->lock);
    struct oseg *now = olog_find(l, seg->number);
    if (now) {
        now->drives |= have;
    }
    pthread_mutex_unlock(&l->lock);
    return 0;
}

/* The last segment of a log that takes no more: none follows it. With an end it would look as if
 * the one behind it were lost, and the log would stay read-only when its damage is mended. */
static bool is_left_open(struct olog *l, const struct oseg *seg)
{
    pthread_mutex_lock(&l->lock);
    bool is_last = l->segs.n > 0 && l->segs.v[l->segs.n - 1]->number == seg->number;
    pthread_mutex_unlock(&l->lock);
    return is_last && atomic_load(&l->is_readonly) && !seg->is_finished;
}

int olog_verify(struct olog *l, uint64_t segment, struct olog_verify *io, struct err *err)
{
    olog_refresh(l);
    int rc = olog_leave_poor(l, err); /* only closed segments get more copies */
    if (rc < 0 && rc != -ENOSPC) {
        return rc;
    }
    pthread_mutex_lock(&l->lock);
    const struct oseg *found = olog_find(l, segment);
    struct oseg seg = found ? *found : (struct oseg){0};
    pthread_mutex_unlock(&l->lock);
    if (!found) {
        return fail(err, -ENOENT, "NoSuchSegment", "there is no segment %llu",
                    (unsigned long long)segment);
    }
    if (!seg.is_closed) { /* it has all its copies, or there is no room for another segment */
        return rc;
    }
    if (rc < 0 && err) {
        err_clear(err);
    }
    bool is_open_end = is_left_open(l, &seg);
    rc = seg.is_finished || is_open_end ? 0 : olog_finish(l, segment, err);
    uint64_t lost = io->n_lost;
    rc = rc == 0 ? verify_records(l, &seg, is_open_end, io, err) : rc;
    if (rc < 0 || io->n_lost > lost) { /* a copy of what is damaged would look whole */
        return rc;
    }
    return make_copies(l, &seg, io, err);
}
