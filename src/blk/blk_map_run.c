#include "blk/blk_map_int.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>

#define RUN_MAGIC   UINT64_C(0x314e555242585053) /* "SPXBRUN1" */
#define RUN_VERSION 1u

struct map_run {
    uint64_t magic;
    uint32_t version;
    _Atomic uint32_t ready; /* complete: everything below was filled in */
    char boot[48];
    uint8_t id[16];
    _Atomic uint32_t sel; /* which head is valid */
    uint32_t zero;
    struct map_head head[2];
};

/* Where the areas are; each as large as the largest volume needs, and sparse. */
#define UP(n)       (((n) + 0xffffu) & ~UINT64_C(0xffff))
#define FLAGS_SIZE  UP((MAP_FIRST_CHUNK + (uint64_t)MAP_MAX_CHUNKS * MAP_CHUNK_PAGES) / 8 + 8)
#define TOUCH_SIZE  UP((uint64_t)MAP_MAX_CHUNKS * 32)
#define BITMAP_SIZE UP((uint64_t)MAP_MAX_CHUNKS *MAP_PAYLOAD)
#define ASIDE_SIZE  UP((uint64_t)MAP_ASIDE_PAGES *MAP_PAYLOAD)
#define STATE_SIZE  UP((uint64_t)MAP_MAX_CHUNKS *MAP_STATE_PAGES *MAP_PAYLOAD)
#define N_BITMAPS   (MAP_N_SETS + 2 * BLK_MAX_FROZEN)
#define RUN_SIZE                                                                      \
    (UP(1) + 2 * FLAGS_SIZE + 3 * TOUCH_SIZE + N_BITMAPS * BITMAP_SIZE + ASIDE_SIZE + \
     STATE_SIZE)

static _Atomic uint64_t *take(char *base, uint64_t *off, uint64_t size)
{
    _Atomic uint64_t *w = (_Atomic uint64_t *)(void *)(base + *off);
    *off += size;
    return w;
}

static void lay_out(struct blk_map *m)
{
    char *base = (char *)m->run;
    uint64_t off = UP(1);
    m->changed = take(base, &off, FLAGS_SIZE);
    m->writing = take(base, &off, FLAGS_SIZE);
    m->touch = take(base, &off, TOUCH_SIZE);
    m->safe = take(base, &off, TOUCH_SIZE);
    m->suspect = take(base, &off, TOUCH_SIZE);
    for (unsigned i = 0; i < MAP_N_SETS; i++) {
        m->set[i] = take(base, &off, BITMAP_SIZE);
    }
    for (unsigned i = 0; i < BLK_MAX_FROZEN; i++) {
        m->stored[i] = take(base, &off, BITMAP_SIZE);
        m->open[i] = take(base, &off, BITMAP_SIZE);
    }
    m->aside = take(base, &off, ASIDE_SIZE);
    m->state = take(base, &off, STATE_SIZE);
    assert(off == RUN_SIZE);
}

int map_run_attach(struct blk_map *m, const char *boot, struct err *err)
{
    int flags = m->run_fd >= 0 ? MAP_SHARED : MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
    bool is_kept = false;
    if (m->run_fd >= 0) {
        struct stat st;
        if (fstat(m->run_fd, &st)) {
            return fail(err, -errno, "OpenFailed", "the run-time map: %m");
        }
        is_kept = st.st_size == (off_t)RUN_SIZE;
        /* A file of any other size is not one of ours, or was cut short: begin anew. */
        if (!is_kept && (ftruncate(m->run_fd, 0) || ftruncate(m->run_fd, (off_t)RUN_SIZE))) {
            return fail(err, -errno, "WriteFailed", "the run-time map: %m");
        }
    }
    void *p = mmap(NULL, RUN_SIZE, PROT_READ | PROT_WRITE, flags, m->run_fd, 0);
    if (p == MAP_FAILED) {
        return fail(err, -errno, "OutOfMemory", "mapping the run-time map: %m");
    }
    (void)madvise(p, RUN_SIZE, MADV_DONTDUMP);
    m->run = p;
    lay_out(m);
    struct map_run *r = m->run;
    m->is_adopted = is_kept && r->magic == RUN_MAGIC && r->version == RUN_VERSION &&
                    atomic_load(&r->ready) == 1 && atomic_load(&r->sel) < 2 &&
                    strncmp(r->boot, boot, sizeof(r->boot)) == 0 &&
                    memcmp(r->id, m->id, sizeof(m->id)) == 0 &&
                    map_head_check(map_head(m), NULL) && !(map_head(m)->flags & MAP_CLEAN);
    if (m->is_adopted) {
        return 0;
    }
    if (is_kept && (ftruncate(m->run_fd, 0) || ftruncate(m->run_fd, (off_t)RUN_SIZE))) {
        return fail(err, -errno, "WriteFailed", "the run-time map: %m");
    }
    r->magic = RUN_MAGIC;
    r->version = RUN_VERSION;
    memcpy(r->id, m->id, sizeof(r->id));
    (void)snprintf(r->boot, sizeof(r->boot), "%s", boot);
    return 0;
}

