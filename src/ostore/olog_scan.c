#include "ostore/olog_scan.h"

#include "crypto/crc.h"
#include "ostore/olog_int.h"
#include <errno.h>
#include <limits.h>

#define WINDOW  (1u << 20)
#define BUF_MAX (REC_MAX + WINDOW)

static ssize_t read_file(struct scan_copy *c, void *p, size_t n, uint64_t off)
{
    const struct olog *l = c->ctx;
    return fault_pread(l->fs, c->file->fd, p, n, off);
}

int scan_open(struct olog *l, uint64_t segment, uint32_t drives, struct oscan *ret)
{
    struct oscan s = {
        .segment = segment, .base_crc = seg_base_crc(l->log_id, segment), .limit = UINT32_MAX};
    int rc = -ENOENT;
    for (unsigned i = 0; i < DRIVES_MAX; i++) {
        struct seg_file *f = NULL;
        if (!(drives & 1u << i)) {
            continue;
        }
        int opened = olog_file(l, segment, i, &f);
        if (opened < 0) {
            rc = opened; /* the others may do */
            continue;
        }
        s.c[s.n++] = (struct scan_copy){.drive = i, .read = read_file, .ctx = l, .file = f};
    }
    *ret = s;
    return s.n > 0 ? 0 : rc;
}

void scan_done(struct oscan *s)
{
    for (unsigned i = 0; i < s->n; i++) {
        free(s->c[i].buf);
        seg_file_unref(s->c[i].file);
    }
    s->n = 0;
}

int scan_bytes(struct scan_copy *c, uint64_t off, size_t n, const uint8_t **ret)
{
    if (off >= c->base && off - c->base + n <= c->have) {
        *ret = c->buf + (off - c->base);
        return 0;
    }
    size_t want = MAX(n, (size_t)WINDOW);
    if (n > BUF_MAX) {
        return -EINVAL;
    }
    if (c->cap < want) {
        uint8_t *p = realloc(c->buf, want);
        if (!p) {
            return -ENOMEM;
        }
        c->buf = p;
        c->cap = want;
    }
    /* What is there already of it moves to the front. */
    size_t kept = 0;
    if (off >= c->base && off - c->base < c->have) {
        kept = c->have - (size_t)(off - c->base);
        memmove(c->buf, c->buf + (off - c->base), kept);
    }
    c->base = off;
    c->have = kept;
    ssize_t got = c->read(c, c->buf + kept, c->cap - kept, off + kept);
    if (got < 0) {
        return (int)got;
    }
    c->have += (size_t)got;
    if (c->have < n) {
        return -ENODATA;
    }
    *ret = c->buf;
    return 0;
}

/* The whole record at 'off' of one copy. lsn 0: any. */
static int record_of(struct oscan *s, struct scan_copy *c, uint64_t off, uint64_t lsn,
                     struct olog_rec *ret, struct frame *f)
{
    const uint8_t *p = NULL;
    if (off + FRAME_SIZE > s->limit) {
        return -ENODATA;
    }
    int rc = scan_bytes(c, off, FRAME_SIZE, &p);
    rc = rc < 0 ? rc : frame_decode(p, s->base_crc, (uint32_t)off, f);
    if (rc < 0) {
        return rc;
    }
    uint32_t size = frame_record_size(f);
    if ((lsn != 0 && f->lsn != lsn) || off + size > s->limit) {
        return -EBADMSG;
    }
    rc = scan_bytes(c, off, size, &p);
    if (rc < 0) {
        return rc;
    }
    struct str head = str_n((const char *)p + FRAME_SIZE, f->head_size);
    struct str body = str_n((const char *)p + FRAME_SIZE + pad8(f->head_size), f->body_size);
    if (crc_add(CRC_32C, 0, head) != f->head_crc || crc_add(CRC_32C, 0, body) != f->body_crc) {
        return -EBADMSG;
    }
    *ret = (struct olog_rec){.at = {s->segment, (uint32_t)off},
                             .size = size,
                             .kind = (enum orec_kind)f->kind,
                             .flags = f->flags,
                             .lsn = f->lsn,
                             .time_ns = f->time_ns,
                             .head = head,
                             .body = body};
    return 0;
}

