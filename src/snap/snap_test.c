/* What needs no object store: names, pages, manifests, sets of names, heads of answers, logs.
 */
#include "base/test.h"

#include "base/bytes.h"
#include "base/fault_sim.h"
#include "base/rand.h"
#include "codec/hex.h"
#include "crypto/digest.h"
#include "snap/snap_head.h"
#include "snap/snap_int.h"
#include "testkit/tmpdir.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>

/* ---- heads of answers ---- */

static void test_heads(void **ctx)
{
    static const struct {
        const char *text;
        int want, status;
        int64_t length;
        bool is_chunked, is_close, has_crc;
    } cases[] = {
        {"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n", 0, 200, 5, false, false, false},
        {"HTTP/1.1 404 \r\ncontent-length: 0\r\nConnection: close\r\n\r\n", 0, 404, 0, false,
         true, false},
        {"HTTP/1.1 200\r\nTransfer-Encoding: chunked\r\n\r\n", 0, 200, -1, true, false, false},
        {"HTTP/1.1 200 OK\r\nx-amz-checksum-crc32c: AAAAAQ==\r\n\r\n", 0, 200, -1, false, false,
         true},
        {"HTTP/1.1 200 OK\r\nx-amz-checksum-crc32c: AAAA\r\n\r\n", -EBADMSG, 0, 0, 0, 0, 0},
        {"HTTP/1.0 200 OK\r\n\r\n", -EBADMSG, 0, 0, 0, 0, 0},
        {"HTTP/1.1 20 OK\r\n\r\n", -EBADMSG, 0, 0, 0, 0, 0},
        {"HTTP/1.1 2000 OK\r\n\r\n", -EBADMSG, 0, 0, 0, 0, 0},
        {"HTTP/1.1 600 OK\r\n\r\n", -EBADMSG, 0, 0, 0, 0, 0},
        {"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Length: 5\r\n\r\n", -EBADMSG, 0, 0, 0,
         0, 0},
        {"HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n", -EBADMSG, 0, 0, 0, 0, 0},
        {"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n", -EBADMSG,
         0, 0, 0, 0, 0},
        {"HTTP/1.1 200 OK\r\nno colon\r\n\r\n", -EBADMSG, 0, 0, 0, 0, 0},
        {"\r\n\r\n", -EBADMSG, 0, 0, 0, 0, 0},
        {"HTTP/1.1 200 OK\r\n", -EBADMSG, 0, 0, 0, 0, 0},
    };
    (void)ctx;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct snap_head h = {0};
        assert_int_equal(snap_head_parse(str_c(cases[i].text), &h), cases[i].want);
        if (cases[i].want == 0) {
            assert_int_equal(h.status, cases[i].status);
            assert_int_equal(h.content_length, cases[i].length);
            assert_int_equal(h.is_chunked, cases[i].is_chunked);
            assert_int_equal(h.is_close, cases[i].is_close);
            assert_int_equal(h.has_crc, cases[i].has_crc);
            assert_int_equal(h.crc, cases[i].has_crc);
        }
    }
    assert_int_equal(snap_head_end(STR("a\r\n\r\nb")), 5);
    assert_int_equal(snap_head_end(STR("a\r\n\r")), 0);
}

/* ---- blocks ---- */

static void test_zero_blocks(void **ctx)
{
    AUTO_FREE uint8_t *p = calloc(1, SNAP_BLOCK);
    static const size_t at[] = {0, 7, 15, 16, 17, 4096, SNAP_BLOCK - 1};
    (void)ctx;
    assert_true(snap_block_is_zero(p));
    for (size_t i = 0; i < ARRAY_LEN(at); i++) {
        p[at[i]] = 1;
        assert_false(snap_block_is_zero(p));
        p[at[i]] = 0;
    }
    memset(p, 1, SNAP_BLOCK);
    assert_false(snap_block_is_zero(p));
}

