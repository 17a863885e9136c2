/* test_disk.h — a disk as a guest has it, for tests: vhost-user over the socket of a volume.
 * Not here: the frontend itself (blk/vu_client.h).
 * Threads:  one at a time.
 * Memory:   struct test_disk is the test's; test_disk_close() gives back.
 * Errors:   assertions of cmocka, but where an errno is answered. A server that dies is waited
 *           for (at most 30 s), as QEMU does. */
#pragma once
#include "base/test.h"

#include "base/err.h"

struct vu_client;
struct test_disk {
    struct vu_client *c;
    uint64_t size;
    char *mem;
    unsigned n_reconnects;
};

/* -ECONNRESET, -ENOENT, ...: there is no such disk (for us). */
MUST_CHECK int test_disk_open(struct test_disk *d, const char *path, struct err *err);
void test_disk_close(struct test_disk *d);
/* 0 or the status of virtio (1 = an I/O error). */
int test_disk_read(struct test_disk *d, uint64_t off, void *p, size_t n);
int test_disk_write(struct test_disk *d, uint64_t off, const void *p, size_t n);
int test_disk_flush(struct test_disk *d);
/* The first bytes are those of the file, and zeros follow up to the end of the disk (looked at
 * here and there). */
void test_disk_equals(struct test_disk *d, const char *path);
/* Reproducible bytes. */
void test_fill(char *p, size_t n, uint64_t seed);
