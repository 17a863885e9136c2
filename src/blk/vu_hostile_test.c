/* Guests that break the rules of virtio: their ring stops, nothing else does; and requests
 * that virtio answers with a status. Layouts that are unusual but allowed work. */
#include "blk/vu_test_local.h"
#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>

#define N      VRING_DESC_F_NEXT
#define W      VRING_DESC_F_WRITE
#define I      VRING_DESC_F_INDIRECT
#define OUT    VIRTIO_BLK_T_OUT
#define IN     VIRTIO_BLK_T_IN

/* The client's memory: a header at 0, a status at 100, tables at 4 KiB, data from 64 KiB on. */
#define HEAD   0u
#define STATUS 100u
#define TABLE  4096u
#define DATA   65536u

static uint64_t at(struct vu_client *c, uint64_t off)
{
    return vu_client_gpa(c, (uint8_t *)vu_client_mem(c) + off);
}

static uint8_t *mem(struct vu_client *c, uint64_t off)
{
    return (uint8_t *)vu_client_mem(c) + off;
}

static void set_head(struct vu_client *c, uint32_t type, uint64_t sector)
{
    struct virtio_blk_outhdr h = {.type = type, .sector = sector};
    memcpy(mem(c, HEAD), &h, sizeof(h));
    *mem(c, STATUS) = 0xee;
}

static void table_desc(struct vu_client *c, unsigned idx, uint64_t gpa, uint32_t len,
                       uint16_t flags, uint16_t next)
{
    struct vring_desc d = {gpa, len, flags, next};
    memcpy(mem(c, TABLE + idx * sizeof(d)), &d, sizeof(d));
}

/* ---- rings that break ---- */

