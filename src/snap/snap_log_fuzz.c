/* Logs of uploads. Either bytes of somebody else (checksums set right when the first byte says so,
 * so that what is behind them is seen), or a log that is written as the input says and then
 * damaged: what was promised is there or the log is refused, and never something else. */
#include "base/bytes.h"
#include "crypto/crc.h"
#include "snap/snap_log.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define HEAD   32u
#define RECORD 64u
#define MAX_N  200u

/* One file in memory, whatever its name. */
struct memory {
    struct fault_fs fs; /* first */
    int fd;
};

static int64_t call(struct fault_fs *fs, const struct fault_call *c)
{
    struct memory *m = (struct memory *)fs;
    switch (c->op) {
    case FAULT_OPEN: return fcntl(m->fd, F_DUPFD_CLOEXEC, 0);
    case FAULT_PREAD:
    case FAULT_PWRITE:
    case FAULT_TRUNCATE: return fault_direct(c);
    default: return 0; /* syncs, names */
    }
}

struct seen {
    uint64_t n;
    uint64_t block[MAX_N];
    enum snap_log_type type[MAX_N];
};

static int on_record(void *ctx, enum snap_log_type type, uint64_t block,
                     const uint8_t name[SNAP_NAME])
{
    struct seen *s = ctx;
    assert(type == SNAP_LOG_BLOCK || type == SNAP_LOG_PAGE);
    assert(name);
    if (s->n < MAX_N) {
        s->block[s->n] = block;
        s->type[s->n] = type;
    }
    s->n++;
    return 0;
}

/* Opens and walks it twice: the first may cut off a torn end, the second finds nothing to do. What
 * is there can be gone on with. 0 or what the first said. */
static int look(struct memory *m, struct seen *s)
{
    static const uint8_t name[SNAP_NAME] = {9};
    struct snap_log l;
    int first = 0;
    for (unsigned i = 0; i < 3; i++) {
        struct snap_manifest base = {.pages = NULL};
        struct seen here = {.n = 0};
        int r = snap_log_open(&l, &m->fs, -1, "log", &base, NULL);
        assert(r == 0 || r == -EBADMSG);
        assert(i == 0 || r == first);
        first = r;
        if (r == 0) {
            assert(base.n_pages == snap_n_pages(base.info.size));
            assert(snap_log_walk(&l, on_record, &here, NULL) == 0);
            assert(here.n == l.n && l.n_synced == l.n);
            assert(i == 0 || here.n == s->n + (i == 2));
            *s = i == 0 ? here : *s;
        }
        if (r == 0 && i == 1) {
            assert(snap_log_append(&l, SNAP_LOG_BLOCK, 77, name, true, NULL) == 0);
        }
        snap_manifest_done(&base);
        snap_log_done(&l);
    }
    return first;
}

static void put(struct memory *m, const void *p, size_t n)
{
    assert(ftruncate(m->fd, 0) == 0);
    assert(n == 0 || pwrite(m->fd, p, n, 0) == (ssize_t)n);
}

/* As snap_log.c describes: the head's checksum, then those of the records. */
static void set_sums(uint8_t *p, size_t n)
{
    if (n < HEAD) {
        return;
    }
    memcpy(p, "SPXU\1\0\0\0", 8);
    put_u32(p + 20, 0);
    put_u32(p + 20, (uint32_t)crc_add(CRC_32C, 0, str_n((const char *)p, HEAD)));
    uint64_t begin = (UINT64_C(0) + HEAD + get_u32(p + 16) + RECORD - 1) / RECORD * RECORD;
    uint8_t seed[16];
    memcpy(seed, p + 8, 8);
    for (uint64_t i = 0; begin + (i + 1) * RECORD <= n; i++) {
        uint8_t *r = p + begin + i * RECORD;
        put_u64(seed + 8, i);
        uint64_t crc = crc_add(CRC_32C, 0, str_n((const char *)seed, sizeof(seed)));
        put_u32(r, (uint32_t)crc_add(CRC_32C, crc, str_n((const char *)r + 4, RECORD - 4)));
    }
}

