#include "base/time.h"
#include "blk/nbd_int.h"
#include <assert.h>
#include <errno.h>

/* Rings have the first counters of a disk. */
#define FIRST_LANE 8u

static enum blk_op op_of(const struct nbd_job *j)
{
    switch (j->r.type) {
    case NBD_CMD_READ: return BLK_READ;
    case NBD_CMD_WRITE: return BLK_WRITE;
    case NBD_CMD_TRIM: return BLK_DISCARD;
    case NBD_CMD_WRITE_ZEROES: return BLK_ZEROES;
    default: return BLK_FLUSH;
    }
}

static unsigned flags_of(const struct nbd_job *j, enum blk_op op)
{
    bool is_fua = (j->r.flags & NBD_FUA) != 0 && (op == BLK_WRITE || op == BLK_ZEROES);
    bool is_kept = (j->r.flags & NBD_NO_HOLE) != 0 && op == BLK_ZEROES;
    return (is_fua ? BLK_FUA : 0) | (is_kept ? BLK_NO_UNMAP : 0);
}

static bool is_all_given(const struct nbd_job *j)
{
    return j->error != 0 || j->next_off == j->r.off + j->r.len;
}

static void finish(struct nbd_job *j)
{
    enum blk_op op = op_of(j);
    uint64_t ns = time_mono_ns() - j->start_ns;
    disk_count(j->c->disk, FIRST_LANE + j->c->idx, op, j->r.len, ns, j->error ? -EIO : 0);
    nbd_job_done(j);
}

static void on_done(struct blk_req *r, int rc);

static bool give(struct nbd_job *j, enum blk_op op, unsigned flags, uint64_t off, uint64_t len)
{
    struct blk_req *r = blk_req_get(j->c->q);
    if (!r) {
        return false;
    }
    struct nbd_piece *p = j->pieces;
    while (p->is_used) {
        p++;
        assert(p < j->pieces + NBD_PIECES);
    }
    *p = (struct nbd_piece){.job = j, .off = off, .is_used = true};
    r->op = op;
    r->flags = flags;
    r->off = off;
    r->len = len;
    r->iov = NULL;
    r->n_iov = 0;
    if (op == BLK_READ || op == BLK_WRITE) {
        p->iov = (struct iovec){.iov_base = j->data + (off - j->r.off), .iov_len = len};
        r->iov = &p->iov;
        r->n_iov = 1;
    }
    r->done = on_done;
    r->ctx = p;
    j->n_out++;
    blk_submit(disk_top(j->c->disk), r);
    return true;
}

/* FLUSH has nothing but the flush at its end; TRIM with FUA has one when all of it is done. */
bool nbd_job_go(struct nbd_job *j)
{
    enum blk_op op = op_of(j);
    while (!is_all_given(j) && j->n_out < NBD_PIECES) {
        uint64_t len = MIN(j->r.off + j->r.len - j->next_off, BLK_MAX_LEN);
        if (!give(j, op, flags_of(j, op), j->next_off, len)) {
            return false;
        }
        j->next_off += len;
    }
    if (j->n_out > 0 || !is_all_given(j)) {
        return true;
    }
    if (j->wants_flush && !j->is_flushed && j->error == 0) {
        j->is_flushed = give(j, BLK_FLUSH, 0, 0, 0);
        return j->is_flushed;
    }
    return true;
}

static void on_done(struct blk_req *r, int rc)
{
    struct nbd_piece *p = r->ctx;
    struct nbd_job *j = p->job;
    blk_req_put(r);
    p->is_used = false;
    j->n_out--;
    if (rc != 0) {
        j->error = j->error != 0 ? j->error : nbd_error(rc);
        j->error_off = MIN(j->error_off, p->off);
    }
    if (j->n_out == 0 && is_all_given(j) &&
        (!j->wants_flush || j->is_flushed || j->error != 0)) {
        finish(j);
    } else if (!nbd_job_go(j)) {
        nbd_conn_wait(j->c);
    }
}

/* ---- block status ---- */

/* Of files that are what they look like, the file system knows the holes. */
static void look_at_file(int fd, uint64_t off, uint64_t *len, bool *is_hole)
{
    off_t data = lseek(fd, (off_t)off, SEEK_DATA);
    if (data < 0) { /* nothing but a hole up to the end, or it cannot tell */
        *is_hole = errno == ENXIO;
        return;
    }
    if ((uint64_t)data > off) {
        *is_hole = true;
        *len = MIN(*len, (uint64_t)data - off);
        return;
    }
    off_t hole = lseek(fd, (off_t)off, SEEK_HOLE);
    *is_hole = false;
    *len = hole > (off_t)off ? MIN(*len, (uint64_t)hole - off) : *len;
}

/* How a run of bytes is; *len becomes what is alike. */
static void look(struct disk *d, bool is_file_true, uint64_t off, uint64_t *len, bool *is_hole,
                 bool *is_dirty)
{
    struct blk_layer *cow = disk_cow(d);
    uint64_t run = *len;
    *is_hole = *is_dirty = false;
    if (cow) {
        blk_cow_extent(cow, off, *len, &run, is_hole, is_dirty);
        *len = MIN(*len, MAX(run, 1));
    }
    if (!*is_hole && is_file_true) {
        look_at_file(disk_data_fd(d), off, len, is_hole);
    }
}

/* Holes of the file mean zeros only when nothing lies behind it, and no key before it. */
static bool is_file_true(struct disk *d)
{
    struct blk_cow_stats s = {0};
    if (disk_cow(d)) {
        blk_cow_stats(disk_cow(d), &s);
    }
    return s.n_absent_pages == 0 && !disk_is_encrypted(d);
}

void nbd_status(struct nbd_job *j, struct disk *d, const struct nbd_hs *h)
{
    struct nbd_extents v[NBD_CTX_N] = {{.n = 0}};
    unsigned max = (j->r.flags & NBD_REQ_ONE) ? 1 : NBD_MAX_EXTENTS;
    bool is_true = is_file_true(d), is_more[NBD_CTX_N] = {true, true};
    uint64_t off = j->r.off, end = j->r.off + j->r.len;
    /* Each look is cheap, and there are not many of them for one answer: what is left the client
     * asks for next. */
    for (unsigned n = 0; n < 2 * NBD_MAX_EXTENTS && off < end; n++) {
        uint64_t len = end - off;
        bool is_hole = false, is_dirty = false;
        look(d, is_true, off, &len, &is_hole, &is_dirty);
        const uint32_t flags[NBD_CTX_N] = {[NBD_CTX_ALLOCATION] =
                                               is_hole ? NBD_STATE_HOLE | NBD_STATE_ZERO : 0,
                                           [NBD_CTX_DIRTY] = is_dirty};
        bool is_wanted = false;
        for (unsigned c = 0; c < NBD_CTX_N; c++) {
            is_more[c] = is_more[c] && (h->ctx & (1u << c)) != 0 &&
                         nbd_extents_add(&v[c], (uint32_t)len, flags[c], max);
            is_wanted |= is_more[c];
        }
        if (!is_wanted) {
            break;
        }
        off += len;
    }
    nbd_status_put(j, h, v);
}
