#include "blk/blk_file_int.h"

#include <errno.h>

/* The file behind fault.h: the same answers by whole calls, so that a test can fail each of them
 * and cut the power between any two. */

static int sim_data(struct file *f, struct blk_req *r)
{
    if (r->op == BLK_WRITE) {
        return fault_pwritev(f->o.fs, f->o.fd, r->iov, r->n_iov, r->off);
    }
    uint64_t at = r->off;
    for (int i = 0; i < r->n_iov; i++) {
        size_t n = r->iov[i].iov_len;
        ssize_t got = fault_pread(f->o.fs, f->o.fd, r->iov[i].iov_base, n, at);
        if (got < 0 || (size_t)got != n) {
            return got < 0 ? (int)got : -EIO;
        }
        at += n;
    }
    return 0;
}

static int sim_zeroes(struct file *f, uint64_t off, uint64_t len)
{
    static const char zeros[BLK_PAGE];
    while (len > 0) {
        size_t n = (size_t)(len < sizeof(zeros) ? len : sizeof(zeros));
        int rc = fault_pwrite(f->o.fs, f->o.fd, zeros, n, off);
        if (rc) {
            return rc;
        }
        off += n;
        len -= n;
    }
    return 0;
}

static int sim_punch(struct file *f, struct blk_req *r)
{
    uint64_t end = r->off + r->len;
    uint64_t lo = (r->off + BLK_PAGE - 1) / BLK_PAGE * BLK_PAGE, hi = end / BLK_PAGE * BLK_PAGE;
    bool is_zeroes = r->op == BLK_ZEROES;
    if (is_zeroes && ((r->flags & BLK_NO_UNMAP) || lo >= hi)) {
        return sim_zeroes(f, r->off, r->len);
    }
    int rc = lo < hi ? fault_punch(f->o.fs, f->o.fd, lo, hi - lo) : 0;
    if (rc == 0 && is_zeroes && r->off < lo) {
        rc = sim_zeroes(f, r->off, lo - r->off);
    }
    if (rc == 0 && is_zeroes && hi < end) {
        rc = sim_zeroes(f, hi, end - hi);
    }
    return rc;
}

static int sim_sync(struct file *f)
{
    __atomic_fetch_add(&f->n_flushes, 1, __ATOMIC_RELAXED);
    pthread_mutex_lock(
        &f->sync_lock); /* two queues, one failure: the second call is not made */
    int rc = -ESTALE;
    if (!file_has_fault(f)) {
        __atomic_fetch_add(&f->n_syncs, 1, __ATOMIC_RELAXED);
        rc = fault_fdatasync(f->o.fs, f->o.fd);
        if (rc) {
            file_fault(f, -rc);
            rc = -EIO;
        }
    }
    pthread_mutex_unlock(&f->sync_lock);
    return rc;
}

static void retry(void *ctx)
{
    struct blk_req *r = ctx;
    file_sim(file_io(r)->f, r);
}

void file_sim(struct file *f, struct blk_req *r)
{
    int rc = 0;
    file_io(r)->f = f;
    switch (r->op) {
    case BLK_READ:
    case BLK_WRITE: rc = sim_data(f, r); break;
    case BLK_FLUSH: rc = sim_sync(f); break;
    default: rc = sim_punch(f, r); break;
    }
    if (rc == -ENOSPC && file_waits_when_full(f)) {
        blk_queue_at(r->q, blk_queue_now(r->q) + FILE_FULL_RETRY_NS, retry, r);
        return;
    }
    if (rc == 0 && (r->flags & BLK_FUA) && (r->op == BLK_WRITE || r->op == BLK_ZEROES)) {
        rc = sim_sync(f);
    }
    blk_done(r, rc == 0 || rc == -ENOSPC || rc == -ESTALE ? rc : -EIO);
}
