/* blk_cow_world.h — a volume of test: files in a folder, a source, a store, the layer above them,
 *                   and ends of its life (close, kill -9, power cut); for *_test.c of this room.
 * Not here: anything a service links.
 * Threads:  the thread that made the world; its queue is the owner's and the guest's.
 * Memory:   cw_*() work on a struct of the test.
 * Errors:   answers of requests as they are; everything else ends the test. */
#pragma once
#include "base/time.h"
#include "blk/blk_cow_int.h"
#include "blk/blk_crypt.h"
#include "blk/blk_world.h"
#include "testkit/tmpdir.h"
#include <fcntl.h>
#include <limits.h>
#include <sys/mman.h>
#include <sys/stat.h>

#define CW_BOOT "11111111-2222-3333-4444-555555555555"

struct cw_store { /* what was uploaded of a frozen set */
    char **block;
    uint64_t n, n_puts;
    bool is_ended;
};

struct cow_world {
    struct world w; /* first */
    struct tmpdir dir;
    int data_fd, map_fd, aside_fd, run_fd, base_fd, base_map_fd;
    uint64_t size, source_size, aside_size;
    bool is_encrypted, has_base, no_clone;
    const char *boot;
    struct fault_fs *fs;
    int root; /* folder, through fs */
    struct cow *l;

    uint64_t wants[64];
    unsigned n_wants, n_asked;
    int want_rc;
    bool is_want_held, is_up_held;
    struct cw_up {
        unsigned k;
        uint64_t block;
        const void *data;
    } ups[256];
    unsigned n_ups;
    int up_rc;
    struct cw_store store[BLK_MAX_FROZEN];
    int n_faults;
};

static inline void cw_source_page(uint64_t page, char *p)
{
    uint64_t *w = (uint64_t *)(void *)p;
    for (size_t i = 0; i < BLK_PAGE / 8; i++) {
        w[i] = page % 7 == 3 ? 0 : (page + 1) * UINT64_C(0x9e3779b97f4a7c15) + i;
    }
}

static inline void cw_source(uint64_t off, char *p, uint64_t len, uint64_t source_size)
{
    for (uint64_t i = 0; i < len; i += BLK_PAGE) {
        if (off + i < source_size) {
            cw_source_page((off + i) / BLK_PAGE, p + i);
        } else {
            memset(p + i, 0, BLK_PAGE);
        }
    }
}

static inline void cw_want(void *ctx, uint64_t block, bool is_background)
{
    struct cow_world *c = ctx;
    assert_true(c->n_wants < 64);
    c->wants[c->n_wants++] = block;
    c->n_asked++;
}

static inline void cw_upload(void *ctx, unsigned k, uint64_t block, const void *data)
{
    struct cow_world *c = ctx;
    assert_true(c->n_ups < 256);
    c->ups[c->n_ups++] = (struct cw_up){k, block, data};
}

static inline void cw_upload_end(void *ctx, unsigned k)
{
    struct cow_world *c = ctx;
    c->store[k].is_ended = true;
}

static inline void cw_on_fault(void *ctx, int errnum)
{
    struct cow_world *c = ctx;
    c->n_faults++;
}

static inline int cw_file(struct cow_world *c, const char *name, uint64_t size)
{
    int fd = fault_open(c->fs, c->root, name, O_RDWR | O_CREAT, 0600);
    assert_true(fd >= 0);
    struct stat st;
    assert_int_equal(fstat(fd, &st), 0);
    if ((uint64_t)st.st_size < size) {
        assert_int_equal(fault_truncate(c->fs, fd, size), 0);
    }
    return fd;
}

/* The files as they are, a new or an old run-time map: opens the layer. */
static inline int cw_try_open(struct cow_world *c, struct err *err)
{
    static const uint8_t key[BLK_KEY_SIZE] = {1, 2, 3};
    struct blk_layer *below = NULL, *aside = NULL, *base = NULL;
    struct blk_file_opts fo = {.fd = c->data_fd, .size = c->size, .fs = c->fs};
    assert_int_equal(blk_file_new(&fo, &below, NULL), 0);
    fo.fd = c->aside_fd;
    fo.size = c->aside_size ? c->aside_size : 4 * c->size;
    assert_int_equal(blk_file_new(&fo, &aside, NULL), 0);
    if (c->is_encrypted) {
        assert_int_equal(blk_crypt_new(below, key, &below, NULL), 0);
        assert_int_equal(blk_crypt_new(aside, key, &aside, NULL), 0);
    }
    if (c->has_base) {
        fo = (struct blk_file_opts){
            .fd = c->base_fd, .size = c->source_size, .is_read_only = true, .fs = c->fs};
        assert_int_equal(blk_file_new(&fo, &base, NULL), 0);
    }
    struct blk_cow_opts o = {.map_fd = c->map_fd,
                             .run_fd = c->run_fd,
                             .aside = aside,
                             .data_fd = c->fs ? -1 : c->data_fd,
                             .aside_fd = c->is_encrypted || c->fs ? -1 : c->aside_fd,
                             .base = base,
                             .base_map_fd = c->base_map_fd,
                             .supplier = {cw_want, cw_upload, cw_upload_end, c},
                             .n_queues = 4,
                             .inner = c->w.q,
                             .on_fault = cw_on_fault,
                             .fault_ctx = c,
                             .boot_id = c->boot,
                             .fs = c->fs};
    int rc = blk_cow_new(below, &o, &c->w.top, err);
    if (rc) {
        blk_stack_free(below);
        blk_stack_free(aside);
        blk_stack_free(base);
        c->w.top = NULL;
        return rc;
    }
    c->l = cow_of(c->w.top);
    return 0;
}

