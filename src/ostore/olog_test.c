#include "ostore/olog.h"

#include "base/bytes.h"
#include "base/file.h"
#include "base/test.h"
#include "base/time.h"
#include "ostore/olog_int.h"
#include "ostore/olog_world.h"
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

static void check(struct world *w)
{
    const char *what = world_check(w);
    if (what) {
        fail_msg("%s", what);
    }
}

static void test_append_and_replay(void **state)
{
    for (unsigned n = 1; n <= 3; n++) {
        struct world *w = world_new(n, n, false);
        world_need(world_open(w, 0), w);
        assert_int_equal(w->seen.n, 0);
        for (int i = 0; i < 40; i++) {
            world_need(world_append(w, 1 + (unsigned)i % 5, (size_t)i * 90, i % 3 == 0), w);
            if (i % 2) {
                world_need(world_sync(w), w);
            }
        }
        world_need(world_sync(w), w);
        for (int turn = 0; turn < 3; turn++) {
            world_close(w);
            world_need(world_open(w, 0), w);
            assert_int_equal(w->seen.n, w->recs.n);
            check(w);
            world_need(world_append(w, 3, 100, true), w);
            world_need(world_sync(w), w);
        }
        /* from an lsn on */
        uint64_t from = w->recs.v[w->recs.n / 2].lsn;
        world_close(w);
        world_need(world_open(w, from), w);
        assert_int_equal(w->seen.n, w->recs.n - w->recs.n / 2);
        assert_int_equal(w->seen.v[0].lsn, from);
        world_close(w);
        /* an index that knows more than the log */
        world_need(world_open(w, UINT64_C(1) << 60), w);
        assert_true(olog_is_readonly(w->l));
        assert_int_equal(world_append(w, 1, 10, false), -EUCLEAN);
        world_free(w);
    }
}

static void test_refusals(void **state)
{
    struct world *w = world_new(1, 1, false);
    world_need(world_open(w, 0), w);
    static char big[OREC_BODY_MAX + 1];
    struct iovec iov = {big, sizeof(big)};
    struct olog_new v[2] = {{.kind = OREC_PUT, .body = &iov, .n_body = 1}, {.kind = OREC_PUT}};
    assert_int_equal(olog_append(w->l, v, 1, NULL), -E2BIG);
    iov.iov_len = 65536; /* fits a record, not this segment */
    assert_int_equal(olog_append(w->l, v, 1, NULL), -E2BIG);
    iov.iov_len = olog_batch_max(w->l) - FRAME_SIZE;
    assert_int_equal(olog_append(w->l, v, 1, NULL), 0);
    iov.iov_len = 1;
    v[0].flags = OLOG_GROUP;
    assert_int_equal(olog_append(w->l, v, 1, NULL), -EINVAL);
    assert_int_equal(olog_append(w->l, v, 2, NULL), -EINVAL);
    v[1].flags = OLOG_GROUP_END;
    assert_int_equal(olog_append(w->l, v, 2, NULL), -EINVAL);
    v[1].flags = OLOG_GROUP | OLOG_GROUP_END;
    assert_int_equal(olog_append(w->l, v, 2, NULL), 0);
    assert_int_equal(olog_sync(w->l, NULL), 0);
    world_free(w);
}

/* --- reading --- */

static void test_reads(void **state)
{
    struct world *w = world_new(2, 2, false);
    world_need(world_open(w, 0), w);
    char body[300];
    memset(body, 'b', sizeof(body));
    const struct iovec iov = {body, sizeof(body)};
    struct olog_new v = {
        .kind = OREC_BUCKET_GONE, .head = STR("header"), .body = &iov, .n_body = 1};
    world_need(olog_append(w->l, &v, 1, &w->err), w);
    world_need(olog_sync(w->l, &w->err), w);
    char got[300];
    for (unsigned copy = 0; copy < 2; copy++) {
        memset(got, 0, sizeof(got));
        assert_int_equal(olog_read_body(w->l, v.ret_at, 6, 100, got, 200, copy, false), 0);
        assert_memory_equal(got, body, 200);
    }
    int rc = olog_read_body(w->l, v.ret_at, 6, 0, got, 300, 0, true);
    assert_true(rc == 0 || rc == -EAGAIN); /* tmpfs cannot tell */
    assert_int_equal(olog_read_body(w->l, v.ret_at, 6, 0, got, 300, 2, false), -ENOENT);
    assert_int_equal(
        olog_read_body(w->l, (struct olog_place){77, 4096}, 6, 0, got, 1, 0, false), -ENOENT);
    assert_int_equal(olog_read_body(w->l, v.ret_at, 6, OREC_BODY_MAX, got, 1, 0, false),
                     -EINVAL);
    AUTO(arena_freep) struct arena *a = arena_new(1u << 20);
    struct olog_rec r;
    world_need(olog_read(w->l, a, v.ret_at, &r, &w->err), w);
    assert_str(r.head, "header");
    assert_int_equal(r.body.n, 300);
    assert_int_equal(r.lsn, v.ret_lsn);
    v.ret_at.off += 8;
    assert_int_equal(olog_read(w->l, a, v.ret_at, &r, NULL), -EUCLEAN);
    world_free(w);
}

