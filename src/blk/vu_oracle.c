#include "blk/vu_oracle.h"
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#define SECTOR 512u
#define MAGIC  UINT64_C(0x73706e6678737461)

struct block {
    uint32_t version;     /* of the newest write that ended, or that goes on */
    bool may_be_zero;     /* zeroed or discarded since, or never written */
    bool may_be_version;  /* false: zeros only */
    bool is_busy, is_new; /* is_new: 'version' is on its way */
};
struct vu_oracle {
    uint64_t n, seed;
    int is_broken;
    char why[256];
    struct block blocks[];
};
struct stamp { /* in front of every sector */
    uint64_t magic, block, version, sector, seed, fill;
};

int vu_oracle_new(uint64_t n_blocks, uint64_t seed, struct vu_oracle **ret, struct err *err)
{
    struct vu_oracle *o = calloc(1, sizeof(*o) + n_blocks * sizeof(struct block));
    if (!o) {
        return fail(err, -ENOMEM, "OutOfMemory", "no memory for %llu blocks",
                    (unsigned long long)n_blocks);
    }
    o->n = n_blocks;
    o->seed = seed;
    for (uint64_t i = 0; i < n_blocks; i++) {
        o->blocks[i].may_be_zero = true;
    }
    *ret = o;
    return 0;
}

void vu_oracle_free(struct vu_oracle *o)
{
    free(o);
}

const char *vu_oracle_why(const struct vu_oracle *o)
{
    return __atomic_load_n(&o->is_broken, __ATOMIC_ACQUIRE) == 2 ? o->why : "";
}

int vu_oracle_blame(struct vu_oracle *o, const char *fmt, ...)
{
    int none = 0;
    if (__atomic_compare_exchange_n(&o->is_broken, &none, 1, false, __ATOMIC_ACQ_REL,
                                    __ATOMIC_ACQUIRE)) {
        va_list ap;
        va_start(ap, fmt);
        (void)vsnprintf(o->why, sizeof(o->why), fmt, ap);
        va_end(ap);
        __atomic_store_n(&o->is_broken, 2, __ATOMIC_RELEASE);
    }
    return -EBADMSG;
}

static uint64_t mix(uint64_t x)
{
    x ^= x >> 33;
    x *= UINT64_C(0xff51afd7ed558ccd);
    x ^= x >> 33;
    return x * UINT64_C(0xc4ceb9fe1a85ec53);
}

static void make_stamp(const struct vu_oracle *o, uint64_t block, uint32_t version,
                       uint64_t sector, struct stamp *ret)
{
    *ret = (struct stamp){
        .magic = MAGIC, .block = block, .version = version, .sector = sector, .seed = o->seed};
    ret->fill = mix(o->seed ^ mix(block * 8 + sector) ^ version);
}

/* The whole sector follows from its stamp: head, then words of a sequence. */
static void fill_sector(const struct stamp *s, uint8_t *p)
{
    memcpy(p, s, sizeof(*s));
    uint64_t x = s->fill;
    for (size_t i = sizeof(*s); i < SECTOR; i += sizeof(x)) {
        x = x * UINT64_C(6364136223846793005) + 1442695040888963407u;
        memcpy(p + i, &x, sizeof(x));
    }
}

bool vu_oracle_begin(struct vu_oracle *o, enum vu_oracle_op op, uint64_t block, uint64_t n,
                     void *buf)
{
    for (uint64_t i = 0; i < n; i++) {
        if (block + i >= o->n || o->blocks[block + i].is_busy) {
            return false;
        }
    }
    for (uint64_t i = 0; i < n; i++) {
        struct block *b = &o->blocks[block + i];
        b->is_busy = true;
        if (op != VU_ORACLE_WRITE) {
            continue;
        }
        b->version++;
        b->is_new = true;
        for (uint64_t s = 0; s < VU_ORACLE_BLOCK / SECTOR; s++) {
            struct stamp st;
            make_stamp(o, block + i, b->version, s, &st);
            fill_sector(&st, (uint8_t *)buf + i * VU_ORACLE_BLOCK + s * SECTOR);
        }
    }
    return true;
}

static bool is_zero(const uint8_t *p, size_t n)
{
    return p[0] == 0 && memcmp(p, p + 1, n - 1) == 0;
}

static int check_block(struct vu_oracle *o, uint64_t block, const uint8_t *p)
{
    const struct block *b = &o->blocks[block];
    if (is_zero(p, VU_ORACLE_BLOCK)) {
        return b->may_be_zero ? 0
                              : vu_oracle_blame(o, "block %llu is zeros, want version %u",
                                                (unsigned long long)block, b->version);
    }
    for (uint64_t s = 0; s < VU_ORACLE_BLOCK / SECTOR; s++) {
        struct stamp want, got;
        uint8_t whole[SECTOR];
        make_stamp(o, block, b->version, s, &want);
        fill_sector(&want, whole);
        memcpy(&got, p + s * SECTOR, sizeof(got));
        if (b->may_be_version && memcmp(p + s * SECTOR, whole, SECTOR) == 0) {
            continue;
        }
        return vu_oracle_blame(
            o,
            "block %llu sector %llu: magic %s, of block %llu version %llu, want version %u%s",
            (unsigned long long)block, (unsigned long long)s,
            got.magic == MAGIC ? "right" : "wrong", (unsigned long long)got.block,
            (unsigned long long)got.version, b->version,
            b->may_be_version ? "" : ", or rather zeros");
    }
    return 0;
}

int vu_oracle_end(struct vu_oracle *o, enum vu_oracle_op op, uint64_t block, uint64_t n,
                  const void *buf)
{
    if (*vu_oracle_why(o)) {
        return -EBADMSG;
    }
    for (uint64_t i = 0; i < n; i++) {
        struct block *b = &o->blocks[block + i];
        if (!b->is_busy) {
            return vu_oracle_blame(o, "an operation on block %llu ended twice",
                                   (unsigned long long)(block + i));
        }
        int rc = 0;
        switch (op) {
        case VU_ORACLE_READ:
            rc = check_block(o, block + i, (const uint8_t *)buf + i * VU_ORACLE_BLOCK);
            break;
        case VU_ORACLE_WRITE:
            b->is_new = b->may_be_zero = false;
            b->may_be_version = true;
            break;
        case VU_ORACLE_ZEROES:
            b->may_be_zero = true;
            b->may_be_version = false;
            break;
        case VU_ORACLE_DISCARD: b->may_be_zero = true; break; /* zeros, or what was there */
        }
        b->is_busy = false;
        if (rc < 0) {
            return rc;
        }
    }
    return 0;
}
