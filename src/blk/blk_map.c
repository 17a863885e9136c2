#include "blk/blk_map_int.h"

#include "base/rand.h"
#include "crypto/crc.h"
#include <errno.h>
#include <string.h>

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "the format is little-endian");

#define PAGE_MAGIC    0x50585053u                  /* "SPXP" */
#define JOURNAL_MAGIC UINT64_C(0x314e524a42585053) /* "SPXBJRN1" */
#define SUPER_MAGIC   UINT64_C(0x3150414d42585053) /* "SPXBMAP1" */
#define VERSION       1u

uint32_t map_n_pages(uint64_t size)
{
    uint64_t chunks = (map_n_blocks(size) + MAP_CHUNK_BLOCKS - 1) / MAP_CHUNK_BLOCKS;
    return MAP_FIRST_CHUNK + (uint32_t)chunks * MAP_CHUNK_PAGES;
}

uint64_t map_file_size(uint64_t size)
{
    return map_page_off(map_n_pages(size));
}

enum map_kind map_kind_of(uint32_t no, unsigned *ret_idx)
{
    *ret_idx = 0;
    if (no < MAP_FIRST_CHUNK) {
        return no == 0 ? MAP_K_HEAD : MAP_K_ASIDE;
    }
    unsigned k = (no - MAP_FIRST_CHUNK) % MAP_CHUNK_PAGES;
    if (k == 0) {
        return MAP_K_TOUCH;
    }
    if (k < 6) {
        *ret_idx = k - 1;
        return MAP_K_SET;
    }
    if (k < 10) {
        *ret_idx = k - 6;
        return MAP_K_STORED;
    }
    return MAP_K_STATE;
}

_Atomic uint64_t *map_area(const struct blk_map *m, uint32_t no, size_t *ret_words)
{
    unsigned idx;
    enum map_kind k = map_kind_of(no, &idx);
    size_t words = MAP_PAYLOAD / 8, chunk = (no - MAP_FIRST_CHUNK) / MAP_CHUNK_PAGES;
    *ret_words = words;
    switch (k) {
    case MAP_K_ASIDE: return m->aside + (size_t)(no - 1) * words;
    case MAP_K_TOUCH: *ret_words = 4; return m->touch + chunk * 4;
    case MAP_K_SET: return m->set[idx] + chunk * words;
    case MAP_K_STORED: return m->stored[idx] + chunk * words;
    case MAP_K_STATE:
        return m->state +
               (chunk * MAP_STATE_PAGES + (no - MAP_FIRST_CHUNK) % MAP_CHUNK_PAGES - 10) *
                   words;
    default: break;
    }
    assert(false); /* the head is no area */
    return NULL;
}

static uint32_t crc_of(const void *p, size_t n, uint32_t *field)
{
    uint32_t was = *field;
    *field = 0;
    uint32_t crc = (uint32_t)crc_add(CRC_32C, 0, str_n(p, n));
    *field = was;
    return crc;
}

static bool is_zero(const void *p, size_t n)
{
    const uint64_t *w = p;
    for (size_t i = 0; i < n / 8; i++) {
        if (w[i]) {
            return false;
        }
    }
    return true;
}

void map_seal(struct map_page *p, uint32_t no, uint64_t seq, const uint8_t id[16])
{
    memset(p, 0, offsetof(struct map_page, payload));
    p->magic = PAGE_MAGIC;
    p->no = no;
    p->seq = seq;
    memcpy(p->id, id, sizeof(p->id));
    p->crc = crc_of(p, sizeof(*p), &p->crc);
}

int map_check(const struct map_page *p, uint32_t no, const uint8_t id[16])
{
    if (p->magic == 0 && is_zero(p, sizeof(*p))) {
        return 1;
    }
    struct map_page head = *p;
    if (p->magic != PAGE_MAGIC || p->no != no || memcmp(p->id, id, 16) != 0 ||
        p->crc != crc_of(&head, sizeof(head), &head.crc)) {
        return -EINVAL;
    }
    return 0;
}

void map_journal_seal(void *buf, unsigned n, uint64_t seq, const uint8_t id[16])
{
    struct map_journal *j = buf;
    memset(j, 0, sizeof(*j));
    j->magic = JOURNAL_MAGIC;
    j->n = n;
    j->seq = seq;
    memcpy(j->id, id, sizeof(j->id));
    for (unsigned i = 0; i < n; i++) {
        struct map_page *p = (struct map_page *)buf + 1 + i;
        uint32_t no = p->no;
        map_seal(p, no, seq, id);
        j->no[i] = no;
    }
    j->crc = (uint32_t)crc_add(CRC_32C, 0, str_n(buf, (n + 1) * MAP_PAGE));
}