void map_run_detach(struct blk_map *m)
{
    if (m->run) {
        munmap(m->run, RUN_SIZE);
        m->run = NULL;
    }
}

void map_run_set_ready(struct blk_map *m, bool is_ready)
{
    atomic_store(&m->run->ready, is_ready ? 1 : 0);
}

/* ---- the head: two copies and which of them is valid ---- */

const struct map_head *map_head(const struct blk_map *m)
{
    return &m->run->head[atomic_load(&m->run->sel) & 1];
}

struct map_head *map_head_begin(struct blk_map *m)
{
    unsigned other = (atomic_load(&m->run->sel) & 1) ^ 1;
    m->run->head[other] = *map_head(m);
    return &m->run->head[other];
}

void map_head_flip(struct blk_map *m)
{
    map_flag(m, 0);
    atomic_store(&m->run->sel, (atomic_load(&m->run->sel) & 1) ^ 1);
}

/* ---- flags ---- */

static bool is_mark(uint32_t no)
{
    unsigned idx;
    return map_kind_of(no, &idx) == MAP_K_STATE;
}

void map_flag(struct blk_map *m, uint32_t no)
{
    if (!map_bit(m->changed, no) && map_bit_set(m->changed, no) && is_mark(no)) {
        atomic_fetch_add(&m->n_marks, 1);
    }
}

static bool is_zero_area(const _Atomic uint64_t *w, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        if (atomic_load_explicit(&w[i], memory_order_relaxed)) {
            return false;
        }
    }
    return true;
}

static uint64_t n_chunks(const struct blk_map *m)
{
    return (map_n_blocks(map_head(m)->size) + MAP_CHUNK_BLOCKS - 1) / MAP_CHUNK_BLOCKS;
}

void map_flag_all(struct blk_map *m, enum map_kind k, unsigned idx)
{
    for (uint64_t c = 0; c < n_chunks(m); c++) {
        uint32_t no = map_no(k, idx, c * MAP_CHUNK_BLOCKS);
        size_t n;
        const _Atomic uint64_t *w = map_area(m, no, &n);
        if (!is_zero_area(w, n)) {
            map_flag(m, no);
        }
    }
}

static void zero_words(_Atomic uint64_t *w, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        if (atomic_load_explicit(&w[i], memory_order_relaxed)) {
            atomic_store_explicit(&w[i], 0, memory_order_release);
        }
    }
}

void map_wipe(struct blk_map *m, enum map_kind k, unsigned idx)
{
    map_flag_all(m, k, idx);
    for (uint64_t c = 0; c < n_chunks(m); c++) {
        size_t n;
        _Atomic uint64_t *w = map_area(m, map_no(k, idx, c * MAP_CHUNK_BLOCKS), &n);
        zero_words(w, n);
    }
}

void map_wipe_open(struct blk_map *m, unsigned idx)
{
    zero_words(m->open[idx], (size_t)n_chunks(m) * (MAP_PAYLOAD / 8));
}

uint64_t map_next_bit(const _Atomic uint64_t *w, uint64_t i, uint64_t end)
{
    while (i < end) {
        uint64_t x = atomic_load_explicit(&w[i / 64], memory_order_acquire) >> (i % 64);
        if (x) {
            i += (unsigned)__builtin_ctzll(x);
            return i < end ? i : end;
        }
        i = (i / 64 + 1) * 64;
    }
    return end;
}

/* ---- states of pages ---- */

#define LOW UINT64_C(0x5555555555555555)

/* The two-bit fields [page % 32, ...) of one word, at most n. */
static uint64_t field_mask(uint64_t page, uint64_t n, unsigned *ret_n)
{
    unsigned first = (unsigned)(page % 32);
    unsigned k = (unsigned)(n < 32 - first ? n : 32 - first);
    *ret_n = k;
    uint64_t ones = k == 32 ? ~UINT64_C(0) : (UINT64_C(1) << (2 * k)) - 1;
    return ones << (2 * first);
}

