/* The ring, the memory map, the log and requests, without threads and sockets. */
#include "base/test.h"
#include "blk/vu_inflight.h"
#include "blk/vu_request.h"
#include "blk/vu_ring.h"
#include <errno.h>
#include <fcntl.h>
#include <linux/virtio_blk.h>
#include <linux/virtio_ring.h>
#include <string.h>
#include <sys/mman.h>

#define N   VRING_DESC_F_NEXT
#define W   VRING_DESC_F_WRITE
#define GPA 0x10000u
#define UA  UINT64_C(0x7f0000000000)

static struct guest {
    struct vring_desc desc[16];
    struct {
        uint16_t flags, idx, ring[16], used_event;
    } avail;
    struct {
        uint16_t flags, idx;
        struct vring_used_elem ring[16];
        uint16_t avail_event;
    } used __attribute__((aligned(4)));
    uint8_t data[8192];
} g __attribute__((aligned(4096)));

static struct vu_mem mem;

static uint64_t gpa_of(const void *p)
{
    return GPA + (uint64_t)((const uint8_t *)p - (const uint8_t *)&g);
}

static uint64_t user_of(const void *p)
{
    return UA + (uint64_t)((const uint8_t *)p - (const uint8_t *)&g);
}

static struct vu_ring_opts ring_opts(void)
{
    return (struct vu_ring_opts){.mem = &mem,
                                 .num = 16,
                                 .has_event_idx = true,
                                 .has_indirect = true,
                                 .desc = user_of(g.desc),
                                 .avail = user_of(&g.avail),
                                 .used = user_of(&g.used)};
}

static void make(struct vu_ring *r, bool has_event_idx)
{
    memset(&g, 0, sizeof(g));
    memset(&mem, 0, sizeof(mem));
    vu_mem_borrow(&mem, GPA, UA, &g, sizeof(g));
    struct vu_ring_opts o = ring_opts();
    o.has_event_idx = has_event_idx;
    assert_int_equal(vu_ring_init(r, &o), 0);
}

/* ---- memory ---- */

static void test_two_translations(void **state)
{
    static uint8_t a[4096], b[4096];
    struct vu_mem m = {0};
    vu_mem_borrow(&m, 0x1000, 0x500000, a, sizeof(a));
    vu_mem_borrow(&m, 0x2000, 0x900000, b, sizeof(b)); /* next to it for the guest only */
    const struct {
        uint64_t at, n, want_n;
        const uint8_t *want;
    } gpas[] = {{0x1000, 4096, 4096, a},   {0x1fff, 2, 1, a + 4095},
                {0x2000, 1, 1, b},         {0x2fff, 1, 1, b + 4095},
                {0xfff, 1, 0, NULL},       {0x3000, 1, 0, NULL},
                {UINT64_MAX, 16, 0, NULL}, {0x1800, UINT64_MAX, 2048, a + 2048}};
    for (size_t i = 0; i < ARRAY_LEN(gpas); i++) {
        uint64_t n = 0;
        assert_ptr_equal(vu_mem_at(&m, gpas[i].at, gpas[i].n, &n), gpas[i].want);
        assert_int_equal(n, gpas[i].want_n);
    }
    assert_ptr_equal(vu_mem_user(&m, 0x500000, 4096), a);
    assert_null(vu_mem_user(&m, 0x500000, 4097)); /* rings do not go on elsewhere */
    assert_null(vu_mem_user(&m, 0x500001, UINT64_MAX));
    assert_null(vu_mem_user(&m, 0x1000, 1)); /* a guest's address is not a frontend's */
    assert_ptr_equal(vu_mem_user(&m, 0x900fff, 1), b + 4095);
}

static void test_memory_is_mapped_whole_or_not_at_all(void **state)
{
    int fd = memfd_create("m", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    assert_int_equal(ftruncate(fd, 16384), 0);
    assert_int_equal(fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK), 0);
    assert_int_equal(pwrite(fd, "here", 4, 5000), 4);
    struct vu_region v[2] = {{0x1000, 8192, 0x7000, 5000}, {0x9000, 16384, 0x20000, 1}};
    int fds[2] = {fd, fd};
    struct vu_mem m = {0};
    assert_int_equal(vu_mem_map(&m, v, 2, fds, NULL), -EPROTO); /* the second is too long */
    assert_int_equal(m.n, 0);
    assert_int_equal(vu_mem_map(&m, v, 1, fds, NULL), 0);
    uint64_t n = 0;
    assert_memory_equal(vu_mem_at(&m, 0x1000, 4, &n), "here", 4); /* any offset in the file */
    vu_mem_clear(&m);
    vu_mem_clear(&m);
    close(fd);
}