static void bad_address(struct vu_client *c)
{
    vu_hand_desc(c, 0, 0, at(c, HEAD), 16, N, 1);
    vu_hand_desc(c, 0, 1, 0x1000, 512, W | N, 2);
    vu_hand_desc(c, 0, 2, at(c, STATUS), 1, W, 0);
}
static void past_the_end(struct vu_client *c)
{
    bad_address(c);
    vu_hand_desc(c, 0, 1, VU_CLIENT_GPA + c->map_size - 511, 512, W | N, 2);
}
static void address_that_wraps(struct vu_client *c)
{
    bad_address(c);
    vu_hand_desc(c, 0, 1, UINT64_MAX - 10, 4096, W | N, 2);
}
static void length_of_4g(struct vu_client *c)
{
    bad_address(c);
    vu_hand_desc(c, 0, 1, at(c, DATA), UINT32_MAX, W | N, 2);
}
static void chain_to_itself(struct vu_client *c)
{
    vu_hand_desc(c, 0, 0, at(c, HEAD), 16, N, 0);
}
static void chain_in_a_circle(struct vu_client *c)
{
    vu_hand_desc(c, 0, 0, at(c, HEAD), 16, N, 1);
    vu_hand_desc(c, 0, 1, at(c, DATA), 1, N, 2);
    vu_hand_desc(c, 0, 2, at(c, DATA), 1, N, 0);
}
static void next_outside(struct vu_client *c)
{
    vu_hand_desc(c, 0, 0, at(c, HEAD), 16, N, 500);
}
static void empty_descriptor(struct vu_client *c)
{
    bad_address(c);
    vu_hand_desc(c, 0, 1, at(c, DATA), 0, W | N, 2);
}
static void read_after_write(struct vu_client *c)
{
    bad_address(c);
    vu_hand_desc(c, 0, 1, at(c, DATA), 512, W | N, 2);
    vu_hand_desc(c, 0, 2, at(c, STATUS), 1, 0, 0);
}
static void no_status(struct vu_client *c)
{
    vu_hand_desc(c, 0, 0, at(c, HEAD), 16, N, 1);
    vu_hand_desc(c, 0, 1, at(c, DATA), 512, 0, 0);
}
static void short_header(struct vu_client *c)
{
    vu_hand_desc(c, 0, 0, at(c, HEAD), 15, N, 1);
    vu_hand_desc(c, 0, 1, at(c, STATUS), 1, W, 0);
}
static void no_header(struct vu_client *c)
{
    vu_hand_desc(c, 0, 0, at(c, STATUS), 1, W, 0);
}
static void table_in_table(struct vu_client *c)
{
    table_desc(c, 0, at(c, TABLE), 32, I, 0);
    table_desc(c, 1, at(c, STATUS), 1, W, 0);
    vu_hand_desc(c, 0, 0, at(c, TABLE), 32, I, 0);
}
static void table_and_next(struct vu_client *c)
{
    table_desc(c, 0, at(c, HEAD), 16, N, 1);
    table_desc(c, 1, at(c, STATUS), 1, W, 0);
    vu_hand_desc(c, 0, 0, at(c, TABLE), 32, I | N, 1);
    vu_hand_desc(c, 0, 1, at(c, DATA), 1, W, 0);
}
static void odd_table(struct vu_client *c)
{
    table_and_next(c);
    vu_hand_desc(c, 0, 0, at(c, TABLE), 31, I, 0);
}
static void empty_table(struct vu_client *c)
{
    vu_hand_desc(c, 0, 0, at(c, TABLE), 0, I, 0);
}
static void table_outside(struct vu_client *c)
{
    vu_hand_desc(c, 0, 0, VU_CLIENT_GPA + c->map_size - 16, 32, I, 0);
}
static void huge_table(struct vu_client *c)
{
    vu_hand_desc(c, 0, 0, at(c, TABLE), 16 * 2000, I, 0);
}
static void table_in_a_circle(struct vu_client *c)
{
    table_desc(c, 0, at(c, HEAD), 16, N, 1);
    table_desc(c, 1, at(c, DATA), 1, N, 0);
    vu_hand_desc(c, 0, 0, at(c, TABLE), 32, I, 0);
}
static void next_outside_of_table(struct vu_client *c)
{
    table_desc(c, 0, at(c, HEAD), 16, N, 2);
    vu_hand_desc(c, 0, 0, at(c, TABLE), 32, I, 0);
}
static void too_many_pieces(struct vu_client *c)
{
    for (unsigned i = 0; i < 250; i++) {
        table_desc(c, i, at(c, HEAD), 16, N, (uint16_t)(i + 1));
    }
    table_desc(c, 250, at(c, STATUS), 1, W, 0);
    vu_hand_desc(c, 0, 0, at(c, TABLE), 251 * 16, I, 0);
}
static void head_outside(struct vu_client *c)
{
    c->queues[0].avail->ring[0] = 128;
}
static void index_runs_away(struct vu_client *c)
{
    c->queues[0].avail_idx = (uint16_t)(c->queues[0].avail_idx + 129);
}

static const struct bad_ring {
    const char *name;
    void (*make)(struct vu_client *c);
} bad_rings[] = {{"a buffer outside of memory", bad_address},
                 {"a buffer that ends outside", past_the_end},
                 {"an address that wraps", address_that_wraps},
                 {"a buffer of 4 GiB", length_of_4g},
                 {"a chain to itself", chain_to_itself},
                 {"a chain in a circle", chain_in_a_circle},
                 {"a next outside of the ring", next_outside},
                 {"an empty descriptor", empty_descriptor},
                 {"something to read after something to write", read_after_write},
                 {"no status", no_status},
                 {"a header of 15 bytes", short_header},
                 {"no header", no_header},
                 {"a table in a table", table_in_table},
                 {"a table with a next", table_and_next},
                 {"a table of one and a bit", odd_table},
                 {"an empty table", empty_table},
                 {"a table outside of memory", table_outside},
                 {"a huge table", huge_table},
                 {"a table in a circle", table_in_a_circle},
                 {"a next outside of the table", next_outside_of_table},
                 {"too many pieces", too_many_pieces},
                 {"a head outside of the ring", head_outside},
                 {"an index that runs away", index_runs_away}};

