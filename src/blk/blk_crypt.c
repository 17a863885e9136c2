#include "blk/blk_crypt.h"

#include "base/macro.h"
#include "blk/blk_int.h"
#include "blk/blk_lock.h"
#include "crypto/xts.h"
#include <assert.h>
#include <errno.h>
#include <sched.h>
#include <string.h>
#include <sys/mman.h>

#define N_LANES    32u
/* Of a write at once: the disk has something to do while the next part is encrypted. */
#define WRITE_PART (256u << 10)

/* Cipher contexts: a queue uses the one its address points to, or the next that is free. */
struct lane {
    unsigned is_busy; /* atomic */
    struct xts *x[2]; /* decrypt, encrypt; made when first used */
} __attribute__((aligned(64)));

struct crypt {
    struct blk_layer layer; /* first */
    uint8_t *key;           /* a page of its own, locked, not in core dumps */
    struct blk_lock lock;
    struct lane lanes[N_LANES];
};

enum crypt_step {
    STEP_READ_ALL,  /* whole pages, into the guest's memory, decrypted there */
    STEP_READ_PART, /* into the buffer */
    STEP_OLD,       /* the page that a write changes in part */
    STEP_CHANGED,   /* that page, encrypted again */
    STEP_WRITE, /* whole pages, encrypted: several parts at once, each in a child's buffer */
    STEP_SYNC,  /* all parts of a FUA write are there */
};

struct crypt_io {
    struct crypt *c; /* first */
    uint64_t pos;    /* bytes that are done, or under way (STEP_WRITE) */
    uint32_t n;      /* bytes of this part, whole pages */
    uint16_t n_under;
    int16_t rc; /* of a part that failed while others are under way */
    uint8_t step;
    bool is_locked, is_alone, is_waiting;
    struct blk_lock_wait wait;
};
_Static_assert(sizeof(struct crypt_io) <= sizeof(((struct blk_req *)0)->state),
               "state is full");

static struct crypt_io *crypt_io(struct blk_req *r)
{
    return (struct crypt_io *)(void *)r->state;
}

static struct blk_req *crypt_req(struct crypt_io *s)
{
    return CONTAINER_OF((uint64_t *)(void *)s, struct blk_req, state);
}

/* ---- bytes ---- */

static struct lane *lane_take(struct crypt *c, const struct blk_queue *q)
{
    size_t i = (size_t)((uintptr_t)q >> 6);
    for (size_t n = 1;; i++, n++) {
        struct lane *l = &c->lanes[i % N_LANES];
        if (!__atomic_exchange_n(&l->is_busy, 1, __ATOMIC_ACQUIRE)) {
            return l;
        }
        if (n % N_LANES == 0) {
            sched_yield();
        }
    }
}

static int run(struct crypt *c, const struct blk_queue *q, bool is_encrypt, uint64_t off,
               const void *in, void *out, size_t n)
{
    struct lane *l = lane_take(c, q);
    struct xts **x = &l->x[is_encrypt];
    int rc = *x ? 0 : xts_new(c->key, is_encrypt, x);
    if (rc == 0) {
        rc = xts_run(*x, off / BLK_PAGE, BLK_PAGE, in, out, n);
    }
    __atomic_store_n(&l->is_busy, 0, __ATOMIC_RELEASE);
    return rc ? -EIO : 0;
}

/* The guest's bytes from 'pos' on, n of whole pages, encrypted into 'buf'. */
static int encrypt_iov(struct crypt *c, struct blk_req *r, uint64_t pos, char *buf, size_t n)
{
    for (size_t at = 0; at < n;) {
        size_t k = 0;
        char *p = blk_iov_at(r->iov, r->n_iov, pos + at, &k);
        k = MIN(k, n - at) & ~(size_t)(BLK_PAGE - 1);
        if (k == 0) { /* a page in pieces */
            k = BLK_PAGE;
            p = buf + at;
            blk_iov_read(r->iov, r->n_iov, pos + at, p, k);
        }
        int rc = run(c, r->q, true, r->off + pos + at, p, buf + at, k);
        if (rc) {
            return rc;
        }
        at += k;
    }
    return 0;
}