int scan_record(struct oscan *s, uint64_t off, uint64_t lsn, struct olog_rec *ret,
                struct frame *ret_frame)
{
    int result = -EBADMSG;
    bool is_found = false;
    s->bad = 0;
    for (unsigned k = 0; k < s->n; k++) {
        unsigned i = (s->first + k) % s->n;
        struct olog_rec r;
        struct frame f;
        int rc = record_of(s, &s->c[i], off, lsn, &r, &f);
        if (rc == -ENOTSUP || rc == -ENOMEM) {
            return rc;
        }
        if (rc < 0) {
            s->bad |= 1u << i;
        } else if (!is_found) {
            *ret = r;
            *ret_frame = f;
            result = 0;
            is_found = true;
        }
        if (is_found && !s->is_all) {
            break;
        }
    }
    return result;
}

/* A frame with a greater lsn behind 'off', at a multiple of 8, in any copy. 'synced' > 0: only one
 * that says that this lsn was durable. UINT64_MAX: there is none. */
static uint64_t search(struct oscan *s, uint64_t off, uint64_t lsn, uint64_t synced,
                       uint64_t *ret_lsn)
{
    uint64_t best = UINT64_MAX;
    for (unsigned i = 0; i < s->n; i++) {
        struct scan_copy *c = &s->c[i];
        for (uint64_t at = off; at + FRAME_SIZE <= s->limit && at < best; at += 8) {
            const uint8_t *p = NULL;
            struct frame f;
            int rc = scan_bytes(c, at, FRAME_SIZE, &p);
            if (rc == -ENODATA) {
                break;
            }
            if (rc < 0) { /* this window cannot be read: behind it there may be more */
                at += 4096 - 8;
                continue;
            }
            if (memcmp(p, "OREC", 4) == 0 &&
                frame_decode(p, s->base_crc, (uint32_t)at, &f) == 0 && f.lsn > lsn &&
                f.synced_lsn >= synced) {
                best = at;
                *ret_lsn = f.lsn;
                break;
            }
        }
    }
    return best;
}

struct walker {
    struct oscan *s;
    struct scan_range *r;
    uint64_t from_lsn, pos, lsn; /* lsn: of the next record */
    olog_fn fn;
    scan_repair_fn repair;
    void *ctx;
    bool is_after_hole, is_stopped; /* stopped: by fn or repair */
};

static int see(struct walker *w, uint64_t off, uint64_t lsn, struct olog_rec *rec,
               struct frame *f, struct err *err)
{
    int rc = scan_record(w->s, off, lsn, rec, f);
    if (rc == -ENOTSUP) {
        return fail(err, rc, "UnknownRecord",
                    "segment %llu at %llu: a record of a newer program",
                    (unsigned long long)w->s->segment, (unsigned long long)off);
    }
    if (rc == 0 && w->s->bad && w->repair) {
        rc = w->repair(w->ctx, w->s, rec, err);
        w->is_stopped = rc < 0;
        w->r->n_repaired++;
        w->r->repaired |= w->s->bad;
    }
    return rc;
}

static int deliver(struct walker *w, const struct olog_rec *rec, struct err *err)
{
    w->r->n_records++;
    if (!w->fn || rec->lsn < w->from_lsn || rec->kind == OREC_NOTHING) {
        return 0;
    }
    int rc = w->fn(w->ctx, rec, err);
    w->is_stopped = rc < 0;
    return rc;
}