/* ---- rings ---- */

static void test_where_a_ring_may_lie(void **state)
{
    struct vu_ring r;
    make(&r, true);
    struct vu_ring_opts o = ring_opts();
    o.desc += 8;
    assert_int_equal(vu_ring_init(&r, &o), -EPROTO);
    o = ring_opts();
    o.avail++;
    assert_int_equal(vu_ring_init(&r, &o), -EPROTO);
    o = ring_opts();
    o.used += 2;
    assert_int_equal(vu_ring_init(&r, &o), -EPROTO);
    o = ring_opts();
    o.used = UA + sizeof(g) - 4;
    assert_int_equal(vu_ring_init(&r, &o), -EPROTO);
    o = ring_opts();
    o.num = 0;
    assert_int_equal(vu_ring_init(&r, &o), -EPROTO);
    o = ring_opts();
    o.desc = gpa_of(g.desc);
    assert_int_equal(vu_ring_init(&r, &o), -EPROTO);
}

static void test_indices_wrap(void **state)
{
    struct vu_ring r;
    make(&r, true);
    g.used.idx = g.avail.idx = 65530;
    struct vu_ring_opts o = ring_opts();
    assert_int_equal(vu_ring_init(&r, &o), 0);
    for (unsigned i = 0; i < 40; i++) {
        uint16_t head = 99;
        assert_int_equal(vu_ring_next(&r, &head), 0);
        g.avail.ring[g.avail.idx % 16] = (uint16_t)(i % 16);
        g.avail.idx++;
        assert_true(vu_ring_has_next(&r));
        assert_int_equal(vu_ring_next(&r, &head), 1);
        assert_int_equal(head, i % 16);
        uint16_t slot = r.used_idx % 16;
        vu_ring_push(&r, head, i);
        assert_int_equal(g.used.idx, (uint16_t)(65530 + i)); /* not yet */
        vu_ring_publish(&r);
        assert_int_equal(g.used.idx, (uint16_t)(65530 + i + 1));
        assert_int_equal(g.used.ring[slot].id, i % 16);
        assert_int_equal(g.used.ring[slot].len, i);
    }
}

/* At most as many as there are entries: one more, and nothing of it is believed. */
static void test_an_index_that_runs_away(void **state)
{
    struct vu_ring r;
    uint16_t head = 99;
    make(&r, true);
    for (uint16_t i = 0; i < 16; i++) {
        g.avail.ring[i] = i;
    }
    g.avail.idx = 17;
    assert_int_equal(vu_ring_next(&r, &head), -EPROTO);
    assert_int_equal(head, 99);
    g.avail.idx = 65535; /* backwards */
    assert_int_equal(vu_ring_next(&r, &head), -EPROTO);
    g.avail.idx = 16;
    assert_int_equal(vu_ring_next(&r, &head), 1);
    assert_int_equal(head, 0);
}

static void test_whom_to_interrupt(void **state)
{
    struct vu_ring r;
    uint16_t head;
    make(&r, true);
    for (unsigned i = 0; i < 8; i++) {
        g.avail.ring[i] = (uint16_t)i;
    }
    g.avail.idx = 8;
    for (unsigned i = 0; i < 8; i++) {
        assert_int_equal(vu_ring_next(&r, &head), 1);
    }
    g.avail.used_event = 2; /* tell me when the third is there */
    static const bool want[] = {false, false, true, false, false};
    for (unsigned i = 0; i < ARRAY_LEN(want); i++) {
        vu_ring_push(&r, (uint16_t)i, 0);
        vu_ring_publish(&r);
        assert_int_equal(vu_ring_wants_call(&r), want[i]);
    }
    g.avail.used_event = 6;
    vu_ring_push(&r, 5, 0);
    vu_ring_push(&r, 6, 0);
    vu_ring_push(&r, 7, 0);
    vu_ring_publish(&r); /* a batch that crosses it */
    assert_true(vu_ring_wants_call(&r));
    make(&r, false);
    assert_true(vu_ring_wants_call(&r));
    g.avail.flags = VRING_AVAIL_F_NO_INTERRUPT;
    assert_false(vu_ring_wants_call(&r));
}

