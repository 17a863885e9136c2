/* test_disk.h — volumes for guests in tests: files behind processes of disk_server.c.
 * Not here: tests.
 * Threads:  one owner of a struct test_disks.
 * Memory:   test_disks_done() ends the processes that are left.
 * Errors:   a failed assertion ends the test; test_disk_open() answers false when the volume is
 *           locked by another server. */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

struct test_disks {
    const char *server; /* the program */
    struct {
        char path[108], file[256], id[24];
        pid_t pid;
    } v[32];
    size_t n;
};

/* Serves 'file' as NBD at 'path' and as vhost-user at path.vu, and waits until it does. */
bool test_disk_open(struct test_disks *t, const char *file, const char *path,
                    const char *volume_id);
/* Ends the server of 'path': cleanly, or by SIGKILL. The socket file goes. */
void test_disk_close(struct test_disks *t, const char *path, bool is_killed);
void test_disks_done(struct test_disks *t);
