#include "viperblock/test_disk.h"
#include "base/time.h"
#include "blk/vu_client.h"
#include <errno.h>
#include <fcntl.h>
#include <linux/virtio_blk.h>
#include <stdlib.h>
#include <sys/stat.h>

#define CHUNK   (512u << 10)
#define WAIT_NS (30 * NS_PER_S)

int test_disk_open(struct test_disk *d, const char *path, struct err *err)
{
    struct vu_client_opts o = {.path = path,
                               .n_queues = 1,
                               .queue_size = 64,
                               .mem_size = CHUNK,
                               .has_inflight = true,
                               .has_event_idx = true};
    *d = (struct test_disk){.c = NULL};
    int rc = vu_client_new(&o, &d->c, err);
    if (rc == 0) {
        d->size = vu_client_size(d->c);
        d->mem = vu_client_mem(d->c);
    }
    return rc;
}

void test_disk_close(struct test_disk *d)
{
    vu_client_free(d->c);
    d->c = NULL;
}

static int io(struct test_disk *d, unsigned type, uint64_t off, size_t n)
{
    struct vu_io x = {.type = type, .off = off, .len = n, .p = d->mem, .tag = 7};
    struct vu_end end;
    uint64_t limit = time_mono_ns() + WAIT_NS;
    assert_int_equal(vu_client_put(d->c, 0, &x), 0);
    (void)!vu_client_kick(d->c, 0);
    while (time_mono_ns() < limit) {
        int rc = vu_client_wait(d->c, 0, NS_PER_S, &end, 1);
        if (rc == 1) {
            assert_int_equal(end.tag, 7);
            return end.status;
        }
        if (rc < 0) {
            struct err err = ERR_INIT;
            assert_int_not_equal(rc, -EPROTO);
            d->n_reconnects++;
            if (vu_client_reconnect(d->c, WAIT_NS, &err) != 0) {
                fail_msg("reconnect: %s", err.msg);
            }
        }
    }
    fail_msg("a request of type %u at %llu was not answered", type, (unsigned long long)off);
    return -1;
}

int test_disk_read(struct test_disk *d, uint64_t off, void *p, size_t n)
{
    for (size_t done = 0; done < n;) {
        size_t part = MIN(n - done, (size_t)CHUNK);
        int rc = io(d, VIRTIO_BLK_T_IN, off + done, part);
        if (rc != 0) {
            return rc;
        }
        memcpy((char *)p + done, d->mem, part);
        done += part;
    }
    return 0;
}

int test_disk_write(struct test_disk *d, uint64_t off, const void *p, size_t n)
{
    for (size_t done = 0; done < n;) {
        size_t part = MIN(n - done, (size_t)CHUNK);
        memcpy(d->mem, (const char *)p + done, part);
        int rc = io(d, VIRTIO_BLK_T_OUT, off + done, part);
        if (rc != 0) {
            return rc;
        }
        done += part;
    }
    return 0;
}

int test_disk_flush(struct test_disk *d)
{
    return io(d, VIRTIO_BLK_T_FLUSH, 0, 0);
}

void test_disk_equals(struct test_disk *d, const char *path)
{
    static char x[CHUNK], y[CHUNK];
    AUTO_FD fd = open(path, O_RDONLY | O_CLOEXEC);
    struct stat st;
    assert_true(fd >= 0 && fstat(fd, &st) == 0);
    for (off_t off = 0; off < st.st_size; off += CHUNK) {
        memset(x, 0, sizeof(x));
        ssize_t n = pread(fd, x, sizeof(x), off);
        assert_true(n > 0);
        assert_int_equal(test_disk_read(d, (uint64_t)off, y, CHUNK), 0);
        if (memcmp(x, y, CHUNK) != 0) {
            size_t i = 0;
            while (x[i] == y[i]) {
                i++;
            }
            fail_msg("byte %lld differs: %d, not %d", (long long)off + (long long)i, y[i],
                     x[i]);
        }
    }
    memset(x, 0, sizeof(x));
    for (uint64_t off = ((uint64_t)st.st_size / CHUNK + 1) * CHUNK; off < d->size;
         off += UINT64_C(97) * CHUNK) {
        assert_int_equal(test_disk_read(d, off, y, CHUNK), 0);
        assert_memory_equal(x, y, CHUNK);
    }
}

void test_fill(char *p, size_t n, uint64_t seed)
{
    uint64_t x = seed * UINT64_C(0x9e3779b97f4a7c15) + 1;
    for (size_t i = 0; i + 8 <= n; i += 8) {
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
        memcpy(p + i, &x, 8);
    }
}