static void test_kicks_are_asked_for(void **state)
{
    struct vu_ring r;
    uint16_t head;
    make(&r, true);
    g.avail.idx = 3;
    g.avail.ring[1] = 1;
    g.avail.ring[2] = 2;
    assert_int_equal(vu_ring_next(&r, &head), 1);
    vu_ring_ask_kick(&r, true);
    assert_int_equal(g.used.avail_event, 1);
    assert_true(vu_ring_has_next(&r)); /* look again after asking */
    assert_int_equal(g.used.flags, 0);
    make(&r, false);
    vu_ring_ask_kick(&r, false);
    assert_int_equal(g.used.flags, VRING_USED_F_NO_NOTIFY);
    vu_ring_ask_kick(&r, true);
    assert_int_equal(g.used.flags, 0);
}

static void test_a_buffer_over_two_regions(void **state)
{
    static uint8_t second[4096];
    struct vu_ring r;
    struct vu_chain c;
    make(&r, true);
    vu_mem_borrow(&mem, GPA + sizeof(g), UA + 0x1000000, second, sizeof(second));
    g.desc[0] = (struct vring_desc){GPA + sizeof(g) - 10, 20, N, 1};
    g.desc[1] = (struct vring_desc){GPA + sizeof(g) + 4095, 1, W, 0};
    assert_int_equal(vu_ring_chain(&r, 0, &c), 0);
    assert_int_equal(c.n_out, 2);
    assert_int_equal(c.iov[0].iov_len, 10);
    assert_ptr_equal(c.iov[1].iov_base, second);
    assert_int_equal(c.iov[1].iov_len, 10);
    assert_int_equal(c.n_in, 1);
    g.desc[1].len = 2;
    assert_int_equal(vu_ring_chain(&r, 0, &c), -EPROTO);
    g.desc[1] = (struct vring_desc){gpa_of(g.data), 32, VRING_DESC_F_INDIRECT, 0};
    r.has_indirect = false; /* not agreed on */
    assert_int_equal(vu_ring_chain(&r, 0, &c), -EPROTO);
}

/* ---- the log ---- */

enum { LOG = 16 };

static struct vu_inflight_region *new_log(void)
{
    struct vu_inflight_region *p = calloc(1, vu_inflight_part(LOG));
    assert_non_null(p);
    return p;
}

static void test_sizes_of_the_log(void **state)
{
    assert_int_equal(sizeof(struct vu_inflight_region), 16);
    assert_int_equal(sizeof(struct vu_inflight_desc), 16);
    assert_int_equal(vu_inflight_part(128), 2112); /* 16 + 128 * 16 = 2,064, to 64 */
    assert_int_equal(vu_inflight_part(3), 64);
    assert_int_equal(vu_inflight_size(4, 128), 4 * 2112);
}

/* Runs a script of fetches and completions, stopped after every number of stores: what
 * recovery says must be what the guest has not seen done, in order. */
struct step {
    enum { FETCH, BATCH, PUBLISH, CLEAR, CLOSE } what;
    uint16_t head;
};
static const struct step script[] = {
    {FETCH, 3}, {FETCH, 1}, {FETCH, 7}, {BATCH, 1}, {BATCH, 7},   {PUBLISH, 2}, {CLEAR, 1},
    {CLEAR, 7}, {CLOSE, 0}, {FETCH, 1}, {FETCH, 2}, {BATCH, 3},   {PUBLISH, 1}, {CLEAR, 3},
    {CLOSE, 0}, {FETCH, 3}, {BATCH, 2}, {BATCH, 3}, {BATCH, 1},   {PUBLISH, 3}, {CLEAR, 2},
    {CLEAR, 3}, {CLEAR, 1}, {CLOSE, 0}, {FETCH, 0}, {PUBLISH, 0}, {CLOSE, 0}};