static void test_a_bad_ring_stops_alone(void **state)
{
    struct vu_local l;
    vu_local_start(&l, NULL);
    for (size_t i = 0; i < ARRAY_LEN(bad_rings); i++) {
        struct vu_client *c = vu_local_client(&l, 128);
        struct vu_stats before = vu_local_stats(&l);
        struct vring_used_elem e;
        set_head(c, IN, 0);
        bad_rings[i].make(c);
        if (bad_rings[i].make == index_runs_away || bad_rings[i].make == head_outside) {
            c->queues[0].avail_idx++;
            assert_int_equal(vu_client_kick(c, 0), 0);
        } else {
            vu_hand_submit(c, 0, 0);
        }
        if (!vu_hand_is_faulted(c, 0, 5000)) {
            fail_msg("%s: the ring goes on", bad_rings[i].name);
        }
        assert_false(vu_hand_wait(c, 0, 1, &e)); /* nothing was answered */
        /* The other ring works. */
        memset(mem(c, DATA), 7, 4096);
        assert_int_equal(vu_local_io(c, 1, OUT, 0, 4096, mem(c, DATA), 0), 0);
        struct vu_stats after = vu_local_stats(&l);
        assert_int_equal(after.n_ring_faults, before.n_ring_faults + 1);
        /* It stops when asked, like any other. */
        struct vu_msg m = {.h = {VU_GET_VRING_BASE, 0, 8}, .u.vring = {0, 0}}, reply;
        assert_int_equal(vu_client_call(c, &m, NULL, 0, &reply, NULL), 0);
        vu_client_free(c);
    }
    vu_local_stop(&l);
}

static void test_a_head_that_is_under_way_is_refused(void **state)
{
    struct vu_local l;
    vu_local_start(&l, NULL);
    struct vu_client *c = vu_local_client(&l, 128);
    struct vu_client_queue *q = &c->queues[0];
    set_head(c, OUT, 0);
    vu_hand_desc(c, 0, 0, at(c, HEAD), 16, N, 1);
    vu_hand_desc(c, 0, 1, at(c, DATA), 1u << 20, N, 2);
    vu_hand_desc(c, 0, 2, at(c, STATUS), 1, W, 0);
    q->avail->ring[0] = q->avail->ring[1] = 0; /* both are seen at once */
    q->avail_idx = 2;
    assert_int_equal(vu_client_kick(c, 0), 0);
    assert_true(vu_hand_is_faulted(c, 0, 5000));
    struct vring_used_elem e;
    assert_true(vu_hand_wait(c, 0, 5000, &e)); /* the first is answered */
    assert_int_equal(*mem(c, STATUS), VIRTIO_BLK_S_OK);
    assert_false(vu_hand_wait(c, 0, 20, &e));
    vu_client_free(c);
    vu_local_stop(&l);
}

/* A guest that is reset after its fault has a working device again. */
static void test_a_ring_works_again_after_a_reset(void **state)
{
    struct vu_local l;
    vu_local_start(&l, NULL);
    struct vu_client *c = vu_local_client(&l, 128);
    struct vu_client_queue *q = &c->queues[0];
    set_head(c, IN, 0);
    bad_address(c);
    vu_hand_submit(c, 0, 0);
    assert_true(vu_hand_is_faulted(c, 0, 5000));
    struct vu_msg m = {.h = {VU_GET_VRING_BASE, 0, 8}, .u.vring = {0, 0}}, reply;
    assert_int_equal(vu_client_call(c, &m, NULL, 0, &reply, NULL), 0);
    close(c->inflight_fd); /* a reset device has a new log */
    c->inflight_fd = -1;
    q->avail->idx = q->used->idx = q->avail_idx = q->kicked_idx = q->last_used = 0;
    q->avail->ring[q->num] = 0;
    assert_int_equal(vu_client_reconnect(c, 5 * NS_PER_S, NULL), 0);
    assert_int_equal(vu_local_io(c, 0, IN, 0, 512, mem(c, DATA), 0), 0);
    vu_client_free(c);
    vu_local_stop(&l);
}

/* ---- layouts that are allowed ---- */