/* Where they are: nobody else needs what the guest does with its memory meanwhile. */
static int decrypt_iov(struct crypt *c, struct blk_req *r)
{
    char page[BLK_PAGE];
    for (uint64_t at = 0; at < r->len;) {
        size_t k = 0;
        char *p = blk_iov_at(r->iov, r->n_iov, at, &k);
        k = (size_t)MIN(k, r->len - at) & ~(size_t)(BLK_PAGE - 1);
        bool is_split = k == 0;
        if (is_split) {
            k = BLK_PAGE;
            p = page;
            blk_iov_read(r->iov, r->n_iov, at, p, k);
        }
        int rc = run(c, r->q, false, r->off + at, p, p, k);
        if (rc) {
            return rc;
        }
        if (is_split) {
            blk_iov_write(r->iov, r->n_iov, at, p, k);
        }
        at += k;
    }
    return 0;
}

/* ---- the life of a request ---- */

static void go_on(struct blk_req *r);
static void again(void *ctx);

static void over(struct blk_req *r, int rc)
{
    struct crypt_io *s = crypt_io(r);
    if (r->buf) {
        blk_buffer_put(r->q, r->buf);
        r->buf = NULL;
    }
    if (s->is_locked) {
        s->is_locked = false;
        blk_lock_give(&s->c->lock, r->off, r->len, s->is_alone);
    }
    blk_done(r, rc);
}

static uint64_t part_off(const struct blk_req *r, const struct crypt_io *s)
{
    return (r->off + s->pos) & ~(uint64_t)(BLK_PAGE - 1);
}

/* Bytes of the guest in this part: where they begin in its pages, and how many they are. */
static size_t part_bytes(const struct blk_req *r, const struct crypt_io *s, size_t *ret_skip)
{
    *ret_skip = (size_t)((r->off + s->pos) & (BLK_PAGE - 1));
    return (size_t)MIN(s->n - *ret_skip, r->len - s->pos);
}

static void child_done(struct blk_req *child, int rc);

/* The part that 'n' says, at 'pos'. */
static void send_part(struct blk_req *r, struct blk_req *child, enum blk_op op)
{
    struct crypt_io *s = crypt_io(r);
    child->op = op;
    child->flags = r->flags & BLK_INNER;
    if (s->step == STEP_READ_ALL) {
        child->off = r->off;
        child->len = r->len;
        child->iov = r->iov;
        child->n_iov = r->n_iov;
    } else {
        child->own = (struct iovec){s->step == STEP_WRITE ? child->own.iov_base : r->buf, s->n};
        child->off = part_off(r, s);
        child->len = s->n;
        child->iov = &child->own;
        child->n_iov = 1;
    }
    if ((s->step == STEP_WRITE || s->step == STEP_CHANGED) && s->n >= r->len) {
        child->flags |= r->flags & BLK_FUA; /* the only part: no flush of its own is needed */
    }
    child->done = child_done;
    child->ctx = r;
    s->n_under++;
    blk_submit(s->c->layer.below, child);
}

/* Puts the guest's bytes, or zeros, over those of the page. */
static void change(struct blk_req *r)
{
    struct crypt_io *s = crypt_io(r);
    size_t skip = 0, n = part_bytes(r, s, &skip);
    if (r->op == BLK_WRITE) {
        blk_iov_read(r->iov, r->n_iov, s->pos, (char *)r->buf + skip, n);
    } else {
        memset((char *)r->buf + skip, 0, n);
    }
}

/* What is next, and how much of it. The volume's last page may end with the volume. */
static void plan(struct blk_req *r)
{
    struct crypt_io *s = crypt_io(r);
    uint64_t at = r->off + s->pos, end = r->off + r->len, lo = at & ~(uint64_t)(BLK_PAGE - 1);
    if (r->op == BLK_READ) {
        bool is_whole = ((r->off | r->len) & (BLK_PAGE - 1)) == 0;
        s->step = is_whole ? STEP_READ_ALL : STEP_READ_PART;
        s->n = (uint32_t)MIN((end - lo + BLK_PAGE - 1) & ~(uint64_t)(BLK_PAGE - 1),
                             (uint64_t)BLK_BUFFER);
        return;
    }
    bool is_part = at != lo || end - lo < BLK_PAGE;
    s->step = is_part ? STEP_OLD : STEP_WRITE;
    s->n = is_part
               ? BLK_PAGE
               : (uint32_t)MIN((end - lo) & ~(uint64_t)(BLK_PAGE - 1), (uint64_t)WRITE_PART);
}

