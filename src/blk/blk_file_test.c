#include "blk/blk_file.h"

#include "base/rand.h"
#include "base/test.h"
#include "base/time.h"
#include "blk/blk_world.h"
#include "testkit/tmpdir.h"
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <sys/stat.h>

#define SIZE (UINT64_C(16) << 20)

struct file_world {
    struct world w; /* first */
    struct tmpdir dir;
    int fd;
    int n_faults;
};

static void on_fault(void *ctx, int errnum)
{
    struct file_world *fw = ctx;
    fw->n_faults++;
}

static void open_world(struct file_world *fw, struct blk_file_opts o)
{
    char path[PATH_MAX];
    memset(fw, 0, sizeof(*fw));
    tmpdir_init(&fw->dir, "blkfile");
    fw->fd = open(tmpdir_path(&fw->dir, "data", path), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    assert_true(fw->fd >= 0);
    assert_int_equal(ftruncate(fw->fd, SIZE), 0);
    world_queue(&fw->w, NULL);
    o.fd = fw->fd;
    o.size = SIZE;
    o.on_fault = on_fault;
    o.ctx = fw;
    struct err err = ERR_INIT;
    if (blk_file_new(&o, &fw->w.top, &err)) {
        fail_msg("%s", err.msg);
    }
}

static void close_world(struct file_world *fw)
{
    world_done_all(&fw->w);
    close(fw->fd);
    tmpdir_done(&fw->dir);
}

/* The bytes of the file as another reader sees them. */
static void file_bytes(struct file_world *fw, uint64_t off, void *p, size_t n)
{
    char path[PATH_MAX];
    AUTO_FD fd = open(tmpdir_path(&fw->dir, "data", path), O_RDONLY | O_CLOEXEC);
    assert_true(fd >= 0);
    assert_int_equal(pread(fd, p, n, (off_t)off), (ssize_t)n);
}

static const struct {
    uint64_t off, len;
    size_t shift; /* of the memory */
} shapes[] = {
    {0, 4096, 0},         {4096, 4096, 0},        {0, 512, 0},       {512, 512, 0},
    {3584, 512, 0},       {3584, 1024, 0},        {512, 4096, 0},    {512, 7680, 512},
    {4096, 4096, 1},      {8192, 4096, 512},      {1024, 1024, 3},   {0, 65536, 0},
    {512, 65536, 0},      {4096, 524288, 0},      {4096, 524288, 8}, {512, 524288, 0},
    {512, 1048576, 16},   {0, 4194304, 0},        {0, 4194304, 1},   {1536, 4194304 - 512, 7},
    {SIZE - 512, 512, 0}, {SIZE - 1024, 1024, 5},
};

static void run_shapes(unsigned min_align)
{
    struct file_world fw;
    open_world(&fw, (struct blk_file_opts){.min_align = min_align});
    char *want = malloc(SIZE), *mem = NULL, *seen = malloc(SIZE);
    assert_non_null(want);
    assert_non_null(seen);
    assert_int_equal(posix_memalign((void **)&mem, 4096, (5u << 20)), 0);
    rand_bytes(want, SIZE);
    for (uint64_t at = 0; at < SIZE; at += 4u << 20) {
        assert_int_equal(world_io(&fw.w, BLK_WRITE, 0, at, want + at, 4u << 20), 0);
    }
    for (size_t i = 0; i < ARRAY_LEN(shapes); i++) {
        char *p = mem + shapes[i].shift;
        uint64_t off = shapes[i].off, len = shapes[i].len;
        assert_int_equal(world_io(&fw.w, BLK_READ, 0, off, p, len), 0);
        assert_memory_equal(p, want + off, len);
        rand_bytes(p, len);
        memcpy(want + off, p, len);
        assert_int_equal(world_io(&fw.w, BLK_WRITE, i % 2 ? BLK_FUA : 0, off, p, len), 0);
    }
    file_bytes(&fw, 0, seen, SIZE);
    assert_memory_equal(seen, want, SIZE);
    free(want);
    free(seen);
    free(mem);
    close_world(&fw);
}

static void test_alignments(void **state)
{
    run_shapes(0);
}

static void test_alignments_of_a_4k_disk(void **state)
{
    run_shapes(4096);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_alignments),
        cmocka_unit_test(test_alignments_of_a_4k_disk),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
