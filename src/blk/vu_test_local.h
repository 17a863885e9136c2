/* vu_test_local.h — a device in the test's own process, its loop on a thread of its own; and
 *                chains of descriptors made by hand, to break rules with.
 * Not here: anything a service links.
 * Threads:  vu_local_call() runs something on the loop's thread and waits for it.
 * Memory:   a struct of the test.
 * Errors:   what cannot be made ends the test. */
#pragma once
#include "base/test.h"
#include "base/time.h"
#include "blk/vu.h"
#include "blk/vu_client_int.h"
#include "testkit/tmpdir.h"
#include <linux/virtio_blk.h>
#include <pthread.h>
#include <stdio.h>

#define VU_LOCAL_SIZE (8u << 20)

struct vu_local {
    struct tmpdir dir;
    char sock[PATH_MAX];
    int listen_fd, data_fd; /* data_fd: to look at the disk's bytes */
    struct loop *loop;
    struct disk *disk;
    struct vu *vu;
    pthread_t thread;
};
struct vu_local_opts {
    unsigned n_queues;                    /* 0 = 2 */
    bool is_read_only, has_peer, is_file; /* is_file: on a disk, past the cache, not memory */
    uid_t peer_uid;                       /* when has_peer */
    uint64_t poll_ns;
};
void vu_local_start(struct vu_local *l, const struct vu_local_opts *o);
void vu_local_stop(struct vu_local *l);
void vu_local_call(struct vu_local *l, void (*fn)(struct vu_local *l, void *arg), void *arg);
struct vu_stats vu_local_stats(struct vu_local *l);
/* A frontend with two queues (of 'size' entries), event index, indirect tables and a log. */
struct vu_client *vu_local_client(struct vu_local *l, unsigned size);

/* One request through the client and its status. */
uint8_t vu_local_io(struct vu_client *c, unsigned queue, unsigned type, uint64_t off,
                    uint64_t len, void *p, unsigned flags);

/* By hand: writes descriptor 'idx' of the ring; 'p' in the client's memory. */
void vu_hand_desc(struct vu_client *c, unsigned queue, unsigned idx, uint64_t gpa, uint32_t len,
                  uint16_t flags, uint16_t next);
/* Puts the head into the available ring and kicks. */
void vu_hand_submit(struct vu_client *c, unsigned queue, uint16_t head);
/* Waits until the used ring has one more; its id and length. false: it did not come in time. */
bool vu_hand_wait(struct vu_client *c, unsigned queue, uint64_t ms,
                  struct vring_used_elem *ret);
bool vu_hand_is_faulted(struct vu_client *c, unsigned queue, uint64_t ms); /* error eventfd */

/* ---- a socket by hand ---- */
int vu_local_dial(const struct vu_local *l);
void vu_local_send(int sock, const void *p, size_t n, const int *fds, size_t n_fds);
bool vu_local_is_closed(int sock); /* hung up on within 5 s */
/* The server is alive and serves the next one. */
void vu_local_check_serves(struct vu_local *l);
/* Waits until the server has seen that the last frontend is gone. */
void vu_local_settle(struct vu_local *l);
int vu_local_count_fds(void); /* open descriptors of the process, below 1,024 */