/* What the next part needs, or nothing: so that nothing is half begun. */
static struct blk_req *get_child(struct blk_req *r)
{
    struct crypt_io *s = crypt_io(r);
    if (s->step == STEP_READ_PART || s->step == STEP_OLD) {
        size_t want = s->step == STEP_OLD && r->len <= BLK_SMALL
                          ? BLK_PAGE
                          : (size_t)MIN(r->len + 2 * BLK_PAGE, BLK_BUFFER);
        r->buf = r->buf ? r->buf : blk_buffer_get_size(r->q, BLK_CRYPT, want);
        if (!r->buf) {
            return NULL;
        }
    }
    void *buf = s->step == STEP_WRITE ? blk_buffer_get_size(r->q, BLK_CRYPT, s->n) : NULL;
    if (s->step == STEP_WRITE && !buf) {
        return NULL;
    }
    struct blk_req *child = blk_req_get_tier(r->q, BLK_CRYPT);
    if (child) {
        child->own.iov_base = buf;
    } else if (buf) {
        blk_buffer_put(r->q, buf);
    }
    return child;
}

static void put_child(struct blk_req *r, struct blk_req *child)
{
    const struct crypt_io *s = crypt_io(r);
    if (s->step == STEP_WRITE) {
        blk_buffer_put(child->q, child->own.iov_base);
    }
    blk_req_put(child);
}

/* One part of whole pages, encrypted into the child's buffer. */
static int fill_part(struct blk_req *r, const struct blk_req *child)
{
    struct crypt_io *s = crypt_io(r);
    char *buf = child->own.iov_base;
    if (r->op == BLK_WRITE) {
        return encrypt_iov(s->c, r, s->pos, buf, s->n);
    }
    memset(buf, 0, s->n);
    return run(s->c, r->q, true, part_off(r, s), buf, buf, s->n);
}

/* All parts were sent and are back. */
static void finish(struct blk_req *r)
{
    struct crypt_io *s = crypt_io(r);
    bool is_part_of_it = s->step == STEP_SYNC || s->n >= r->len;
    if (s->rc || r->op == BLK_READ || !(r->flags & BLK_FUA) || is_part_of_it) {
        over(r, s->rc);
        return;
    }
    struct blk_req *child = blk_req_get_tier(r->q, BLK_CRYPT);
    if (!child) {
        s->is_waiting = true;
        blk_queue_wait_tier(r->q, BLK_CRYPT, again, r);
        return;
    }
    s->step = STEP_SYNC;
    child->op = BLK_FLUSH;
    child->done = child_done;
    child->ctx = r;
    s->n_under++;
    blk_submit(s->c->layer.below, child);
}

/* Sends parts: of whole pages to write as many as there are buffers, else one at a time. */
static void go_on(struct blk_req *r)
{
    struct crypt_io *s = crypt_io(r);
    while (s->pos < r->len && !s->rc) {
        enum crypt_step before = (enum crypt_step)s->step;
        uint32_t n_before = s->n;
        plan(r);
        if (s->n_under > 0 && s->step != STEP_WRITE) {
            s->step = (uint8_t)before; /* after those that are under way */
            s->n = n_before;
            return;
        }
        struct blk_req *child = get_child(r);
        if (!child) {
            if (!s->is_waiting) {
                s->is_waiting = true;
                blk_queue_wait_tier(r->q, BLK_CRYPT, again, r);
            }
            return;
        }
        if (s->step != STEP_WRITE) {
            send_part(r, child, BLK_READ);
            return;
        }
        int rc = fill_part(r, child);
        if (rc) {
            put_child(r, child);
            s->rc = (int16_t)rc;
            break;
        }
        uint64_t next = s->pos + s->n;
        send_part(r, child, BLK_WRITE);
        s->pos = next;
    }
    if (s->n_under == 0) {
        finish(r);
    }
}

static void again(void *ctx)
{
    struct blk_req *r = ctx;
    crypt_io(r)->is_waiting = false;
    go_on(r);
}

/* The old page is here: decrypt, change, encrypt, write. */
static void old_done(struct blk_req *r)
{
    struct crypt_io *s = crypt_io(r);
    uint64_t off = part_off(r, s);
    int rc = run(s->c, r->q, false, off, r->buf, r->buf, s->n);
    if (rc == 0) {
        change(r);
        rc = run(s->c, r->q, true, off, r->buf, r->buf, s->n);
    }
    if (rc) {
        over(r, rc);
        return;
    }
    s->step = STEP_CHANGED;
    struct blk_req *child = blk_req_get_tier(r->q, BLK_CRYPT);
    assert(child); /* the one of the read came back just now */
    send_part(r, child, BLK_WRITE);
}

