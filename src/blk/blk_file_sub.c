#include "blk/blk_file_int.h"

#include "base/macro.h"
#include <assert.h>
#include <errno.h>
#include <string.h>

/* A request that cannot go to the kernel as it is goes in parts, one after the other: whole pages
 * through the bounce buffer, a page of which only some sectors are meant read, changed and
 * written, and the pages of DISCARD and ZEROES as holes. 'pos' says how far it is. */

static void buffer_is_there(void *ctx)
{
    file_sub(ctx);
}

static bool is_punched(const struct file *f, const struct blk_req *r)
{
    if (r->op == BLK_DISCARD) {
        return true;
    }
    const bool *cannot = r->flags & BLK_NO_UNMAP ? &f->cannot_zero : &f->cannot_punch;
    return r->op == BLK_ZEROES && !__atomic_load_n(cannot, __ATOMIC_RELAXED);
}

static uint64_t up(uint64_t n, uint64_t align)
{
    return (n + align - 1) & ~(align - 1);
}

static uint64_t down(uint64_t n, uint64_t align)
{
    return n & ~(align - 1);
}

/* Pages that can be punched from here; else how far it is to write before there are some. */
static bool punch_part(struct blk_req *r, uint64_t *ret_end)
{
    struct file_io *s = file_io(r);
    uint64_t at = r->off + s->pos, end = r->off + r->len;
    *ret_end = end;
    if (!is_punched(s->f, r)) {
        return false;
    }
    if (r->op == BLK_DISCARD && s->pos == 0) { /* what is not a whole page stays */
        at = MIN(up(at, BLK_PAGE), end);
        s->pos = at - r->off;
    }
    uint64_t hi = down(end, BLK_PAGE);
    if (at % BLK_PAGE == 0 && at < hi) {
        s->n = (uint32_t)(hi - at);
        s->step = STEP_PUNCH;
        file_issue(r);
        return true;
    }
    if (r->op == BLK_DISCARD) {
        file_over(r, 0);
        return true;
    }
    *ret_end = at < down(end, BLK_PAGE) ? up(at, BLK_PAGE) : end;
    return false;
}

/* The next call: n bytes from the aligned offset at or before pos. A page that is not meant whole
 * is a part of its own. */
static void plan(struct blk_req *r, uint64_t end, size_t room)
{
    struct file_io *s = file_io(r);
    uint64_t align = s->f->off_align, at = r->off + s->pos, lo = down(at, align);
    if (r->op == BLK_READ) {
        s->n = (uint32_t)MIN(up(end, align) - lo, room);
        s->is_part = false;
        s->step = STEP_READ;
        return;
    }
    s->is_part = at != lo || end - lo < align;
    s->n = (uint32_t)(s->is_part ? align : MIN(down(end, align) - lo, room));
    s->step = s->is_part ? STEP_READ : STEP_WRITE;
}

/* Puts the bytes of the guest, or zeros, in the buffer where they belong. */
static void fill(struct blk_req *r)
{
    struct file_io *s = file_io(r);
    uint64_t at = r->off + s->pos, end = r->off + r->len;
    size_t skip = (size_t)(at & (s->f->off_align - 1)), n = (size_t)MIN(s->n - skip, end - at);
    if (r->op == BLK_WRITE) {
        blk_iov_read(r->iov, r->n_iov, s->pos, (char *)r->buf + skip, n);
    } else {
        memset((char *)r->buf + skip, 0, n);
    }
}

void file_sub(struct blk_req *r)
{
    struct file_io *s = file_io(r);
    uint64_t end = 0;
    if (s->pos >= r->len) {
        file_over(r, 0);
        return;
    }
    if (punch_part(r, &end)) {
        return;
    }
    size_t want = (size_t)MIN(r->len + 2 * BLK_PAGE, BLK_BUFFER);
    if (!r->buf) {
        r->buf = blk_buffer_get_size(r->q, BLK_BOTTOM, want);
        if (!r->buf) {
            blk_queue_wait_tier(r->q, BLK_BOTTOM, buffer_is_there, r);
            return;
        }
        blk_queue_count_bounce(r->q);
    }
    plan(r, end, want <= BLK_SMALL ? BLK_SMALL : BLK_BUFFER);
    if (s->step == STEP_WRITE) {
        fill(r);
    }
    file_issue(r);
}

static void read_done(struct blk_req *r, size_t n)
{
    struct file_io *s = file_io(r);
    size_t skip = (size_t)((r->off + s->pos) & (s->f->off_align - 1));
    if (s->is_part) { /* of a write: the page as it was, what is behind the end zeros */
        memset((char *)r->buf + n, 0, s->n - n);
        fill(r);
        s->step = STEP_WRITE;
        file_issue(r);
        return;
    }
    if (n <= skip) {
        file_over(r, -EIO); /* the file is shorter than the volume */
        return;
    }
    size_t k = (size_t)MIN(n - skip, r->len - s->pos);
    if (s->pos + k < r->len) {
        k = (size_t)down(skip + k, s->f->off_align) - skip;
    }
    if ((ssize_t)k <= 0) {
        file_over(r, -EIO);
        return;
    }
    blk_iov_write(r->iov, r->n_iov, s->pos, (char *)r->buf + skip, k);
    s->pos += k;
    file_sub(r);
}

static void write_done(struct blk_req *r, size_t n)
{
    struct file_io *s = file_io(r);
    size_t skip = (size_t)((r->off + s->pos) & (s->f->off_align - 1));
    n = (size_t)down(n, s->f->off_align);
    if (n == 0) {
        file_over(r, -EIO);
        return;
    }
    s->pos = MIN(s->pos + n - skip, r->len);
    file_sub(r);
}

static void punch_done(struct blk_req *r, int res)
{
    struct file_io *s = file_io(r);
    int rc = 0;
    if (res == -EOPNOTSUPP || res == -ENODEV) {
        if (r->op == BLK_DISCARD) { /* a wish, not an order */
            file_over(r, 0);
            return;
        }
        bool *cannot = r->flags & BLK_NO_UNMAP ? &s->f->cannot_zero : &s->f->cannot_punch;
        __atomic_store_n(cannot, true, __ATOMIC_RELAXED);
        file_sub(r);
    } else if (res < 0) {
        if (!file_is_retried(r, res, &rc)) {
            file_over(r, rc);
        }
    } else {
        s->pos += s->n;
        file_sub(r);
    }
}

void file_sub_done(struct blk_req *r, int res)
{
    struct file_io *s = file_io(r);
    int rc = 0;
    if (s->step == STEP_PUNCH) {
        punch_done(r, res);
    } else if (res < 0) {
        if (!file_is_retried(r, res, &rc)) {
            file_over(r, rc);
        }
    } else if (s->step == STEP_READ) {
        read_done(r, (size_t)res);
    } else {
        write_done(r, (size_t)res);
    }
}
