#include "blk/blk.h"

#include "base/macro.h"
#include "blk/blk_int.h"
#include <assert.h>
#include <errno.h>
#include <string.h>

uint64_t blk_iov_len(const struct iovec *iov, int n_iov)
{
    uint64_t n = 0;
    for (int i = 0; i < n_iov; i++) {
        n += iov[i].iov_len;
    }
    return n;
}

static bool is_data(enum blk_op op)
{
    return op == BLK_READ || op == BLK_WRITE;
}

static int check(const struct blk_layer *l, const struct blk_req *r)
{
    if (r->op == BLK_FLUSH) {
        return 0;
    }
    if ((unsigned)r->op >= BLK_OP_N) {
        return -EINVAL;
    }
    uint64_t size = __atomic_load_n(&l->size, __ATOMIC_RELAXED);
    if (((r->off | r->len) & (BLK_SECTOR - 1)) != 0 || r->len == 0 || r->len > BLK_MAX_LEN ||
        r->off > size || r->len > size - r->off) {
        return -EINVAL;
    }
    if (is_data(r->op) && (r->n_iov < 1 || r->n_iov > (int)BLK_MAX_IOV ||
                           blk_iov_len(r->iov, r->n_iov) != r->len)) {
        return -EINVAL;
    }
    return 0;
}

void blk_submit(struct blk_layer *l, struct blk_req *r)
{
    assert(r->q);
    int rc = check(l, r);
    if (rc) {
        blk_done(r, rc);
        return;
    }
    l->ops->submit(l, r);
}

void blk_stack_free(struct blk_layer *top)
{
    while (top) {
        struct blk_layer *below = top->below;
        top->ops->free(top);
        top = below;
    }
}

/* Walks the pieces of an iov that hold bytes pos ... pos + n. */
struct piece {
    const struct iovec *iov;
    int n_iov;
    uint64_t skip;
};

static struct piece piece_at(const struct iovec *iov, int n_iov, uint64_t pos)
{
    struct piece p = {.iov = iov, .n_iov = n_iov, .skip = pos};
    while (p.n_iov > 0 && p.skip >= p.iov->iov_len) {
        p.skip -= p.iov->iov_len;
        p.iov++;
        p.n_iov--;
    }
    return p;
}

static char *piece_next(struct piece *p, size_t want, size_t *ret_n)
{
    while (p->n_iov > 0 && p->skip >= p->iov->iov_len) {
        p->skip = 0;
        p->iov++;
        p->n_iov--;
    }
    assert(p->n_iov > 0);
    char *at = (char *)p->iov->iov_base + p->skip;
    *ret_n = MIN(want, p->iov->iov_len - p->skip);
    p->skip += *ret_n;
    return at;
}

void blk_iov_read(const struct iovec *iov, int n_iov, uint64_t pos, void *to, size_t n)
{
    struct piece p = piece_at(iov, n_iov, pos);
    for (size_t done = 0, k = 0; done < n; done += k) {
        const char *at = piece_next(&p, n - done, &k);
        memcpy((char *)to + done, at, k);
    }
}

void blk_iov_write(const struct iovec *iov, int n_iov, uint64_t pos, const void *from, size_t n)
{
    struct piece p = piece_at(iov, n_iov, pos);
    for (size_t done = 0, k = 0; done < n; done += k) {
        char *at = piece_next(&p, n - done, &k);
        memcpy(at, (const char *)from + done, k);
    }
}

void blk_iov_zero(const struct iovec *iov, int n_iov, uint64_t pos, size_t n)
{
    struct piece p = piece_at(iov, n_iov, pos);
    for (size_t done = 0, k = 0; done < n; done += k) {
        char *at = piece_next(&p, n - done, &k);
        memset(at, 0, k);
    }
}

char *blk_iov_at(const struct iovec *iov, int n_iov, uint64_t pos, size_t *ret_n)
{
    struct piece p = piece_at(iov, n_iov, pos);
    return piece_next(&p, SIZE_MAX, ret_n);
}
