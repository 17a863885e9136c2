#include "base/file.h"
#include "blk/nbd_world.h"
#include "loop/child.h"
#include <sys/stat.h>

/* The clients that people use, against a disk of a file. */

#define SIZE   (UINT64_C(64) << 20)
#define LIMIT  UINT64_C(60000000000)
#define N_ARGS 24

struct tools {
    struct nbd_world w;
    char uri[PATH_MAX + 32], other[PATH_MAX];
};

static void open_tools(struct tools *t, bool is_read_only)
{
    size_t n = 3u << 20;
    uint8_t *b = malloc(n);
    assert_non_null(b);
    for (size_t i = 0; i < n; i++) {
        b[i] = (uint8_t)(i * 31 + (i >> 12) + 1);
    }
    nbd_world_init(&t->w,
                   &(struct nbd_world_opts){
                       .size = SIZE, .is_read_only = is_read_only, .data = b, .n_data = n});
    free(b);
    (void)snprintf(t->uri, sizeof(t->uri), "nbd+unix:///?socket=%s", t->w.path);
    tmpdir_path(&t->w.dir, "other", t->other);
}

/* Runs a tool in the test's folder; its output, or the end of the test. */
static int run(struct tools *t, struct buf *out, const char *const *argv)
{
    struct err err = ERR_INIT;
    const struct child_opts o = {.argv = argv, .cwd = t->w.dir.path};
    buf_init(out, 1 << 20);
    int rc = child_run(&o, LIMIT, out, &err);
    if (rc != 0) {
        print_message("%s %s: %s\n%s\n", argv[0], argv[1], err.msg, buf_cstr(out));
    }
    return rc;
}

#define RUN(t, out, ...) run(t, out, (const char *const[N_ARGS]){__VA_ARGS__, NULL})

static bool says(struct buf *out, const char *text)
{
    return strstr(buf_cstr(out), text) != NULL;
}

static void check_same(const char *a, const char *b)
{
    char *x = NULL, *y = NULL;
    size_t n = 0, m = 0;
    assert_int_equal(file_read(a, SIZE, &x, &n, NULL), 0);
    assert_int_equal(file_read(b, SIZE, &y, &m, NULL), 0);
    assert_int_equal(n, m);
    assert_true(memcmp(x, y, n) == 0);
    free(x);
    free(y);
}

static void test_qemu_img_reads_copies_and_compares(void **state)
{
    struct tools t;
    struct stat st;
    open_tools(&t, false);
    AUTO_BUF info;
    assert_int_equal(RUN(&t, &info, "qemu-img", "info", "--output=json", t.uri), 0);
    assert_true(says(&info, "\"virtual-size\": 67108864"));
    AUTO_BUF map;
    assert_int_equal(RUN(&t, &map, "qemu-img", "map", "-f", "raw", "--output=json", t.uri), 0);
    assert_true(says(&map, "\"start\": 0, \"length\": 3145728"));
    assert_true(says(&map, "\"start\": 3145728, \"length\": 63963136, \"depth\": 0, "
                           "\"present\": true, \"zero\": true, \"data\": false"));
    AUTO_BUF out;
    assert_int_equal(
        RUN(&t, &out, "qemu-img", "convert", "-f", "raw", "-O", "raw", t.uri, t.other), 0);
    check_same(t.w.image, t.other);
    assert_int_equal(stat(t.other, &st), 0);
    assert_in_range(st.st_blocks * 512, 3 << 20, 4 << 20); /* holes stayed holes */
    AUTO_BUF same;
    assert_int_equal(
        RUN(&t, &same, "qemu-img", "compare", "-f", "raw", "-F", "raw", t.uri, t.other), 0);
    assert_true(says(&same, "Images are identical."));
    nbd_world_done(&t.w);
}