static void test_recovery_after_every_store(void **state)
{
    for (size_t stop = 0; stop <= ARRAY_LEN(script); stop++) {
        struct vu_inflight f = {.r = new_log(), .num = LOG};
        uint16_t used = 65534, heads[LOG], open[LOG], n_open = 0, batch[LOG], n_batch = 0;
        unsigned n_torn = 0;
        assert_int_equal(vu_inflight_recover(&f, LOG, used, heads, &n_torn), 0);
        for (size_t i = 0; i < stop; i++) {
            const struct step *s = &script[i];
            switch (s->what) {
            case FETCH:
                vu_inflight_fetched(&f, s->head);
                open[n_open++] = s->head;
                break;
            case BATCH:
                vu_inflight_batch(&f, s->head);
                batch[n_batch++] = s->head;
                break;
            case PUBLISH: /* the guest sees these from now on */
                used = (uint16_t)(used + s->head);
                for (uint16_t k = 0; k < n_batch; k++) {
                    for (uint16_t j = 0; j < n_open; j++) {
                        if (open[j] == batch[k]) {
                            memmove(&open[j], &open[j + 1], (n_open - j - 1u) * 2);
                            n_open--;
                            break;
                        }
                    }
                }
                n_batch = 0;
                break;
            case CLEAR: vu_inflight_clear(&f, s->head); break;
            case CLOSE: vu_inflight_published(&f, used); break;
            }
        }
        struct vu_inflight after = {.r = f.r, .num = LOG};
        int n = vu_inflight_recover(&after, LOG, used, heads, &n_torn);
        assert_int_equal(n, n_open);
        assert_memory_equal(heads, open, n_open * sizeof(*heads));
        /* It dies again at once: the same answer. */
        assert_int_equal(vu_inflight_recover(&after, LOG, used, heads, &n_torn), n_open);
        assert_int_equal(n_torn, 0);
        assert_memory_equal(heads, open, n_open * sizeof(*heads));
        free(f.r);
    }
}

static void test_logs_that_lie(void **state)
{
    struct vu_inflight f = {.r = new_log(), .num = LOG};
    uint16_t heads[LOG];
    unsigned n_torn = 0;
    assert_int_equal(vu_inflight_recover(&f, LOG, 5, heads, &n_torn), 0);
    f.r->used_idx = (uint16_t)(5 - LOG - 1); /* more than there are entries */
    assert_int_equal(vu_inflight_recover(&f, LOG, 5, heads, &n_torn), -EPROTO);
    f.r->used_idx = 3;
    f.r->last_batch_head = LOG; /* outside */
    assert_int_equal(vu_inflight_recover(&f, LOG, 5, heads, &n_torn), -EPROTO);
    f.r->last_batch_head = 1;
    f.r->desc[1].next = 60000;
    assert_int_equal(vu_inflight_recover(&f, LOG, 5, heads, &n_torn), -EPROTO);
    f.r->desc[1].next = 1; /* a circle ends */
    assert_int_equal(vu_inflight_recover(&f, LOG, 5, heads, &n_torn), 0);
    f.r->desc[9].inflight = 1;
    assert_int_equal(vu_inflight_recover(&f, 8, 5, heads, &n_torn),
                     -EPROTO); /* not in the ring */
    assert_int_equal(vu_inflight_recover(&f, LOG + 1, 5, heads, &n_torn), -EPROTO);
    f.r->version = 2;
    assert_int_equal(vu_inflight_recover(&f, LOG, 5, heads, &n_torn), -EPROTO);
    free(f.r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_two_translations),
        cmocka_unit_test(test_memory_is_mapped_whole_or_not_at_all),
        cmocka_unit_test(test_where_a_ring_may_lie),
        cmocka_unit_test(test_indices_wrap),
        cmocka_unit_test(test_an_index_that_runs_away),
        cmocka_unit_test(test_whom_to_interrupt),
        cmocka_unit_test(test_kicks_are_asked_for),
        cmocka_unit_test(test_a_buffer_over_two_regions),
        cmocka_unit_test(test_sizes_of_the_log),
        cmocka_unit_test(test_recovery_after_every_store),
        cmocka_unit_test(test_logs_that_lie),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
