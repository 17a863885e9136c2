#include "blk/blk_base.h"

#include "base/fault.h"
#include "base/rand.h"
#include "blk/blk_cow.h"
#include "crypto/crc.h"
#include <errno.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>

#define MAGIC     UINT64_C(0x3153414242585053) /* "SPXBBAS1" */
#define VERSION   1u
#define HEAD_SIZE 4096u

struct head {
    uint64_t magic;
    uint32_t version, crc; /* of the head, this field 0 */
    uint8_t id[16];
    uint64_t size;
    uint32_t is_complete, zero;
    uint8_t rest[HEAD_SIZE - 48];
};
_Static_assert(sizeof(struct head) == HEAD_SIZE, "head");

/* One word of 32 bits per block, not a bit: it holds a checksum of the map's id and the block's
 * number when the base has the block. So a word that was damaged says "absent", and the block is
 * fetched once more, rather than that bytes are there which are not. */
struct base_map {
    int fd;
    bool is_writer;
    struct head *h;
    _Atomic uint32_t *word;
    size_t map_size;
    uint64_t size, n_blocks;
};

static uint64_t n_blocks_of(uint64_t size)
{
    return (size + BLK_BLOCK - 1) / BLK_BLOCK;
}

static uint64_t file_size_of(uint64_t size)
{
    return HEAD_SIZE + (n_blocks_of(size) * 4 + HEAD_SIZE - 1) / HEAD_SIZE * HEAD_SIZE;
}

static uint32_t head_crc(const struct head *h)
{
    struct head copy = *h;
    copy.crc = 0;
    return (uint32_t)crc_add(CRC_32C, 0, str_n((const char *)&copy, sizeof(copy)));
}

static uint32_t word_of(const struct base_map *m, uint64_t block)
{
    uint64_t crc = crc_add(CRC_32C, 0, str_n((const char *)m->h->id, sizeof(m->h->id)));
    crc = crc_add(CRC_32C, crc, str_n((const char *)&block, sizeof(block)));
    return (uint32_t)crc | 1; /* never zero */
}

int base_map_create(int fd, uint64_t size, bool is_complete, struct err *err)
{
    if (size == 0 || size > BLK_MAP_MAX_SIZE || size % BLK_PAGE != 0) {
        return fail(err, -EINVAL, "BadBaseMap", "a base of %llu bytes cannot be",
                    (unsigned long long)size);
    }
    struct head h = {
        .magic = MAGIC, .version = VERSION, .size = size, .is_complete = is_complete};
    rand_bytes(h.id, sizeof(h.id));
    h.crc = head_crc(&h);
    int rc = fault_truncate(NULL, fd, 0); /* what was there before counts no more */
    rc = rc ? rc : fault_truncate(NULL, fd, file_size_of(size));
    rc = rc ? rc : fault_fdatasync(NULL, fd);
    rc = rc ? rc : fault_pwrite(NULL, fd, &h, sizeof(h), 0);
    rc = rc ? rc : fault_fdatasync(NULL, fd);
    return rc ? fail(err, rc, "WriteFailed", "the map of a base: %s", strerror(-rc)) : 0;
}

int base_map_open(int fd, bool is_writer, struct base_map **ret, struct err *err)
{
    struct stat st;
    struct head h;
    if (fstat(fd, &st)) {
        return fail(err, -errno, "ReadFailed", "the map of a base: %m");
    }
    ssize_t n = fault_pread(NULL, fd, &h, sizeof(h), 0);
    if (n < 0) {
        return fail(err, (int)n, "ReadFailed", "the map of a base: %s", strerror(-(int)n));
    }
    if (n == sizeof(h) && h.magic == MAGIC && h.version > VERSION && h.crc == head_crc(&h)) {
        return fail(
            err, -EINVAL, "NewerFormat",
            "the map of a base has version %u, which a newer Spinifex wrote and this one "
            "does not know: nothing was changed; install the newer one again",
            h.version);
    }
    if (n != sizeof(h) || h.magic != MAGIC || h.version != VERSION || h.crc != head_crc(&h) ||
        h.size == 0 || h.size > BLK_MAP_MAX_SIZE || h.size % BLK_PAGE != 0 ||
        h.is_complete > 1 || (uint64_t)st.st_size < file_size_of(h.size)) {
        return fail(err, -EINVAL, "BadBaseMap", "the map of a base is damaged");
    }
    struct base_map *m = calloc(1, sizeof(*m));
    if (!m) {
        return fail(err, -ENOMEM, "OutOfMemory", "no memory for the map of a base");
    }
    m->map_size = (size_t)file_size_of(h.size);
    void *p = mmap(NULL, m->map_size, is_writer ? PROT_READ | PROT_WRITE : PROT_READ,
                   MAP_SHARED, fd, 0);
    if (p == MAP_FAILED) {
        int rc = -errno;
        free(m);
        return fail(err, rc, "OutOfMemory", "mapping the map of a base: %s", strerror(-rc));
    }
    m->fd = fd;
    m->is_writer = is_writer;
    m->h = p;
    m->word = (_Atomic uint32_t *)(void *)((char *)p + HEAD_SIZE);
    m->size = h.size;
    m->n_blocks = n_blocks_of(h.size);
    *ret = m;
    return 0;
}

void base_map_close(struct base_map *m)
{
    if (m) {
        munmap(m->h, m->map_size);
        free(m);
    }
}

bool base_map_has(const struct base_map *m, uint64_t block)
{
    if (block >= m->n_blocks) {
        return false;
    }
    if (m->h->is_complete) {
        return true;
    }
    uint32_t w = atomic_load_explicit(&m->word[block], memory_order_acquire);
    return w != 0 && w == word_of(m, block);
}

uint64_t base_map_size(const struct base_map *m)
{
    return m->size;
}

uint64_t base_map_n_absent(const struct base_map *m)
{
    uint64_t n = 0;
    for (uint64_t b = 0; b < m->n_blocks; b++) {
        n += base_map_has(m, b) ? 0 : 1;
    }
    return n;
}

int base_map_set(struct base_map *m, uint64_t block, struct err *err)
{
    if (!m->is_writer || block >= m->n_blocks) {
        return fail(err, -EINVAL, "BadBaseMap", "block %llu cannot be set",
                    (unsigned long long)block);
    }
    /* Readers may use it from here on: its bytes are durable already. */
    atomic_store_explicit(&m->word[block], word_of(m, block), memory_order_release);
    int rc = fault_fdatasync(NULL, m->fd);
    return rc ? fail(err, rc, "SyncFailed", "the map of a base: %s", strerror(-rc)) : 0;
}
