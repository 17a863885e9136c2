#include "blk/blk_cow.h"

#include "blk/blk_cow_world.h"
#include <stdio.h>

/* C3 step by step: gates between the layer and its three files hold requests until the test lets
 * them pass, so that each order that must be kept is seen to be kept, and not met by luck. */

#define MIB      (UINT64_C(1) << 20)
#define SIZE     (4 * MIB)
#define BIT(op)  (1u << (op))
#define LIMIT_NS (60 * NS_PER_S)

struct gate {
    struct blk_layer base; /* first */
    unsigned holds;        /* BIT() of the operations that wait here */
    struct blk_req *held, **tail;
    unsigned n_held, n_passed[BLK_OP_N];
};

static void pass(struct gate *g, struct blk_req *r)
{
    g->n_passed[r->op]++;
    blk_submit(g->base.below, r);
}

static void gate_submit(struct blk_layer *l, struct blk_req *r)
{
    struct gate *g = (struct gate *)l;
    if ((g->holds & BIT(r->op)) == 0) {
        pass(g, r);
        return;
    }
    r->next = NULL;
    *g->tail = r;
    g->tail = &r->next;
    g->n_held++;
}

static void gate_free(struct blk_layer *l)
{
    assert_int_equal(((struct gate *)l)->n_held, 0);
}

/* rc 0: they go on; else they have failed. */
static void let_go(struct gate *g, int rc)
{
    struct blk_req *r = g->held;
    g->held = NULL;
    g->tail = &g->held;
    g->n_held = 0;
    while (r) {
        struct blk_req *next = r->next;
        if (rc) {
            blk_done(r, rc);
        } else {
            pass(g, r);
        }
        r = next;
    }
}

static void put_gate(struct gate *g, struct blk_layer **at)
{
    static const struct blk_ops ops = {
        .name = "gate", .submit = gate_submit, .free = gate_free};
    memset(g, 0, sizeof(*g));
    g->base = (struct blk_layer){.ops = &ops, .below = *at, .size = (*at)->size};
    g->tail = &g->held;
    *at = &g->base;
}

struct scene {
    struct cow_world c; /* first */
    struct gate data, aside, map;
    char *now; /* what the volume has to hold */
    const char *name;
};

static void start_with(struct scene *s, bool is_encrypted, uint64_t source_size)
{
    memset(s, 0, sizeof(*s));
    s->name = is_encrypted ? "encrypted" : "plain";
    s->c.size = SIZE;
    s->c.source_size = source_size;
    s->c.is_encrypted = is_encrypted;
    cw_init(&s->c);
    put_gate(&s->data, &s->c.l->base.below);
    put_gate(&s->aside, &s->c.l->o.aside);
    put_gate(&s->map, &s->c.l->map_layer);
    s->now = calloc(1, SIZE);
    assert_non_null(s->now);
    cw_source(0, s->now, SIZE, source_size);
}

static void start(struct scene *s, bool is_encrypted)
{
    start_with(s, is_encrypted, 0);
}

static void end(struct scene *s)
{
    cw_done(&s->c);
    free(s->now);
}

/* 'p' lives until the request has ended. */
static void begin_write(struct scene *s, struct world_io *io, uint64_t off, char *p,
                        uint64_t seed)
{
    cw_fill_bytes(p, BLK_PAGE, seed);
    memcpy(s->now + off, p, BLK_PAGE);
    world_start(&s->c.w, io, BLK_WRITE, 0, off, p, BLK_PAGE);
}

static void write_page(struct scene *s, uint64_t off, uint64_t seed)
{
    static char p[BLK_PAGE] __attribute__((aligned(4096)));
    struct world_io io;
    begin_write(s, &io, off, p, seed);
    assert_int_equal(cw_wait(&s->c, &io), 0);
}