static int count(void *ctx, const struct olog_rec *r, struct err *err)
{
    ++*(uint64_t *)ctx;
    return 0;
}

static void test_removal_and_pins(void **state)
{
    struct world *w = world_new(2, 2, false);
    world_need(world_open(w, 0), w);
    world_fill_segments(w, 4);
    struct olog_segment *v = NULL;
    size_t n = 0;
    assert_int_equal(olog_segments(w->l, &v, &n), 0);
    uint64_t seen = 0;
    world_need(olog_walk(w->l, v[1].segment, count, &seen, &w->err), w);
    assert_int_equal(seen, v[1].last_lsn - v[1].first_lsn + 1);
    assert_int_equal(olog_walk(w->l, v[n - 1].segment, count, &seen, NULL), -EBUSY);
    assert_int_equal(olog_remove(w->l, v[n - 1].segment, NULL), -EBUSY);
    struct olog_place at = {v[1].segment, 4096};
    char got[100];
    assert_int_equal(olog_pin(w->l, at.segment), 0);
    assert_int_equal(olog_pin(w->l, at.segment), 0);
    world_need(olog_remove(w->l, at.segment, &w->err), w);
    assert_int_equal(olog_remove(w->l, at.segment, NULL), -ENOENT);
    assert_int_equal(olog_pin(w->l, at.segment), -ENOENT);
    assert_int_equal(olog_read_body(w->l, at, 24, 0, got, 100, 1, false), 0);
    olog_unpin(w->l, at.segment);
    assert_int_equal(olog_read_body(w->l, at, 24, 0, got, 100, 0, false), 0);
    olog_unpin(w->l, at.segment);
    assert_int_equal(olog_read_body(w->l, at, 24, 0, got, 100, 0, false), -ENOENT);
    /* the segment before it knows its end by itself now */
    for (size_t i = 0; i < w->recs.n; i++) {
        if (w->recs.v[i].lsn >= v[1].first_lsn && w->recs.v[i].lsn <= v[1].last_lsn) {
            w->recs.v[i].fate = FATE_GONE;
        }
    }
    world_close(w);
    world_need(world_open(w, 0), w);
    assert_false(olog_is_readonly(w->l));
    check(w);
    free(v);
    world_free(w);
}

/* --- damage --- */

static void write_at(const char *path, const void *p, size_t n, off_t at)
{
    AUTO_FD fd = open(path, O_WRONLY | O_CLOEXEC);
    assert_true(pwrite(fd, p, n, at) == (ssize_t)n);
}

/* Folder log of one drive with exactly this file in it. */
static void put_segment(const struct world *w, unsigned drive, const uint8_t *p, size_t n)
{
    char path[256];
    world_path(w, drive, "/log", path);
    world_remove(path);
    assert_int_equal(mkdir(path, 0700), 0);
    world_path(w, drive, "/log/seg-0000000000000001", path);
    AUTO_FD fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    assert_true(write(fd, p, n) == (ssize_t)n);
}

static bool is_padding(const uint8_t *p, size_t end, size_t at)
{
    for (size_t off = SEG_HEADER; off < end;) {
        size_t head = get_u32(p + off + 8), body = get_u32(p + off + 12);
        size_t head_at = off + FRAME_SIZE, body_at = head_at + pad8((uint32_t)head);
        if (at < body_at + pad8((uint32_t)body)) {
            return (at >= head_at + head && at < body_at) || at >= body_at + body;
        }
        off = body_at + pad8((uint32_t)body);
    }
    return true;
}