/* The records of a group that begins at w->pos with 'rec'; all of them are looked at first. */
static int take_group(struct walker *w, struct olog_rec *rec, uint64_t *ret_end,
                      uint64_t *ret_lsn, struct err *err)
{
    struct frame f;
    uint64_t end = w->pos + rec->size, lsn = w->lsn + 1;
    while (!(rec->flags & OLOG_GROUP_END)) {
        int rc = see(w, end, lsn, rec, &f, err);
        if (rc < 0) {
            return rc;
        }
        if (!(rec->flags & OLOG_GROUP)) {
            w->is_stopped = true;
            return fail(err, -EUCLEAN, "LogDamaged", "a group without its end before lsn %llu",
                        (unsigned long long)lsn);
        }
        end += rec->size;
        lsn++;
    }
    int rc = 0;
    for (uint64_t at = w->pos, i = w->lsn; i < lsn && rc == 0 && !w->is_after_hole; i++) {
        rc = scan_record(w->s, at, i, rec, &f);
        rc = rc == 0 ? deliver(w, rec, err) : rc;
        at += rec->size;
    }
    if (w->is_after_hole) { /* its beginning may be what is lost */
        w->r->n_lost += lsn - w->lsn;
    }
    *ret_end = end;
    *ret_lsn = lsn;
    return rc;
}

/* One record, or one group of them: all or none. -EBADMSG: not whole. */
static int take_unit(struct walker *w, struct err *err)
{
    struct olog_rec rec;
    struct frame f;
    int rc = see(w, w->pos, w->lsn, &rec, &f, err);
    if (rc < 0) {
        return rc;
    }
    uint64_t end = w->pos + rec.size, lsn = w->lsn + 1;
    rc = rec.flags & OLOG_GROUP ? take_group(w, &rec, &end, &lsn, err) : deliver(w, &rec, err);
    if (rc == 0) {
        w->pos = end;
        w->lsn = lsn;
        w->is_after_hole = false;
    }
    return rc;
}

/* There is no record (or no whole group) at w->pos. 0: the walk goes on; 1: it ends. */
static int at_gap(struct walker *w, struct err *err)
{
    struct scan_range *r = w->r;
    uint64_t next_lsn = 0, at;
    if (r->is_closed && w->pos == r->end && w->lsn == r->last_lsn + 1) {
        return 1;
    }
    if (!r->is_closed) {
        at = search(w->s, w->pos, w->lsn, w->lsn, &next_lsn);
        if (at == UINT64_MAX) {
            r->end = w->pos; /* a torn tail, or the end */
            r->last_lsn = w->lsn - 1;
            return 1;
        }
    }
    at = search(w->s, w->pos + 8, w->lsn, 0, &next_lsn);
    if (at == UINT64_MAX) {
        r->lost_lsn = r->n_lost ? r->lost_lsn : w->lsn;
        r->n_lost += r->is_closed && r->last_lsn >= w->lsn ? r->last_lsn - w->lsn + 1 : 1;
        if (!r->is_closed) {
            r->end = w->pos;
            r->last_lsn = w->lsn - 1;
        }
        return 1;
    }
    r->lost_lsn = r->n_lost ? r->lost_lsn : w->lsn;
    r->n_lost += next_lsn - w->lsn;
    w->pos = at;
    w->lsn = next_lsn;
    w->is_after_hole = true;
    return 0;
}

int scan_walk(struct oscan *s, struct scan_range *io, uint64_t from_lsn, olog_fn fn,
              scan_repair_fn repair, void *ctx, struct err *err)
{
    struct walker w = {.s = s,
                       .r = io,
                       .from_lsn = from_lsn,
                       .pos = SEG_HEADER,
                       .lsn = io->first_lsn,
                       .fn = fn,
                       .repair = repair,
                       .ctx = ctx};
    io->n_records = io->n_lost = io->lost_lsn = io->n_repaired = 0;
    io->repaired = 0;
    if (io->is_closed) {
        s->limit = io->end;
    }
    for (;;) {
        if (io->is_closed && w.pos >= io->end && w.lsn == io->last_lsn + 1) {
            return 0;
        }
        struct err why = ERR_INIT;
        int rc = take_unit(&w, &why);
        if (rc == 0) {
            continue;
        }
        bool is_gap = !w.is_stopped && rc == -EBADMSG;
        if (!is_gap) {
            return fail(err, rc, why.name ? why.name : "LogFailed", "%s",
                        why.code ? why.msg : "a segment cannot be walked");
        }
        rc = at_gap(&w, err);
        if (rc != 0) {
            return rc < 0 ? rc : 0;
        }
    }
}