static unsigned freeze(struct scene *s, const char *id)
{
    unsigned idx = 99;
    struct err err = ERR_INIT;
    if (blk_cow_snap_begin(&s->c.w.top, &id, 1, false, &idx, &err)) {
        fail_msg("%s: %s", id, err.msg);
    }
    return idx;
}

/* Turns until one of the two has come about. */
static void until(struct scene *s, const unsigned *a, unsigned a_was, const unsigned *b,
                  unsigned b_was)
{
    uint64_t t = time_mono_ns();
    while (*a == a_was && *b == b_was) {
        cw_turn(&s->c, 2 * NS_PER_MS);
        assert_true(time_mono_ns() < t + LIMIT_NS);
    }
}

static void some_turns(struct scene *s)
{
    for (unsigned i = 0; i < 10; i++) {
        cw_turn(&s->c, NS_PER_MS);
    }
}

/* What the store has of the set is the volume as 'want' says; unnamed blocks are zeros. */
static void read_and_end(struct scene *s, unsigned k, const char *want)
{
    uint64_t t = time_mono_ns();
    assert_int_equal(blk_cow_snap_read(s->c.w.top, k, 2, NULL), 0);
    while (!s->c.store[k].is_ended) {
        cw_turn(&s->c, 2 * NS_PER_MS);
        assert_true(time_mono_ns() < t + LIMIT_NS);
    }
    static char zeros[BLK_BLOCK];
    for (uint64_t b = 0; b < SIZE / BLK_BLOCK; b++) {
        const struct cw_store *st = &s->c.store[k];
        const char *got = st->block && st->block[b] ? st->block[b] : zeros;
        if (memcmp(got, want + b * BLK_BLOCK, BLK_BLOCK) != 0) {
            fail_msg("%s: block %llu of the snapshot is wrong", s->name, (unsigned long long)b);
        }
    }
    assert_int_equal(blk_cow_snap_end(s->c.w.top, k, NULL), 0);
    cw_clear_store(&s->c, k);
    cw_settle(&s->c);
}

static char *copy_of(const char *p)
{
    char *to = malloc(SIZE);
    assert_non_null(to);
    memcpy(to, p, SIZE);
    return to;
}

/* The old bytes are written aside, then durable there, then named durably by the map: only then
 * does the guest's write reach its block. */
static void a_write_to_a_frozen_block_waits_for_its_copy(void **state)
{
    static char p[2][BLK_PAGE] __attribute__((aligned(4096)));
    for (unsigned kind = 0; kind < 2; kind++) {
        struct scene s;
        struct world_io io[2];
        start(&s, kind == 1);
        write_page(&s, 0, 1);
        write_page(&s, 5 * BLK_PAGE, 2);
        assert_int_equal(cw_flush(&s.c), 0);
        unsigned idx = freeze(&s, "snap-1"), *went = &s.data.n_passed[BLK_WRITE];
        char *then = copy_of(s.now);
        cw_settle(&s.c);
        unsigned before = *went;
        s.aside.holds = BIT(BLK_WRITE) | BIT(BLK_FLUSH);
        begin_write(&s, &io[0], 0, p[0], 3);
        begin_write(&s, &io[1], 9 * BLK_PAGE, p[1], 4); /* another page of the same block */
        until(&s, &s.aside.n_held, 0, went, before);
        some_turns(&s);
        assert_int_equal(*went, before); /* not readable aside */
        s.map.holds = BIT(BLK_WRITE) | BIT(BLK_FLUSH);
        let_go(&s.aside, 0);
        until(&s, &s.aside.n_held, 0, went, before);
        some_turns(&s);
        assert_int_equal(*went, before); /* not durable aside */
        assert_int_equal(s.aside.held->op, BLK_FLUSH);
        assert_int_equal(s.map.n_held, 0); /* and not named before it is */
        let_go(&s.aside, 0);
        for (unsigned step = 0; step < 2; step++) { /* the journal, its sync */
            until(&s, &s.map.n_held, 0, went, before);
            some_turns(&s);
            assert_int_equal(*went, before);
            assert_int_equal(s.map.held->op, step == 0 ? BLK_WRITE : BLK_FLUSH);
            let_go(&s.map, 0);
        }
        s.map.holds = s.aside.holds = 0;
        assert_int_equal(cw_wait(&s.c, &io[0]), 0);
        assert_int_equal(cw_wait(&s.c, &io[1]), 0);
        assert_int_equal(*went, before + 2);
        assert_int_equal(s.aside.n_passed[BLK_WRITE], 1); /* one copy for both */
        read_and_end(&s, idx, then);
        cw_same(&s.c, s.now, s.name);
        free(then);
        end(&s);
    }
}