struct layout {
    const char *name;
    uint32_t out[20],
        in[20];    /* lengths of the pieces, 0 ends; in: with the status at the end */
    uint64_t skew; /* of data addresses */
};
/* Each reads or writes 1,024 bytes. */
static const struct layout layouts[] = {
    {"as drivers do", {16}, {1024, 1}, 0},
    {"status with the data", {16}, {1025}, 0},
    {"header in single bytes", {1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1}, {1024, 1}, 0},
    {"odd pieces", {7, 9}, {1, 511, 300, 200, 12, 1}, 0},
    {"odd addresses", {16}, {1024, 1}, 3},
    {"odd pieces at odd addresses", {16}, {3, 1000, 22}, 1},
};

/* The same pieces for a write: header and data in 'out' order, the status alone. */
static const struct layout write_layouts[] = {
    {"as drivers do", {16, 1024}, {1}, 0},
    {"header with the data", {1040}, {1}, 0},
    {"header cut inside", {10, 1030}, {1}, 0},
    {"odd pieces", {5, 11, 1, 511, 300, 212}, {1}, 0},
    {"odd addresses", {16, 1024}, {1}, 5},
    {"much room for the status", {16, 1024}, {64}, 0},
};

/* Lays the pieces out with gaps between them; returns the number of descriptors. */
static unsigned lay_out(struct vu_client *c, const struct layout *y, uint8_t *bounds[40])
{
    unsigned n = 0;
    uint64_t off = DATA + y->skew;
    for (unsigned k = 0; k < 2; k++) {
        const uint32_t *v = k ? y->in : y->out;
        for (unsigned i = 0; i < 20 && v[i]; i++) {
            bounds[n] = mem(c, off);
            table_desc(c, n, at(c, off), v[i], (uint16_t)(N | (k ? W : 0)), (uint16_t)(n + 1));
            off += v[i] + 64 + (y->skew ? 0 : (64 - v[i] % 64));
            n++;
        }
    }
    struct vring_desc last;
    memcpy(&last, mem(c, TABLE + (n - 1) * sizeof(last)), sizeof(last));
    table_desc(c, n - 1, last.addr, last.len, last.flags & (uint16_t)~N, 0);
    vu_hand_desc(c, 0, 0, at(c, TABLE), n * 16, I, 0);
    return n;
}

/* Spreads bytes over the pieces, or collects them. */
static void move(const struct layout *y, uint8_t *bounds[40], bool is_in, uint8_t *p, size_t n,
                 bool is_collected)
{
    unsigned n_out = 0;
    while (n_out < 20 && y->out[n_out]) {
        n_out++;
    }
    const uint32_t *v = is_in ? y->in : y->out;
    for (unsigned i = 0; i < 20 && v[i] && n > 0; i++) {
        size_t m = MIN(n, v[i]);
        uint8_t *b = bounds[(is_in ? n_out : 0) + i];
        memcpy(is_collected ? p : b, is_collected ? b : p, m);
        p += m;
        n -= m;
    }
}

static void run_layouts(bool is_file)
{
    struct vu_local l;
    vu_local_start(&l, &(struct vu_local_opts){.is_file = is_file});
    struct vu_client *c = vu_local_client(&l, 128);
    uint8_t want[1024], got[1040], *bounds[40];
    for (size_t i = 0; i < ARRAY_LEN(write_layouts); i++) {
        const struct layout *y = &write_layouts[i];
        struct virtio_blk_outhdr h = {.type = OUT, .sector = 8 + i};
        uint8_t all[16 + 1024];
        memset(want, (int)(i + 1), sizeof(want));
        want[1023] = 0x55;
        memcpy(all, &h, 16);
        memcpy(all + 16, want, 1024);
        (void)lay_out(c, y, bounds);
        move(y, bounds, false, all, sizeof(all), false);
        struct vring_used_elem e;
        vu_hand_submit(c, 0, 0);
        if (!vu_hand_wait(c, 0, 5000, &e)) {
            fail_msg("write, %s: no answer", y->name);
        }
        assert_int_equal(e.len, 1);
        move(y, bounds, true, got, y->in[0], true);
        assert_int_equal(got[y->in[0] - 1], VIRTIO_BLK_S_OK);
        assert_int_equal(pread(l.data_fd, got, 1024, (off_t)(8 + i) * 512), 1024);
        assert_memory_equal(got, want, 1024);
    }
    for (size_t i = 0; i < ARRAY_LEN(layouts); i++) {
        const struct layout *y = &layouts[i];
        struct virtio_blk_outhdr h = {.type = IN, .sector = 100 + i};
        for (size_t k = 0; k < sizeof(want); k++) {
            want[k] = (uint8_t)(k * 7 + i);
        }
        assert_int_equal(pwrite(l.data_fd, want, 1024, (off_t)(100 + i) * 512), 1024);
        (void)lay_out(c, y, bounds);
        move(y, bounds, false, (uint8_t *)&h, sizeof(h), false);
        struct vring_used_elem e;
        vu_hand_submit(c, 0, 0);
        if (!vu_hand_wait(c, 0, 5000, &e)) {
            fail_msg("read, %s: no answer", y->name);
        }
        assert_int_equal(e.len, 1025);
        move(y, bounds, true, got, 1025, true);
        assert_int_equal(got[1024], VIRTIO_BLK_S_OK);
        assert_memory_equal(got, want, 1024);
    }
    vu_client_free(c);
    vu_local_stop(&l);
}