/* Every byte of a small log, with one copy and with two. */
static void test_every_byte(void **state)
{
    for (unsigned copies = 1; copies <= 2; copies++) {
        struct world *w = world_new(copies, copies, false);
        world_need(world_open(w, 0), w);
        world_need(world_append(w, 1, 21, false), w);
        world_need(world_append(w, 2, 40, true), w);
        world_need(world_sync(w), w);
        size_t end = SEG_HEADER + FRAME_SIZE + 24 + 24 + 2 * (FRAME_SIZE + 24 + 40);
        world_close(w);
        char path[256], *bytes = NULL;
        size_t n = 0;
        assert_true(world_segment(w, 0, true, path));
        assert_int_equal(file_read(path, 1u << 20, &bytes, &n, NULL), 0);
        uint8_t *p = (uint8_t *)bytes;
        for (size_t at = 0; at < end; at += at >= 96 && at < 4088 ? 97 : 1) {
            uint8_t mask = (uint8_t)(1u << at % 8);
            for (unsigned i = 0; i < copies; i++) {
                put_segment(w, i, p, n);
            }
            p[at] ^= mask;
            put_segment(w, copies - 1, p, n);
            world_need(world_open(w, 0), w); /* on_record() compares every byte */
            bool is_pad = at >= SEG_HEADER && is_padding(p, end, at);
            p[at] ^= mask;
            if (copies == 1 && !is_pad) {
                if (!olog_is_readonly(w->l)) {
                    fail_msg("a flip at %zu is not seen", at);
                }
                assert_int_equal(world_append(w, 1, 1, false), -EUCLEAN);
                assert_true(at < SEG_HEADER ? w->seen.n == 0 : w->seen.n <= 2);
            } else {
                assert_false(olog_is_readonly(w->l));
                check(w);
                assert_int_equal(w->seen.n, 3);
            }
            world_close(w);
            if (copies == 2 && !is_pad) {
                char *now = NULL;
                size_t n_now = 0;
                world_path(w, 1, "/log/seg-0000000000000001", path);
                assert_int_equal(file_read(path, 1u << 20, &now, &n_now, NULL), 0);
                assert_memory_equal(now, p, end);
                free(now);
            }
        }
        free(bytes);
        world_free(w);
    }
}

/* A tail that was never promised goes; one that was is missed. */
static void test_torn_or_damaged(void **state)
{
    for (int is_promised = 0; is_promised < 2; is_promised++) {
        struct world *w = world_new(1, 1, true);
        world_need(world_open(w, 0), w);
        world_need(world_append(w, 2, 100, false), w);
        world_need(world_sync(w), w);
        world_need(world_append(w, 1, 100, false), w); /* it will be lost */
        if (is_promised) {
            world_need(world_sync(w), w);
        }
        world_need(world_append(w, 1, 100, false), w); /* and says whether that was promised */
        const struct fault_cut cut = {.kind = FAULT_CUT_ALL};
        world_cut(w, &cut, 0);
        fault_sim_free(w->sim);
        w->sim = NULL;
        char path[256];
        assert_true(world_segment(w, 0, true, path));
        write_at(path, "xx", 2, SEG_HEADER + 2 * (FRAME_SIZE + 24 + 104) + 70);
        world_need(world_open(w, 0), w);
        assert_int_equal(olog_is_readonly(w->l), is_promised);
        assert_int_equal(w->seen.n, is_promised ? 3 : 2);
        if (is_promised) {
            assert_non_null(strstr(olog_why(w->l), "lsn 3 "));
        }
        world_free(w);
    }
}

static void test_lost_segments(void **state)
{
    struct world *w = world_new(1, 1, false);
    char path[256];
    world_need(world_open(w, 0), w);
    world_fill_segments(w, 3);
    world_close(w);
    world_path(w, 0, "/log/seg-0000000000000003", path);
    assert_int_equal(unlink(path), 0); /* 2 is closed, so something followed */
    world_need(world_open(w, 0), w);
    assert_true(olog_is_readonly(w->l));
    assert_non_null(strstr(olog_why(w->l), "none follows"));
    world_free(w);

    w = world_new(1, 1, false);
    world_need(world_open(w, 0), w);
    world_fill_segments(w, 3);
    world_close(w);
    world_path(w, 0, "/log/seg-0000000000000003", path);
    assert_int_equal(truncate(path, 100), 0);
    world_need(world_open(w, 0), w);
    assert_true(olog_is_readonly(w->l));
    world_free(w);
}

