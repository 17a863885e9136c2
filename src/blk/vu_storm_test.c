/* Thousands of frontends come and go, orderly and not; nothing is left of them. */
#include "blk/vu_test_local.h"
#include <fcntl.h>
#include <sys/socket.h>

static uint64_t resident_pages(void)
{
    unsigned long size = 0, resident = 0;
    char text[128] = "";
    AUTO_FD fd = open("/proc/self/statm", O_RDONLY | O_CLOEXEC);
    assert_true(fd >= 0 && read(fd, text, sizeof(text) - 1) > 0);
    assert_int_equal(sscanf(text, "%lu %lu", &size, &resident), 2);
    return resident;
}

static void one(struct vu_local *l, unsigned i)
{
    if (i % 4 == 3) { /* half a message, and gone */
        uint32_t m[3] = {VU_GET_FEATURES, 1, 0};
        int sock = vu_local_dial(l);
        assert_true(send(sock, m, 1 + i % 12, MSG_NOSIGNAL) > 0);
        close(sock);
        return;
    }
    struct vu_client *c = vu_local_client(l, 16);
    uint8_t *p = vu_client_mem(c);
    if (i % 4 == 0) {
        assert_int_equal(vu_local_io(c, i % 2, VIRTIO_BLK_T_OUT, 0, 4096, p, 0), 0);
    } else if (i % 4 == 1) { /* gone with a request under way */
        struct vu_io io = {.type = VIRTIO_BLK_T_IN, .len = 65536, .p = p};
        assert_int_equal(vu_client_put(c, 0, &io), 0);
        assert_int_equal(vu_client_kick(c, 0), 0);
    }
    vu_client_free(c);
}

static void test_ten_thousand_frontends(void **state)
{
    struct vu_local l;
    int fds = 0;
    uint64_t pages = 0;
    vu_local_start(&l, NULL);
    for (unsigned i = 0; i < 10000; i++) {
        if (i == 1000) {
            vu_local_check_serves(&l); /* those before have been seen */
            vu_local_settle(&l);
            fds = vu_local_count_fds();
            pages = resident_pages();
        }
        one(&l, i);
    }
    vu_local_check_serves(&l);
    vu_local_settle(&l);
    assert_int_equal(vu_local_count_fds(), fds);
    assert_true(resident_pages() < pages + 65536 / 4); /* 64 MiB: the sanitizer keeps some */
    assert_int_equal(vu_local_stats(&l).n_connects, 10002);
    assert_int_equal(vu_local_stats(&l).n_ring_faults, 0);
    vu_local_stop(&l);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_ten_thousand_frontends),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