static void test_layouts_are_free(void **state)
{
    run_layouts(false);
}

static void test_layouts_are_free_on_a_disk(void **state)
{
    run_layouts(true);
}

/* ---- requests that virtio answers ---- */

static void test_bad_requests_are_answered(void **state)
{
    const uint64_t end = VU_LOCAL_SIZE;
    static const uint64_t wraps = UINT64_MAX / 512 * 512;
    const struct {
        const char *name;
        unsigned type, flags;
        uint64_t off, len;
        uint8_t want;
    } all[] = {
        {"read beyond the end", IN, 0, end, 512, VIRTIO_BLK_S_IOERR},
        {"read over the end", IN, 0, end - 512, 1024, VIRTIO_BLK_S_IOERR},
        {"the last sector", IN, 0, end - 512, 512, VIRTIO_BLK_S_OK},
        {"a sector that wraps", IN, 0, wraps, 512, VIRTIO_BLK_S_IOERR},
        {"write beyond the end", OUT, 0, end, 512, VIRTIO_BLK_S_IOERR},
        {"half a sector", IN, 0, 0, 256, VIRTIO_BLK_S_IOERR},
        {"a sector and a half", OUT, 0, 0, 768, VIRTIO_BLK_S_IOERR},
        {"SCSI", 2, 0, 0, 512, VIRTIO_BLK_S_UNSUPP},
        {"a type of the future", 4711, 0, 0, 512, VIRTIO_BLK_S_UNSUPP},
        {"secure erase", 14, 0, 0, 512, VIRTIO_BLK_S_UNSUPP},
        {"lifetime", 10, 0, 0, 512, VIRTIO_BLK_S_UNSUPP},
        {"discard with unmap", VIRTIO_BLK_T_DISCARD, 1, 0, 4096, VIRTIO_BLK_S_UNSUPP},
        {"discard with a flag", VIRTIO_BLK_T_DISCARD, 2, 0, 4096, VIRTIO_BLK_S_UNSUPP},
        {"zeroes with a flag", VIRTIO_BLK_T_WRITE_ZEROES, 2, 0, 4096, VIRTIO_BLK_S_UNSUPP},
        {"zeroes beyond the end", VIRTIO_BLK_T_WRITE_ZEROES, 0, end, 4096, VIRTIO_BLK_S_IOERR},
        {"discard over the end", VIRTIO_BLK_T_DISCARD, 0, end - 512, 1024, VIRTIO_BLK_S_IOERR},
        {"discard", VIRTIO_BLK_T_DISCARD, 0, 4096, 8192, VIRTIO_BLK_S_OK},
        {"zeroes with unmap", VIRTIO_BLK_T_WRITE_ZEROES, 1, 4096, 8192, VIRTIO_BLK_S_OK},
        {"zeroes of half a page", VIRTIO_BLK_T_WRITE_ZEROES, 0, 512, 1024, VIRTIO_BLK_S_OK},
        {"flush", VIRTIO_BLK_T_FLUSH, 0, 0, 0, VIRTIO_BLK_S_OK},
    };
    struct vu_local l;
    vu_local_start(&l, NULL);
    struct vu_client *c = vu_local_client(&l, 128);
    for (size_t i = 0; i < ARRAY_LEN(all); i++) {
        uint8_t got =
            vu_local_io(c, 0, all[i].type, all[i].off, all[i].len, mem(c, DATA), all[i].flags);
        if (got != all[i].want) {
            fail_msg("%s: status %u, want %u", all[i].name, got, all[i].want);
        }
    }
    assert_int_equal(vu_local_stats(&l).n_ring_faults, 0);
    assert_true(vu_local_stats(&l).n_bad_requests >= 13);
    vu_client_free(c);
    vu_local_stop(&l);
}