/* A qcow2 in the volume: metadata that is written, flushed and checked through NBD. */
static void test_qemu_img_writes_and_checks(void **state)
{
    struct tools t;
    open_tools(&t, false);
    AUTO_BUF a;
    assert_int_equal(RUN(&t, &a, "qemu-img", "create", "-q", "-f", "qcow2", t.uri, "32M"), 0);
    AUTO_BUF b;
    assert_int_equal(RUN(&t, &b, "qemu-io", "-f", "qcow2", "-c", "write -P 0x41 1M 5M", "-c",
                         "write -z 2M 64k", "-c", "discard 3M 1M", "-c", "flush", "-c",
                         "read -P 0x41 1M 1M", "-c", "read -P 0 2M 64k", t.uri),
                     0);
    assert_false(says(&b, "failed"));
    AUTO_BUF c;
    assert_int_equal(RUN(&t, &c, "qemu-img", "check", "-f", "qcow2", t.uri), 0);
    assert_true(says(&c, "No errors were found"));
    AUTO_BUF d;
    assert_int_equal(RUN(&t, &d, "qemu-img", "bench", "-f", "raw", "-t", "none", "-c", "3000",
                         "-d", "32", "-s", "4096", "-w", "--flush-interval=100", t.uri),
                     0);
    AUTO_BUF e;
    assert_int_equal(RUN(&t, &e, "qemu-img", "bench", "-f", "raw", "-t", "none", "-c", "3000",
                         "-d", "32", "-s", "4096", t.uri),
                     0);
    nbd_world_done(&t.w);
}

static void test_nbdinfo_sees_what_there_is(void **state)
{
    struct tools t;
    for (unsigned read_only = 0; read_only < 2; read_only++) {
        open_tools(&t, read_only == 1);
        AUTO_BUF info;
        assert_int_equal(RUN(&t, &info, "nbdinfo", "--json", t.uri), 0);
        assert_true(says(&info, "\"export-name\": \"vol-1\""));
        assert_true(says(&info, "\"export-size\": 67108864"));
        assert_true(says(&info, "\"base:allocation\""));
        assert_true(says(&info, "\"can_df\": true"));
        assert_true(says(&info, "\"can_multi_conn\": true"));
        assert_true(says(&info, "\"can_fast_zero\": false"));
        assert_true(says(&info, "\"block_size_maximum\": 33554432"));
        assert_true(
            says(&info, read_only ? "\"is_read_only\": true" : "\"is_read_only\": false"));
        assert_true(says(&info, read_only ? "\"can_trim\": false" : "\"can_trim\": true"));
        AUTO_BUF list;
        assert_int_equal(RUN(&t, &list, "nbdinfo", "--list", t.uri), 0);
        assert_true(says(&list, "export=\"vol-1\""));
        AUTO_BUF map;
        assert_int_equal(RUN(&t, &map, "nbdinfo", "--map", "--totals", t.uri), 0);
        assert_true(says(&map, "hole,zero"));
        nbd_world_done(&t.w);
    }
}

/* Many connections, many requests on each; out and back in. */
static void test_nbdcopy_copies_both_ways(void **state)
{
    struct tools t;
    open_tools(&t, false);
    AUTO_BUF out;
    assert_int_equal(RUN(&t, &out, "nbdcopy", "-C", "8", t.uri, t.other), 0);
    check_same(t.w.image, t.other);
    AUTO_BUF plain; /* without structured replies and holes */
    assert_int_equal(
        RUN(&t, &plain, "nbdcopy", "--no-extents", "--synchronous", t.uri, t.other), 0);
    check_same(t.w.image, t.other);
    char *p = NULL;
    size_t n = 0;
    assert_int_equal(file_read(t.other, SIZE, &p, &n, NULL), 0);
    for (size_t i = 0; i < n; i += 4096) {
        p[i] = (char)(i >> 12);
    }
    int fd = open(t.other, O_WRONLY | O_CLOEXEC);
    assert_int_equal(file_write_all(fd, p, n), 0);
    close(fd);
    free(p);
    AUTO_BUF back;
    assert_int_equal(RUN(&t, &back, "nbdcopy", "-C", "8", "--flush", t.other, t.uri), 0);
    check_same(t.w.image, t.other);
    nbd_world_done(&t.w);
}

static void test_fio_verifies(void **state)
{
    struct tools t;
    char uri[PATH_MAX + 48];
    open_tools(&t, false);
    (void)snprintf(uri, sizeof(uri), "--uri=%s", t.uri);
    AUTO_BUF out;
    assert_int_equal(RUN(&t, &out, "fio", "--name=x", "--ioengine=nbd", uri, "--rw=randrw",
                         "--bsrange=512-128k", "--iodepth=16", "--size=48M", "--io_size=24M",
                         "--verify=crc32c", "--verify_fatal=1", "--fsync=64"),
                     0);
    assert_true(says(&out, "err= 0"));
    nbd_world_done(&t.w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_qemu_img_reads_copies_and_compares),
        cmocka_unit_test(test_qemu_img_writes_and_checks),
        cmocka_unit_test(test_nbdinfo_sees_what_there_is),
        cmocka_unit_test(test_nbdcopy_copies_both_ways),
        cmocka_unit_test(test_fio_verifies),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