static void test_verify_repairs(void **state)
{
    struct world *w = world_new(3, 2, false);
    world_need(world_open(w, 0), w);
    world_fill_segments(w, 4);
    struct olog_segment *v = NULL;
    size_t n = 0;
    assert_int_equal(olog_segments(w->l, &v, &n), 0);
    struct olog_verify io = {0};
    for (size_t i = 0; i + 1 < n; i++) {
        world_need(olog_verify(w->l, v[i].segment, &io, &w->err), w);
    }
    assert_int_equal(io.n_records, v[n - 2].last_lsn);
    assert_int_equal(io.n_repaired + io.n_copied + io.n_lost, 0);
    /* a record, the header and the end block of one copy */
    char name[SEG_NAME_SIZE + 8] = "/log/", path[256];
    seg_name(v[1].segment, false, name + 5);
    unsigned drive = (unsigned)__builtin_ctz(v[1].drives);
    world_path(w, drive, name, path);
    write_at(path, "xyz", 3, SEG_HEADER + 100);
    write_at(path, "xyz", 3, 10);
    write_at(path, "xyz", 3, (off_t)v[1].size + 3);
    io = (struct olog_verify){0};
    world_need(olog_verify(w->l, v[1].segment, &io, &w->err), w);
    assert_int_equal(io.n_repaired, 2);
    io = (struct olog_verify){0};
    world_need(olog_verify(w->l, v[1].segment, &io, &w->err), w);
    assert_int_equal(io.n_repaired, 0);
    /* both copies bad: it says so */
    for (unsigned i = 0; i < 3; i++) {
        world_path(w, i, name, path);
        if (access(path, F_OK) == 0) {
            write_at(path, "xyz", 3, SEG_HEADER + 100);
        }
    }
    io = (struct olog_verify){0};
    world_need(olog_verify(w->l, v[1].segment, &io, &w->err), w);
    assert_true(io.n_lost > 0);
    uint64_t seen = 0;
    assert_int_equal(olog_walk(w->l, v[1].segment, count, &seen, NULL), -EUCLEAN);
    free(v);
    world_free(w);
}

/* One write meets a full drive: that copy does not count. It goes with its segment, and a start
 * makes it whole even if it does not read the segment. */
static void test_copy_that_does_not_count(void **state)
{
    for (int is_removed = 0; is_removed < 2; is_removed++) {
        struct world *w = world_new(2, 2, true);
        world_need(world_open(w, 0), w);
        const struct fault_plan plan = {
            .at = 1, .code = -ENOSPC, .ops = FAULT_BIT(FAULT_PWRITE)};
        fault_sim_plan(w->sim, &plan);
        world_need(world_commit(w, 3, 500, true), w); /* one copy has it */
        assert_true(fault_sim_has_failed(w->sim));
        world_fill_segments(w, 4);
        struct olog_segment *v = NULL;
        size_t n = 0;
        assert_int_equal(olog_segments(w->l, &v, &n), 0);
        assert_true(v[0].drives == 1 || v[0].drives == 2);
        char path[2][256];
        for (unsigned i = 0; i < 2; i++) {
            world_path(w, i, "/log/seg-0000000000000001", path[i]);
            assert_int_equal(access(path[i], F_OK), 0);
        }
        if (is_removed) {
            world_need(olog_remove(w->l, 1, &w->err), w);
            assert_int_equal(access(path[0], F_OK), -1);
            assert_int_equal(access(path[1], F_OK), -1);
        }
        uint64_t last = w->recs.v[w->recs.n - 1].lsn;
        world_close(w);
        world_need(world_open(w, last), w);
        assert_false(olog_is_readonly(w->l));
        assert_int_equal(w->seen.n, 1);
        world_close(w); /* ends what is to be ended */
        if (!is_removed) {
            char *a = NULL, *b = NULL;
            size_t n_a = 0, n_b = 0;
            assert_int_equal(file_read(path[0], 1u << 20, &a, &n_a, NULL), 0);
            assert_int_equal(file_read(path[1], 1u << 20, &b, &n_b, NULL), 0);
            assert_int_equal(n_a, n_b);
            assert_memory_equal(a, b, n_a);
            free(a);
            free(b);
        }
        free(v);
        world_free(w);
    }
}