static void mark_word(struct blk_map *m, uint64_t page, uint64_t mask, enum map_state st)
{
    _Atomic uint64_t *w = &m->state[page / 32];
    uint64_t source = m->source_pages, first = page / 32 * 32;
    /* Only pages below the source's end can be absent. */
    uint64_t of_source = first + 32 <= source ? ~UINT64_C(0)
                         : first >= source    ? 0
                                              : (UINT64_C(1) << (2 * (source - first))) - 1;
    uint64_t low = mask & of_source & LOW;
    uint64_t old;
    if (st == MAP_DATA) {
        old = atomic_fetch_or(w, mask);
    } else {
        old = atomic_fetch_or(w, low);
        atomic_fetch_and(w, ~(mask & ~low));
    }
    uint64_t n = (unsigned)__builtin_popcountll(low & ~old);
    if (n) {
        atomic_fetch_sub(&m->n_absent, n);
    }
}

void map_mark(struct blk_map *m, uint64_t page, uint64_t n, enum map_state st)
{
    while (n > 0) {
        unsigned k;
        uint64_t mask = field_mask(page, n, &k);
        map_flag(m, map_no(MAP_K_STATE, 0, page / MAP_BLOCK_PAGES));
        mark_word(m, page, mask, st);
        page += k;
        n -= k;
    }
}

bool map_all_data(const struct blk_map *m, uint64_t page, uint64_t n)
{
    while (n > 0) {
        unsigned k;
        uint64_t mask = field_mask(page, n, &k);
        if (mask & ~atomic_load_explicit(&m->state[page / 32], memory_order_acquire)) {
            return false;
        }
        page += k;
        n -= k;
    }
    return true;
}

uint64_t map_run(const struct blk_map *m, uint64_t page, uint64_t n, unsigned *ret_state)
{
    unsigned st = map_state(m, page);
    uint64_t k = 1;
    while (k < n && map_state(m, page + k) == st) {
        k++;
    }
    *ret_state = st;
    return k;
}

void map_block_states(const struct blk_map *m, uint64_t block, uint64_t ret[4])
{
    for (unsigned i = 0; i < 4; i++) {
        ret[i] = atomic_load_explicit(&m->state[block * 4 + i], memory_order_acquire);
    }
}

void map_count_absent(struct blk_map *m)
{
    uint64_t n = 0, pages = m->source_pages;
    /* Holes of the mapping's file are absent pages: not looked at, or they would cost memory. */
    uint64_t base = (uint64_t)((uintptr_t)m->state - (uintptr_t)m->run), at = 0;
    uint64_t words = (pages + 31) / 32;
    while (at < words) {
        uint64_t end = words;
        if (m->run_fd >= 0) {
            off_t d = lseek(m->run_fd, (off_t)(base + at * 8), SEEK_DATA);
            uint64_t from = d < 0 ? words : ((uint64_t)d - base) / 8;
            from = from < words ? from : words;
            n += (from - at) * 32;
            at = from;
            off_t h = at < words ? lseek(m->run_fd, (off_t)(base + at * 8), SEEK_HOLE) : -1;
            end = h < 0 ? words : ((uint64_t)h - base + 7) / 8;
            end = end < words ? end : words;
        }
        for (; at < end; at++) {
            n += 32 - (unsigned)__builtin_popcountll(
                          atomic_load_explicit(&m->state[at], memory_order_relaxed) & LOW);
        }
    }
    /* Pages of the last word that are beyond the end were counted as absent. */
    atomic_store(&m->n_absent, n - (words * 32 - pages));
}

/* ---- aside entries ---- */

struct map_aside map_aside_get(const struct blk_map *m, uint32_t slot)
{
    union {
        struct map_aside a;
        uint64_t w[8];
    } u;
    for (unsigned i = 0; i < 8; i++) {
        u.w[i] = atomic_load_explicit(&m->aside[(size_t)slot * 8 + i], memory_order_acquire);
    }
    return u.a;
}

