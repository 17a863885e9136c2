#include "blk/blk_file.h"

#include "base/macro.h"
#include <errno.h>
#include <string.h>
#include <sys/mman.h>

struct mem {
    struct blk_layer layer; /* first */
    char *p;
};

static void submit(struct blk_layer *l, struct blk_req *r)
{
    struct mem *m = (struct mem *)(void *)l;
    switch (r->op) {
    case BLK_READ: blk_iov_write(r->iov, r->n_iov, 0, m->p + r->off, r->len); break;
    case BLK_WRITE: blk_iov_read(r->iov, r->n_iov, 0, m->p + r->off, r->len); break;
    case BLK_DISCARD:
    case BLK_ZEROES: memset(m->p + r->off, 0, r->len); break;
    default: break;
    }
    blk_done(r, 0);
}

static void mem_free(struct blk_layer *l)
{
    struct mem *m = (struct mem *)(void *)l;
    munmap(m->p, l->size);
    free(m);
}

static const struct blk_ops ops = {.name = "mem", .submit = submit, .free = mem_free};

int blk_mem_new(uint64_t size, struct blk_layer **ret, struct err *err)
{
    struct mem *m = calloc(1, sizeof(*m));
    if (!m) {
        return fail(err, -ENOMEM, "OutOfMemory", "no memory for a volume in memory");
    }
    m->p = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE,
                -1, 0);
    if (m->p == MAP_FAILED) {
        int rc = -errno;
        free(m);
        return fail(err, rc, "OutOfMemory", "no memory for a volume in memory");
    }
    m->layer = (struct blk_layer){.ops = &ops, .size = size};
    *ret = &m->layer;
    return 0;
}
