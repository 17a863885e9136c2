#include "base/fault_sim_int.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>

#define PAGE 4096u

struct cut {
    struct fault_sim *s;
    uint8_t *fate; /* of each operation of the journal */
    uint64_t seed;
};
enum fate { DROPPED, KEPT, TORN };

/* splitmix64: every seed gives another choice, the same one every time. */
static uint64_t next_random(uint64_t *seed)
{
    uint64_t z = (*seed += UINT64_C(0x9e3779b97f4a7c15));
    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return z ^ (z >> 31);
}

static void decide(struct cut *c, const struct fault_cut *how)
{
    for (size_t i = 0; i < c->s->ops.n; i++) {
        const struct sim_op *op = &c->s->ops.v[i];
        bool is_name = sim_is_name_op(op);
        bool can_tear = op->kind == SIM_WRITE || op->kind == SIM_PUNCH;
        switch (how->kind) {
        case FAULT_CUT_SYNCED: c->fate[i] = DROPPED; break;
        case FAULT_CUT_ALL: c->fate[i] = KEPT; break;
        case FAULT_CUT_NAMES: c->fate[i] = is_name ? KEPT : DROPPED; break;
        case FAULT_CUT_DATA: c->fate[i] = is_name ? DROPPED : KEPT; break;
        case FAULT_CUT_SUBSET: c->fate[i] = (how->mask >> (i % 64)) & 1 ? KEPT : DROPPED; break;
        case FAULT_CUT_RANDOM:
            c->fate[i] = (uint8_t)(next_random(&c->seed) % (can_tear ? 3 : 2));
            break;
        }
    }
}

/* Some of the sectors of a write or a hole: a head, a tail, or any. */
static int apply_torn(struct cut *c, struct sim_image *img, const struct sim_op *op)
{
    uint64_t r = next_random(&c->seed);
    uint64_t grain = r & 1 ? 512 : 4096;
    unsigned how = (unsigned)(r >> 1) % 3;
    bool has_size = (r >> 8) & 1;
    uint64_t end = op->off + op->n;
    if (op->n == 0) {
        return 0;
    }
    uint64_t first = op->off / grain, last = (end - 1) / grain;
    uint64_t split = first + next_random(&c->seed) % (last - first + 1);
    if (op->kind == SIM_WRITE && has_size && end > img->size) {
        int rc = sim_image_resize(img, end);
        if (rc < 0) {
            return rc;
        }
    }
    for (uint64_t i = first; i <= last; i++) {
        bool is_kept = how == 0   ? i < split
                       : how == 1 ? i > split
                                  : (next_random(&c->seed) & 1) != 0;
        if (!is_kept) {
            continue;
        }
        uint64_t from = MAX(i * grain, op->off), to = MIN((i + 1) * grain, end);
        if (op->kind == SIM_PUNCH) {
            sim_image_punch(img, from, to - from);
            continue;
        }
        int rc = sim_image_write(img, op->data + (from - op->off), to - from, from);
        if (rc < 0) {
            return rc;
        }
    }
    return 0;
}

static bool is_zero(const uint8_t *p, size_t n)
{
    return n == 0 || (p[0] == 0 && memcmp(p, p + 1, n - 1) == 0);
}

static int write_file(struct cut *c, int dir, const char *name, const struct sim_node *n)
{
    AUTO(sim_image_done) struct sim_image img = {0};
    int r = sim_image_write(&img, n->img.p, n->img.size, 0);
    for (size_t i = 0; i < c->s->ops.n && r == 0; i++) {
        const struct sim_op *op = &c->s->ops.v[i];
        if (op->node != n || sim_is_name_op(op) || c->fate[i] == DROPPED) {
            continue;
        }
        r = c->fate[i] == KEPT ? sim_apply_data(&img, op) : apply_torn(c, &img, op);
    }
    if (r < 0) {
        return r;
    }
    AUTO_FD fd = fault_open(NULL, dir, name, O_WRONLY | O_CREAT | O_EXCL, n->mode);
    if (fd < 0) {
        return fd;
    }
    r = fault_truncate(NULL, fd, img.size);
    for (size_t off = 0; off < img.size && r == 0; off += PAGE) {
        size_t len = MIN((size_t)PAGE, img.size - off);
        if (!is_zero(img.p + off, len)) {
            r = fault_pwrite(NULL, fd, img.p + off, len, off);
        }
    }
    return r;
}

static int write_dir(struct cut *c, int parent, const char *name, const struct sim_node *n)
{
    if (mkdirat(parent, name, n->mode) < 0) {
        return -errno;
    }
    AUTO_FD fd = openat(parent, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0) {
        return -errno;
    }
    AUTO(sim_entries_free) struct sim_node copy = {.is_dir = true};
    for (size_t i = 0; i < n->entries.n; i++) {
        const struct sim_op op = {
            .kind = SIM_LINK, .child = n->entries.v[i].node, .name = n->entries.v[i].name};
        sim_apply_name(&copy, &op);
    }
    for (size_t i = 0; i < c->s->ops.n; i++) {
        const struct sim_op *op = &c->s->ops.v[i];
        if (op->node == n && sim_is_name_op(op) && c->fate[i] == KEPT) {
            sim_apply_name(&copy, op);
        }
    }
    for (size_t i = 0; i < copy.entries.n; i++) {
        const struct sim_entry *e = &copy.entries.v[i];
        int r = e->node->is_dir ? write_dir(c, fd, e->name, e->node)
                                : write_file(c, fd, e->name, e->node);
        if (r < 0) {
            return r;
        }
    }
    return 0;
}

int fault_sim_cut(struct fault_sim *s, const struct fault_cut *cut, const char *dest,
                  struct err *err)
{
    pthread_mutex_lock(&s->lock);
    AUTO_FREE uint8_t *fate = calloc(s->ops.n + 1, 1);
    if (!fate) {
        abort();
    }
    struct cut c = {.s = s, .fate = fate, .seed = cut->seed};
    decide(&c, cut);
    int r = write_dir(&c, AT_FDCWD, dest, s->root);
    pthread_mutex_unlock(&s->lock);
    if (r < 0) {
        errno = -r;
        return fail(err, r, "WriteFailed", "%s: %m", dest);
    }
    return 0;
}