static inline void cw_open(struct cow_world *c)
{
    struct err err = ERR_INIT;
    if (cw_try_open(c, &err)) {
        fail_msg("%s: %s", err.name, err.msg);
    }
}

static inline void cw_open_files(struct cow_world *c, const char *path)
{
    c->root = fault_open_root(c->fs, path);
    assert_true(c->root >= 0);
    c->data_fd = cw_file(c, "data", c->size);
    c->aside_fd = cw_file(c, "aside", c->aside_size ? c->aside_size : 4 * c->size);
    c->map_fd = cw_file(c, "map", 0);
    c->base_fd = c->has_base ? cw_file(c, "base", c->source_size) : -1;
    c->base_map_fd = c->has_base ? cw_file(c, "base_map", 0) : -1;
}

static inline void cw_close_files(struct cow_world *c)
{
    int *fds[] = {&c->data_fd, &c->aside_fd,    &c->map_fd,
                  &c->base_fd, &c->base_map_fd, &c->root};
    for (size_t i = 0; i < ARRAY_LEN(fds); i++) {
        if (*fds[i] >= 0) {
            close(*fds[i]);
        }
        *fds[i] = -1;
    }
}

static inline void cw_new_run(struct cow_world *c)
{
    if (c->run_fd >= 0) {
        close(c->run_fd);
    }
    c->run_fd = memfd_create("run", MFD_CLOEXEC);
    assert_true(c->run_fd >= 0);
}

static inline void cw_create_map(struct cow_world *c, const char *since)
{
    struct blk_map_opts mo = {
        .size = c->size, .source_size = c->source_size, .is_encrypted = c->is_encrypted};
    memcpy(mo.since, since, strlen(since));
    assert_int_equal(blk_map_create(c->map_fd, &mo, NULL), 0);
    if (c->has_base) {
        assert_int_equal(base_map_create(c->base_map_fd, c->source_size, false, NULL), 0);
    }
}

/* 'c' is zeroed but for sizes and kinds. */
static inline void cw_init(struct cow_world *c)
{
    tmpdir_init(&c->dir, "cow");
    c->run_fd = c->root = -1;
    c->boot = CW_BOOT;
    world_queue(&c->w, NULL);
    cw_open_files(c, c->dir.path);
    cw_new_run(c);
    cw_create_map(c, "");
    cw_open(c);
}

static inline void cw_put_store(struct cow_world *c, unsigned k, uint64_t block, const void *p)
{
    struct cw_store *s = &c->store[k];
    if (!s->block) {
        s->n = map_n_blocks(c->size);
        s->block = calloc(s->n, sizeof(*s->block));
        assert_non_null(s->block);
    }
    assert_true(block < s->n);
    if (!s->block[block]) {
        s->block[block] = malloc(BLK_BLOCK);
        assert_non_null(s->block[block]);
    }
    memcpy(s->block[block], p, BLK_BLOCK);
    s->n_puts++;
}

static inline void cw_clear_store(struct cow_world *c, unsigned k)
{
    struct cw_store *s = &c->store[k];
    for (uint64_t i = 0; s->block && i < s->n; i++) {
        free(s->block[i]);
    }
    free(s->block);
    memset(s, 0, sizeof(*s));
}

/* Answers of the source and of the store. */
static inline void cw_answer(struct cow_world *c)
{
    static char buf[BLK_BLOCK];
    while (c->n_wants > 0 && !c->is_want_held) {
        uint64_t block = c->wants[--c->n_wants];
        cw_source(block * BLK_BLOCK, buf, BLK_BLOCK, c->source_size);
        blk_cow_supplied(c->w.top, block, c->want_rc, c->want_rc ? NULL : buf);
    }
    while (c->n_ups > 0 && !c->is_up_held) {
        struct cw_up u = c->ups[--c->n_ups];
        if (!c->up_rc) {
            cw_put_store(c, u.k, u.block, u.data);
        }
        blk_cow_uploaded(c->w.top, u.k, u.block, c->up_rc);
    }
}

static inline void cw_turn(struct cow_world *c, uint64_t ns)
{
    cw_answer(c);
    int n = blk_queue_run(c->w.q, ns);
    assert_true(n >= 0);
    cw_answer(c);
}

/* Some turns: what can be done is done, what waits for answers waits. */
static inline void cw_settle(struct cow_world *c)
{
    for (unsigned idle = 0; idle < 3;) {
        cw_answer(c);
        idle = blk_queue_run(c->w.q, UINT64_C(2000000)) > 0 ? 0 : idle + 1;
        if (c->l->is_tick_armed && idle > 0) {
            break;
        }
    }
}

