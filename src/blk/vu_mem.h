/* vu_mem.h — the guest's memory as its frontend passed it: mapped, and addresses translated.
 * Not here: rings (vu_ring.h).
 * Threads:  changed by the main loop while no ring runs; read by ring threads.
 * Memory:   mappings last until vu_mem_clear(); pointers into them are borrowed until then.
 * Errors:   -EPROTO "BadMemory". Only sealed memory (F_SEAL_SHRINK) is taken: whoever could
 *           cut the file short while it is mapped would end this process by SIGBUS. QEMU's
 *           memory-backend-memfd seals by default. Pages of a hole punched in it read as zeros.
 *
 * Huge pages are taken too; a frontend that punches holes into them when the machine has none left
 * ends this process, in which only its own volumes are.
 *
 * Two translations: rings are named by the frontend's own addresses, buffers by the guest's. */
#pragma once
#include "blk/vu_msg.h"

struct vu_mem {
    unsigned n;
    struct vu_mem_region {
        uint64_t gpa, size, uaddr;
        uint8_t *p;   /* of the first byte */
        void *map;    /* what was mapped */
        uint64_t len; /* of the map */
    } v[VU_MAX_REGIONS];
};

/* Maps all regions or none; descriptors stay the caller's. 'm' must be empty. */
MUST_CHECK int vu_mem_map(struct vu_mem *m, const struct vu_region *v, unsigned n,
                          const int *fds, struct err *err);
void vu_mem_clear(struct vu_mem *m);
/* Memory for tests and fuzzers: one region that the caller owns. */
void vu_mem_borrow(struct vu_mem *m, uint64_t gpa, uint64_t uaddr, void *p, uint64_t size);

/* Pointer to guest address 'gpa', or NULL; *ret_n = bytes from there to the end of its region,
 * at most 'n'. */
void *vu_mem_at(const struct vu_mem *m, uint64_t gpa, uint64_t n, uint64_t *ret_n);
/* All 'n' bytes at the frontend's address lie in one region, or NULL. */
void *vu_mem_user(const struct vu_mem *m, uint64_t uaddr, uint64_t n);

/* A mapping of 'size' bytes at 'off' of a file that cannot shrink any more. */
MUST_CHECK int vu_mem_map_sealed(int fd, uint64_t off, uint64_t size, void **ret_map,
                                 uint64_t *ret_len, uint8_t **ret_p, struct err *err);
