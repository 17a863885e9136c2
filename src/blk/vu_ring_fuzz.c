/* A guest's memory with a ring in it, from the input, given to a ring at work over a small
 * disk: it ends, whatever is there, and touches nothing but that memory. Input: flags, the log
 * of the ring's size, the index to begin at, then the memory: descriptors at 0, the available
 * ring at 2 KiB, the used ring at 3 KiB, a log at 4 KiB, the rest is the guest's. */
#include "blk/disk.h"
#include "blk/vu_queue.h"
#include <assert.h>
#include <poll.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define MEM_SIZE  32768u
#define DISK_SIZE (256u << 10)
#define GPA       0x1000u
#define UA        0x100000u

static struct world {
    struct disk *disk;
    struct vu_queue *q;
    struct vu_shared shared;
    int wake_fd, call_fd, kick_fd;
} w;

static void make_world(void)
{
    int fd = memfd_create("vu-ring-fuzz", MFD_CLOEXEC);
    struct err err = ERR_INIT;
    int rc = ftruncate(fd, DISK_SIZE);
    struct disk_opts d = {.id = "fuzz",
                          .size = DISK_SIZE,
                          .data_fd = fd,
                          .map_fd = -1,
                          .run_fd = -1,
                          .aside_fd = -1,
                          .base_fd = -1,
                          .base_map_fd = -1,
                          .n_queues = 1};
    rc = rc < 0 ? rc : disk_open(&d, 0, &w.disk, &err);
    w.wake_fd = eventfd(0, EFD_CLOEXEC);
    w.call_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    w.kick_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    struct vu_queue_opts o = {
        .disk = w.disk, .serial = "fuzz", .shared = &w.shared, .wake_fd = w.wake_fd};
    rc = rc < 0 ? rc : vu_queue_new(&o, &w.q, &err);
    rc = rc < 0 ? rc : vu_queue_set_fd(w.q, VU_QUEUE_CALL, w.call_fd);
    if (rc < 0) {
        abort();
    }
}

static void wait_for(int fd)
{
    uint64_t n = 0;
    struct pollfd p = {fd, POLLIN, 0};
    int rc = poll(&p, 1, 20000); /* a ring that hangs fails here */
    assert(rc == 1);
    ssize_t got = read(fd, &n, sizeof(n));
    assert(got == (ssize_t)sizeof(n));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size < 4) {
        return 0;
    }
    if (!w.q) {
        make_world();
    }
    uint8_t *p = aligned_alloc(4096, MEM_SIZE);
    assert(p);
    memset(p, 0, MEM_SIZE);
    memcpy(p, data + 4, MIN(size - 4, (size_t)MEM_SIZE));
    uint16_t num = (uint16_t)(1u << (data[1] % 8));
    struct vu_mem mem = {0};
    vu_mem_borrow(&mem, GPA, UA, p, MEM_SIZE / 2);
    vu_mem_borrow(&mem, GPA + MEM_SIZE / 2, UA + MEM_SIZE, p + MEM_SIZE / 2, MEM_SIZE / 2);
    struct vu_queue_start s = {.ring = {.mem = &mem,
                                        .num = num,
                                        .has_event_idx = (data[0] & 1) != 0,
                                        .has_indirect = (data[0] & 2) != 0,
                                        .desc = UA,
                                        .avail = UA + 2048,
                                        .used = UA + 3072},
                               .base = (uint16_t)(data[2] | data[3] << 8),
                               .kick_fd = w.kick_fd};
    if ((data[0] & 4) != 0) {
        s.inflight.num = 128;
        s.inflight.r = (void *)(p + 4096);
    }
    uint64_t n = 0;
    (void)(read(w.call_fd, &n, sizeof(n)) < 0);
    int rc = vu_queue_start(w.q, &s, NULL);
    assert(rc == 0);
    wait_for(w.call_fd); /* its first look at the ring: it comes with an interrupt */
    vu_queue_stop(w.q);
    wait_for(w.wake_fd);
    assert(vu_queue_state(w.q) == VU_QUEUE_STOPPED);
    free(p);
    return 0;
}