bool map_journal_check(const void *buf, const uint8_t id[16])
{
    struct map_journal j;
    memcpy(&j, buf, sizeof(j));
    if (j.magic != JOURNAL_MAGIC || j.n == 0 || j.n > MAP_ROUND || memcmp(j.id, id, 16) != 0) {
        return false;
    }
    uint32_t crc = j.crc;
    j.crc = 0;
    uint64_t got = crc_add(CRC_32C, 0, str_n((const char *)&j, sizeof(j)));
    got = crc_add(CRC_32C, got, str_n((const char *)buf + MAP_PAGE, j.n * MAP_PAGE));
    if ((uint32_t)got != crc) {
        return false;
    }
    const struct map_page *p = (const struct map_page *)buf + 1;
    for (unsigned i = 0; i < j.n; i++) {
        if (p[i].seq != j.seq || map_check(&p[i], j.no[i], id) != 0) {
            return false;
        }
    }
    return true;
}

uint32_t map_super_newer(const struct map_super *s)
{
    struct map_super copy = *s;
    bool is_sound = s->magic == SUPER_MAGIC && s->crc == crc_of(&copy, sizeof(copy), &copy.crc);
    return is_sound && s->version > VERSION ? s->version : 0;
}

bool map_super_check(const struct map_super *s)
{
    struct map_super copy = *s;
    return s->magic == SUPER_MAGIC && s->version == VERSION &&
           s->crc == crc_of(&copy, sizeof(copy), &copy.crc) &&
           (s->flags & ~(uint32_t)(MAP_HAS_STATES | MAP_ENCRYPTED)) == 0;
}

static bool is_id(const char id[BLK_SNAP_ID])
{
    size_t n = strnlen(id, BLK_SNAP_ID);
    if (n == BLK_SNAP_ID) {
        return false;
    }
    for (size_t i = 0; i < BLK_SNAP_ID; i++) {
        if (i < n ? id[i] <= ' ' || id[i] > '~' : id[i] != 0) {
            return false;
        }
    }
    return true;
}

bool map_head_check(const struct map_head *h, struct err *err)
{
    bool ok = h->size > 0 && h->size <= BLK_MAP_MAX_SIZE && h->size % BLK_PAGE == 0 &&
              h->source_size <= h->size && h->source_size % BLK_PAGE == 0 &&
              h->cur < MAP_N_SETS && h->next_gen > 0 && is_id(h->since);
    unsigned used = ok ? 1u << h->cur : 0;
    for (unsigned i = 0; ok && i < BLK_MAX_FROZEN; i++) {
        const struct map_frozen *f = &h->frozen[i];
        if (f->gen == 0) {
            continue;
        }
        ok = f->set < MAP_N_SETS && !(used & (1u << f->set)) && f->gen < h->next_gen &&
             f->size > 0 && f->size <= h->size && is_id(f->snap) && f->snap[0] &&
             is_id(f->parent);
        used |= ok ? 1u << f->set : 0;
        for (unsigned k = 0; ok && k < i; k++) {
            ok = h->frozen[k].gen != f->gen && strcmp(h->frozen[k].snap, f->snap) != 0;
        }
    }
    if (!ok) {
        (void)fail(err, -EINVAL, "BadMap", "the head of the map does not fit together");
    }
    return ok;
}

bool map_states_check(const uint64_t *w, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        if ((w[i] >> 1) & ~w[i] & UINT64_C(0x5555555555555555)) {
            return false;
        }
    }
    return true;
}

int blk_map_create(int fd, const struct blk_map_opts *o, struct err *err)
{
    if (o->size == 0 || o->size > BLK_MAP_MAX_SIZE || o->size % BLK_PAGE != 0 ||
        o->source_size > o->size || o->source_size % BLK_PAGE != 0 || !is_id(o->since)) {
        return fail(err, -EINVAL, "BadMap", "a map for a volume of %llu bytes cannot be",
                    (unsigned long long)o->size);
    }
    AUTO_FREE void *mem = aligned_alloc(MAP_PAGE, 2 * MAP_PAGE);
    struct map_super *s = mem;
    if (!s) {
        return fail(err, -ENOMEM, "OutOfMemory", "no memory for a map");
    }
    memset(s, 0, 2 * MAP_PAGE);
    s->magic = SUPER_MAGIC;
    s->version = VERSION;
    s->flags = (o->source_size || o->is_encrypted ? MAP_HAS_STATES : 0) |
               (o->is_encrypted ? MAP_ENCRYPTED : 0);
    rand_bytes(s->id, sizeof(s->id));
    s->crc = crc_of(s, sizeof(*s), &s->crc);
    struct map_head h = {.size = o->size,
                         .source_size = o->source_size,
                         .epoch = 1,
                         .next_gen = 1,
                         .flags = MAP_CLEAN};
    memcpy(h.since, o->since, sizeof(h.since));
    struct map_page *p = (struct map_page *)s + 1;
    memcpy(p->payload, &h, sizeof(h));
    map_seal(p, 0, 0, s->id);
    /* The superblock last: a file without one is no map. */
    int rc = fault_truncate(NULL, fd, map_file_size(o->size));
    rc = rc ? rc : fault_pwrite(NULL, fd, p, MAP_PAGE, map_page_off(0));
    rc = rc ? rc : fault_fdatasync(NULL, fd);
    rc = rc ? rc : fault_pwrite(NULL, fd, s, MAP_PAGE, 0);
    rc = rc ? rc : fault_fdatasync(NULL, fd);
    return rc ? fail(err, rc, "WriteFailed", "the map of a volume: %s", strerror(-rc)) : 0;
}
