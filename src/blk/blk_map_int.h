/* blk_map_int.h — the map of a volume: durable pages and a journal in a file, and the run-time
 *                 map, a shared mapping in which every mark is one atomic store.
 * Not here: when marks are set and written (blk_cow*.c); inside the room only.
 * Threads:  marks (map_mark_*(), map_flag()) from any thread; everything else the owner.
 * Memory:   map_open() gives. Descriptors are the caller's.
 * Errors:   -EINVAL "BadMap": the file is not a sound map and is not used; -EIO.
 * Format:   docs/formats/volume-map.md. A durable page holds MAP_PAYLOAD bytes of one run-time
 * area.
 *
 * A change is: flag the durable page as changed, then change the area. A sweep moves flags from
 * 'changed' to 'writing', copies the pages, makes them durable, clears 'writing'. So at any
 * instant a page that differs from its durable form is flagged in one of the two, and a killed
 * process leaves nothing behind that the next one does not write. */
#pragma once
#include "base/err.h"
#include "base/fault.h"
#include "blk/blk_cow.h"
#include <assert.h>
#include <stdatomic.h>

#define MAP_PAGE          4096u
#define MAP_PAYLOAD       4032u
#define MAP_CHUNK_BLOCKS  (MAP_PAYLOAD * 8u)        /* blocks per durable page of a bitmap */
#define MAP_CHUNK_REGIONS (MAP_CHUNK_BLOCKS / 128u) /* 252 */
#define MAP_CHUNK_PAGES   266u                      /* durable pages that describe a chunk */
#define MAP_N_SETS        (BLK_MAX_FROZEN + 1u)
#define MAP_STATE_PAGES   256u /* of page states in a chunk */
#define MAP_ASIDE_PER     63u  /* entries in a durable page */
#define MAP_ASIDE_PAGES   ((BLK_ASIDE_SLOTS + MAP_ASIDE_PER - 1) / MAP_ASIDE_PER)
#define MAP_FIRST_CHUNK   (1u + MAP_ASIDE_PAGES)
#define MAP_MAX_CHUNKS    ((uint32_t)(BLK_MAP_MAX_SIZE / BLK_BLOCK / MAP_CHUNK_BLOCKS + 1))
#define MAP_ROUND         127u /* pages of one journal entry */
#define MAP_JOURNAL_SIZE  ((MAP_ROUND + 1) * MAP_PAGE)
#define MAP_PAGES_OFF     (MAP_PAGE + 2u * MAP_JOURNAL_SIZE)
#define MAP_BLOCK_PAGES   (BLK_BLOCK / BLK_PAGE)   /* 128 */
#define MAP_REGION_BLOCKS (BLK_REGION / BLK_BLOCK) /* 128 */

/* States of a page, two bits: bit 0 known (the source is not needed), bit 1 written (the file
 * has it). 2 does not occur. */
enum map_state { MAP_ABSENT = 0, MAP_ZERO = 1, MAP_DATA = 3 };

enum { MAP_HAS_STATES = 1, MAP_ENCRYPTED = 2 }; /* flags of the file */
enum { MAP_CLEAN = 1 };                         /* of the head */
enum { MAP_FULL = 1 };                          /* of a frozen set */

struct map_frozen {
    char snap[BLK_SNAP_ID], parent[BLK_SNAP_ID];
    uint64_t size;            /* of the volume then */
    uint32_t gen, set, flags; /* gen 0 = free; set: index of the bitmap */
    uint32_t zero;
};
struct map_head { /* durable page 0, little-endian */
    uint64_t size, source_size, epoch;
    uint32_t next_gen, flags, cur, zero; /* cur: the bitmap that collects dirt now */
    char since[BLK_SNAP_ID];
    struct map_frozen frozen[BLK_MAX_FROZEN];
};
struct map_aside { /* 64 bytes: what is in slot i of the aside file */
    uint64_t block;
    uint32_t gen[BLK_MAX_FROZEN]; /* of the frozen sets it is for; all 0 = free */
    uint64_t state[4];            /* of its 128 pages when it was copied */
    uint64_t zero;
};
struct map_page {
    uint32_t magic, crc, no, zero;
    uint64_t seq;
    uint8_t id[16], pad[24];
    uint8_t payload[MAP_PAYLOAD];
};
struct map_journal {
    uint64_t magic;
    uint32_t crc, n;
    uint64_t seq;
    uint8_t id[16], pad[24];
    uint32_t no[MAP_ROUND];
    uint8_t rest[MAP_PAGE - 64 - 4 * MAP_ROUND];
};
struct map_super {
    uint64_t magic;
    uint32_t version, crc;
    uint8_t id[16];
    uint32_t flags;
    uint8_t rest[MAP_PAGE - 36];
};
_Static_assert(sizeof(struct map_page) == MAP_PAGE, "page");
_Static_assert(sizeof(struct map_journal) == MAP_PAGE, "journal");
_Static_assert(sizeof(struct map_super) == MAP_PAGE, "super");
_Static_assert(sizeof(struct map_aside) == 64, "aside");
_Static_assert(sizeof(struct map_head) <= MAP_PAYLOAD, "head");