void map_aside_put(struct blk_map *m, uint32_t slot, const struct map_aside *a)
{
    union {
        struct map_aside a;
        uint64_t w[8];
    } u = {*a};
    map_flag(m, 1 + slot / MAP_ASIDE_PER);
    /* The generations make it valid: gone first, there last. */
    atomic_store(&m->aside[(size_t)slot * 8 + 1], 0);
    atomic_store(&m->aside[(size_t)slot * 8 + 2], 0);
    for (unsigned i = 0; i < 8; i++) {
        if (i != 1 && i != 2) {
            atomic_store(&m->aside[(size_t)slot * 8 + i], u.w[i]);
        }
    }
    atomic_store(&m->aside[(size_t)slot * 8 + 1], u.w[1]);
    atomic_store(&m->aside[(size_t)slot * 8 + 2], u.w[2]);
}

/* ---- sweeps ---- */

static size_t flag_words(const struct blk_map *m)
{
    return (map_n_pages(map_head(m)->size) + 63) / 64;
}

void map_sweep(struct blk_map *m)
{
    size_t n = flag_words(m);
    for (size_t i = 0; i < n; i++) {
        uint64_t x = atomic_load(&m->changed[i]);
        if (!x) {
            continue;
        }
        uint64_t was = atomic_fetch_or(&m->writing[i], x);
        atomic_fetch_and(&m->changed[i], ~x);
        for (uint64_t both = x & was; both; both &= both - 1) { /* counted twice until now */
            if (is_mark((uint32_t)(i * 64 + (unsigned)__builtin_ctzll(both)))) {
                atomic_fetch_sub(&m->n_marks, 1);
            }
        }
    }
}

static void copy_page(const struct blk_map *m, uint32_t no, struct map_page *p)
{
    memset(p, 0, sizeof(*p));
    p->no = no;
    if (no == 0) {
        memcpy(p->payload, map_head(m), sizeof(struct map_head));
        return;
    }
    size_t n;
    const _Atomic uint64_t *w = map_area(m, no, &n);
    uint64_t *to = (uint64_t *)(void *)p->payload;
    for (size_t i = 0; i < n; i++) {
        to[i] = atomic_load_explicit(&w[i], memory_order_acquire);
    }
}

unsigned map_round(struct blk_map *m, void *buf, bool with_head, bool *ret_is_last)
{
    struct map_page *p = (struct map_page *)buf + 1;
    uint64_t end = (uint64_t)flag_words(m) * 64;
    unsigned n = 0, max = MAP_ROUND - 1; /* one place for the head */
    uint64_t no = map_next_bit(m->writing, 1, end);
    while (no < end && n < max) {
        copy_page(m, (uint32_t)no, &p[n++]);
        no = map_next_bit(m->writing, no + 1, end);
    }
    *ret_is_last = no >= end;
    if (*ret_is_last && with_head && map_bit(m->writing, 0)) {
        copy_page(m, 0, &p[n++]);
    }
    if (n > 0) {
        map_journal_seal(buf, n, ++m->seq, m->id);
    }
    return n;
}

static void or_words(_Atomic uint64_t *to, const void *from, size_t n)
{
    const uint64_t *w = from;
    for (size_t i = 0; i < n; i++) {
        if (w[i]) {
            atomic_fetch_or(&to[i], w[i]);
        }
    }
}

void map_round_done(struct blk_map *m, const void *buf)
{
    const struct map_journal *j = buf;
    const struct map_page *p = (const struct map_page *)buf + 1;
    for (unsigned i = 0; i < j->n; i++) {
        unsigned idx;
        enum map_kind k = map_kind_of(p[i].no, &idx);
        size_t chunk = (p[i].no - MAP_FIRST_CHUNK) / MAP_CHUNK_PAGES;
        if (k == MAP_K_TOUCH) {
            or_words(m->safe + chunk * 4, p[i].payload, 4);
        } else if (k == MAP_K_STORED) {
            or_words(m->open[idx] + chunk * (MAP_PAYLOAD / 8), p[i].payload, MAP_PAYLOAD / 8);
        }
        map_bit_clear(m->writing, p[i].no);
        if (k == MAP_K_STATE) {
            atomic_fetch_sub(&m->n_marks, 1);
        }
    }
}

void map_adopt_flags(struct blk_map *m)
{
    size_t n = flag_words(m);
    uint64_t marks = 0;
    for (size_t i = 0; i < n; i++) {
        uint64_t x = atomic_load(&m->writing[i]);
        if (x) {
            atomic_fetch_or(&m->changed[i], x);
            atomic_store(&m->writing[i], 0);
        }
        for (x = atomic_load(&m->changed[i]); x; x &= x - 1) {
            marks += is_mark((uint32_t)(i * 64 + (unsigned)__builtin_ctzll(x))) ? 1 : 0;
        }
    }
    atomic_store(&m->n_marks, marks);
}