static void foreign(struct memory *m, const uint8_t *data, size_t size, bool is_summed)
{
    static struct seen s;
    uint8_t *p = malloc(size + 1);
    assert(p);
    memcpy(p, data, size);
    if (is_summed) {
        set_sums(p, size);
    }
    put(m, p, size);
    (void)look(m, &s);
    free(p);
}

/* data: pages of the base, records, where and how it is damaged, then a byte for each record. */
static void own(struct memory *m, const uint8_t *data, size_t size)
{
    static struct seen s;
    uint64_t synced[MAX_N] = {0}; /* what each record vouches for */
    struct snap_log l;
    struct snap_manifest base = {.pages = NULL};
    if (size < 5) {
        return;
    }
    struct snap_info info = {.size = (1 + data[0] % 3) * (UINT64_C(512) << 20)};
    memcpy(info.id, "snap-1", 6);
    memcpy(info.account, "000000000001", 12);
    assert(snap_manifest_new(&info, &base) == 0);
    snap_manifest_count(&base);
    put(m, NULL, 0);
    assert(snap_log_create(&l, &m->fs, -1, "log", &base, NULL) == 0);
    uint64_t n = MIN((uint64_t)data[1], (uint64_t)(size - 5));
    n = MIN(n, (uint64_t)MAX_N);
    for (uint64_t i = 0; i < n; i++) {
        uint8_t name[SNAP_NAME], b = data[5 + i];
        memset(name, b, sizeof(name));
        synced[i] = l.n_synced;
        assert(snap_log_append(&l, b & 2 ? SNAP_LOG_BLOCK : SNAP_LOG_PAGE, b, name, b & 1,
                               NULL) == 0);
    }
    uint64_t begin = l.begin, end = begin + n * RECORD;
    uint64_t at = get_u16(data + 2) % (end + 1);
    snap_log_done(&l);
    snap_manifest_done(&base);
    bool is_cut = data[4] & 1;
    uint8_t c = 0;
    if (is_cut) {
        assert(ftruncate(m->fd, (off_t)at) == 0);
    } else if (at < end) {
        assert(pread(m->fd, &c, 1, (off_t)at) == 1);
        c ^= (uint8_t)(data[4] | 1);
        assert(pwrite(m->fd, &c, 1, (off_t)at) == 1);
    }
    /* Of what is whole: up to the damage, unless somebody later vouches for more. */
    uint64_t whole = at >= end ? n : at < begin ? 0 : (at - begin) / RECORD, vouched = 0;
    for (uint64_t i = 0; i < (is_cut ? whole : n); i++) {
        vouched = i == whole ? vouched : MAX(vouched, synced[i]);
    }
    int r = look(m, &s);
    if (at < begin) { /* the padding of the base is all that may change unseen */
        assert(!is_cut || r == -EBADMSG);
    } else {
        assert(r == (vouched > whole ? -EBADMSG : 0));
    }
    if (r == 0 && at >= begin) {
        assert(s.n == whole);
    }
    for (uint64_t i = 0; r == 0 && i < MIN(s.n, n); i++) {
        assert(s.block[i] == data[5 + i]);
        assert(s.type[i] == (data[5 + i] & 2 ? SNAP_LOG_BLOCK : SNAP_LOG_PAGE));
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct memory m = {.fs = {.call = call}, .fd = -1};
    m.fd = m.fd >= 0 ? m.fd : memfd_create("log", MFD_CLOEXEC);
    assert(m.fd >= 0);
    if (size == 0) {
        return 0;
    }
    switch (data[0] % 3) {
    case 0: foreign(&m, data + 1, size - 1, false); break;
    case 1: foreign(&m, data + 1, size - 1, true); break;
    default: own(&m, data + 1, size - 1);
    }
    return 0;
}