struct map_run; /* the first page of the run-time map */

struct blk_map {
    int map_fd, run_fd;
    struct fault_fs *fs;
    uint8_t id[16];
    uint32_t flags;
    bool has_states, is_encrypted;
    bool is_adopted; /* the run-time map of a killed process is used */
    uint64_t seq;    /* of the last journal entry */
    struct map_run *run;
    _Atomic uint64_t *changed, *writing; /* bit per durable page */
    _Atomic uint64_t
        *touch; /* bit per region, 256 per chunk: as the durable map has it or will */
    _Atomic uint64_t *safe;    /* those that the durable map has */
    _Atomic uint64_t *suspect; /* regions all of whose blocks count as dirty */
    _Atomic uint64_t *set[MAP_N_SETS], *stored[BLK_MAX_FROZEN];
    _Atomic uint64_t *open[BLK_MAX_FROZEN]; /* may be overwritten: stored durably, or aside */
    _Atomic uint64_t *aside;                /* of struct map_aside */
    _Atomic uint64_t *state;                /* two bits per page */
    _Atomic uint64_t n_marks;  /* flagged durable pages of states: a FLUSH has work */
    _Atomic uint64_t n_absent; /* pages that still need the source */
    uint64_t source_pages;     /* pages below this come from the source when absent */
};

/* ---- bits ---- */
static inline bool map_bit(const _Atomic uint64_t *w, uint64_t i)
{
    return (atomic_load_explicit(&w[i / 64], memory_order_acquire) >> (i % 64)) & 1;
}
static inline bool map_bit_set(_Atomic uint64_t *w, uint64_t i) /* true: it was not */
{
    return !((atomic_fetch_or(&w[i / 64], UINT64_C(1) << (i % 64)) >> (i % 64)) & 1);
}
static inline void map_bit_clear(_Atomic uint64_t *w, uint64_t i)
{
    atomic_fetch_and(&w[i / 64], ~(UINT64_C(1) << (i % 64)));
}
static inline uint64_t map_region_bit(uint64_t region)
{
    return region / MAP_CHUNK_REGIONS * 256 + region % MAP_CHUNK_REGIONS;
}
static inline unsigned map_state(const struct blk_map *m, uint64_t page)
{
    return (atomic_load_explicit(&m->state[page / 32], memory_order_acquire) >>
            (page % 32 * 2)) &
           3;
}

/* ---- durable pages: numbers ---- */
enum map_kind { MAP_K_HEAD, MAP_K_ASIDE, MAP_K_TOUCH, MAP_K_SET, MAP_K_STORED, MAP_K_STATE };
static inline uint32_t map_no(enum map_kind k, unsigned idx, uint64_t block)
{
    uint32_t base = MAP_FIRST_CHUNK + (uint32_t)(block / MAP_CHUNK_BLOCKS) * MAP_CHUNK_PAGES;
    return base + (k == MAP_K_TOUCH    ? 0
                   : k == MAP_K_SET    ? 1 + idx
                   : k == MAP_K_STORED ? 6 + idx
                                       : 10 + (uint32_t)(block % MAP_CHUNK_BLOCKS) / 126);
}
enum map_kind map_kind_of(uint32_t no, unsigned *ret_idx);
/* The bytes of the run-time map that a durable page holds. Not for the head. */
_Atomic uint64_t *map_area(const struct blk_map *m, uint32_t no, size_t *ret_words);
uint32_t map_n_pages(uint64_t size); /* durable pages of a volume of that size */
uint64_t map_file_size(uint64_t size);