/* A copy that fails: the guest is told, its block has the old bytes, nothing is noted of what is
 * not there, and the next try is whole. */
static void a_write_whose_copy_fails_changes_nothing(void **state)
{
    static char p[BLK_PAGE] __attribute__((aligned(4096)));
    struct scene s;
    struct world_io io;
    start(&s, false);
    write_page(&s, 0, 1);
    write_page(&s, BLK_BLOCK, 2);
    assert_int_equal(cw_flush(&s.c), 0);
    unsigned idx = freeze(&s, "snap-1");
    char *then = copy_of(s.now);
    cw_settle(&s.c);
    unsigned before = s.data.n_passed[BLK_WRITE];
    for (uint64_t b = 0; b < 2; b++) {
        s.aside.holds = BIT(BLK_WRITE);
        begin_write(&s, &io, b * BLK_BLOCK, p, 3);
        until(&s, &s.aside.n_held, 0, &s.data.n_passed[BLK_WRITE], before);
        assert_int_equal(s.aside.n_held, 1);
        let_go(&s.aside, -EIO);
        s.aside.holds = 0;
        assert_int_equal(cw_wait(&s.c, &io), -EIO);
        assert_int_equal(s.data.n_passed[BLK_WRITE], before);
    }
    memcpy(s.now, then, SIZE);
    cw_same(&s.c, s.now, s.name);
    write_page(&s, BLK_BLOCK, 3);
    read_and_end(&s, idx, then);
    write_page(&s, 0, 3);
    cw_same(&s.c, s.now, s.name);
    free(then);
    end(&s);
}

/* A write that was under way at the point in time belongs to that snapshot and marks no later
 * one: it is not read before the write has ended, or nobody would ever read what it wrote. */
static void uploads_wait_for_writes_of_before(void **state)
{
    static char p[BLK_PAGE] __attribute__((aligned(4096)));
    for (unsigned kind = 0; kind < 2; kind++) {
        struct scene s;
        struct world_io io;
        start(&s, kind == 1);
        write_page(&s, 0, 1);
        write_page(&s, 2 * BLK_BLOCK, 2);
        assert_int_equal(cw_flush(&s.c), 0);
        s.data.holds = BIT(BLK_WRITE);
        begin_write(&s, &io, 0, p, 3);
        cw_settle(&s.c);
        assert_int_equal(s.data.n_held, 1);
        unsigned idx = freeze(&s, "snap-1"), reads = s.data.n_passed[BLK_READ];
        assert_int_equal(blk_cow_snap_read(s.c.w.top, idx, 2, NULL), 0);
        some_turns(&s);
        struct blk_frozen f[BLK_MAX_FROZEN];
        blk_cow_frozen(s.c.w.top, f);
        assert_int_equal(f[idx].is_durable, 0);
        assert_int_equal(s.c.store[idx].n_puts, 0);
        assert_int_equal(s.data.n_passed[BLK_READ], reads);
        s.data.holds = 0;
        let_go(&s.data, 0);
        assert_int_equal(cw_wait(&s.c, &io), 0);
        read_and_end(&s, idx, s.now);
        /* Nothing is dirty for the next: together they are the volume as it is. */
        assert_int_equal(cw_flush(&s.c), 0);
        idx = freeze(&s, "snap-2");
        blk_cow_frozen(s.c.w.top, f);
        assert_int_equal(f[idx].n_blocks, 0);
        cw_same(&s.c, s.now, s.name);
        end(&s);
    }
}