static void test_a_read_only_disk(void **state)
{
    struct vu_local l;
    vu_local_start(&l, &(struct vu_local_opts){.is_read_only = true});
    struct vu_client *c = vu_local_client(&l, 128);
    assert_true((c->features >> VIRTIO_BLK_F_RO & 1) != 0);
    assert_true((c->features >> VIRTIO_BLK_F_DISCARD & 1) == 0);
    assert_int_equal(vu_local_io(c, 0, IN, 0, 512, mem(c, DATA), 0), VIRTIO_BLK_S_OK);
    assert_int_equal(vu_local_io(c, 0, OUT, 0, 512, mem(c, DATA), 0), VIRTIO_BLK_S_IOERR);
    assert_int_equal(vu_local_io(c, 0, VIRTIO_BLK_T_DISCARD, 0, 4096, NULL, 0),
                     VIRTIO_BLK_S_IOERR);
    assert_int_equal(vu_local_io(c, 0, VIRTIO_BLK_T_WRITE_ZEROES, 0, 4096, NULL, 0),
                     VIRTIO_BLK_S_IOERR);
    vu_client_free(c);
    vu_local_stop(&l);
}

/* ---- several ranges, long requests, many pieces ---- */

static void test_discard_of_many_ranges(void **state)
{
    struct vu_local l;
    vu_local_start(&l, NULL);
    struct vu_client *c = vu_local_client(&l, 128);
    struct virtio_blk_discard_write_zeroes v[17] = {0};
    uint8_t ones[4096], got[4096];
    memset(ones, 1, sizeof(ones));
    for (unsigned i = 0; i < 32; i++) {
        assert_int_equal(pwrite(l.data_fd, ones, 4096, (off_t)i * 4096), 4096);
    }
    for (unsigned i = 0; i < 17; i++) {
        v[i].sector = i * 16;
        v[i].num_sectors = 8;
    }
    memcpy(mem(c, DATA), v, sizeof(v));
    for (unsigned n = 16; n <= 17; n++) {
        set_head(c, VIRTIO_BLK_T_WRITE_ZEROES, 0);
        vu_hand_desc(c, 0, 0, at(c, HEAD), 16, N, 1);
        vu_hand_desc(c, 0, 1, at(c, DATA), n * 16, N, 2);
        vu_hand_desc(c, 0, 2, at(c, STATUS), 1, W, 0);
        struct vring_used_elem e;
        vu_hand_submit(c, 0, 0);
        assert_true(vu_hand_wait(c, 0, 5000, &e));
        assert_int_equal(*mem(c, STATUS), n == 16 ? VIRTIO_BLK_S_OK : VIRTIO_BLK_S_IOERR);
    }
    for (unsigned i = 0; i < 32; i++) {
        memset(ones, i % 2, sizeof(ones));
        assert_int_equal(pread(l.data_fd, got, 4096, (off_t)i * 4096), 4096);
        assert_memory_equal(got, ones, 4096);
    }
    vu_client_free(c);
    vu_local_stop(&l);
}