/* ---- pure: pages and journal entries (blk_map.c) ---- */
void map_seal(struct map_page *p, uint32_t no, uint64_t seq, const uint8_t id[16]);
/* 1: never written (zeros); 0: sound; -EINVAL. */
MUST_CHECK int map_check(const struct map_page *p, uint32_t no, const uint8_t id[16]);
/* 'buf' holds the header and n pages after it. */
void map_journal_seal(void *buf, unsigned n, uint64_t seq, const uint8_t id[16]);
bool map_journal_check(const void *buf, const uint8_t id[16]);
bool map_super_check(const struct map_super *s);
uint32_t map_super_newer(
    const struct map_super *s); /* its version, sound but not ours yet; or 0 */
bool map_head_check(const struct map_head *h, struct err *err);
bool map_states_check(const uint64_t *w, size_t n); /* no page in state 2 */
/* What a volume of that many bytes has. */
static inline uint64_t map_n_blocks(uint64_t size)
{
    return (size + BLK_BLOCK - 1) / BLK_BLOCK;
}

/* ---- the map in use (blk_map_open.c) ---- */
MUST_CHECK int map_open(int map_fd, int run_fd, const char *boot, struct fault_fs *fs,
                        uint64_t size, struct blk_map **ret, struct err *err);
void map_close(struct blk_map *m);
/* Clean stop or not: writes everything that is flagged, by whole calls; durable when it
 * returns. */
MUST_CHECK int map_write_all(struct blk_map *m, struct err *err);
/* Clean stop: dirt and suspects as they are, then everything, then the mark. */
MUST_CHECK int map_stop(struct blk_map *m, struct err *err);

/* ---- the run-time map (blk_map_run.c) ---- */
/* 'boot': the boot id; a mapping of another boot, volume or version begins anew. */
MUST_CHECK int map_run_attach(struct blk_map *m, const char *boot, struct err *err);
void map_run_detach(struct blk_map *m);
void map_run_set_ready(struct blk_map *m, bool is_ready); /* complete: may be adopted */
void map_adopt_flags(struct blk_map *m);                  /* of a process that was killed */
const struct map_head *map_head(const struct blk_map *m);
struct map_head *map_head_begin(struct blk_map *m); /* a copy to change */
void map_head_flip(struct blk_map *m);              /* becomes valid, in one store; flagged */
void map_flag(struct blk_map *m, uint32_t no);      /* before the change */
void map_flag_all(struct blk_map *m, enum map_kind k,
                  unsigned idx);                                 /* pages that are not zero */
void map_wipe(struct blk_map *m, enum map_kind k, unsigned idx); /* flags them, then zeroes */
void map_wipe_open(struct blk_map *m, unsigned idx);
/* Pages [page, page + n) become 'st'. The caller has the pages' lock. */
void map_mark(struct blk_map *m, uint64_t page, uint64_t n, enum map_state st);
/* Whether all are MAP_DATA: the fast path. */
bool map_all_data(const struct blk_map *m, uint64_t page, uint64_t n);
/* Length of the run from 'page' (at most n) of one state. */
uint64_t map_run(const struct blk_map *m, uint64_t page, uint64_t n, unsigned *ret_state);
void map_block_states(const struct blk_map *m, uint64_t block, uint64_t ret[4]);
void map_count_absent(struct blk_map *m);
/* Next bit at or after i that is set, or 'end'. */
uint64_t map_next_bit(const _Atomic uint64_t *w, uint64_t i, uint64_t end);
struct map_aside map_aside_get(const struct blk_map *m, uint32_t slot);
void map_aside_put(struct blk_map *m, uint32_t slot, const struct map_aside *a);

/* A sweep: moves the flags (then the caller waits until no marker is half way), then rounds
 * until one says that it is the last. 'buf' (MAP_JOURNAL_SIZE) becomes a journal entry of n
 * pages; 0: nothing to write. The head goes with the last round, and only if 'with_head'. */
void map_sweep(struct blk_map *m);
unsigned map_round(struct blk_map *m, void *buf, bool with_head, bool *ret_is_last);
/* The entry is durable: clears 'writing', notes what is safe and open now. */
void map_round_done(struct blk_map *m, const void *buf);
static inline uint64_t map_journal_off(uint64_t seq)
{
    return MAP_PAGE + (seq & 1) * MAP_JOURNAL_SIZE;
}
static inline uint64_t map_page_off(uint32_t no)
{
    return MAP_PAGES_OFF + (uint64_t)no * MAP_PAGE;
}