static void test_names_of_blocks(void **ctx)
{
    /* SHA-256 of 512 KiB of 0xff, and its HMAC under a key of zeros: from sha256sum and openssl. */
    static const char sha[] =
        "043e238a765f7cfbc62596a50e53c8ffb6b188a99357b0ebede251725d67589f";
    static const char mac[] =
        "666b0d6cac25c60c1496e3fda6cc2651655eeba65579364f0af4857d3766082f";
    struct snap_keys_pair keys = {.block = {1}};
    AUTO_FREE uint8_t *p = malloc(SNAP_BLOCK), *sealed = malloc(SNAP_SEALED),
                      *out = malloc(SNAP_BLOCK);
    uint8_t name[SNAP_NAME], other[SNAP_NAME];
    char hex[65];
    (void)ctx;
    memset(p, 0xff, SNAP_BLOCK);
    snap_block_name(NULL, p, name);
    hex_encode_to(name, SNAP_NAME, hex);
    assert_string_equal(hex, sha);
    assert_int_equal(
        snap_block_open(NULL, STR("1"), name, str_n((char *)p, SNAP_BLOCK), NULL, NULL), 0);
    snap_block_name(&keys, p, name);
    hex_encode_to(name, SNAP_NAME, hex);
    assert_string_equal(hex, mac);
    assert_int_equal(snap_block_seal(&keys, STR("1"), name, p, sealed, NULL), 0);
    struct str s = str_n((char *)sealed, SNAP_SEALED);
    assert_int_equal(snap_block_open(&keys, STR("1"), name, s, out, NULL), 0);
    assert_memory_equal(out, p, SNAP_BLOCK);
    /* Another account, another name, other bytes, another size: nothing. */
    memcpy(other, name, SNAP_NAME);
    other[0] ^= 1;
    assert_int_equal(snap_block_open(&keys, STR("2"), name, s, out, NULL), -EBADMSG);
    assert_int_equal(snap_block_open(&keys, STR("1"), other, s, out, NULL), -EBADMSG);
    s.n--;
    assert_int_equal(snap_block_open(&keys, STR("1"), name, s, out, NULL), -EBADMSG);
    s.n++;
    sealed[99] ^= 1;
    assert_int_equal(snap_block_open(&keys, STR("1"), name, s, out, NULL), -EBADMSG);
}

static void test_keys_of_objects(void **ctx)
{
    char key[SNAP_KEY_MAX];
    uint8_t name[SNAP_NAME] = {0xab}, got[SNAP_NAME];
    (void)ctx;
    snap_key_name('b', STR("123456789012"), name, key);
    assert_string_equal(key,
                        "b/123456789012/"
                        "ab00000000000000000000000000000000000000000000000000000000000000");
    assert_true(snap_key_parse(key, 'b', STR("123456789012"), got));
    assert_memory_equal(got, name, SNAP_NAME);
    assert_false(snap_key_parse(key, 'p', STR("123456789012"), got));
    assert_false(snap_key_parse(key, 'b', STR("123456789013"), got));
    key[15] = 'A'; /* one way to write a name */
    assert_false(snap_key_parse(key, 'b', STR("123456789012"), got));
    assert_int_equal(snap_check_id(STR("snap-0123456789abcdef0"), NULL), 0);
    assert_int_equal(snap_check_id(STR("snap/0"), NULL), -EINVAL);
    assert_int_equal(snap_check_id(STR("snap-0123456789abcdef012"), NULL), -EINVAL);
    assert_int_equal(snap_check_account(STR(""), NULL), -EINVAL);
    assert_int_equal(snap_check_account(STR("12&prefix=x"), NULL), -EINVAL);
}

/* ---- pages and manifests ---- */

static void test_pages(void **ctx)
{
    static snap_page_names names, again;
    uint8_t raw[SNAP_PAGE_MAX];
    uint32_t n = 0;
    (void)ctx;
    memset(names, 0, sizeof(names));
    assert_int_equal(snap_page_encode(names, raw, &n), 0);
    names[0][0] = 1;
    names[1023][31] = 2;
    size_t size = snap_page_encode(names, raw, &n);
    assert_int_equal(size, 8 + 128 + 64);
    assert_int_equal(n, 2);
    assert_int_equal(snap_page_decode(str_n((char *)raw, size), again, &n), 0);
    assert_memory_equal(names, again, sizeof(names));
    assert_int_equal(snap_page_decode(str_n((char *)raw, size - 1), again, &n), -EBADMSG);
    assert_int_equal(snap_page_decode(str_n((char *)raw, 8 + 128), again, &n), -EBADMSG);
    raw[8] |= 2; /* one more than there is */
    assert_int_equal(snap_page_decode(str_n((char *)raw, size), again, &n), -EBADMSG);
    raw[8] = 1;
    memset(raw + 8 + 128, 0, SNAP_NAME); /* a hole that is said to be none */
    assert_int_equal(snap_page_decode(str_n((char *)raw, size), again, &n), -EBADMSG);
    raw[4] = 2; /* a version to come */
    assert_int_equal(snap_page_decode(str_n((char *)raw, size), again, &n), -EBADMSG);
}