/* So does a copy aside: what it takes along is what the snapshot will have. */
static void copies_wait_for_writes_of_before(void **state)
{
    static char p[2][BLK_PAGE] __attribute__((aligned(4096)));
    struct scene s;
    struct world_io io[2];
    start(&s, false);
    write_page(&s, 0, 1);
    assert_int_equal(cw_flush(&s.c), 0);
    s.data.holds = BIT(BLK_WRITE);
    begin_write(&s, &io[0], 0, p[0], 3);
    cw_settle(&s.c);
    assert_int_equal(s.data.n_held, 1);
    unsigned idx = freeze(&s, "snap-1");
    char *then = copy_of(s.now);
    unsigned reads = s.data.n_passed[BLK_READ];
    begin_write(&s, &io[1], 7 * BLK_PAGE, p[1], 4);
    some_turns(&s);
    assert_int_equal(s.data.n_passed[BLK_READ], reads);
    assert_int_equal(s.aside.n_passed[BLK_WRITE], 0);
    assert_int_equal(s.data.n_held, 1);
    s.data.holds = 0;
    let_go(&s.data, 0);
    assert_int_equal(cw_wait(&s.c, &io[0]), 0);
    assert_int_equal(cw_wait(&s.c, &io[1]), 0);
    assert_int_equal(s.aside.n_passed[BLK_WRITE], 1);
    read_and_end(&s, idx, then);
    cw_same(&s.c, s.now, s.name);
    free(then);
    end(&s);
}

/* The bytes have come, and only the file has no place for them: readers get them, whole, with what
 * was written meanwhile; who needs the page in the file does not. */
static void a_read_that_waited_for_a_fill_does_not_fail_with_it(void **state)
{
    static char p[BLK_PAGE] __attribute__((aligned(4096))), got[3 * BLK_BLOCK];
    for (unsigned i = 0; i < 2; i++) {
        struct scene s;
        struct world_io read, part;
        start_with(&s, i == 1, SIZE - BLK_BLOCK);
        write_page(&s, BLK_BLOCK + 5 * BLK_PAGE, 9);
        s.data.holds = BIT(BLK_WRITE);
        uint64_t off = 3 * BLK_SECTOR, len = 2 * BLK_BLOCK + 4 * BLK_PAGE, t = time_mono_ns();
        memset(got, 'x', sizeof(got));
        world_start(&s.c.w, &read, BLK_READ, 0, off, got, len);
        world_start(&s.c.w, &part, BLK_WRITE, 0, 4 * BLK_BLOCK + 512, p, 512);
        while (!read.is_done || !part.is_done) {
            cw_turn(&s.c, 2 * NS_PER_MS);
            let_go(&s.data, -ENOSPC);
            assert_true(time_mono_ns() < t + LIMIT_NS);
        }
        assert_int_equal(read.rc, 0);
        assert_memory_equal(got, s.now + off, len);
        assert_int_equal(got[len], 'x');
        assert_int_equal(part.rc, -ENOSPC);
        /* Nothing is taken for filled that is not. */
        unsigned n_asked = s.c.n_asked;
        s.data.holds = 0;
        cw_same(&s.c, s.now, s.name);
        assert_true(s.c.n_asked >= n_asked + 4);
        s.c.want_rc = -EIO;
        cw_same(&s.c, s.now, s.name);
        end(&s);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_read_that_waited_for_a_fill_does_not_fail_with_it),
        cmocka_unit_test(a_write_to_a_frozen_block_waits_for_its_copy),
        cmocka_unit_test(a_write_whose_copy_fails_changes_nothing),
        cmocka_unit_test(uploads_wait_for_writes_of_before),
        cmocka_unit_test(copies_wait_for_writes_of_before),
    };
    (void)setenv("TMPDIR", "/dev/shm", 0);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