/* 6 MiB in 126 pieces, none a multiple of a sector: more than the engine takes at once. */
static void run_long(bool is_file)
{
    enum { LEN = 6 << 20, PIECES = 126 };
    struct vu_local l;
    vu_local_start(&l, &(struct vu_local_opts){.is_file = is_file});
    struct vu_client *c = vu_local_client(&l, 128);
    for (unsigned type = 0; type < 2; type++) {
        uint64_t off = DATA;
        uint8_t *want = malloc(LEN), *got = malloc(LEN);
        assert_non_null(want);
        assert_non_null(got);
        for (uint32_t i = 0; i < LEN; i += 4) {
            uint32_t x = i * 2654435761u + type;
            memcpy(want + i, &x, 4);
        }
        if (type == IN) {
            assert_int_equal(pwrite(l.data_fd, want, LEN, 512), LEN);
        }
        set_head(c, type, 1);
        table_desc(c, 0, at(c, HEAD), 16, N, 1);
        uint32_t left = LEN;
        for (unsigned i = 1; i <= PIECES; i++) {
            uint32_t n = i == PIECES ? left : LEN / PIECES + (i % 3) - 1;
            memcpy(mem(c, off), want + (LEN - left), type == OUT ? n : 0);
            table_desc(c, i, at(c, off), n, (uint16_t)(N | (type == IN ? W : 0)),
                       (uint16_t)(i + 1));
            off += n + 1;
            left -= n;
        }
        table_desc(c, PIECES + 1, at(c, STATUS), 1, W, 0);
        vu_hand_desc(c, 0, 0, at(c, TABLE), (PIECES + 2) * 16, I, 0);
        struct vring_used_elem e;
        vu_hand_submit(c, 0, 0);
        assert_true(vu_hand_wait(c, 0, 10000, &e));
        assert_int_equal(*mem(c, STATUS), VIRTIO_BLK_S_OK);
        assert_int_equal(e.len, type == IN ? LEN + 1 : 1);
        if (type == OUT) {
            assert_int_equal(pread(l.data_fd, got, LEN, 512), LEN);
        } else {
            off = DATA;
            left = LEN;
            for (unsigned i = 1; i <= PIECES; i++) {
                uint32_t n = i == PIECES ? left : LEN / PIECES + (i % 3) - 1;
                memcpy(got + (LEN - left), mem(c, off), n);
                off += n + 1;
                left -= n;
            }
        }
        assert_memory_equal(got, want, LEN);
        free(want);
        free(got);
    }
    vu_client_free(c);
    vu_local_stop(&l);
}

static void test_long_requests_are_cut(void **state)
{
    run_long(false);
}

static void test_long_requests_are_cut_on_a_disk(void **state)
{
    run_long(true);
}

static void test_get_id(void **state)
{
    struct vu_local l;
    vu_local_start(&l, NULL);
    struct vu_client *c = vu_local_client(&l, 128);
    memset(mem(c, DATA), 0xaa, 64);
    assert_int_equal(vu_local_io(c, 0, VIRTIO_BLK_T_GET_ID, 0, 20, mem(c, DATA), 0), 0);
    assert_memory_equal(mem(c, DATA), "vol0123456789abcdef0", 20);
    assert_int_equal(*mem(c, DATA + 20), 0xaa);
    assert_int_equal(vu_local_io(c, 0, VIRTIO_BLK_T_GET_ID, 0, 3, mem(c, DATA + 100), 0), 0);
    assert_memory_equal(mem(c, DATA + 100), "vol", 3);
    vu_client_free(c);
    vu_local_stop(&l);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_bad_ring_stops_alone),
        cmocka_unit_test(test_a_head_that_is_under_way_is_refused),
        cmocka_unit_test(test_a_ring_works_again_after_a_reset),
        cmocka_unit_test(test_layouts_are_free),
        cmocka_unit_test(test_layouts_are_free_on_a_disk),
        cmocka_unit_test(test_bad_requests_are_answered),
        cmocka_unit_test(test_a_read_only_disk),
        cmocka_unit_test(test_discard_of_many_ranges),
        cmocka_unit_test(test_long_requests_are_cut),
        cmocka_unit_test(test_long_requests_are_cut_on_a_disk),
        cmocka_unit_test(test_get_id),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
