#include "blk/blk_map_int.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* An input is a size of the volume (4 bytes, in pages), a kind (1 byte), and patches of a
 * sound map: which durable page or half of the journal (2 bytes), where in it (2 bytes), how
 * many bytes (1 byte), the bytes. With bit 7 of the kind the checksums of patched pages are
 * made right again, so that what lies behind them is reached. A map is refused, or what was
 * loaded keeps its promises. */

#define MAX_SIZE (UINT64_C(40) << 30)

struct input {
    const uint8_t *p;
    size_t n;
};

static uint64_t take(struct input *in, size_t n)
{
    uint64_t v = 0;
    for (size_t i = 0; i < n && in->n > 0; i++) {
        v |= (uint64_t)*in->p << (8 * i);
        in->p++;
        in->n--;
    }
    return v;
}

static uint64_t place_of(uint64_t what, uint32_t *ret_no, uint64_t size)
{
    uint32_t n = map_n_pages(size);
    *ret_no = UINT32_MAX;
    if (what % 8 == 0) {
        return map_journal_off(what / 8);
    }
    if (what % 8 == 1) {
        return 0;
    }
    /* Pages of meaning: the head, the first entries aside, and those of the chunks. */
    uint32_t no = what % 8 == 2 ? 0
                  : what % 8 == 3
                      ? 1 + (uint32_t)(what / 8) % 3
                      : MAP_FIRST_CHUNK + (uint32_t)(what / 8) % (n - MAP_FIRST_CHUNK);
    *ret_no = no;
    return map_page_off(no);
}

static void patch(int fd, struct input *in, uint64_t size, bool is_sealed, const uint8_t id[16])
{
    uint32_t no;
    uint64_t off = place_of(take(in, 2), &no, size), at = take(in, 2) % MAP_PAGE;
    uint64_t want = take(in, 1), max = MAP_PAGE - at;
    size_t n = (size_t)MIN(want, max);
    n = MIN(n, in->n);
    static struct map_page page;
    ssize_t got = pread(fd, &page, sizeof(page), (off_t)off);
    if (got != (ssize_t)sizeof(page)) {
        memset(&page, 0, sizeof(page));
    }
    memcpy((char *)&page + at, in->p, n);
    in->p += n;
    in->n -= n;
    if (is_sealed && no != UINT32_MAX) {
        map_seal(&page, no, page.seq & 1, id);
    }
    assert(pwrite(fd, &page, sizeof(page), (off_t)off) == (ssize_t)sizeof(page));
}

static void check(struct blk_map *m, uint64_t size)
{
    const struct map_head *h = map_head(m);
    assert(map_head_check(h, NULL) && h->size == size && !(h->flags & MAP_CLEAN));
    assert(m->source_pages * BLK_PAGE <= size);
    assert(atomic_load(&m->n_absent) <= m->source_pages);
    assert(m->has_states || m->source_pages == 0);
    uint64_t pages = size / BLK_PAGE;
    for (uint64_t p = 0; p < pages; p += 1 + pages / 4096) {
        assert(map_state(m, p) != 2);
    }
    for (uint32_t s = 0; s < 3 * MAP_ASIDE_PER; s++) {
        struct map_aside a = map_aside_get(m, s);
        for (unsigned k = 0; k < BLK_MAX_FROZEN; k++) {
            if (a.gen[k] && a.gen[k] == h->frozen[k].gen) {
                assert(a.block < map_n_blocks(size) && map_bit(m->open[k], a.block));
            }
        }
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct input in = {data, size};
    uint64_t bytes = (take(&in, 4) % (MAX_SIZE / BLK_PAGE) + 1) * BLK_PAGE;
    unsigned kind = (unsigned)take(&in, 1);
    int fd = memfd_create("map", MFD_CLOEXEC), run = memfd_create("run", MFD_CLOEXEC);
    assert(fd >= 0 && run >= 0);
    struct blk_map_opts o = {.size = bytes,
                             .source_size = kind & 1 ? bytes / 2 / BLK_PAGE * BLK_PAGE : 0,
                             .is_encrypted = (kind & 2) != 0};
    assert(blk_map_create(fd, &o, NULL) == 0);
    struct blk_map *m = NULL;
    assert(map_open(fd, run, "boot", NULL, bytes, &m, NULL) == 0);
    uint8_t id[16];
    memcpy(id, m->id, sizeof(id));
    if (m->has_states) {
        map_mark(m, 0, MIN(bytes / BLK_PAGE, 100u), MAP_DATA);
    }
    assert(kind & 4 ? map_stop(m, NULL) == 0 : map_write_all(m, NULL) == 0);
    map_close(m);
    for (unsigned i = 0; i < 16 && in.n > 0; i++) {
        patch(fd, &in, bytes, (kind & 128) != 0, id);
    }
    struct err err = ERR_INIT;
    int rc = map_open(fd, -1, "boot", NULL, bytes, &m, &err);
    if (rc == 0) {
        check(m, bytes);
        map_close(m);
        /* What was accepted is written and accepted again. */
        assert(map_open(fd, -1, "boot", NULL, bytes, &m, NULL) == 0);
        check(m, bytes);
        map_close(m);
    } else {
        assert(rc == -EINVAL && strcmp(err.name, "BadMap") == 0);
    }
    close(fd);
    close(run);
    return 0;
}
