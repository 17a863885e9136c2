#include "blk/vu_mem.h"
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>

int vu_mem_map_sealed(int fd, uint64_t off, uint64_t size, void **ret_map, uint64_t *ret_len,
                      uint8_t **ret_p, struct err *err)
{
    struct stat st;
    uint64_t end = 0, page = (uint64_t)sysconf(_SC_PAGESIZE), skip = off & (page - 1);
    if (fstat(fd, &st) != 0 || !S_ISREG(st.st_mode)) {
        return fail(err, -EPROTO, "BadMemory", "the descriptor is no memory");
    }
    int seals = fcntl(fd, F_GET_SEALS);
    if (seals < 0 || (seals & F_SEAL_SHRINK) == 0) {
        return fail(err, -EPROTO, "BadMemory", "the memory is not sealed against shrinking");
    }
    if (size == 0 || __builtin_add_overflow(off, size, &end) || end > (uint64_t)st.st_size) {
        return fail(err, -EPROTO, "BadMemory", "a region is larger than its file");
    }
    void *map = mmap(NULL, size + skip, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, fd,
                     (off_t)(off - skip));
    if (map == MAP_FAILED) {
        return fail(err, -EPROTO, "BadMemory", "memory cannot be mapped: %m");
    }
    (void)madvise(map, size + skip, MADV_DONTDUMP); /* a guest's secrets are in no core file */
    *ret_map = map;
    *ret_len = size + skip;
    *ret_p = (uint8_t *)map + skip;
    return 0;
}

int vu_mem_map(struct vu_mem *m, const struct vu_region *v, unsigned n, const int *fds,
               struct err *err)
{
    for (unsigned i = 0; i < n; i++) {
        struct vu_mem_region r = {.gpa = v[i].gpa, .size = v[i].size, .uaddr = v[i].uaddr};
        int rc = vu_mem_map_sealed(fds[i], v[i].off, v[i].size, &r.map, &r.len, &r.p, err);
        if (rc < 0) {
            vu_mem_clear(m);
            return rc;
        }
        m->v[m->n++] = r;
    }
    return 0;
}

void vu_mem_clear(struct vu_mem *m)
{
    for (unsigned i = 0; i < m->n; i++) {
        if (m->v[i].map) {
            (void)munmap(m->v[i].map, m->v[i].len);
        }
    }
    memset(m, 0, sizeof(*m));
}

void vu_mem_borrow(struct vu_mem *m, uint64_t gpa, uint64_t uaddr, void *p, uint64_t size)
{
    m->v[m->n++] = (struct vu_mem_region){.gpa = gpa, .size = size, .uaddr = uaddr, .p = p};
}

void *vu_mem_at(const struct vu_mem *m, uint64_t gpa, uint64_t n, uint64_t *ret_n)
{
    for (unsigned i = 0; i < m->n; i++) {
        const struct vu_mem_region *r = &m->v[i];
        if (gpa >= r->gpa && gpa - r->gpa < r->size) {
            uint64_t left = r->size - (gpa - r->gpa);
            *ret_n = MIN(n, left);
            return r->p + (gpa - r->gpa);
        }
    }
    return NULL;
}

void *vu_mem_user(const struct vu_mem *m, uint64_t uaddr, uint64_t n)
{
    for (unsigned i = 0; i < m->n; i++) {
        const struct vu_mem_region *r = &m->v[i];
        if (uaddr >= r->uaddr && uaddr - r->uaddr < r->size) {
            uint64_t left = r->size - (uaddr - r->uaddr);
            return n <= left ? r->p + (uaddr - r->uaddr) : NULL;
        }
    }
    return NULL;
}