/* A drive that was away while the log went on: what it has is stale where others went on. */
static void test_drive_away(void **state)
{
    struct world *w = world_new(3, 2, false);
    world_need(world_open(w, 0), w);
    world_fill_segments(w, 4);
    world_close(w);
    char home[256], away[256];
    world_path(w, 1, "", home);
    (void)snprintf(away, sizeof(away), "%.200s-away", home);
    assert_int_equal(rename(home, away), 0);
    assert_int_equal(mkdir(home, 0700), 0); /* not mounted */
    world_need(world_open(w, 0), w);
    check(w);
    assert_int_equal(drives_state(w->d, 1), DRIVE_MISSING);
    struct olog_segment *v = NULL;
    size_t n = 0;
    assert_int_equal(olog_segments(w->l, &v, &n), 0);
    for (size_t i = 0; i < w->recs.n; i++) {
        if (w->recs.v[i].lsn >= v[1].first_lsn && w->recs.v[i].lsn <= v[1].last_lsn) {
            w->recs.v[i].fate = FATE_GONE;
        }
    }
    world_need(olog_remove(w->l, v[1].segment, &w->err), w); /* drive 1 still has a copy */
    world_fill_segments(w, n + 2);
    world_close(w);
    assert_int_equal(rmdir(home), 0);
    assert_int_equal(rename(away, home), 0);
    world_need(world_open(w, 0), w);
    check(w); /* what was removed is not back */
    assert_int_equal(drives_state(w->d, 1), DRIVE_HEALING);
    free(v);
    assert_int_equal(olog_segments(w->l, &v, &n), 0);
    for (size_t i = 0; i + 1 < n; i++) {
        struct olog_verify io = {0};
        world_need(olog_verify(w->l, v[i].segment, &io, &w->err), w);
    }
    world_need(drives_healed(w->d, 1, &w->err), w);
    world_close(w);
    world_need(world_open(w, 0), w);
    check(w);
    assert_int_equal(drives_state(w->d, 1), DRIVE_OK);
    assert_false(olog_is_readonly(w->l));
    free(v);
    world_free(w);
}

/* A drive fails and is replaced while the log is open: then the other one may be lost, even if
 * nothing was appended meanwhile. */
static void test_replaced_while_open(void **state)
{
    for (int has_appends = 0; has_appends < 2; has_appends++) {
        struct world *w = world_new(2, 2, false);
        world_need(world_open(w, 0), w);
        world_fill_segments(w, 3);
        drives_fault(w->d, 1, -EIO, "testing");
        if (has_appends) {
            world_need(world_commit(w, 3, 100, true), w);
        }
        char path[256];
        world_path(w, 1, "", path);
        world_remove(path);
        assert_int_equal(mkdir(path, 0700), 0);
        world_need(drives_replace(w->d, 1, &w->err), w);
        struct olog_segment *v = NULL;
        size_t n = 0;
        struct olog_verify io = {0};
        assert_int_equal(olog_segments(w->l, &v, &n), 0);
        for (size_t i = 0; i < n; i++) {
            world_need(olog_verify(w->l, v[i].segment, &io, &w->err), w);
        }
        assert_int_equal(io.n_copied, n);
        world_need(drives_healed(w->d, 1, &w->err), w);
        free(v);
        assert_int_equal(olog_segments(w->l, &v, &n), 0);
        for (size_t i = 0; i < n; i++) {
            assert_int_equal(v[i].drives, 3);
        }
        free(v);
        world_close(w);
        world_path(w, 0, "", path);
        world_remove(path);
        assert_int_equal(mkdir(path, 0700), 0);
        world_need(world_open(w, 0), w);
        assert_false(olog_is_readonly(w->l));
        check(w);
        world_free(w);
    }
}

/* More drives are away than the log survives: it can be read, and nothing is cut or gone on. */
static void test_too_few_drives(void **state)
{
    struct world *w = world_new(3, 2, false);
    world_need(world_open(w, 0), w);
    world_fill_segments(w, 3);
    world_close(w);
    for (unsigned i = 0; i < 2; i++) {
        char path[256];
        world_path(w, i, "", path);
        world_remove(path);
    }
    world_need(world_open(w, 0), w);
    assert_true(olog_is_readonly(w->l));
    assert_int_equal(world_append(w, 1, 1, false), -EIO);
    world_free(w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_append_and_replay),
        cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_reads),
        cmocka_unit_test(test_removal_and_pins),
        cmocka_unit_test(test_every_byte),
        cmocka_unit_test(test_torn_or_damaged),
        cmocka_unit_test(test_lost_segments),
        cmocka_unit_test(test_verify_repairs),
        cmocka_unit_test(test_copy_that_does_not_count),
        cmocka_unit_test(test_drive_away),
        cmocka_unit_test(test_replaced_while_open),
        cmocka_unit_test(test_too_few_drives),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