static void test_manifests(void **ctx)
{
    struct snap_info i = {.id = "snap-1",
                          .account = "123456789012",
                          .parent = "snap-0",
                          .size = 1025ull * SNAP_BLOCK - 5,
                          .is_encrypted = true,
                          .n_new = 1};
    AUTO_SNAP_MANIFEST m = {.pages = NULL}, got = {.pages = NULL};
    AUTO_BUF b;
    (void)ctx;
    buf_init(&b, 4096);
    assert_int_equal(snap_manifest_new(&i, &m), 0);
    assert_int_equal(m.n_pages, 2);
    m.pages[1].name[0] = 7;
    m.pages[1].n_stored = 1;
    snap_manifest_count(&m);
    assert_int_equal(m.info.n_blocks, 1);
    assert_int_equal(m.info.n_zero, 1024);
    snap_manifest_encode(&m, &b);
    assert_int_equal(b.n, 128 + 2 * 36 + 32);
    assert_int_equal(snap_manifest_decode(buf_str(&b), &got), 0);
    assert_string_equal(got.info.id, "snap-1");
    assert_string_equal(got.info.parent, "snap-0");
    assert_int_equal(got.info.size, i.size);
    assert_true(got.info.is_encrypted);
    assert_int_equal(got.info.n_zero, 1024);
    assert_memory_equal(got.pages[1].name, m.pages[1].name, SNAP_NAME);
    for (size_t at = 0; at < b.n; at++) { /* every bit counts */
        struct snap_manifest bad = {.pages = NULL};
        b.p[at] = (char)(b.p[at] ^ 1);
        assert_int_equal(snap_manifest_decode(buf_str(&b), &bad), -EBADMSG);
        b.p[at] = (char)(b.p[at] ^ 1);
        assert_int_equal(snap_manifest_decode(str_n(b.p, at), &bad), -EBADMSG);
    }
}

/* ---- sets of names ---- */

static void test_sets_keep_the_lower_half(void **ctx)
{
    enum { N = 5000 };
    static uint8_t all[N][SNAP_NAME];
    struct snap_names s;
    size_t n_seen = 0, n_ranges = 0;
    (void)ctx;
    rand_bytes(all, sizeof(all));
    snap_names_init(&s, 300);
    for (bool is_more = true; is_more; n_ranges++) {
        for (size_t i = 0; i < N; i++) {
            assert_int_equal(snap_names_add(&s, all[i]), 0);
            assert_int_equal(snap_names_add(&s, all[i / 2]), 0);
        }
        assert_true(s.n <= 300);
        size_t n = 0;
        for (size_t i = 0; i < N; i++) {
            assert_int_equal(snap_names_has(&s, all[i]), snap_names_covers(&s, all[i]));
            n += snap_names_covers(&s, all[i]);
        }
        assert_int_equal(n, s.n);
        n_seen += n;
        is_more = s.hi != 0;
        snap_names_begin(&s, s.hi);
    }
    assert_int_equal(n_seen, N); /* every name in one range */
    assert_true(n_ranges > 10);
    snap_names_done(&s);
}

/* ---- logs ---- */

struct seen {
    uint64_t blocks[64];
    uint8_t first[64];
    size_t n;
};

static int on_record(void *ctx, enum snap_log_type type, uint64_t block,
                     const uint8_t name[SNAP_NAME])
{
    struct seen *s = ctx;
    assert_int_equal(type, SNAP_LOG_BLOCK);
    s->blocks[s->n] = block;
    s->first[s->n++] = name[0];
    return 0;
}

static void make_base(struct snap_manifest *m)
{
    const struct snap_info i = {
        .id = "snap-1", .account = "123456789012", .size = 64ull * SNAP_BLOCK};
    assert_int_equal(snap_manifest_new(&i, m), 0);
}

static int reopen(struct fault_fs *fs, int dir, struct seen *ret)
{
    struct snap_log l;
    AUTO_SNAP_MANIFEST base = {.pages = NULL};
    int r = snap_log_open(&l, fs, dir, "a.log", &base, NULL);
    *ret = (struct seen){.n = 0};
    if (r == 0) {
        assert_string_equal(base.info.id, "snap-1");
        r = snap_log_walk(&l, on_record, ret, NULL);
        assert_int_equal(ret->n, l.n);
    }
    snap_log_done(&l);
    return r;
}