static inline int cw_wait(struct cow_world *c, struct world_io *io)
{
    uint64_t end = time_mono_ns() + UINT64_C(30000000000);
    while (!io->is_done) {
        cw_turn(c, UINT64_C(50000000));
        assert_true(time_mono_ns() < end);
    }
    return io->rc;
}

static inline int cw_io(struct cow_world *c, enum blk_op op, unsigned flags, uint64_t off,
                        void *p, uint64_t len)
{
    struct world_io io;
    world_start(&c->w, &io, op, flags, off, p, len);
    return cw_wait(c, &io);
}

static inline int cw_write(struct cow_world *c, uint64_t off, void *p, uint64_t len)
{
    return cw_io(c, BLK_WRITE, 0, off, p, len);
}
static inline int cw_read(struct cow_world *c, uint64_t off, void *p, uint64_t len)
{
    return cw_io(c, BLK_READ, 0, off, p, len);
}
static inline int cw_flush(struct cow_world *c)
{
    return cw_io(c, BLK_FLUSH, 0, 0, NULL, 0);
}

/* Lets go of the layer as a killed process does: no clean stop, nothing written. What is under
 * way in the ring ends first (flock sees to that in real life). */
static inline void cw_drop(struct cow_world *c)
{
    for (unsigned k = 0; k < BLK_MAX_FROZEN; k++) {
        cow_up_stop(c->l, k);
    }
    c->l->is_closing = true;
    c->l->fill_rate = 0;
    for (unsigned idle = 0; idle < 5 || c->l->commit.is_running || c->l->is_tick_armed;) {
        idle = blk_queue_run(c->w.q, UINT64_C(1000000)) > 0 ? 0 : idle + 1;
    }
    while (c->l->ops) { /* what waited for answers */
        struct cow_op *op = c->l->ops;
        c->l->ops = op->next;
        if (op->owns_buf) {
            free(op->buf);
        }
        free(op);
    }
    blk_stack_free(c->w.top);
    c->w.top = NULL;
    c->n_wants = c->n_ups = 0;
}

/* kill -9 and a new process of the same boot. */
static inline void cw_kill(struct cow_world *c)
{
    cw_drop(c);
    cw_close_files(c);
    cw_open_files(c, c->dir.path);
    cw_open(c);
    assert_true(c->l->m->is_adopted);
}

/* The power goes; all that the kernel had is on the disk all the same (the kind cut). */
static inline void cw_reboot(struct cow_world *c)
{
    cw_drop(c);
    cw_close_files(c);
    cw_new_run(c);
    cw_open_files(c, c->dir.path);
    cw_open(c);
    assert_false(c->l->m->is_adopted);
}

static inline void cw_stop(struct cow_world *c)
{
    struct err err = ERR_INIT;
    assert_int_equal(cw_flush(c), 0);
    if (blk_cow_close(c->w.top, &err)) {
        fail_msg("%s: %s", err.name, err.msg);
    }
    blk_stack_free(c->w.top);
    c->w.top = NULL;
    c->n_wants = c->n_ups = 0;
}

static inline void cw_reopen(struct cow_world *c)
{
    cw_stop(c);
    cw_close_files(c);
    cw_open_files(c, c->dir.path);
    cw_open(c);
}

static inline void cw_done(struct cow_world *c)
{
    if (c->w.top) {
        cw_drop(c);
    }
    cw_close_files(c);
    close(c->run_fd);
    for (unsigned k = 0; k < BLK_MAX_FROZEN; k++) {
        cw_clear_store(c, k);
    }
    while (blk_queue_run(c->w.q, 0) > 0) {}
    blk_queue_free(c->w.q);
    tmpdir_done(&c->dir);
}

/* ---- a volume and what it has to hold ---- */

static inline void cw_fill_bytes(char *p, uint64_t len, uint64_t seed)
{
    for (uint64_t i = 0; i < len; i += 8) {
        uint64_t v = (seed + i) * UINT64_C(0x9e3779b97f4a7c15) ^ (seed << 32);
        memcpy(p + i, &v, 8);
    }
}

static inline uint64_t cw_rand(uint64_t *s)
{
    *s ^= *s << 13;
    *s ^= *s >> 7;
    *s ^= *s << 17;
    return *s;
}

static inline void cw_same(struct cow_world *c, const char *want, const char *why)
{
    static char buf[1u << 20];
    for (uint64_t off = 0; off < c->size; off += sizeof(buf)) {
        uint64_t n = MIN(c->size - off, (uint64_t)sizeof(buf));
        assert_int_equal(cw_read(c, off, buf, n), 0);
        if (memcmp(buf, want + off, n) != 0) {
            uint64_t i = 0;
            while (buf[i] == want[off + i]) {
                i++;
            }
            fail_msg("%s: byte %llu (page %llu) is %02x, not %02x", why,
                     (unsigned long long)(off + i), (unsigned long long)((off + i) / BLK_PAGE),
                     (uint8_t)buf[i], (uint8_t)want[off + i]);
        }
    }
}