/* Bytes of the guest that came in a part of pages. */
static void part_read(struct blk_req *r)
{
    struct crypt_io *s = crypt_io(r);
    size_t skip = 0;
    int rc = run(s->c, r->q, false, part_off(r, s), r->buf, r->buf, s->n);
    if (rc) {
        over(r, rc);
        return;
    }
    size_t n = part_bytes(r, s, &skip);
    blk_iov_write(r->iov, r->n_iov, s->pos, (char *)r->buf + skip, n);
    s->pos += n;
    go_on(r);
}

static void child_done(struct blk_req *child, int rc)
{
    struct blk_req *r = child->ctx;
    struct crypt_io *s = crypt_io(r);
    size_t skip = 0;
    put_child(r, child);
    s->n_under--;
    if (rc && !s->rc) {
        s->rc = (int16_t)rc;
    }
    if (s->rc) {
        if (s->n_under == 0 && !s->is_waiting) {
            over(r, s->rc);
        }
        return;
    }
    switch (s->step) {
    case STEP_READ_ALL: over(r, decrypt_iov(s->c, r)); break;
    case STEP_OLD: old_done(r); break;
    case STEP_READ_PART: part_read(r); break;
    case STEP_CHANGED:
        s->pos += part_bytes(r, s, &skip);
        go_on(r);
        break;
    default:
        if (!s->is_waiting) {
            go_on(r);
        }
        break;
    }
}

static void locked(struct blk_msg *m)
{
    struct crypt_io *s = CONTAINER_OF(m, struct crypt_io, wait.msg);
    s->is_locked = true;
    go_on(crypt_req(s));
}

static void submit(struct blk_layer *l, struct blk_req *r)
{
    struct crypt *c = (struct crypt *)(void *)l;
    if (r->op == BLK_FLUSH || r->op == BLK_DISCARD) {
        blk_submit(l->below, r); /* who may discard knows that holes are noise here */
        return;
    }
    struct crypt_io *s = crypt_io(r);
    *s = (struct crypt_io){.c = c};
    r->buf = NULL;
    if (r->op != BLK_READ) {
        s->is_alone = ((r->off | r->len) & (BLK_PAGE - 1)) != 0;
        if (!blk_lock_take(&c->lock, &s->wait, r->q, r->off, r->len, s->is_alone, locked)) {
            return;
        }
        s->is_locked = true;
    }
    go_on(r);
}

/* ---- making ---- */

static void crypt_free(struct blk_layer *l)
{
    struct crypt *c = (struct crypt *)(void *)l;
    for (size_t i = 0; i < N_LANES; i++) {
        xts_free(c->lanes[i].x[0]);
        xts_free(c->lanes[i].x[1]);
    }
    if (c->key) {
        secret_wipe(c->key, BLK_KEY_SIZE);
        munmap(c->key, BLK_PAGE);
    }
    blk_lock_done(&c->lock);
    free(c);
}

/* Locking may be forbidden (RLIMIT_MEMLOCK): then the key is as safe as all other memory. */
static uint8_t *key_copy(const uint8_t key[BLK_KEY_SIZE])
{
    void *p = mmap(NULL, BLK_PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED) {
        return NULL;
    }
    (void)mlock(p, BLK_PAGE);
    (void)madvise(p, BLK_PAGE, MADV_DONTDUMP);
    memcpy(p, key, BLK_KEY_SIZE);
    return p;
}

static const struct blk_ops ops = {.name = "crypt", .submit = submit, .free = crypt_free};

int blk_crypt_new(struct blk_layer *below, const uint8_t key[BLK_KEY_SIZE],
                  struct blk_layer **ret, struct err *err)
{
    if (below->size % BLK_PAGE) {
        return fail(err, -EINVAL, "BadSize", "an encrypted volume consists of whole pages");
    }
    struct crypt *c = aligned_alloc(64, sizeof(*c));
    if (!c) {
        return fail(err, -ENOMEM, "OutOfMemory", "no memory for a cipher");
    }
    memset(c, 0, sizeof(*c));
    c->layer = (struct blk_layer){.ops = &ops, .below = below, .size = below->size};
    blk_lock_init(&c->lock);
    c->key = key_copy(key);
    int rc = c->key ? xts_new(key, true, &c->lanes[0].x[1]) : -ENOMEM;
    if (rc) {
        crypt_free(&c->layer);
        return rc == -EINVAL ? fail(err, rc, "BadKey", "the halves of the key are equal")
                             : fail(err, rc, "OutOfMemory", "no memory for a cipher");
    }
    *ret = &c->layer;
    return 0;
}