static void test_log_end_and_middle(void **ctx)
{
    struct tmpdir t;
    struct snap_log l;
    struct seen seen;
    char path[PATH_MAX];
    uint8_t name[SNAP_NAME] = {0};
    AUTO_SNAP_MANIFEST base = {.pages = NULL};
    (void)ctx;
    tmpdir_init(&t, "snaplog");
    AUTO_FD dir = open(t.path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    make_base(&base);
    assert_int_equal(snap_log_create(&l, NULL, dir, "a.log", &base, NULL), 0);
    uint64_t begin = l.begin;
    for (unsigned i = 0; i < 10; i++) {
        name[0] = (uint8_t)(i + 1);
        assert_int_equal(snap_log_append(&l, SNAP_LOG_BLOCK, i, name, true, NULL), 0);
    }
    snap_log_done(&l);
    AUTO_FD fd = open(tmpdir_path(&t, "a.log", path), O_RDWR | O_CLOEXEC);
    assert_int_equal(reopen(NULL, dir, &seen), 0);
    assert_int_equal(seen.n, 10);
    assert_int_equal(seen.blocks[9], 9);
    assert_int_equal(seen.first[9], 10);
    /* Cut at every byte of the end: whole records stay. */
    for (uint64_t cut = 63; cut > 0; cut -= 7) {
        assert_int_equal(ftruncate(fd, (off_t)(begin + 9 * 64 + cut)), 0);
        assert_int_equal(reopen(NULL, dir, &seen), 0);
        assert_int_equal(seen.n, 9);
        struct stat st;
        assert_int_equal(fstat(fd, &st), 0);
        assert_int_equal(st.st_size, begin + 9 * 64);
    }
    /* A change in what later records vouch for is refused, whatever byte; in the head too. */
    for (uint64_t at = 0; at < begin + 8 * 64; at += 5) {
        char c = 0;
        if (at == 32 + 128 + 36 + 32) {
            at = begin; /* padding */
        }
        assert_int_equal(pread(fd, &c, 1, (off_t)at), 1);
        c = (char)(c ^ 1);
        assert_int_equal(pwrite(fd, &c, 1, (off_t)at), 1);
        assert_true(reopen(NULL, dir, &seen) == -EBADMSG ||
                    (at >= 32 + 128 + 36 + 32 && at < begin));
        c = (char)(c ^ 1);
        assert_int_equal(pwrite(fd, &c, 1, (off_t)at), 1);
    }
    assert_int_equal(reopen(NULL, dir, &seen), 0);
    assert_int_equal(seen.n, 9);
    tmpdir_done(&t);
}

/* The power goes at every call: what was answered is there. A failed sync is never called
 * again. */
static void test_log_power_cuts(void **ctx)
{
    (void)ctx;
    for (uint64_t at = 1;; at++) {
        struct tmpdir live, cut;
        struct err e = ERR_INIT;
        struct snap_log l;
        struct seen seen;
        uint8_t name[SNAP_NAME] = {0};
        size_t n_answered = 0, n_tried = 0;
        AUTO_SNAP_MANIFEST base = {.pages = NULL};
        tmpdir_init(&live, "snaplive");
        AUTO(fault_sim_freep) struct fault_sim *sim = fault_sim_new(live.path, &e);
        struct fault_fs *fs = fault_sim_fs(sim);
        const struct fault_plan plan = {
            .at = at, .code = -EIO, .effect = FAULT_HALF_DONE, .is_dead = true};
        int dir = fault_open_root(fs, live.path);
        make_base(&base);
        fault_sim_plan(sim, &plan);
        int r = snap_log_create(&l, fs, dir, "a.log", &base, NULL);
        bool is_made = r == 0;
        for (unsigned i = 0; r == 0 && i < 6; i++, n_tried++) {
            name[0] = (uint8_t)(i + 1);
            r = snap_log_append(&l, SNAP_LOG_BLOCK, i, name, true, NULL);
            n_answered += r == 0;
        }
        bool has_failed = fault_sim_has_failed(sim);
        assert_int_equal(fault_sim_n_resyncs(sim), 0);
        for (unsigned k = 0; k < 20; k++) {
            const struct fault_cut how = {.kind = FAULT_CUT_RANDOM, .seed = k};
            char path[PATH_MAX];
            tmpdir_init(&cut, "snapcut");
            tmpdir_path(&cut, "x", path);
            if (fault_sim_cut(sim, &how, path, &e) < 0) {
                fail_msg("%s", e.msg);
            }
            AUTO_FD d = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
            r = reopen(NULL, d, &seen);
            assert_true(r == 0 || !is_made);
            if (r == 0) {
                assert_true(seen.n >= n_answered && seen.n <= n_tried + 1);
                for (size_t i = 0; i < seen.n; i++) {
                    assert_int_equal(seen.blocks[i], i);
                    assert_int_equal(seen.first[i], i + 1);
                }
            }
            tmpdir_done(&cut);
        }
        snap_log_done(&l);
        close(dir);
        tmpdir_done(&live);
        if (!has_failed) {
            break;
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_heads),
        cmocka_unit_test(test_zero_blocks),
        cmocka_unit_test(test_names_of_blocks),
        cmocka_unit_test(test_keys_of_objects),
        cmocka_unit_test(test_pages),
        cmocka_unit_test(test_manifests),
        cmocka_unit_test(test_sets_keep_the_lower_half),
        cmocka_unit_test(test_log_end_and_middle),
        cmocka_unit_test(test_log_power_cuts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
